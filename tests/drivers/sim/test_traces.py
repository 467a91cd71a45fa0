"""Recorded trace hashes: a run that is not asked to change stays as it is, to the last packet.

`scripts/traces.py` compares all recorded runs, and records them anew if behaviour changed on purpose.
"""

import importlib.util
from pathlib import Path

import pytest

from wend.strategies.registry import STRATEGIES

_spec = importlib.util.spec_from_file_location("traces", Path(__file__).parents[3] / "scripts" / "traces.py")
assert _spec is not None and _spec.loader is not None
traces = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(traces)

RUNS = traces.read_traces()


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_run_has_the_trace_and_the_counts_that_it_had(name: str) -> None:
    run = RUNS[name]
    assert traces.trace_hashes(run["scenario"]) == {"sha256": run["sha256"], "counts": run["counts"]}


def test_every_strategy_has_recorded_runs() -> None:
    strategies = {run["scenario"]["strategy"] for run in RUNS.values()}
    shipped = {name for name in STRATEGIES if STRATEGIES.ships(name)}
    assert strategies >= shipped - {"planned-failover"}  # it needs a plan with failover routes
