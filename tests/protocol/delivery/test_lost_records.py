"""A peer whose store lost records cannot know what it delivered, so it marks what it may have delivered before."""

import pytest

from tests.protocol.delivery.subscriber import GRACE_NS, Subscriber, deliveries, durable, made
from wend.model.units import SECOND
from wend.protocol.ports import LocalSubscription
from wend.protocol.records import DurableRecord

WANTED = {"durable": durable(), "ordered": durable(order=True), "plain": LocalSubscription(1, "true")}


def restart(kind: str, *, is_damaged: bool) -> Subscriber:
    """A peer that has delivered event 1 to a client, and has restarted with its subscription alone if it is damaged."""
    peer = Subscriber()
    peer.subscribe(WANTED[kind])
    (first,) = deliveries(peer.hear(made(1, previous=0)))
    assert not first.again
    if kind != "plain":
        peer.confirm([first])
    if is_damaged:
        peer.store = [record for record in peer.store if isinstance(record, DurableRecord)]
    peer.now += SECOND
    peer.start(0, lost_records=is_damaged)
    if kind == "plain":
        peer.subscribe(WANTED[kind])
    else:
        peer.attach()
    peer.run(GRACE_NS)
    return peer


@pytest.mark.parametrize("kind", WANTED)
def test_a_peer_with_all_records_delivers_no_event_again(kind: str) -> None:
    peer = restart(kind, is_damaged=False)
    assert deliveries(peer.hear(made(1, previous=0), age=peer.now)) == []
    (new,) = deliveries(peer.hear(made(2, previous=1)))
    assert not new.again


@pytest.mark.parametrize("kind", WANTED)
def test_after_lost_records_an_event_from_before_the_restart_is_marked(kind: str) -> None:
    peer = restart(kind, is_damaged=True)
    (again,) = deliveries(peer.hear(made(1, previous=0), age=peer.now))
    assert again.again
    (new,) = deliveries(peer.hear(made(2, previous=1)))
    assert not new.again


def test_an_event_that_waited_for_its_client_is_marked_too() -> None:
    peer = Subscriber()
    peer.store, peer.now = [], GRACE_NS
    peer.start(0, lost_records=True)
    assert deliveries(peer.hear(made(1), age=SECOND)) == []
    peer.subscribe(WANTED["plain"])
    assert [each.again for each in deliveries(peer.run(GRACE_NS))] == [True]
