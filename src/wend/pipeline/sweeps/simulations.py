"""Simulated scenarios, as a kind of run that a sweep executes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from wend.drivers.scenarios import Scenario
from wend.drivers.settings import outside_plugins
from wend.drivers.sim import simulate
from wend.drivers.workload import TOPICS
from wend.model.error_text import join_with_or
from wend.model.errors import ConfigError
from wend.model.summary import Summary
from wend.model.units import SECOND
from wend.pipeline.code_hash import PARTS, hash_code
from wend.pipeline.scenario_rows import (
    RATIOS,
    RESULT_SCHEMA,
    RUN_SCHEMA,
    run_row,
    scenario_from_row,
    scenario_key,
    summary_metrics,
)
from wend.pipeline.sweeps.run_kind import check_code
from wend.strategies.registry import STRATEGIES, find_routing

Runner = Callable[[Scenario], Summary]

_ORACLE_COST = 0.2
"""The cost of the oracle, relative to a simulation of a fixed tree."""


@dataclass(frozen=True)
class Simulations:
    """Runs scenarios in the simulator or, in tests, in a faster substitute."""

    run: Runner | None = None

    run_schema: ClassVar[pa.Schema] = RUN_SCHEMA
    result_schema: ClassVar[pa.Schema] = RESULT_SCHEMA
    averaged: ClassVar[tuple[str, ...]] = RATIOS
    key = staticmethod(scenario_key)
    row = staticmethod(run_row)

    def code(self) -> str:
        return hash_code(PARTS)

    def cost(self, run: Scenario) -> float:
        packets = 0.5 * run.duration_ns / SECOND * run.rate_hz * (run.topics or TOPICS) * run.peers
        finding_routes = 0.15 * (run.peers / 20) ** 2
        return _effort(run.strategy) * (packets / 60_000 + finding_routes)

    def run_metrics(self, row: dict[str, Any], code: str) -> dict[str, Any]:
        scenario = scenario_from_row(row)
        if self.run is not None:
            return summary_metrics(self.run(scenario))
        check_code(PARTS, code)
        plugins = outside_plugins(scenario.chosen)
        if plugins and scenario_key(scenario) != row["run"]:
            raise ConfigError(
                f"the source of {join_with_or([*plugins])} on this worker is not the driver's: start again if it "
                "changed meanwhile, or use --ship if the worker has another version"
            )
        return summary_metrics(simulate(scenario).summary)


def _effort(strategy: str) -> float:
    if strategy not in STRATEGIES:
        return _ORACLE_COST
    routing = find_routing(strategy)
    return 1.0 if routing is None else routing.effort


SIMULATIONS = Simulations()
