"""Trees that spread the load: publishers that do not know of each other share two routes, and do not flutter."""

from types import SimpleNamespace

import pytest

from tests.cores import pure_only
from tests.protocol.views import seen
from wend.model.units import MS, SECOND
from wend.protocol.link.prices import FULL_NS, GOOD_LOAD
from wend.protocol.plugins import View
from wend.strategies.adaptive import spread_trees
from wend.strategies.adaptive.priced_routes import CLASSES
from wend.strategies.adaptive.spread_trees import SpreadTree, SpreadTrees, branches_at

LEFT, RIGHT, GOAL = 10, 11, 12
PUBLISHERS = range(4)
PERIOD_NS = 100 * MS
LATE_PERIODS = 2
"""How old prices are when publishers hear them."""


def seen_by(me: int, prices: dict[int, dict[int, int]]) -> View:
    """What a publisher sees: two routes to GOAL, of which the one over LEFT is a little shorter."""
    costs: dict[int, dict[int, int]] = {LEFT: {GOAL: 10 * MS}, RIGHT: {GOAL: 12 * MS}, GOAL: {}}
    for publisher in PUBLISHERS:
        costs[publisher] = {LEFT: 10 * MS, RIGHT: 10 * MS}
    links = {hop: SimpleNamespace(delay_ns=10 * MS, queue_ns=0, price_ns=0) for hop in (LEFT, RIGHT)}
    return seen(me, links, costs=costs, prices=prices, version=1)


def shares() -> list[float]:
    """The share of all events that goes over LEFT, period after period. Each route can carry 0.6 of them."""
    trees = [SpreadTrees(me) for me in PUBLISHERS]
    told: list[dict[int, dict[int, int]]] = [{LEFT: {GOAL: FULL_NS}}] * LATE_PERIODS
    found = []
    for period in range(100):
        prices = told[-LATE_PERIODS]
        hops = []
        for part in range(4):  # events come all the time
            now = SECOND + period * PERIOD_NS + part * PERIOD_NS // 4
            for me in PUBLISHERS:
                for number in range(CLASSES):
                    hop = trees[me].branches(now, number, ((GOAL, SECOND),), [LEFT, RIGHT], seen_by(me, prices))[0].hop
                    hops.append(hop)
        left = hops.count(LEFT) / len(hops)
        loads = {LEFT: left / 0.6, RIGHT: (1 - left) / 0.6}
        told.append(
            {hop: {GOAL: int(max(0.0, load - GOOD_LOAD) / (1 - GOOD_LOAD) * FULL_NS)} for hop, load in loads.items()}
        )
        found.append(left)
    return found


def test_publishers_share_two_routes_within_a_second_and_do_not_flutter() -> None:
    found = shares()
    assert 0.4 < found[10] < 0.6
    settled = found[30:]
    assert all(0.4 < share < 0.6 for share in settled)
    assert max(settled) - min(settled) < 0.15


@pure_only
def test_without_damping_they_flutter(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FIRST_NS", MS), ("LAST_NS", MS), ("PART", 1.0)):
        monkeypatch.setattr(spread_trees, name, value)
    settled = shares()[30:]
    assert max(settled) - min(settled) > 0.5


def test_a_peer_takes_its_branches_from_the_tree_of_a_packet() -> None:
    costs = {0: {1: 10, 2: 10}, 1: {3: 7}, 3: {4: 5}, 2: {}}
    view = seen(0, {}, costs=costs)
    tree = SpreadTree(((0, 1), (1, 3), (3, 4), (0, 2)))
    branches = {branch.hop: branch for branch in branches_at(tree, 0, (1, 4, 2, 9), view)}
    assert branches.keys() == {1, 2}
    assert branches[1].tree == SpreadTree(((1, 3), (3, 4)))
    assert dict(branches[1].dests) == {1: 0, 4: 12 + 2 * spread_trees.HOP_NS}
    assert branches[2].tree == SpreadTree(())


def test_a_tree_that_does_not_begin_here_leads_nowhere() -> None:
    view = seen(0, {}, costs={})
    assert branches_at(SpreadTree(((7, 8), (8, 7), (3, 3))), 0, (8, 3), view) == []
