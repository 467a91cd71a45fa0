"""`rendezvous` on an ideal ring: nothing missing, nothing false, nothing twice; splits, crashes, hostile peers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.strategies import filters, range_events
from tests.strategies.ring.interest_rings import INTEREST, RingNet
from wend.model.events import Attributes, Event, EventId, Range
from wend.model.units import SECOND
from wend.strategies.rendezvous.messages import MatchEvent, PlaceEntries, RegionOwners
from wend.strategies.rendezvous.plugin import Rendezvous
from wend.strategies.ring.key_based import Entry, EntryId

INTEREST["rendezvous"] = Rendezvous

numbers = st.integers(1, 16)
attributes = st.sampled_from(["a", "b", "c"])


@st.composite
def boxes(draw: st.DrawFn) -> str:
    sides = draw(st.dictionaries(attributes, st.tuples(numbers, numbers), min_size=1, max_size=3))
    return " and ".join(f"{name} in [{min(ends)}, {max(ends)}]" for name, ends in sorted(sides.items()))


@st.composite
def boxed_events(draw: st.DrawFn) -> Attributes:
    found: Attributes = dict(draw(st.dictionaries(attributes, numbers, max_size=3)))
    for name in draw(st.sets(attributes, max_size=1)):
        low = draw(numbers)
        found[name] = Range(low, low + draw(numbers))
    return found


topics = st.sampled_from(["topic = 'news'", "topic = 'sport'", "topic >= 'n'", "true", "a exists", "not a exists"])
Step = tuple[str, Any]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), st.integers(0, 7), st.integers(0, 2), st.one_of(boxes(), topics, filters)),
        st.tuples(st.just("unsubscribe"), st.integers(0, 7), st.integers(0, 2), st.none()),
        st.tuples(st.just("publish"), st.integers(0, 7), st.none(), st.one_of(boxed_events(), range_events)),
        st.tuples(st.just("publish"), st.integers(0, 7), st.none(), st.sampled_from([{"topic": "news"}, {"a": 3}])),
        st.tuples(st.just("beacon"), st.none(), st.none(), st.none()),
    ),
    max_size=24,
)


def sendable(attributes: Attributes) -> bool:
    """A range as topic finds no subscription by topic; whole numbers beyond 64 bits cannot be encoded."""
    try:
        msgspec.msgpack.encode(attributes)
    except OverflowError:
        return False
    return not isinstance(attributes.get("topic"), Range)


def play(net: RingNet, steps: list[Any]) -> None:
    wanted: set[tuple[int, int]] = set()
    for what, peer, number, arg in steps:
        match what:
            case "subscribe":
                if (peer, number) in wanted:
                    net.unsubscribe(peer, number)
                wanted.add((peer, number))
                net.subscribe(peer, number, arg)
            case "unsubscribe" if (peer, number) in wanted:
                wanted.discard((peer, number))
                net.unsubscribe(peer, number)
            case "publish" if sendable(arg):
                net.publish(peer, arg)
            case "beacon":
                net.run(31)
        net.settle()


@given(steps, st.booleans())
@settings(max_examples=60)
def test_brute_force_finds_the_same(steps: list[Any], acks: bool) -> None:
    net = RingNet("rendezvous", 8, hop_acks=acks)
    play(net, steps)
    net.check()


@given(steps, st.integers(1, 3))
@settings(max_examples=40)
def test_split_regions_and_relays_lose_nothing(steps: list[Any], fan_out: int) -> None:
    net = RingNet("rendezvous", 8, split_entries=2, split_rate_hz=0.05, fan_out=fan_out)
    play(net, steps)
    net.check()


def busy(net: RingNet, count: int = 40) -> None:
    for number in range(count):
        net.subscribe(number % 8, number, f"a in [{number}, {number + 3}]")
        net.settle()


def events(net: RingNet, count: int = 40, publisher: int = 3) -> None:
    for number in range(count):
        net.publish(publisher, {"a": number})
        net.settle()


def test_hot_regions_split_and_publishers_learn_it() -> None:
    net = RingNet("rendezvous", 8, split_rate_hz=1.0)
    busy(net)
    for _ in range(20):
        events(net)
        net.run(2)
    net.run(31)
    assert sum(net.status(p)["splits"] for p in net.peers) > 0
    net.hops.clear()
    events(net)
    assert max(net.hops) <= 4
    net.check()


def test_two_hops_once_the_owner_is_known() -> None:
    net = RingNet("rendezvous", 24)
    busy(net)
    events(net)
    net.hops.clear()
    events(net)
    net.check()
    assert set(net.hops) <= {0, 1, 2}


def test_fan_out_is_limited_and_everyone_gets_it_once() -> None:
    net = RingNet("rendezvous", 40, fan_out=3)
    for peer in range(40):
        net.subscribe(peer, 0, "a > 0")
    net.settle()
    net.publish(0, {"a": 1})
    net.settle()
    net.check()
    assert net.sent["NotifyPeer"] in (38, 39)


@pytest.mark.parametrize("acks", [True, False])
def test_the_owner_crashes_and_a_replica_takes_over(acks: bool) -> None:
    net = RingNet("rendezvous", 12, hop_acks=acks)
    for peer in range(12):
        net.subscribe(peer, 0, f"a in [0, {peer}]")
    net.settle()
    net.publish(1, {"a": 1})
    net.settle()
    owner = net.owner("attribute a|")
    net.crash(owner)
    net.detect()
    net.settle()
    publisher = next(p for p in net.peers if p != owner)
    for value in range(12):
        net.publish(publisher, {"a": value})
    net.run(10)
    lost = [d for d in net.expected if d not in net.deliveries]
    assert (not lost) if acks else len(lost) < len(net.expected)
    net.run(70)  # without ACKs a dead owner is asked until its answer expires
    net.expected.clear(), net.deliveries.clear()
    for value in range(12):
        net.publish(publisher, {"a": value})
    net.run(10)
    net.check()


def test_owners_that_come_and_go_lose_nothing() -> None:
    net = RingNet("rendezvous", 6)
    for peer in range(6):
        net.subscribe(peer, 0, f"a in [0, {peer}] or b = {peer}")
    net.settle()
    for newcomer in range(6, 20):
        net.join(newcomer)
        net.settle()
        net.subscribe(newcomer, 0, f"b >= {newcomer}")
        net.settle()
        net.publish(newcomer, {"a": 3, "b": newcomer})
        net.settle()
    for leaver in range(0, 20, 3):
        net.leave(leaver)
        net.settle()
        net.publish(1, {"a": 2, "b": 16})
        net.settle()
    net.check()


def test_entries_that_nobody_renews_expire() -> None:
    net = RingNet("rendezvous", 8)
    for peer in range(8):
        net.subscribe(peer, 0, "a > 0")
    net.settle()
    gone = next(p for p in net.peers if p != net.owner("attribute a|"))
    net.crash(gone)
    net.detect()
    net.run(200)
    assert sum(net.peers[p].plugins["rendezvous"].status()["entries"] for p in net.peers) == 7
    net.publish(next(iter(net.peers)), {"a": 1})
    net.settle()
    net.check()


def test_what_a_peer_remembers_of_others_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wend.strategies.rendezvous.directory.MAX_NAMES", 5)
    net = RingNet("rendezvous", 8)
    net.subscribe(3, 0, "topic = 't0'")
    net.settle()
    for number in range(30):
        net.publish(3, {"topic": f"t{number}"})
        net.settle()
    assert net.status(3)["cached"] <= 6
    net.publish(4, {"topic": "t0"})
    net.settle()
    net.check()


# ---------------------------------------------------------------- what cannot be


def test_hostile_messages_are_counted_and_change_nothing() -> None:
    net = RingNet("rendezvous", 8)
    busy(net, 8)
    owner = net.owner("attribute a|")
    stranger = next(p for p in net.peers if p != owner)
    victim = next(p for p in net.peers if p not in (owner, stranger))
    entry = Entry(EntryId(stranger, 9, 0), "a >")
    net.say(stranger, owner, PlaceEntries("attribute a", "", (entry,), stranger))
    net.say(stranger, victim, PlaceEntries("attribute a", "0102", (), stranger))
    net.say(stranger, victim, PlaceEntries("planet x", "", (), stranger))
    net.say(stranger, victim, PlaceEntries("topic x", "01", (), stranger))
    net.say(stranger, victim, RegionOwners("attribute a", "", (("", stranger),)))
    net.say(stranger, victim, RegionOwners("attribute a", "", (("", owner),)))
    net.say(stranger, victim, RegionOwners("attribute a", "1", (("0", stranger),)))
    net.settle()
    assert net.refusals["invalid-region"] == 5
    assert net.refusals["region-not-owned"] == 1
    assert net.refusals["filter-syntax"] == 1
    events(net, 8, victim)
    net.check()


def test_a_stale_owner_passes_events_on() -> None:
    net = RingNet("rendezvous", 8)
    busy(net, 8)
    events(net, 8)
    owner = net.owner("attribute a|")
    stale = next(p for p in net.peers if p not in (owner, 3))
    plugin: Any = net.peers[3].plugins["rendezvous"]
    plugin.directory.caches["attribute a"].owners[""] = stale
    net.deliveries.clear(), net.expected.clear()
    events(net, 8)
    net.check()
    assert plugin.directory.caches["attribute a"].owners[""] == owner


def test_a_region_that_does_not_exist_is_no_dead_end() -> None:
    net = RingNet("rendezvous", 8)
    busy(net, 8)
    event = net.publish(3, {"a": 4})
    net.settle()
    made = next(iter(net.expected))[2]
    assert made == event
    region = MatchEvent("attribute a", "0101", _event(5), 0, 1)
    net.say(3, net.owner("attribute a|0101"), region)
    net.settle()
    got = {(peer, number) for peer, number, id_ in net.deliveries if id_ == _event(5).id}
    assert got == {(n % 8, n) for n in range(8) if n <= 5 <= n + 3 and n % 8 != 3}


def _event(value: int) -> Event:
    return Event(EventId(3, 1, 999), {"a": value})


def test_messages_get_lost_and_are_repeated() -> None:
    net = RingNet("rendezvous", 10, loss=0.1, seed=3)
    for peer in range(10):
        net.subscribe(peer, 0, f"a in [0, {peer}]")
    net.run(70)
    for value in range(10):
        net.publish(value, {"a": value})
    net.run(20)
    missing = set(net.expected) - set(net.deliveries)
    assert len(net.deliveries) == len(set(net.deliveries))
    assert not set(net.deliveries) - set(net.expected)
    assert len(missing) <= len(net.expected) // 20
    assert net.now > 60 * SECOND
