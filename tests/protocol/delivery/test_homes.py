"""A durable subscription with homes at several peers, as one of these peers sees it."""

from tests.protocol.delivery.subscriber import Subscriber, delivered, deliveries, durable, made
from wend.model.events import EventId
from wend.model.units import MS, SECOND
from wend.protocol.ports import Attached, Confirmed, StandbyChanged


def ids(*sequences: int) -> tuple[EventId, ...]:
    return tuple(made(sequence).id for sequence in sequences)


def home(*, standby_ns: int = 0, order: bool = False) -> Subscriber:
    peer = Subscriber()
    peer.subscribe(durable(order=order))
    peer(Attached(1, 100, standby_ns=standby_ns, is_shared=True))
    return peer


def test_a_home_on_standby_sends_what_nobody_has_confirmed() -> None:
    peer = home(standby_ns=SECOND)
    peer.run(100 * MS)
    assert delivered(peer.hear(made(1))) == delivered(peer.hear(made(2))) == []
    peer.run(500 * MS)
    assert delivered(peer(Confirmed(1, (), ids(1)))) == []
    effects = peer.run(SECOND)
    assert delivered(effects) == [2] and not deliveries(effects)[0].again
    assert delivered(peer.run(SECOND)) == []


def test_a_home_that_becomes_the_first_sends_at_once() -> None:
    peer = home(standby_ns=SECOND)
    peer.hear(made(1))
    assert delivered(peer(StandbyChanged(1, 0))) == [1]
    assert delivered(peer.hear(made(2))) == [2]
    peer(StandbyChanged(1, SECOND))
    assert delivered(peer.hear(made(3))) == []


def test_an_event_that_was_confirmed_before_it_came_is_not_sent() -> None:
    peer = home()
    peer(Confirmed(1, (), ids(2)))
    assert delivered(peer.hear(made(1))) == [1]
    assert delivered(peer.hear(made(2))) == []
    assert delivered(peer.hear(made(3))) == [3]
    peer.crash()
    assert delivered(peer.attach()) == [1, 3]


def test_confirmations_by_id_survive_a_crash() -> None:
    peer = home(standby_ns=SECOND)
    for sequence in (1, 2, 3):
        peer.hear(made(sequence))
    peer(Confirmed(1, (), ids(1, 3)))
    peer.crash()
    assert delivered(peer.attach()) == [2]


def test_what_may_have_come_from_another_home_is_marked() -> None:
    peer = home(standby_ns=SECOND)
    peer.hear(made(1))
    peer.run(100 * MS)
    peer.detach()
    (first,) = deliveries(peer(Attached(1, 100, is_shared=True)))
    assert first.again, "it came before this client attached"
    (late,) = deliveries(peer.hear(made(2), age=SECOND))
    assert late.again, "it was published before this client attached"
    peer.run(100 * MS)
    (new,) = deliveries(peer.hear(made(3)))
    assert not new.again


def test_a_confirmed_event_holds_up_no_ordered_one() -> None:
    peer = home(order=True)
    assert delivered(peer.hear(made(2, previous=1))) == []
    peer(Confirmed(1, (), ids(1, 2)))
    assert delivered(peer.hear(made(1, previous=0))) == []
    assert delivered(peer.hear(made(3, previous=2))) == [3]
