"""`rendezvous` with persistency: what got a kept receipt reaches every subscriber whose peer lives, once."""

from random import Random
from typing import Any

import pytest

from tests.protocol.interest.rings import RingNet
from wend.model.events import Event, EventId, event_bytes
from wend.model.units import SECOND
from wend.protocol.interest.regions import names_of
from wend.protocol.interest.rendezvous_messages import MatchEvent, NotifyPeer, StoredEvent
from wend.protocol.interest.stored_events import StoredEvents


def net_with(peers: int = 10, **settings: Any) -> RingNet:
    net = RingNet("rendezvous", peers, persistency=True, **settings)
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
    publisher.view.membership.joined = False
    net.publish(3, {"a": 1})
    net.run(1)
    assert not net.deliveries or all(peer == 3 for peer, _, _ in net.deliveries)
    publisher.view.membership.joined = True
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
    slots = [stored.add(0, event, 0, names_of(event))[0] for event in events[:3]]
    assert slots == [0, 1, 2]
    slot, lost = stored.add(0, events[3], 0, names_of(events[3]))
    assert (slot, lost) == (0, {events[0].id: 0})
    assert stored.settled(events[1].id, "anything", "") == 1
    assert stored.add(0, events[4], 0, names_of(events[4])) == (1, {})


def test_a_large_event_takes_the_place_of_several() -> None:
    small = [Event(EventId(1, 1, n), {}) for n in range(3)]
    large = Event(EventId(1, 1, 9), {}, bytes(event_bytes(small[0])))
    stored = StoredEvents(room=9, room_bytes=3 * event_bytes(small[0]))
    assert [stored.add(0, event, 0, names_of(event)) for event in small] == [(0, {}), (1, {}), (2, {})]
    slot, lost = stored.add(0, large, 0, names_of(large))
    assert lost == {small[0].id: 0, small[1].id: 1} and slot in lost.values()
    assert small[2].id in stored and large.id in stored
    assert stored.settled(large.id, "anything", "") == slot
    assert stored.add(0, small[0], 0, names_of(small[0]))[1] == {}


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
        stored.recall(0, record, None if record.event is None else names_of(record.event))
    assert [e.id.sequence for e, _, name, _ in stored.due(60 * SECOND) if name == "anything"] == [1, 2, 3]
    assert stored.add(0, events[0], 0, names_of(events[0]))[0] == 3
