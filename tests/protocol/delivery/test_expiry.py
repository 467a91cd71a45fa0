"""Expiry: what nobody needs any more is dropped where it is, and counted."""

from typing import Any

from tests.protocol.delivery.subscriber import (
    GRACE_NS,
    PUBLISHER,
    Subscriber,
    delivered,
    dropped,
    durable,
    made,
    missed,
)
from wend.model.events import Qos, Subscription, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import MS, SECOND
from wend.protocol.messages import TX_SHIFT, Control, Data, Fragment
from wend.protocol.ports import LocalSubscription, Received, Send, Subscribed
from wend.strategies.subscriptions.table import PeerInterest

HASTY = LocalSubscription(1, "true", Qos(deadline_ns=SECOND, expire=True))
PATIENT = LocalSubscription(2, "true", Qos(deadline_ns=SECOND))


def test_an_event_past_its_ttl_is_acknowledged_and_dropped() -> None:
    peer = Subscriber()
    peer(Subscribed(PATIENT))
    effects = peer.hear(made(1, ttl_ns=SECOND), age=2 * SECOND)
    assert (delivered(effects), dropped(effects)) == ([], [(1, "expired")])


def test_the_deadline_expires_an_event_only_where_that_is_asked_for() -> None:
    peer = Subscriber()
    peer(Subscribed(HASTY))
    peer(Subscribed(PATIENT))
    effects = peer.hear(made(1), age=2 * SECOND)
    assert (delivered(effects), missed(effects), dropped(effects)) == ([1], [{"expired": 1}], [(1, "expired")])
    assert delivered(peer.hear(made(2), age=SECOND // 2)) == [2, 2]


def test_a_durable_subscription_may_let_events_expire_while_its_client_is_away() -> None:
    peer = Subscriber()
    peer(Subscribed(durable(deadline_ns=SECOND, expire=True)))
    peer.hear(made(1))
    peer.run(2 * SECOND)
    peer.hear(made(2))
    effects = peer.attach()
    assert (delivered(effects), missed(effects)) == ([2], [{"expired": 1}])


def _publisher(qos: Qos, **settings: Any) -> Subscriber:
    """A peer whose neighbour subscribes and does not answer."""
    peer = Subscriber(**settings)
    interest = PeerInterest(PUBLISHER, (1, 1), (Subscription(SubscriptionId(PUBLISHER, 1), "true", qos),), ())
    peer(Received(PUBLISHER, Control((1 << TX_SHIFT) + 1, "flooded", interest)))
    return peer


def _sent(peer: Subscriber) -> int:
    return sum(isinstance(e, Send) and isinstance(e.message, Data | Fragment) for e in peer.effects)


def test_an_event_that_waits_for_a_retry_is_not_sent_past_its_ttl() -> None:
    peer = _publisher(Qos())
    peer(Publication({"topic": "t"}, ttl_ns=SECOND))
    assert _sent(peer) == 1
    for _ in range(100):
        peer.run(SECOND // 2)
    assert [reason for _, reason in dropped(peer.effects)] == ["expired"]
    assert not peer.peer.responsible_ids
    before = _sent(peer)
    peer.run(60 * SECOND)
    assert _sent(peer) == before


def test_an_event_for_a_subscriber_that_lets_it_expire_is_not_retried_for_ever() -> None:
    hasty, patient = _publisher(Qos(deadline_ns=SECOND, expire=True)), _publisher(Qos(deadline_ns=SECOND))
    for peer in (hasty, patient):
        peer(Publication({"topic": "t"}))
        for _ in range(20):
            peer.run(500 * MS)
    assert [reason for _, reason in dropped(hasty.effects)] == ["expired"]
    assert dropped(patient.effects) == []


def test_an_event_past_its_ttl_is_not_sent_again_over_a_link_that_does_not_answer() -> None:
    for payload, packets in ((b"", 1), (bytes(5000), 5)):
        peer = _publisher(Qos(), transmissions=50)
        peer(Publication({"topic": "t"}, payload, ttl_ns=200 * MS))
        peer.run(100 * MS)
        assert _sent(peer) > packets
        peer.run(101 * MS)
        before = _sent(peer)
        peer.run(2 * SECOND)
        assert _sent(peer) == before
        assert [reason for _, reason in dropped(peer.effects)] == ["expired"]


def test_an_event_that_waits_for_its_client_is_not_delivered_past_its_ttl() -> None:
    peer = Subscriber()
    peer.start(0)
    peer.hear(made(1, ttl_ns=SECOND))
    peer.hear(made(2))
    peer.run(2 * SECOND)
    peer(Subscribed(PATIENT))
    effects = peer.run(GRACE_NS)
    assert (delivered(effects), dropped(effects)) == ([2], [(1, "expired")])
