"""Regions of `rendezvous` merge when their load has gone: a hot spot wanders, while peers publish all the time."""

from random import Random
from typing import Any

import pytest

from tests.strategies.rendezvous import test_rendezvous  # noqa: F401 - it registers the strategy
from tests.strategies.ring.hot_spots import BEACON_S, PEERS, TENS, HotSpot, wander
from wend.model.units import SECOND, Nanos
from wend.strategies.rendezvous.merging import HalfStream
from wend.strategies.rendezvous.messages import HalfEntries, MergeHalf, PlaceEntries
from wend.strategies.ring.key_based import Entry, EntryId

LATE_NS: Nanos = 10 * SECOND
"""Until entries in transit have arrived, an event may meet a subscription that is this much younger."""
STORED_NS: Nanos = 60 * SECOND
"""The same for a stored event."""


def wandered(seed: int, joins: int = 0, **settings: Any) -> HotSpot:
    """A world after its hot spot has wandered."""
    draw = Random(seed)
    chosen = {"split_entries": draw.choice([4, 6, 8]), "hop_acks": draw.random() < 0.5, "persistence": seed % 3 == 0}
    net = HotSpot("rendezvous", **{**chosen, "split_rate_hz": draw.choice([1.0, 500.0]), **settings})
    wander(net, draw, joins)
    return net


def total(net: HotSpot, name: str) -> int:
    return sum(net.status(peer)[name] for peer in net.peers)


@pytest.mark.parametrize("ten", TENS)
def test_under_a_hot_spot_that_wanders_nothing_is_lost_or_doubled(ten: int) -> None:
    due = merges = 0
    for seed in range(10 * ten, 10 * ten + 10):
        net = wandered(seed)
        due += net.check_in_flux(LATE_NS if seed % 3 else STORED_NS)
        merges += total(net, "merges")
        assert not net.refusals
        assert net.drops.keys() <= {"no-reconnect"}  # a stored event that came after its subscription had ended
    assert due > 500
    assert merges > 20


@pytest.mark.parametrize("settings", [{"hop_acks": True, "loss": 0.02}, {"joins": 4}])
def test_so_it_is_with_lost_messages_and_with_new_owners(settings: dict[str, Any]) -> None:
    due = merges = 0
    for seed in range(10):
        net = wandered(seed, **settings)
        due += net.check_in_flux(STORED_NS)
        merges += total(net, "merges")
    assert due > 500
    assert merges > 20


# ---------------------------------------------------------------- one attribute

STAYING = [(peer, f"a = {14 + peer}") for peer in range(2)]
HOT = [(value % PEERS, 1 + value, f"a = {value}") for value in range(14)]
PROBES = range(16)


class OneSpot(HotSpot):
    """A few entries of one attribute, and a spot that can become hot."""

    def __init__(self, **settings: Any) -> None:
        super().__init__("rendezvous", **{"split_entries": 4, **settings})
        for peer, text in STAYING:
            self.want(peer, 0, text)
        self.run(3 * BEACON_S)

    def heat(self) -> None:
        for hot in HOT:
            self.want(*hot)
        self.probe(3 * BEACON_S)  # owners check their load while events come

    def cool(self) -> None:
        for peer, number, _ in HOT:
            self.end(peer, number)
        self.run(1.0)

    def probe(self, seconds: float = 0.0) -> None:
        """Publish every value, again and again for so long."""
        end_ns = self.now + seconds * SECOND
        while True:
            for value in PROBES:
                self.emit((value + len(self.publications)) % PEERS, {"a": value})
                self.run(0.05)
            if self.now >= end_ns:
                return

    def costs(self) -> tuple[list[int], int]:
        """The hops of each delivery when peers know the owners, and how many messages carried the events."""
        for _ in range(2):
            self.hops.clear()
            before = self.sent["MatchEvent"] + self.sent["NotifyPeer"]
            for publisher in range(PEERS):
                for value in PROBES:
                    self.emit(publisher, {"a": value})
                    self.settle()
        return sorted(self.hops), self.sent["MatchEvent"] + self.sent["NotifyPeer"] - before

    @property
    def regions(self) -> int:
        return total(self, "regions")


def test_routes_are_as_short_after_a_peak_as_before() -> None:
    net = OneSpot()
    before = net.costs()
    assert net.regions == 1
    net.heat()
    assert net.regions > 4
    assert net.costs() != before
    net.cool()
    net.run(40 * BEACON_S)
    assert net.regions == 1
    assert net.costs() == before
    net.run(3 * BEACON_S)
    assert total(net, "copies") <= 2 * total(net, "regions")
    net.check_in_flux(LATE_NS)


def test_a_region_merges_at_half_of_the_load_that_splits_it() -> None:
    net = HotSpot("rendezvous", split_entries=8)
    for number in range(1, 10):
        net.want(0, number, f"a = {number}")
    for _ in range(3):  # the owner checks its load while events come
        net.emit(1, {"a": 1})
        net.run(BEACON_S)
    assert total(net, "splits") > 0
    for number in range(1, 5):
        net.end(0, number)
    net.run(20 * BEACON_S)
    assert total(net, "merges") == 0
    net.end(0, 5)
    net.run(40 * BEACON_S)
    assert total(net, "entries") == 4
    assert total(net, "regions") == 1


def test_a_region_with_many_events_stays_split() -> None:
    net = OneSpot(split_entries=1000, split_rate_hz=4.0)
    net.probe(10 * BEACON_S)
    assert total(net, "splits") > 0
    merges = total(net, "merges")
    net.probe(10 * BEACON_S)
    assert total(net, "merges") == merges
    net.run(40 * BEACON_S)
    assert net.regions == 1
    net.check_in_flux(LATE_NS)


@pytest.mark.parametrize("lost", [PlaceEntries, HalfEntries, MergeHalf])
@pytest.mark.parametrize("drops", [False, True])
def test_a_lost_step_delays_a_merge_and_loses_no_event(lost: type, drops: bool) -> None:
    net = OneSpot(hop_acks=False)
    net.heat()
    net.cool()
    begun: list[Nanos] = []

    def lose(sender: int, receiver: int, message: Any) -> bool:
        body = getattr(message, "body", None)
        is_lost = isinstance(body, lost) and getattr(body, "drops", drops) == drops and bool(getattr(body, "code", ""))
        if is_lost:
            begun.append(net.now)
        return is_lost and net.now < begun[0] + 3 * BEACON_S * SECOND

    net.tamper = lose
    net.probe(40 * BEACON_S)
    net.check_in_flux(LATE_NS)
    assert net.regions == 1


def test_events_that_overtake_entries_on_the_way_to_new_halves_wait_for_them() -> None:
    net = OneSpot(split_rate_hz=4.0, split_entries=1000)
    for hot in HOT:
        net.want(*hot)
    net.run(3.0)
    held: list[tuple[int, int, Any]] = []

    def hold(sender: int, receiver: int, message: Any) -> bool:
        body = getattr(message, "body", None)
        is_late = isinstance(body, PlaceEntries) and body.from_whole and bool(body.entries)
        if is_late and net.now:
            held.append((sender, receiver, body))
        return is_late

    net.tamper = hold
    while not held:
        net.probe()
    net.probe()
    net.tamper = None
    for sender, receiver, body in held:
        net.say(sender, receiver, body)
    net.run(10.0)
    net.check_in_flux(LATE_NS)


def test_a_half_that_has_gone_passes_on_what_comes_late() -> None:
    net = OneSpot()
    net.heat()
    gone: dict[str, int] = {}

    def record(sender: int, receiver: int, message: Any) -> bool:
        body = getattr(message, "body", None)
        if isinstance(body, MergeHalf) and body.drops:
            gone[body.code] = receiver
        return False

    net.tamper = record
    net.cool()
    while len(gone) < 3:
        net.run(0.5)
    code = min(gone, key=len)
    splits, entries = total(net, "splits"), total(net, "entries")
    net.say(5, gone[code], PlaceEntries("attribute a", code, (Entry(EntryId(5, 99, 0), "a = 3"),), 5, 1))
    net.run(1.0)
    assert total(net, "splits") == splits
    assert total(net, "entries") == entries + 1


def test_a_stranger_cannot_take_the_entries_of_a_half() -> None:
    net = OneSpot()
    net.heat()
    code = "0"
    owner, whole = (net.owner(f"attribute a|{each}") for each in (code, ""))
    stranger = next(peer for peer in net.peers if peer not in (owner, whole))
    before = net.regions
    net.say(stranger, owner, MergeHalf("attribute a", code, 7))
    net.say(stranger, owner, MergeHalf("attribute a", code, 7, True))
    net.say(stranger, whole, HalfEntries("attribute a", code, 7, 0, 1, ()))
    net.run(1.0)
    assert net.refusals["region-not-owned"] == 2
    assert net.sent["HalfEntries"] == 0
    assert net.regions == before


# ---------------------------------------------------------------- the order of messages


def test_the_messages_of_a_half_count_in_its_order() -> None:
    def entries(*turn_and_numbers: int, removed: tuple[int, ...] = ()) -> HalfEntries:
        turn, *numbers = turn_and_numbers
        added = tuple(Entry(EntryId(1, number, 0), f"a = {number}") for number in numbers)
        gone = tuple(EntryId(1, number, 0) for number in removed)
        return HalfEntries("attribute a", "0", 7, turn, 2, added, gone)

    stream = HalfStream(1)
    taken = [len(list(stream.accept(message))) for message in (entries(2, removed=(3,)), entries(0, 1, 2))]
    assert (taken, stream.is_complete) == ([0, 1], False)
    assert [message.turn for message in stream.accept(entries(1, 3, 4))] == [1, 2]
    assert stream.is_complete
    assert sorted(id_.number for id_ in stream.entries) == [1, 2, 4]
    assert list(stream.accept(entries(1, 3))) == []
