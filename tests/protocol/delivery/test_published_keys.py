"""Keys of publications: published again with the same key, an event is one event, wherever and whenever."""

import pytest

from tests.protocol.delivery.subscriber import Subscriber, delivered, durable, made, missed, noticed
from wend.model.events import KEY_HEADER, Event, EventId, Qos
from wend.model.publication import Publication
from wend.model.units import SECOND
from wend.protocol.delivery.published_keys import MAX_KEYS, WINDOW_NS, PublishedKeys
from wend.protocol.ports import Effect, LocalSubscription, Receipt, Subscribed
from wend.protocol.records import KeyRecord

PLAIN = LocalSubscription(1, "true")


def keyed(sequence: int, key: str = "order-17", **fields: object) -> Event:
    return made(sequence, headers={KEY_HEADER: key}, **fields)


def receipts(effects: list[Effect]) -> list[Receipt]:
    return [effect for effect in effects if isinstance(effect, Receipt)]


def test_an_event_that_was_published_elsewhere_with_the_same_key_is_not_delivered_again() -> None:
    peer = Subscriber()
    peer(Subscribed(PLAIN))
    assert delivered(peer.hear(keyed(1))) == [1]
    again = peer.hear(keyed(1, incarnation=2))
    assert (delivered(again), noticed(again, "repeated-key")) == ([], 1)
    assert delivered(peer.hear(keyed(2, "order-18"))) == [2]


@pytest.mark.parametrize("crashes", [0, 2])
def test_a_restart_remembers_keys(crashes: int) -> None:
    peer = Subscriber()
    peer.subscribe(durable())
    peer.confirm([e for e in peer.hear(keyed(1)) if hasattr(e, "position")])
    for _ in range(crashes):
        peer.crash()
    peer.attach()
    assert delivered(peer.hear(keyed(1, incarnation=2))) == []


def test_a_key_is_free_again_after_its_window() -> None:
    peer = Subscriber()
    peer(Subscribed(PLAIN))
    peer.hear(keyed(1))
    peer.run(WINDOW_NS - SECOND)
    assert delivered(peer.hear(keyed(2))) == []
    peer.run(2 * SECOND)
    assert delivered(peer.hear(keyed(3))) == [3]


def test_an_event_that_is_not_delivered_again_holds_up_no_ordered_one() -> None:
    peer = Subscriber()
    peer(Subscribed(LocalSubscription(1, "true", Qos(order=True))))
    peer.hear(keyed(1, previous=0))
    peer.hear(made(3, previous=2))
    told = peer.hear(keyed(2, previous=1))
    assert (delivered(told), missed(told)) == ([3], [])


def test_published_again_at_the_same_peer_it_has_the_receipt_of_the_first() -> None:
    peer = Subscriber(neighbours=())
    peer(Subscribed(PLAIN))
    order = Publication({"n": 1}, headers={KEY_HEADER: "a"})
    told = peer(order)
    (first,) = receipts(told)
    assert delivered(told) == [first.id.sequence] and not first.is_repeated
    told = peer(order)
    (again,) = receipts(told)
    assert delivered(told) == []
    assert (again.id, again.is_repeated) == (first.id, True)
    peer.crash()
    peer(Subscribed(PLAIN))
    told = peer(order)
    assert (delivered(told), [each.id for each in receipts(told)]) == ([], [first.id])


def test_a_peer_that_got_the_event_from_elsewhere_names_it_in_the_receipt() -> None:
    peer = Subscriber()
    peer(Subscribed(PLAIN))
    peer.hear(keyed(5))
    (receipt,) = receipts(peer(Publication({"n": 1}, headers={KEY_HEADER: "order-17"})))
    assert (receipt.id, receipt.is_repeated) == (keyed(5).id, True)


def test_the_same_event_by_two_ways_has_its_key_once() -> None:
    keys = PublishedKeys(persistence=False)
    assert keys.add(0, keyed(1), 0, []) and keys.add(0, keyed(1), 0, [])


def test_keys_are_bounded() -> None:
    keys = PublishedKeys(persistence=False)
    for number in range(MAX_KEYS + 1):
        keys.restore(KeyRecord(str(number), EventId(1, 1, number), 0))
    assert keys.find(0, {KEY_HEADER: "0"}) is None
    assert keys.find(0, {KEY_HEADER: "1"}) == EventId(1, 1, 1)
