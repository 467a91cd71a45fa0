"""Trees that send each copy once, as in the quist thesis."""

from collections import Counter
from typing import Any

import pytest

from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check


def run(strategy: str, seed: int, **changes: Any) -> Any:
    fields = {"peers": 14, "degree": 4, "topics": 4, "trees": 2, "duration": "10s", "warmup": "10s", "pl": 0.05}
    return simulate(Scenario(strategy=strategy, seed=seed, trace_level="hops", **{**fields, **changes}))  # type: ignore[arg-type]


def count_crossings(outcome: Any) -> Counter[tuple[Any, ...]]:
    """By link, direction and event: the transmissions."""
    columns = outcome.trace.hops.numbers("sender", "receiver", "publisher", "incarnation", "sequence")
    return Counter(map(tuple, columns.tolist()))


@pytest.mark.parametrize("strategy", ["mrst", "spt-k"])
def test_no_copy_crosses_a_link_twice_on_a_tree(strategy: str) -> None:
    again = lost = 0
    for seed in (1, 2, 3):
        once = run(strategy, seed, send_once=True)
        assert check(once) == []
        assert max(count_crossings(once).values()) <= 2, "one copy on each of two trees"
        usual = run(strategy, seed)
        again += max(count_crossings(usual).values()) > 2
        assert once.summary.delivery < usual.summary.delivery == 1.0
        lost += once.summary.drops["no-answer"]
    assert again and lost


@pytest.mark.parametrize("strategy", ["mrst", "spt-k"])
def test_without_failures_one_transmission_is_enough(strategy: str) -> None:
    outcome = run(strategy, 1, send_once=True, pl=0.0, pf=0.0, trees=1)
    assert outcome.summary.delivery == 1.0
    assert set(count_crossings(outcome).values()) == {1}


def test_with_persistence_nothing_is_lost() -> None:
    outcome = run("mrst", 1, send_once=True, persistence=True, drain="30s")
    assert check(outcome) == []
    assert outcome.summary.delivery == 1.0
