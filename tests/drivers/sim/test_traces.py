"""Recorded trace hashes: a run that is not asked to change stays as it is, to the last packet.

`scripts/traces.py` compares all recorded runs, and records them anew where behaviour changed on purpose.
"""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("traces", Path(__file__).parents[3] / "scripts" / "traces.py")
assert _spec is not None and _spec.loader is not None
traces = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(traces)

RUNS = traces.read()
SOME = sorted({*sorted(RUNS)[::7], "paper/oracle"})
"""Enough to notice a change of behaviour; all of them would take half a minute."""


@pytest.mark.parametrize("name", SOME)
def test_a_run_has_the_trace_that_it_had(name: str) -> None:
    run = RUNS[name]
    assert traces.trace_hash(run["scenario"]) == run["sha256"]


def test_some_of_every_kind_are_compared() -> None:
    assert len(RUNS) >= 200
    kinds = {name.partition("/")[0] for name in RUNS}
    assert {name.partition("/")[0] for name in SOME} == kinds
    strategies = {run["scenario"]["strategy"] for run in RUNS.values()}
    assert strategies == {RUNS[name]["scenario"]["strategy"] for name in SOME}
