"""Regions merge again when their load has gone: a hot spot wanders, while peers publish all the time."""

from random import Random
from typing import Any

import pytest

from tests.strategies.ring.hot_spots import BEACON_S, PEERS, TENS, HotSpot, wander
from wend.model.events import Attributes, PeerId, Range
from wend.model.units import SECOND, Nanos
from wend.strategies.dmm.merge import RegionMerge
from wend.strategies.dmm.messages import COLLECT, DROP, HOLD, MergeNode
from wend.strategies.ring.key_based import EntryId
from wend.strategies.ring.reverse_paths import ReversePaths

BOTH = ["dmm", "dmm-ar"]


def wandered(seed: int, strategy: str, joins: int = 0, **settings: Any) -> HotSpot:
    """A world after its hot spot has wandered."""
    draw = Random(seed)
    settings = {"delegation": draw.choice([4, 6, 8]), "hop_acks": draw.random() < 0.5, **settings}
    net = HotSpot(strategy, **settings)
    wander(net, draw, joins)
    return net


# ---------------------------------------------------------------- random worlds


@pytest.mark.parametrize("ten", TENS)
def test_under_a_hot_spot_that_wanders_nothing_is_lost_or_doubled(ten: int) -> None:
    due = dropped = 0
    for seed in range(10 * ten, 10 * ten + 10):
        places = ("last", "publisher", "every-arrival")
        net = wandered(seed, "dmm-ar", tree_cache_place=places[seed % 3], tree_cache=seed % 4 > 0)
        due += net.check_in_flux()
        dropped += net.sent["ChildDropped"]
        assert not net.refusals
        assert not net.drops
    assert due > 500
    assert dropped > 20


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "dmm"},
        {"strategy": "dmm-ar", "hop_acks": True, "loss": 0.02},
        {"strategy": "dmm-ar", "joins": 4},
        {"strategy": "dmm-ar", "primary_attribute": "observed"},
    ],
)
def test_so_it_is_in_the_global_space_with_lost_messages_and_with_new_owners(settings: dict[str, Any]) -> None:
    due = dropped = 0
    for seed in range(10):
        net = wandered(seed, **settings)
        due += net.check_in_flux()
        dropped += net.sent["ChildDropped"]
    assert due > 500
    assert dropped > 20


# ---------------------------------------------------------------- one region

STAYING = [(peer, f"a = {14 + peer}") for peer in range(2)]
HOT = [(value % PEERS, 1 + value, f"a = {value}") for value in range(14)]
PROBES: list[Attributes] = [*[{"a": value} for value in range(16)], {"a": Range(3, 9)}]


class OneSpot(HotSpot):
    """A space with a few entries, and a spot that can become hot. It records the merges of its regions."""

    def __init__(self, strategy: str = "dmm-ar", **settings: Any) -> None:
        self.steps: list[tuple[str, int]] = []
        self.lose: Any = lambda message: False
        super().__init__(strategy, delegation=4, tree_cache=False, **settings)
        self.tamper = self._listen
        for peer, text in STAYING:
            self.want(peer, 0, text)
        self.run(3 * BEACON_S)

    def _listen(self, sender: PeerId, receiver: PeerId, message: Any) -> bool:
        body = getattr(message, "body", None)
        if isinstance(body, MergeNode) and body.route_hops == 1:
            self.steps.append((body.code, body.step))
        return bool(self.lose(body))

    def heat(self) -> None:
        for hot in HOT:
            self.want(*hot)
        self.run(1.0)

    def cool(self) -> None:
        for peer, number, _ in HOT:
            self.end(peer, number)
        self.run(1.0)

    def costs(self) -> tuple[list[int], int]:
        """The hops of each delivery of the probes, and how many messages carried them."""
        self.hops.clear()
        before = self.sent["SeekLeaf"] + self.sent["DownPath"]
        for publisher in range(PEERS):
            for attributes in PROBES:
                self.emit(publisher, attributes)
                self.settle()
        return sorted(self.hops), self.sent["SeekLeaf"] + self.sent["DownPath"] - before

    def publish_for(self, seconds: float) -> None:
        end_ns = self.now + seconds * SECOND
        while self.now < end_ns:
            for attributes in PROBES:
                self.emit(len(self.publications) % PEERS, attributes)
                self.run(0.05)


@pytest.mark.parametrize("strategy", BOTH)
def test_routes_are_as_short_after_a_peak_as_before(strategy: str) -> None:
    net = OneSpot(strategy)
    nodes, before = net.nodes, net.costs()
    net.heat()
    net.run(3 * BEACON_S)
    assert net.nodes >= nodes + 2
    assert net.costs() != before
    net.cool()
    net.run(40 * BEACON_S)
    assert net.nodes == nodes
    assert net.costs() == before
    net.check_in_flux()


def test_each_child_sends_its_entries_waits_and_goes() -> None:
    net = OneSpot()
    net.heat()
    net.cool()
    net.steps.clear()
    net.run(40 * BEACON_S)
    assert net.steps
    for child in {code for code, _ in net.steps}:
        steps = [step for code, step in net.steps if code == child]
        assert steps[-3:] == [COLLECT, HOLD, DROP]
        assert set(steps[:-3]) <= {COLLECT}  # one of the children was still split


def test_a_region_splits_above_its_limit_and_merges_at_half_of_it() -> None:
    net = HotSpot("dmm-ar", delegation=8, tree_cache=False)
    for number in range(9):
        net.want(0, number, f"a = {number}")
    net.run(1.0)
    assert net.nodes == 3
    for number in range(4):
        net.end(0, number)
    net.run(20 * BEACON_S)
    assert net.nodes == 3
    assert net.sent["MergeNode"] == 0
    net.end(0, 4)
    net.run(20 * BEACON_S)
    assert net.nodes == 1
    for number in range(5, 9):
        net.end(0, number)
    net.run(1.0)
    assert net.nodes == 0


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("beacons", [1, 4])
def test_a_lost_step_delays_a_merge_and_loses_no_event(step: int, beacons: int) -> None:
    net = OneSpot(hop_acks=False)
    net.heat()
    net.run(3 * BEACON_S)
    net.cool()
    lost: list[Nanos] = []

    def lose(body: Any) -> bool:
        is_lost = isinstance(body, MergeNode) and body.step == step
        if is_lost:
            lost.append(net.now)
        return is_lost and net.now < lost[0] + beacons * BEACON_S * SECOND

    net.lose = lose
    net.publish_for(30 * BEACON_S)
    net.settle()
    assert lost
    net.check_in_flux()


def test_a_merge_is_complete_with_all_entries_of_both_children() -> None:
    merge = RegionMerge(0, ("0", "1"), ReversePaths())
    first, second = ((EntryId(peer, 0, 0), peer) for peer in (3, 4))
    merge.receive("0", 2, [first])
    merge.receive("0", 2, [first])
    merge.receive("1", 0, [])
    merge.receive("00", 0, [])
    assert (merge.is_incomplete("0"), merge.is_incomplete("1"), merge.is_complete) == (True, False, False)
    merge.receive("0", 2, [second])
    assert merge.is_complete
