"""`rendezvous` with persistence: what got a kept receipt reaches every subscriber whose peer lives, once."""

from random import Random
from typing import Any

import pytest

from tests.strategies.ring.interest_rings import RingNet
from wend.model.events import Event, EventId, event_bytes
from wend.model.units import MS, SECOND
from wend.protocol.plugins import SendTo, Timer
from wend.strategies.rendezvous.messages import MatchEvent, NotifyPeer, StoredEvent, TripRequest
from wend.strategies.rendezvous.round_trips import FIRST_WAIT_NS, MAX_WAITING, TRIPS, VALID_NS, OwnerRoundTrips
from wend.strategies.rendezvous.stored_events import StoredEvents


def net_with(peers: int = 10, **settings: Any) -> RingNet:
    net = RingNet("rendezvous", peers, persistence=True, **settings)
    for peer in range(peers):
        net.subscribe(peer, 0, f"a in [0, {peer}]")
    net.run(33)  # until owners are sure that they have all entries
    return net


def unsettled(net: RingNet) -> int:
    return sum(net.status(peer)["unsettled"] for peer in net.peers)


def test_events_are_settled_and_forgotten() -> None:
    net = net_with()
    for value in range(10):
        net.publish(value, {"a": value})
    net.run(3)
    net.check()
    assert unsettled(net) == 0


def test_the_owner_crashes_with_the_event_in_its_hands() -> None:
    net = net_with()
    owner = net.owner("attribute a|")
    publisher = next(p for p in net.peers if p != owner)
    net.tamper = lambda sender, receiver, message: isinstance(getattr(message, "body", None), NotifyPeer)
    net.publish(publisher, {"a": 0})
    net.run(0.5)
    net.tamper = None
    net.crash(owner)
    net.detect()
    net.run(60)
    net.check()
    assert unsettled(net) == 2  # the crashed peer had a subscription of its own: it may come back until that expires
    net.run(60)
    assert unsettled(net) == 0


def test_the_publisher_crashes_before_anybody_has_the_event() -> None:
    net = net_with()
    owner = net.owner("attribute a|")
    publisher = next(p for p in net.peers if p != owner)
    net.tamper = lambda sender, receiver, message: isinstance(getattr(message, "body", None), MatchEvent)
    net.publish(publisher, {"a": 0})
    net.run(0.1)
    net.crash(publisher)
    net.tamper = None
    net.run(5)
    assert not [d for d in net.deliveries if d[0] != publisher]
    net.join(publisher)
    net.run(60)
    net.check()
    assert unsettled(net) == 0


def test_a_subscribers_peer_is_down_for_a_while() -> None:
    net = net_with()
    owner = net.owner("attribute a|")
    publisher = next(p for p in net.peers if p != owner)
    down = next(p for p in net.peers if p not in (owner, publisher))
    net.publish(publisher, {"a": 0})
    net.crash(down)
    net.run(10)
    net.join(down)
    net.run(60)
    net.check()


def test_an_event_published_before_the_peer_has_joined_waits() -> None:
    net = net_with()
    publisher: Any = net.peers[3]
    publisher.view.membership.has_joined = False
    net.publish(3, {"a": 1})
    net.run(1)
    assert not net.deliveries or all(peer == 3 for peer, _, _ in net.deliveries)
    publisher.view.membership.has_joined = True
    net.run(20)
    net.check()


@pytest.mark.parametrize("seed", range(8))
def test_crashes_and_restarts_lose_nothing_that_was_kept(seed: int) -> None:
    draw = Random(seed)
    net = net_with(10, loss=0.02, seed=seed)
    down: list[int] = []
    for number in range(40):
        net.run(draw.random() * 2)
        if draw.random() < 0.15 and len(down) < 3:
            down.append(draw.choice(sorted(net.peers)))
            net.crash(down[-1])
            net.run(1)
            net.detect()
        elif down and draw.random() < 0.3:
            net.join(down.pop(0))
            net.run(1)
        net.publish(draw.choice(sorted(net.peers)), {"a": draw.randrange(10), "n": number})
    while down:
        net.join(down.pop())
    net.run(240)
    assert not [d for d in net.expected if d not in net.deliveries]
    assert len(net.deliveries) == len(set(net.deliveries))
    assert unsettled(net) == 0


# ---------------------------------------------------------------- the store itself


def test_slots_are_used_again() -> None:
    stored = StoredEvents(room=3, room_bytes=10**9)
    events = [Event(EventId(1, 1, n), {}) for n in range(6)]
    slots = [stored.add(0, event, 0)[0] for event in events[:3]]
    assert slots == [0, 1, 2]
    slot, lost = stored.add(0, events[3], 0)
    assert (slot, lost) == (0, {events[0].id: 0})
    assert stored.settle(events[1].id, "anything", "") == 1
    assert stored.add(0, events[4], 0) == (1, {})


def test_a_large_event_takes_the_place_of_several() -> None:
    small = [Event(EventId(1, 1, n), {}) for n in range(3)]
    large = Event(EventId(1, 1, 9), {}, bytes(event_bytes(small[0])))
    stored = StoredEvents(room=9, room_bytes=3 * event_bytes(small[0]))
    assert [stored.add(0, event, 0) for event in small] == [(0, {}), (1, {}), (2, {})]
    slot, lost = stored.add(0, large, 0)
    assert lost == {small[0].id: 0, small[1].id: 1} and slot in lost.values()
    assert len(stored) == 2
    assert stored.settle(large.id, "anything", "") == slot
    assert stored.add(0, small[0], 0)[1] == {}


def test_records_of_a_former_incarnation() -> None:
    stored = StoredEvents(room=9, room_bytes=10**9)
    events = [Event(EventId(1, 1, n), {"a": n}) for n in range(4)]
    for record in (
        StoredEvent(0, events[0]),
        StoredEvent(1, events[1]),
        StoredEvent(0, None),
        StoredEvent(2, events[2]),
        StoredEvent(0, events[3]),
    ):
        stored.recall(record)
    assert [e.id.sequence for e, _, name, _ in stored.take_due(60 * SECOND) if name == "anything"] == [1, 2, 3]
    assert stored.add(0, events[0], 0)[0] == 3


# ---------------------------------------------------------------- peers that are away


AWAY_NS = 600 * SECOND


def with_one_away(**settings: Any) -> tuple[RingNet, int, int, int]:
    """A net in which a subscriber's peer has stopped for ten minutes; the owner, the publisher, and this peer."""
    net = net_with(grace_ns=AWAY_NS, **settings)
    owner = net.owner("attribute a|")
    publisher = next(p for p in net.peers if p != owner)
    stopped = next(p for p in net.peers if p not in (owner, publisher))
    net.stop(stopped, AWAY_NS)
    return net, owner, publisher, stopped


def got_by(net: RingNet, peer: int) -> list[EventId]:
    return [id_ for who, _, id_ in net.deliveries if who == peer]


def test_events_wait_for_a_peer_that_is_away_for_longer_than_entries_live() -> None:
    net, _, publisher, stopped = with_one_away()
    net.run(150)
    id_ = net.publish(publisher, {"a": 0})
    net.run(150)
    net.join(stopped)
    net.run(10)
    assert got_by(net, stopped) == [id_]
    net.run(30)
    assert unsettled(net) == 0


def test_the_next_owner_knows_who_is_away() -> None:
    net, owner, publisher, stopped = with_one_away()
    first = net.publish(publisher, {"a": 0})
    net.crash(owner)
    net.detect()
    net.run(150)
    second = net.publish(publisher, {"a": 0})
    net.join(owner)  # the region is handed back
    net.run(150)
    net.join(stopped)
    net.run(40)
    assert sorted(got_by(net, stopped)) == [first, second]


def test_an_owner_that_stops_itself_leaves_word_that_it_will_be_back() -> None:
    net = net_with(grace_ns=AWAY_NS)
    owner = net.owner("attribute a|")
    publisher = next(p for p in net.peers if p != owner)
    net.stop(owner, AWAY_NS)
    net.run(150)
    id_ = net.publish(publisher, {"a": 0})
    net.run(100)
    net.join(owner)
    net.run(40)
    assert got_by(net, owner) == [id_]


def test_nobody_stores_events_for_a_peer_that_stays_away() -> None:
    net, _, publisher, _ = with_one_away()
    net.publish(publisher, {"a": 0})
    net.run(300)
    assert unsettled(net) > 0
    net.run(400)
    assert unsettled(net) == 0 and net.drops["no-reconnect"] == 1


def test_a_peer_that_leaves_for_good_is_forgotten() -> None:
    net = net_with(grace_ns=AWAY_NS)
    owner = net.owner("attribute a|")
    publisher = next(p for p in net.peers if p != owner)
    gone = next(p for p in net.peers if p not in (owner, publisher))
    net.stop(gone, 0)
    net.run(35)
    net.publish(publisher, {"a": 0})
    net.run(3)
    assert unsettled(net) == 0


# ---------------------------------------------------------------- the age of events from peers that are not measured


def unmeasured(ttl_ms: int) -> tuple[RingNet, int, int]:
    """A net in which nobody has measured a round trip, with an event that expires; its publisher and the owner."""
    net = net_with()
    for peer in net.peers.values():
        peer.view.membership.measured = False
    owner = net.owner("attribute a|")
    publisher = next(p for p in net.peers if p != owner)
    net.publish(publisher, {"a": 0}, ttl_ns=ttl_ms * MS)
    return net, publisher, owner


def test_an_event_that_may_expire_waits_until_its_age_is_known() -> None:
    net, publisher, owner = unmeasured(ttl_ms=10_000)
    asked: list[tuple[int, int]] = []

    def note(sender: int, receiver: int, message: Any) -> bool:
        if isinstance(getattr(message, "body", None), TripRequest):
            asked.append((sender, receiver))
        return False

    net.tamper = note
    net.run(3)
    net.check()
    assert len(asked) == len(set(asked)) and (owner, publisher) in asked
    assert {sender for sender, receiver in asked if receiver == owner} == net.peers.keys() - {owner, publisher}
    true_ages = {peer: net.delay_ns(publisher, owner) + net.delay_ns(owner, peer) for peer in net.peers}
    for peer, age_ns in net.ages:
        if peer not in (publisher, owner):  # it waited for one round trip at the owner, and for one here
            waited = 2 * net.delay_ns(publisher, owner) + 2 * net.delay_ns(owner, peer)
            assert age_ns == true_ages[peer] + waited


def test_a_sender_that_does_not_answer_holds_nothing_up_for_ever() -> None:
    net, _, _ = unmeasured(ttl_ms=60_000)
    net.tamper = lambda sender, receiver, message: isinstance(getattr(message, "body", None), TripRequest)
    net.run(2)
    assert len(net.deliveries) < len(net.expected)
    net.run(20)
    net.check()


def test_events_beyond_the_room_for_those_that_wait_go_on_with_a_guess() -> None:
    trips = OwnerRoundTrips()
    message = NotifyPeer(Event(EventId(1, 1, 0), {}), 0, 1)
    assert all(trips.hold(5, 1, message) for _ in range(MAX_WAITING))
    assert not trips.hold(5, 2, message)
    question, timer = trips.ask(5)
    assert question == SendTo(1, TripRequest(1)) and timer == Timer(5 + FIRST_WAIT_NS, TRIPS)
    assert trips.ask(5) == [] and trips.measure(25, 2, 1) == []
    assert trips.measure(25, 1, 1) == [(5, message)] * MAX_WAITING
    assert trips.trip_ns(25, 1) == 20 and trips.trip_ns(25 + VALID_NS, 1) is None
    assert trips.hold(30, 2, message) and trips.ask(30) == [SendTo(2, TripRequest(2))]
