"""Publisher order: an ordered subscription never sees an event after a later one, and waits only so long."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.delivery.subscriber import (
    ME,
    Subscriber,
    delivered,
    dropped,
    durable,
    made,
    missed,
    noticed,
)
from wend.model.events import Qos
from wend.model.units import SECOND
from wend.protocol.ports import Deliver, LocalSubscription, Published, Subscribed

ORDERED = LocalSubscription(1, "true", Qos(order=True))
PLAIN = LocalSubscription(2, "true")


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
    sent = [e.event for n in (1, 2, 3) for e in peer(Published({"n": n})) if isinstance(e, Deliver)]
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
