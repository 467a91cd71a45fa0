"""Nine faults and all strategies: no strategy breaks what it promises. `play(fault, strategy, seed)` replays one."""

import pytest

from wend.drivers.sim.checks import promised_properties
from wend.drivers.sim.run import play_world
from wend.drivers.world import World
from wend.studies.esposito.fault_matrix import (
    COMBINED,
    FAULTS,
    STRATEGIES,
    judge_outcome,
    make_fault_world,
    play_fault,
    stores_events,
)

WORLDS = [((*FAULTS, COMBINED)[n % 10], STRATEGIES[(n + n // 10) % len(STRATEGIES)], n) for n in range(40)]
CHUNK = 10


def fails(fault: str, world: World) -> bool:
    """Whether a world has the fault at all."""
    found = world.disturbances
    kinds = set() if found is None else {kind for kind, _ in found.periods()}
    has = {
        "loss": world.scenario.pl > 0,
        "partition": bool(world.partitions),
        "link crash": any(True for _ in world.faults.outages()),
        "node crash": any(True for _ in world.peer_faults.outages()),
        "churn": any(True for _ in world.churn.outages()),
    }
    return has.get(fault, fault in kinds)


@pytest.mark.parametrize("first", range(0, len(WORLDS), CHUNK))
def test_no_strategy_breaks_what_it_promises(first: int) -> None:
    rows = [play_fault(*world) for world in WORLDS[first : first + CHUNK]]
    broken = [(row.fault, row.strategy, row.seed, row.broken[0]) for row in rows if row.broken]
    assert not broken
    assert all(row.delivered + row.lost == row.expected > 0 for row in rows)


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive"])
def test_nor_do_those_that_were_made_for_links_when_peers_crash(strategy: str) -> None:
    judged = 0
    for seed in range(100, 103):
        world = make_fault_world("node crash", strategy, seed)
        assert judge_outcome("node crash", play_world(world)).broken == ()
        judged += len(promised_properties(world)) == 5
    assert judged >= 1


def test_a_cluster_that_only_publishes_reaches_a_root_that_was_gone() -> None:
    """All members of the root of both trees leave while the event is on its way, and are back later."""
    row = play_fault("churn", "clusters", 100)
    assert row.broken == ()
    assert row.lost == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_world_has_its_fault_and_no_other(fault: str) -> None:
    found = [{one for one in FAULTS if fails(one, make_fault_world(fault, "dcrd", seed))} for seed in range(3)]
    allowed = {fault, "link crash"} if fault == "partition" else {fault}
    assert {fault} in found or allowed in found
    assert all(one <= allowed for one in found)


def test_every_strategy_meets_the_same_faults() -> None:
    for fault in ("link crash", "node crash"):
        one, other = (make_fault_world(fault, strategy, 5) for strategy in ("dcrd", "scribe"))
        later = other.begin_ns - one.begin_ns
        for a, b in ((one.faults, other.faults), (one.peer_faults, other.peer_faults)):
            assert [(c, start + later, until + later) for c, start, until in a.outages()] == list(b.outages())


def test_worlds_with_stores_are_judged_for_everything() -> None:
    worlds = [make_fault_world(fault, "adaptive", seed) for fault in FAULTS for seed in range(4)]
    assert sum(len(promised_properties(world)) == 5 for world in worlds) > len(worlds) / 2
    assert {name for name in STRATEGIES if not stores_events(name)} >= {"scribe", "hermes", "dmm", "dmm-ar"}


def test_what_is_broken_is_said() -> None:
    """An event comes twice, and one that nobody published comes once."""
    outcome = play_world(make_fault_world("loss", "d-tree", 3))
    before = judge_outcome("loss", outcome)
    first = next(outcome.trace.deliveries.rows())
    outcome.trace.deliveries.add(*first)
    outcome.trace.deliveries.add(*first[:3], 10**6, *first[4:])
    row = judge_outcome("loss", outcome)
    assert (before.broken, before.doubled, row.doubled) == ((), 0, 1)
    assert [text.split()[0] for text in row.broken] == ["safety", "integrity"]
