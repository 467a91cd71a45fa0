"""Publisher order: an ordered subscription never sees an event after a later one, and waits only so long."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.delivery.subscriber import (
    ME,
    PUBLISHER,
    Subscriber,
    delivered,
    deliveries,
    dropped,
    durable,
    made,
    missed,
    noticed,
)
from wend.drivers.live.store.needed_records import NeededRecords
from wend.model.events import EventId, Qos
from wend.model.publication import Publication
from wend.model.units import SECOND
from wend.protocol.delivery.order import PATIENCE
from wend.protocol.ports import Deliver, Effect, LocalSubscription, Subscribed, Unsubscribed
from wend.protocol.records import GapRecord, RemovedRecord, SkippedRecord

ORDERED = LocalSubscription(1, "true", Qos(order=True))
PLAIN = LocalSubscription(2, "true")


def numbered(effects: list[Effect]) -> list[tuple[int, int]]:
    """The deliveries, each as the number of its subscription and of its event."""
    return [(each.subscription.number, each.event.id.sequence) for each in deliveries(effects)]


def test_an_event_waits_for_the_one_before_it() -> None:
    peer = Subscriber()
    peer(Subscribed(ORDERED))
    assert delivered(peer.hear(made(1, previous=0))) == [1]
    assert delivered(peer.hear(made(5, previous=3))) == []
    assert delivered(peer.hear(made(3, previous=1))) == [3, 5]


def test_other_subscriptions_do_not_wait() -> None:
    peer = Subscriber()
    peer(Subscribed(ORDERED))
    peer(Subscribed(PLAIN))
    effects = peer.hear(made(5, previous=3))
    assert [e.subscription.number for e in effects if isinstance(e, Deliver)] == [2]


def test_when_the_missing_event_does_not_come_it_is_skipped_and_reported() -> None:
    peer = Subscriber(order_wait_ns=SECOND)
    peer(Subscribed(ORDERED))
    peer.hear(made(1, previous=0))
    peer.hear(made(3, previous=2))
    peer.hear(made(4, previous=3))
    effects = peer.run(SECOND)
    assert (delivered(effects), missed(effects), noticed(effects, "order-skipped")) == ([3, 4], [{"skipped": 1}], 1)
    late = peer.hear(made(2, previous=1))
    assert (delivered(late), dropped(late)) == ([], [(2, "overtaken")])


def test_a_durable_subscription_waits_longer_and_as_long_as_earlier_events_arrive() -> None:
    peer = Subscriber(order_wait_ns=SECOND)
    peer.subscribe(durable(order=True))
    assert delivered(peer.hear(made(1, previous=0))) == [1]
    peer.hear(made(50, previous=49))
    assert delivered(peer.run((PATIENCE - 1) * SECOND)) == []
    assert delivered(peer.hear(made(2, previous=1))) == [2]
    assert delivered(peer.run((PATIENCE - 1) * SECOND)) == [], "the retries of others lag, but come"
    assert delivered(peer.hear(made(3, previous=2))) == [3]
    peer.run((PATIENCE - 1) * SECOND)
    effects = peer.run(SECOND)
    assert (delivered(effects), missed(effects)) == ([50], [{"skipped": 1}])


def test_a_durable_subscription_does_not_wait_long_for_what_may_expire() -> None:
    peer = Subscriber(order_wait_ns=SECOND)
    peer.subscribe(durable(order=True))
    peer.hear(made(3, previous=2, ttl_ns=60 * SECOND))
    assert delivered(peer.run(SECOND)) == [3]


def test_plain_and_durable_subscriptions_wait_each_for_itself() -> None:
    peer = Subscriber(order_wait_ns=SECOND)
    peer.subscribe(durable(order=True))
    peer(Subscribed(msgspec.structs.replace(ORDERED, number=2)))
    peer.hear(made(1, previous=0))
    peer.hear(made(3, previous=2))
    assert numbered(peer.run(SECOND)) == [(2, 3)]
    late = peer.hear(made(2, previous=1))
    assert (numbered(late), dropped(late)) == ([(1, 2), (1, 3)], [(2, "overtaken")])


def test_an_event_that_waits_for_clients_and_for_an_earlier_one_is_not_forgotten() -> None:
    peer = Subscriber()
    peer.subscribe(durable(order=True))
    peer.start(0)
    peer.attach()
    peer(Subscribed(PLAIN))
    peer.hear(made(3, previous=2))
    assert numbered(peer.run(3 * SECOND)) == [(2, 3)], "clients have had time to reconnect"
    peer.hear(made(1, previous=0))
    assert numbered(peer.hear(made(2, previous=1))) == [(2, 2), (1, 2), (1, 3)]


@pytest.mark.parametrize("is_durable", [False, True])
def test_every_skipped_event_that_arrives_late_is_counted_once(is_durable: bool) -> None:
    peer = Subscriber(order_wait_ns=SECOND)
    peer.subscribe(durable(order=True)) if is_durable else peer(Subscribed(ORDERED))
    peer.hear(made(1, previous=0))
    peer.hear(made(6, previous=5))
    told = peer.run(PATIENCE * SECOND)
    for late in (5, 2, 4, 3):
        told += peer.hear(made(late, previous=late - 1))
    if is_durable:
        told += peer.attach()
    assert sum(counts["skipped"] for counts in missed(told)) == 4


def test_an_event_before_a_restart_counts_as_come() -> None:
    peer = Subscriber()
    peer.subscribe(durable(order=True))
    peer.hear(made(1, previous=0))
    peer.crash()
    peer.attach()
    assert delivered(peer.hear(made(2, previous=1))) == [2]


def test_a_publisher_names_the_event_before_for_each_peer_that_wants_order() -> None:
    peer = Subscriber(neighbours=())
    peer(Subscribed(LocalSubscription(1, "n > 1", Qos(order=True))))
    peer(Subscribed(LocalSubscription(2, "true")))
    sent = [e.event for n in (1, 2, 3) for e in peer(Publication({"n": n})) if isinstance(e, Deliver)]
    chains = {event.id.sequence: event.previous for event in sent}
    assert chains == {1: (), 2: ((ME, 0),), 3: ((ME, 2),)}


@given(st.integers(1, 40), st.integers(0, 10**6), st.booleans())
def test_any_order_of_arrival_comes_out_in_order(count: int, seed: int, is_durable: bool) -> None:
    draw = Random(seed)
    numbers = sorted(draw.sample(range(1, 200), count))
    events = [made(n, previous=before) for before, n in zip([0, *numbers], numbers, strict=False)]
    draw.shuffle(events)
    peer = Subscriber()
    peer.subscribe(durable(order=True)) if is_durable else peer(Subscribed(ORDERED))
    for event in events:
        peer.hear(event)
        if draw.random() < 0.2:
            peer.hear(event)
    assert delivered(peer.effects) == numbers


@given(st.integers(1, 40), st.integers(0, 10**6))
def test_with_losses_it_is_still_in_order_and_what_came_in_time_is_there(count: int, seed: int) -> None:
    draw = Random(seed)
    numbers = sorted(draw.sample(range(1, 200), count))
    events = [made(n, previous=before) for before, n in zip([0, *numbers], numbers, strict=False)]
    lost = {event.id.sequence for event in events if draw.random() < 0.3}
    draw.shuffle(events)
    peer = Subscriber(order_wait_ns=SECOND)
    peer(Subscribed(ORDERED))
    for event in events:
        if event.id.sequence not in lost:
            peer.hear(event)
    peer.run(2 * SECOND)
    assert delivered(peer.effects) == [n for n in numbers if n not in lost]
    for event in events:
        peer.hear(event)
    got = delivered(peer.effects)
    assert got == sorted(set(got))


def test_publishers_are_ordered_each_for_itself() -> None:
    peer = Subscriber()
    peer(Subscribed(ORDERED))
    peer.hear(made(2, previous=1, incarnation=1))
    assert delivered(peer.hear(made(1, previous=0, incarnation=2))) == [1]


def test_what_was_held_is_held_again_after_a_restart() -> None:
    peer = Subscriber()
    peer.subscribe(durable(order=True))
    peer.hear(made(1, previous=0))
    peer.hear(made(3, previous=2))
    peer.hear(made(4, previous=3))
    peer.start(0)
    assert delivered(peer.attach()) == [1]
    assert delivered(peer.hear(made(2, previous=1))) == [2, 3, 4]


def test_after_a_restart_an_event_that_was_skipped_does_not_come_any_more() -> None:
    peer = Subscriber(order_wait_ns=SECOND)
    peer.subscribe(durable(order=True))
    peer.hear(made(1, previous=0))
    peer.hear(made(3, previous=2))
    got = deliveries(peer.run(PATIENCE * SECOND))
    assert delivered(got) == [3]
    peer.confirm(got)
    peer.crash()
    assert delivered(peer.attach()) == [1]
    late = peer.hear(made(2, previous=1))
    assert (delivered(late), dropped(late)) == ([], [(2, "overtaken")])
    assert delivered(peer.hear(made(4, previous=3))) == [4]


def with_a_gap() -> Subscriber:
    """An event is missing, the one after it has fallen out of the full backlog, and the peer has restarted."""
    peer = Subscriber(order_wait_ns=SECOND)
    peer.subscribe(durable(order=True, max_events=2))
    peer.hear(made(2, previous=1))
    peer.hear(made(3, previous=2))
    peer.hear(made(4, previous=3))
    peer.start(0)
    return peer


def test_after_a_restart_those_in_a_full_backlog_still_wait_for_the_missing_event() -> None:
    peer = with_a_gap()
    told = peer.attach()
    assert (delivered(told), missed(told)) == ([], [{"backlog-full": 1}])
    got = peer.hear(made(1, previous=0))
    assert (delivered(got), missed(got)) == ([1, 4], [{"backlog-full": 1}])  # three are more than the backlog takes
    peer.confirm(deliveries(got))
    peer.start(0)
    assert (delivered(peer.attach()), missed(peer.run(SECOND))) == ([], [])


def test_after_a_restart_a_skip_in_a_full_backlog_is_reported() -> None:
    peer = with_a_gap()
    assert missed(peer.attach()) == [{"backlog-full": 1}]
    late = peer.run(PATIENCE * SECOND)
    assert (delivered(late), missed(late), noticed(late, "order-skipped")) == ([3, 4], [{"skipped": 1}], 1)
    peer.confirm(deliveries(late))
    assert dropped(peer.hear(made(1, previous=0))) == [(1, "overtaken")]
    peer.start(0)
    told = [*peer.attach(), *peer.run(PATIENCE * SECOND)]
    assert (delivered(told), missed(told), noticed(told, "order-skipped")) == ([], [], 0)


def test_a_skip_that_no_client_heard_of_is_reported_to_the_next() -> None:
    peer = with_a_gap()
    peer.run(PATIENCE * SECOND)
    peer.start(0)
    told = peer.attach()
    assert (delivered(told), missed(told)) == ([3, 4], [{"backlog-full": 1, "skipped": 1}])


def test_a_gap_of_a_subscription_that_has_ended_holds_up_nobody() -> None:
    peer = Subscriber(order_wait_ns=SECOND)
    peer.subscribe(durable(order=True, max_events=1))
    peer.hear(made(2, previous=1))
    peer.hear(made(3, previous=2))
    peer(Unsubscribed(1))
    peer.subscribe(durable("others", number=2, order=True))
    peer.start(0)
    peer.attach(2)
    assert delivered(peer.hear(made(4, previous=3))) == [4]


def test_a_compacted_store_knows_the_gaps_that_are_left() -> None:
    needed = NeededRecords()
    gaps = [
        GapRecord(EventId(PUBLISHER, 1, sequence), sequence - 1, number) for sequence in (3, 5) for number in (1, 2)
    ]
    for gap in gaps:
        needed.add(gap, b"")
    assert needed.records() == gaps
    needed.add(SkippedRecord(EventId(PUBLISHER, 1, 4)), b"")
    needed.add(SkippedRecord(EventId(PUBLISHER, 2, 9)), b"")
    needed.add(RemovedRecord(1), b"")
    assert [record for record in needed.records() if isinstance(record, GapRecord)] == [gaps[3]]
    for sequence in (6, 7):
        needed.add(GapRecord(EventId(PUBLISHER, 1, sequence), sequence - 1, 2), b"")
    assert needed.records()[-1] == GapRecord(EventId(PUBLISHER, 1, 7), 4, 2)


def test_a_compacted_store_knows_what_was_skipped() -> None:
    needed = NeededRecords()
    for sequence in (3, 9):
        needed.add(SkippedRecord(EventId(PUBLISHER, 1, sequence)), b"")
    assert needed.records() == [SkippedRecord(EventId(PUBLISHER, 1, 9))]


def test_an_event_from_before_the_subscription_was_known_does_not_come_after_later_ones() -> None:
    for wanted in (ORDERED, durable(order=True)):
        peer = Subscriber()
        peer.subscribe(wanted) if wanted.durable else peer(Subscribed(wanted))
        assert delivered(peer.hear(made(1))) == [1]
        assert delivered(peer.hear(made(5, previous=0))) == [5]
        late = peer.hear(made(3))
        assert (delivered(late), dropped(late)) == ([], [(3, "overtaken")])
        assert all(not backlog.entries or len(backlog.entries) == 2 for backlog in peer.peer.durable.values())


def test_an_event_that_waited_does_not_come_after_later_ones_from_before_the_subscription_was_known() -> None:
    peer = Subscriber()
    peer(Subscribed(ORDERED))
    assert delivered(peer.hear(made(3, previous=1))) == []
    assert delivered(peer.hear(made(5))) == [5]
    assert delivered(peer.hear(made(2))) == [2]
    last = peer.hear(made(1, previous=0))
    assert (delivered(last), dropped(last)) == ([], [(1, "overtaken"), (3, "overtaken")])


def test_a_backlog_is_bounded_while_its_events_wait_for_order() -> None:
    peer = Subscriber()
    peer.subscribe(durable(order=True, max_events=3))
    for n in range(2, 9):
        peer.hear(made(n, previous=n - 1))
        assert len(peer.peer.durable[1].entries) <= 3
    assert delivered(peer.hear(made(1, previous=0))) == [1, 7, 8]


def test_an_event_that_waits_for_order_is_not_delivered_past_its_ttl() -> None:
    peer = Subscriber(order_wait_ns=SECOND)
    peer(Subscribed(ORDERED))
    peer.hear(made(2, previous=1, ttl_ns=SECOND // 2))
    peer.hear(made(3, previous=2))
    effects = peer.run(2 * SECOND)
    assert (delivered(effects), dropped(effects)) == ([3], [(2, "expired")])
    assert missed(effects) == [{"skipped": 1}, {"expired": 1}]


def test_nothing_comes_after_an_unsubscribe_though_it_waited_for_order() -> None:
    for wanted in (ORDERED, durable(order=True)):
        peer = Subscriber(order_wait_ns=SECOND)
        peer.subscribe(wanted) if wanted.durable else peer(Subscribed(wanted))
        peer.hear(made(2, previous=1))
        peer(Unsubscribed(1))
        effects = peer.run(2 * SECOND)
        assert (delivered(effects), missed(effects)) == ([], [])


def test_an_event_that_waits_for_clients_after_a_restart_holds_up_no_durable_subscription() -> None:
    """A subscription without a name makes the peer wait for others, with all that was published before its start."""
    peer = Subscriber()
    peer.subscribe(durable(order=True))
    peer.start(0)
    peer(Subscribed(PLAIN))
    peer.run(SECOND)
    peer.attach()
    assert numbered(peer.hear(made(1, previous=0), age=2 * SECOND)) == [(1, 1)]
    assert sorted(numbered(peer.hear(made(2, previous=1)))) == [(1, 2), (2, 2)]
    assert numbered(peer.run(2 * SECOND)) == [(2, 1)]


def test_an_event_does_not_overtake_one_that_waits_for_clients_after_a_restart() -> None:
    peer = Subscriber()
    peer.start(0)
    peer(Subscribed(ORDERED))
    peer.run(SECOND)
    assert delivered(peer.hear(made(1, previous=0), age=2 * SECOND)) == []
    assert delivered(peer.hear(made(2, previous=1))) == []
    assert delivered(peer.run(2 * SECOND)) == [1, 2]


def test_nobody_waits_for_an_event_that_has_expired_here() -> None:
    peer = Subscriber()
    peer(Subscribed(ORDERED))
    assert delivered(peer.hear(made(2, previous=1))) == []
    assert delivered(peer.hear(made(1, previous=0, ttl_ns=SECOND), age=2 * SECOND)) == [2]
    peer(Subscribed(LocalSubscription(1, "true", Qos(order=True, expire=True, deadline_ns=SECOND))))
    assert delivered(peer.hear(made(4, previous=3))) == []
    effects = peer.hear(made(3, previous=2), age=2 * SECOND)
    assert (delivered(effects), dropped(effects)) == ([4], [(3, "expired")])
