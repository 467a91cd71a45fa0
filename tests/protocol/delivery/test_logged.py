"""A peer whose driver has a log: the log has an event before anything says that the peer has it."""

from tests.protocol.delivery.subscriber import GRACE_NS, ME, Subscriber, delivered, deliveries, durable, made, noticed
from wend.model.publication import Publication
from wend.model.units import SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Ack
from wend.protocol.ports import Deliver, LocalSubscription, Persist, Receipt, Send, Started, Stopping, Subscribed
from wend.protocol.records import DeliveredRecord
from wend.strategies.registry import make_peer

LOG = 1 << 30


def logged(filter: str = "true") -> LocalSubscription:
    return LocalSubscription(LOG, filter, logged=True)


def places(effects: list[object], event: int = 1) -> list[int]:
    """Where the event goes to the log, is recorded as delivered, and is acknowledged."""
    to_log = [i for i, e in enumerate(effects) if isinstance(e, Deliver) and e.subscription.number == LOG]
    recorded = [
        i
        for i, e in enumerate(effects)
        if isinstance(e, Persist) and isinstance(e.record, DeliveredRecord) and e.record.id.sequence == event
    ]
    acked = [i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Ack)]
    return [*to_log, *recorded, *acked]


def test_an_event_is_in_the_log_before_it_is_recorded_and_acknowledged() -> None:
    peer = Subscriber()
    peer(Subscribed(logged()))
    found = places([*peer.hear(made(1))])
    assert len(found) == 3
    assert found == sorted(found)


def test_a_publication_is_in_the_log_before_its_receipt() -> None:
    peer = Subscriber()
    peer(Subscribed(logged()))
    kinds = [type(effect) for effect in peer(Publication({"topic": "t"})) if isinstance(effect, Deliver | Receipt)]
    assert kinds == [Deliver, Receipt]


def test_the_log_gets_an_event_once_beside_other_subscriptions() -> None:
    peer = Subscriber()
    peer(Subscribed(logged()))
    peer.subscribe(durable("orders", number=1))
    peer(Subscribed(LocalSubscription(2, "true")))
    effects = peer.hear(made(1))
    assert sorted(each.subscription.number for each in deliveries(effects)) == [1, 2, LOG]
    assert noticed(effects, "no-subscriber") == 0


def test_an_event_that_matches_only_the_log_has_a_subscriber() -> None:
    peer = Subscriber()
    peer(Subscribed(logged("n > 5")))
    assert noticed(peer.hear(made(6)), "no-subscriber") == 0
    assert noticed(peer.hear(made(3)), "no-subscriber") == 1


def test_the_log_does_not_wait_for_clients_that_reconnect() -> None:
    peer = Subscriber()
    peer(Subscribed(logged()))
    peer.hear(made(1))
    peer.start(wait_ns=SECOND)
    peer(Subscribed(logged()))
    assert delivered(peer.hear(made(2))) == [2]


def test_clients_that_reconnect_get_what_the_log_has_already() -> None:
    peer = Subscriber()
    peer.hear(made(1))
    peer.start(wait_ns=0)
    peer(Subscribed(logged()))
    assert [each.subscription.number for each in deliveries(peer.hear(made(2)))] == [LOG]
    peer(Subscribed(LocalSubscription(2, "true")))
    assert [each.subscription.number for each in deliveries(peer.run(GRACE_NS))] == [2]


def test_events_of_an_earlier_incarnation_go_to_the_log_first() -> None:
    """A log that a peer states at its start gets what the peer had stored for clients."""
    peer = Subscriber()
    peer.start(wait_ns=SECOND)
    peer.hear(made(1))  # waits for clients
    again = make_peer(PeerConfig(peer=ME, incarnation=peer.incarnation + 1, strategy="dcrd", persistence=True))
    assert delivered(again.handle(peer.now, Started((), (logged(),), stored=tuple(peer.store)))) == [1]


def test_a_peer_that_stops_for_a_while_keeps_its_log_announced() -> None:
    peer = Subscriber()
    peer(Subscribed(logged()))
    peer(Stopping(60 * SECOND))
    assert peer.peer.subscriptions.away_ns == 60 * SECOND
    assert delivered(peer.hear(made(1))) == [1]
