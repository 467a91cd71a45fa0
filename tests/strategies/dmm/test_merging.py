"""Regions merge again when their load has gone: a hot spot wanders, while peers publish all the time."""

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.strategies.ring.interest_rings import Delivery, RingNet
from tests.strategies.ring.worlds import HIGH, LOW
from wend.matching.filters import parse
from wend.model.events import Attributes, PeerId, Range
from wend.model.units import SECOND, Nanos
from wend.strategies.dmm.merge import RegionMerge
from wend.strategies.dmm.messages import COLLECT, DROP, HOLD, MergeNode
from wend.strategies.ring.key_based import EntryId
from wend.strategies.ring.reverse_paths import ReversePaths

BOTH = ["dmm", "dmm-ar"]
PEERS = 6
DOMAINS = {name: [LOW, HIGH] for name in ("a", "b")}
BEACON_S = 5.0
QUICK: dict[str, Any] = {"beacon_ns": round(BEACON_S * SECOND), "expiry_ns": 2 * round(BEACON_S * SECOND)}
IN_FLUX_NS: Nanos = 2 * SECOND
"""A change of a subscription takes effect within this time. An event of the same time may or may not meet it."""


class Wish(NamedTuple):
    """A filter that a peer wanted for some time."""

    peer: PeerId
    number: int
    text: str
    begin_ns: Nanos
    end_ns: Nanos


class Publication(NamedTuple):
    time_ns: Nanos
    event: Any
    attributes: Attributes


class HotSpot(RingNet):
    """A ring of peers that remembers every subscription and publication with its time."""

    def __init__(self, strategy: str, **settings: Any) -> None:
        self.current: dict[tuple[PeerId, int], tuple[str, Nanos]] = {}
        self.wishes: list[Wish] = []
        self.publications: list[Publication] = []
        super().__init__(strategy, PEERS, domains=DOMAINS, **{**QUICK, **settings})

    def want(self, peer: PeerId, number: int, text: str) -> None:
        self.end(peer, number)
        self.current[peer, number] = (text, self.now)
        self.subscribe(peer, number, text)

    def end(self, peer: PeerId, number: int) -> None:
        if (peer, number) in self.current:
            text, begin_ns = self.current.pop((peer, number))
            self.wishes.append(Wish(peer, number, text, begin_ns, self.now))
            self.unsubscribe(peer, number)

    def emit(self, peer: PeerId, attributes: Attributes) -> None:
        time_ns = self.now
        self.publications.append(Publication(time_ns, self.publish(peer, attributes), attributes))

    @property
    def nodes(self) -> int:
        return sum(self.status(peer)["nodes"] for peer in self.peers)

    def check_in_flux(self) -> int:
        """Every event reached those who wanted it all the time, once, and no others. Returns how many deliveries were
        due."""
        wishes = [*self.wishes, *[Wish(*key, text, begin, self.now) for key, (text, begin) in self.current.items()]]
        filters = {wish.text: parse(wish.text) for wish in wishes}
        due: set[Delivery] = set()
        allowed: set[Delivery] = set()
        for time_ns, event, attributes in self.publications:
            for wish in wishes:
                if filters[wish.text].matches(attributes):
                    delivery = (wish.peer, wish.number, event)
                    if wish.begin_ns + IN_FLUX_NS <= time_ns <= wish.end_ns - IN_FLUX_NS:
                        due.add(delivery)
                    if wish.begin_ns <= time_ns + IN_FLUX_NS and time_ns <= wish.end_ns + IN_FLUX_NS:
                        allowed.add(delivery)
        made = Counter(self.deliveries)
        assert not due - made.keys(), f"lost: {sorted(due - made.keys())[:5]}"
        assert not made.keys() - allowed, f"undue: {sorted(made.keys() - allowed)[:5]}"
        assert max(made.values(), default=1) == 1, "doubled"
        return len(due)


def wander(seed: int, strategy: str, joins: int = 0, **settings: Any) -> HotSpot:
    """Peers subscribe around a spot, which moves on when it likes. They publish all the time, most of it there."""
    draw = Random(seed)
    settings = {"delegation": draw.choice([4, 6, 8]), "hop_acks": draw.random() < 0.5, **settings}
    net = HotSpot(strategy, **settings)
    names = list(DOMAINS)
    for peer in range(3):  # a few that stay
        net.want(peer, 0, f"{draw.choice(names)} in [{peer}, {peer + draw.randint(0, 8)}]")
    for move in range(draw.randint(2, 3)):
        spot = {name: draw.randint(LOW, HIGH) for name in draw.sample(names, draw.randint(1, 2))}
        has_load = move == 0 or draw.random() < 0.5
        for peer in draw.sample(range(PEERS), PEERS):
            for number in range(1, 3):
                if has_load:
                    net.want(peer, number, around(draw, spot))
                else:
                    net.end(peer, number)
            if draw.random() < 0.5:
                net.run(draw.random())
        end_ns = net.now + round(draw.choice([5, 15, 40]) * SECOND)
        while net.now < end_ns:
            if joins and draw.random() < 0.05:
                net.join(len(net.peers))
                net.run(1.0)  # events on the way to a former owner may come too early
                joins -= 1
            net.emit(draw.randrange(PEERS), event_near(draw, spot))
            net.run(draw.choice([0.0, 0.01, 0.1, 2.0, 2.0]))
    for peer, number in list(net.current):
        if number:
            net.end(peer, number)
    end_ns = net.now + 10 * BEACON_S * SECOND
    while net.now < end_ns:
        net.emit(draw.randrange(PEERS), event_near(draw, spot))
        net.run(draw.choice([0.01, 0.1, 4.0]))
    net.settle()
    return net


def around(draw: Random, spot: dict[str, int]) -> str:
    sides = []
    for name, centre in spot.items():
        low = max(LOW, centre - draw.randint(0, 2))
        sides.append(f"{name} in [{low}, {min(HIGH, low + draw.randint(0, 3))}]")
    return " and ".join(sides)


def event_near(draw: Random, spot: dict[str, int]) -> Attributes:
    attributes: Attributes = {}
    for name in DOMAINS:
        centre = spot.get(name, draw.randint(LOW, HIGH))
        value = min(HIGH, max(LOW, centre + draw.randint(-2, 2)))
        if draw.random() < 0.15:
            attributes[name] = Range(value, min(HIGH, value + draw.randint(0, 4)))
        elif draw.random() < 0.9:
            attributes[name] = value
    return attributes or {"a": 0}


# ---------------------------------------------------------------- random worlds


@pytest.mark.parametrize("ten", range(20))
def test_under_a_hot_spot_that_wanders_nothing_is_lost_or_doubled(ten: int) -> None:
    due = dropped = 0
    for seed in range(10 * ten, 10 * ten + 10):
        places = ("last", "publisher", "every-arrival")
        net = wander(seed, "dmm-ar", tree_cache_place=places[seed % 3], tree_cache=seed % 4 > 0)
        due += net.check_in_flux()
        dropped += net.sent["ChildDropped"]
        assert not net.refusals
        assert not net.drops
    assert due > 500
    assert dropped > 20


@pytest.mark.parametrize(
    "settings",
    [{"strategy": "dmm"}, {"strategy": "dmm-ar", "hop_acks": True, "loss": 0.02}, {"strategy": "dmm-ar", "joins": 4}],
)
def test_so_it_is_in_the_global_space_with_lost_messages_and_with_new_owners(settings: dict[str, Any]) -> None:
    due = dropped = 0
    for seed in range(10):
        net = wander(seed, **settings)
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
    assert (merge.lacks("0"), merge.lacks("1"), merge.is_complete) == (True, False, False)
    merge.receive("0", 2, [second])
    assert merge.is_complete
