"""Simulated scenarios as the work of a sweep."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from wend.model.errors import ConfigError
from wend.model.scenario import Scenario
from wend.model.summary import Summary
from wend.pipeline.code import PARTS, code_hash, outside
from wend.pipeline.rows import RATIOS, RESULT_SCHEMA, RUN_SCHEMA, figures_of, run_row, scenario_key, scenario_of
from wend.pipeline.work import check_code

Runner = Callable[[Scenario], Summary]

_ORACLE = 0.2
"""What it takes, in simulations of a fixed tree."""


@dataclass(frozen=True)
class Simulations:
    """Scenarios, run by the simulator or, in tests, by something quicker."""

    run: Runner | None = None

    @property
    def run_schema(self) -> pa.Schema:
        return RUN_SCHEMA

    @property
    def result_schema(self) -> pa.Schema:
        return RESULT_SCHEMA

    @property
    def averaged(self) -> tuple[str, ...]:
        return RATIOS

    def code(self) -> str:
        return code_hash(PARTS)

    def key(self, run: Scenario) -> str:
        return scenario_key(run)

    def row(self, run: Scenario, place: int = 0) -> dict[str, Any]:
        return run_row(run, place)

    def cost(self, run: Scenario) -> float:
        packets = 0.5 * run.duration_s * run.rate_hz * run.topics * run.peers
        finding_routes = 0.15 * (run.peers / 20) ** 2
        return _effort(run.strategy) * (packets / 60_000 + finding_routes)

    def figures(self, row: dict[str, Any], code: str) -> dict[str, Any]:
        scenario = scenario_of(row)
        if self.run is not None:
            return figures_of(self.run(scenario))
        check_code(PARTS, code)
        if outside(scenario.strategy) and scenario_key(scenario) != row["run"]:
            raise ConfigError(
                f"this worker has another {scenario.strategy} than the driver: start again if it was changed "
                "meanwhile, use --ship if the worker has another version"
            )
        from wend.drivers.sim import simulate

        return figures_of(simulate(scenario).summary)


def _effort(strategy: str) -> float:
    from wend.protocol.tables import ROUTING

    return effort if (effort := getattr(ROUTING.get(strategy), "effort", None)) else _ORACLE


SIMULATIONS = Simulations()
