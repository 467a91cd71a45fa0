"""A restarted peer is handed events before its clients are back: they wait for them, once, and not for ever."""

from typing import Any

import pytest

from tests.protocol.talk import A, B, C, S, Talk, event, sent, tx
from wend.model.events import DurableOptions, EventId, Qos, SubscriptionId, event_bytes
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.delivery.pending import GATHER_NS
from wend.protocol.messages import Ack, Data, Message
from wend.protocol.notices import NO_ROOM
from wend.protocol.ports import (
    Attached,
    Deliver,
    Drop,
    Effect,
    Input,
    LocalSubscription,
    Notice,
    Persist,
    Received,
    Send,
    Subscribed,
    Unsubscribed,
    Woken,
)
from wend.protocol.records import DeliveredRecord, DurableRecord, PendingRecord, Record, ReleasedRecord

GRACE = 30 * SECOND
BORN: Nanos = -5 * SECOND
WANTED = LocalSubscription(1, "topic = 't'")
GONE = "no-reconnect"


class Restarted:
    """A peer in its second incarnation, since time 0, and all its effects."""

    def __init__(self, stored: tuple[Record, ...] = (), **config: Any) -> None:
        settings = {"persistence": True, "incarnation": 2, "grace_ns": GRACE, **config}
        talk = Talk("d-tree", stored=stored, quiet=False, **settings)
        self.peer = talk.peer
        self.effects = list(talk.heard)

    def __call__(self, now: Nanos, told: Input) -> list[Effect]:
        found = self.peer.handle(now, told)
        self.effects += found
        return found

    def hear(self, now: Nanos, sender: int, message: Message) -> list[Effect]:
        return self(now, Received(sender, message))

    def handed(self) -> list[tuple[int, EventId]]:
        return [(e.subscription.number, e.event.id) for e in self.effects if isinstance(e, Deliver)]

    def left(self) -> tuple[Record, ...]:
        """What a crash leaves behind."""
        return tuple(e.record for e in self.effects if isinstance(e, Persist))

    def drops(self) -> list[Drop]:
        return [e for e in self.effects if isinstance(e, Drop)]


def packet(number: int = 1, sequence: int = 1, dests: tuple[int, ...] = (A,), age: Nanos = 10 * SECOND) -> Data:
    return Data(tx(number + 100), event(sequence), age, dests, (B,))


def old(now: Nanos) -> Nanos:
    """The age, on arrival over a link of 10 ms, of what was published at BORN."""
    return now - BORN - 10 * MS


def test_what_comes_before_its_subscriber_is_stored_before_the_ack_and_handed_over_once() -> None:
    peer = Restarted()
    answer = peer.hear(1 * SECOND, B, packet(age=old(1 * SECOND)))
    assert [e for e in answer if isinstance(e, Persist | Notice | Send | Deliver)] == [
        Persist(PendingRecord(event(), BORN, (A,))),
        Notice("queued", A),
        Send(B, Ack(packet().tx)),
    ]
    peer(2 * SECOND, Subscribed(WANTED))
    answer = peer(2 * SECOND + GATHER_NS, Woken())
    assert [e for e in answer if isinstance(e, Persist | Deliver)] == [
        Persist(DeliveredRecord(event().id)),
        Persist(ReleasedRecord(event().id)),
        Deliver(SubscriptionId(A, 1), event(), 2 * SECOND + GATHER_NS - BORN, None),
    ]
    peer(5 * SECOND, Subscribed(LocalSubscription(2, "topic = 't'")))
    peer(GRACE, Woken())
    assert peer.handed() == [(1, event().id)]
    assert peer.drops() == []
    assert peer.peer.responsible_ids == ()


def test_copies_are_suppressed_before_and_after_it_is_handed_over() -> None:
    peer = Restarted()
    peer.hear(1 * SECOND, B, packet())
    for now in (2 * SECOND, 10 * SECOND):
        again = Data(tx(int(now // SECOND)), event(), 11 * SECOND, (A,), (B, C))
        assert Notice("duplicate", A) in peer.hear(now, C, again)
        peer(now + 1 * SECOND, Subscribed(WANTED))
        peer(now + 1 * SECOND + GATHER_NS, Woken())
    assert peer.handed() == [(1, event().id)]


def test_a_crash_before_the_subscriber_is_back_loses_nothing() -> None:
    first = Restarted()
    first.hear(1 * SECOND, B, packet())
    second = Restarted(first.left(), incarnation=3)
    copy = Data(tx(7), event(), 11 * SECOND, (A,), (B, C))
    assert Notice("duplicate", A) in second.hear(1 * SECOND, C, copy)
    second(2 * SECOND, Subscribed(WANTED))
    second(2 * SECOND + GATHER_NS, Woken())
    assert second.handed() == [(1, event().id)]
    third = Restarted((*first.left(), *second.left()), incarnation=4)
    third(1 * SECOND, Subscribed(WANTED))
    third(GRACE, Woken())
    assert (third.handed(), third.drops()) == ([], [])


def test_a_crash_between_the_hand_over_and_its_end_does_not_repeat_it() -> None:
    peer = Restarted((PendingRecord(event(), BORN, (A,)), DeliveredRecord(event().id)), incarnation=3)
    assert Persist(ReleasedRecord(event().id)) in peer.effects
    peer(1 * SECOND, Subscribed(WANTED))
    peer(GRACE, Woken())
    assert (peer.handed(), peer.drops()) == ([], [])


def test_when_the_grace_time_is_over_it_is_dropped_aloud() -> None:
    peer = Restarted()
    peer.hear(1 * SECOND, B, packet())
    peer(2 * SECOND, Subscribed(LocalSubscription(1, "topic = 'another'")))
    assert [e for e in peer(GRACE, Woken()) if isinstance(e, Persist | Drop)] == [
        Drop(event().id, (A,), GONE),
        Persist(ReleasedRecord(event().id)),
    ]
    peer(GRACE + 1, Subscribed(LocalSubscription(2, "topic = 't'")))
    peer(GRACE + 10 * SECOND, Woken())
    assert peer.handed() == []
    assert Restarted(peer.left(), incarnation=3).peer.responsible_ids == ()


@pytest.mark.parametrize(("began", "grace"), [(GRACE, GRACE), (0, 0)])
def test_after_the_grace_time_what_nobody_wants_any_more_is_not_stored(began: Nanos, grace: Nanos) -> None:
    peer = Restarted(grace_ns=grace)
    peer(began, Subscribed(WANTED))
    peer(began + 1 * SECOND, Unsubscribed(1))
    answer = peer.hear(began + 2 * SECOND, B, packet(age=5 * MS))
    assert Notice("no-subscriber", A) in answer
    assert [e.record for e in answer if isinstance(e, Persist)] == [DeliveredRecord(event().id)]


def test_what_is_wanted_goes_to_all_who_return_together() -> None:
    peer = Restarted()
    peer.hear(1 * SECOND, B, packet(1, 1))
    peer(2 * SECOND, Subscribed(WANTED))
    peer.hear(2 * SECOND + 1, B, packet(2, 2))  # published in a former incarnation: it waits for the others
    peer.hear(2 * SECOND + 2, B, packet(3, 3, age=5 * MS))  # published since
    assert peer.handed() == [(1, event(3).id)]
    peer(3 * SECOND, Subscribed(LocalSubscription(2, "topic = 't'")))
    peer(2 * SECOND + GATHER_NS, Woken())
    assert sorted(peer.handed()) == sorted([(n, event(s).id) for n in (1, 2) for s in (1, 2)] + [(1, event(3).id)])
    peer.hear(20 * SECOND, B, packet(4, 4, age=40 * SECOND))  # nobody is waited for
    assert peer.handed()[-1] == (2, event(4).id)


def test_one_who_leaves_again_is_not_handed_it() -> None:
    peer = Restarted()
    peer.hear(1 * SECOND, B, packet())
    peer(2 * SECOND, Subscribed(WANTED))
    peer(3 * SECOND, Unsubscribed(1))
    peer(10 * SECOND, Woken())
    assert peer.handed() == []
    peer(11 * SECOND, Subscribed(LocalSubscription(2, "topic = 't'")))
    peer(20 * SECOND, Woken())
    assert peer.handed() == [(2, event().id)]


@pytest.mark.parametrize("limit", [{"retry_limit": 2}, {"store_limit": 2 * event_bytes(event(1))}])
def test_no_more_wait_than_a_limit_allows(limit: dict[str, int]) -> None:
    peer = Restarted(**limit)
    for number in (1, 2, 3):
        peer.hear(1 * SECOND, B, packet(number, number))
    assert peer.drops() == [Drop(event(1).id, (A,), NO_ROOM)]
    assert peer.peer.responsible_ids == (event(2).id, event(3).id)
    again = Restarted(peer.left(), retry_limit=1, incarnation=3)
    assert again.drops() == [Drop(event(2).id, (A,), NO_ROOM)]


def test_it_is_for_this_peer_and_others() -> None:
    """Both records end by themselves, in either order, and a crash remembers both."""
    peer = Restarted()
    answer = peer.hear(1 * SECOND, B, packet(dests=(A, S)))
    (on,) = [m for to, m in sent(answer) if isinstance(m, Data)]
    assert on.dests == (S,)
    crashed = Restarted(peer.left(), incarnation=3)
    tried = [m.dests for _, m in sent(crashed(2 * SECOND, Woken())) if isinstance(m, Data)]
    assert tried == [(S,)]
    crashed(3 * SECOND, Subscribed(WANTED))
    crashed(3 * SECOND + GATHER_NS, Woken())
    assert crashed.handed() == [(1, event().id)]
    assert crashed.peer.responsible_ids == (event().id,)  # S has not taken it
    assert ReleasedRecord(event().id) not in crashed.left()
    assert Persist(ReleasedRecord(event().id)) not in peer.hear(1 * SECOND + 20 * MS, C, Ack(on.tx))
    peer(2 * SECOND, Subscribed(WANTED))
    peer(2 * SECOND + GATHER_NS, Woken())
    assert peer.left()[-2:] == (DeliveredRecord(event().id), ReleasedRecord(event().id))
    assert peer.peer.responsible_ids == ()


def test_subscriptions_that_hold_from_the_start_are_handed_what_was_left() -> None:
    peer = Restarted((PendingRecord(event(), BORN, (A,)),), incarnation=3, mine=(WANTED,))
    assert peer.handed() == [(1, event().id)]
    assert peer.peer.responsible_ids == ()


def test_a_durable_subscription_gets_an_event_at_once_and_others_when_they_are_back() -> None:
    durable = DurableRecord(7, "topic = 't'", Qos(), DurableOptions("orders"))
    peer = Restarted((durable,))
    peer(1 * SECOND, Attached(7, 10))
    peer.hear(1 * SECOND, B, packet(age=old(1 * SECOND)))
    assert peer.handed() == [(7, event().id)]
    peer(2 * SECOND, Subscribed(WANTED))
    peer(2 * SECOND + GATHER_NS, Woken())
    assert peer.handed() == [(7, event().id), (1, event().id)]
    peer(GRACE + SECOND, Woken())
    assert len(peer.handed()) == 2 and not peer.drops()


def test_an_event_that_only_durable_subscriptions_want_is_not_reported_as_dropped() -> None:
    durable = DurableRecord(7, "topic = 't'", Qos(), DurableOptions("orders"))
    peer = Restarted((durable,))
    peer(1 * SECOND, Attached(7, 10))
    peer.hear(1 * SECOND, B, packet(age=old(1 * SECOND)))
    peer(GRACE + SECOND, Woken())
    assert peer.handed() == [(7, event().id)] and not peer.drops()
    assert ReleasedRecord(event().id) in peer.left()
