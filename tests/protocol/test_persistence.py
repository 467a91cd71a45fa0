"""Store-and-forward: records before the ACK, retries, recovery after a crash."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.talk import QUIET, A, B, C, D, S, T, Talk, event, sent, tx, wanting
from wend.model.events import Event, EventId, event_bytes
from wend.model.publication import Publication
from wend.model.units import FOREVER, MS, SECOND
from wend.protocol.delivery.retry_queue import RetryQueue
from wend.protocol.messages import Ack, Control, Data
from wend.protocol.notices import NO_ROOM
from wend.protocol.plugins import GiveUp
from wend.protocol.plugins.copy_ranks import fork
from wend.protocol.ports import (
    Deliver,
    Drop,
    Effect,
    LocalSubscription,
    Notice,
    Persist,
    Receipt,
    Send,
    WakeAt,
    Woken,
)
from wend.protocol.records import DeliveredRecord, PendingRecord, ReleasedRecord, StateRecord
from wend.strategies.multipath.plugin import SourceRoutes
from wend.strategies.subscriptions.table import PeerInterest

LINE = {(A, B): 10, (A, C): 10, (C, S): 10, (C, T): 10}
BORN = QUIET - 15 * MS


def packet(number: int = 1, sequence: int = 1, dests: tuple[int, ...] = (S,)) -> Data:
    return Data(tx(number + 100), event(sequence), 5 * MS, dests, (B,))


def records(effects: list[Effect]) -> list[object]:
    return [e.record for e in effects if isinstance(e, Persist)]


def data(effects: list[Effect]) -> list[tuple[int, Data]]:
    return [(to, m) for to, m in sent(effects) if isinstance(m, Data)]


def test_a_record_is_stored_before_the_ack_and_ends_with_the_next_ack() -> None:
    talk = Talk(persistence=True)
    answer = talk.hear(0, B, packet())
    (_, on), *_ = data(answer)
    assert answer == [
        Persist(PendingRecord(event(), BORN, (S,))),
        Send(B, Ack(packet().tx)),
        Send(C, on),
        WakeAt(20 * MS),
    ]
    assert Persist(ReleasedRecord(event().id)) in talk.hear(20 * MS, C, Ack(on.tx))


def test_a_publication_is_stored_before_its_receipt() -> None:
    answer = Talk("d-tree", persistence=True)(0, Publication({"topic": "t"}))
    kinds = [type(e) for e in answer if isinstance(e, Persist | Receipt) or (isinstance(e, Send) and data([e]))]
    assert kinds == [Persist, Receipt, Send]


def test_what_is_notified_is_stored_first() -> None:
    talk = Talk(persistence=True, mine=(LocalSubscription(0, "topic = 't'"),))
    answer = talk.hear(0, B, packet(dests=(A,)))
    assert [type(e) for e in answer] == [Persist, Deliver, Send]
    assert answer[0] == Persist(DeliveredRecord(event().id))


def test_what_cannot_go_on_is_stored_and_tried_again_when_the_link_returns() -> None:
    talk = Talk("d-tree", graph=LINE, persistence=True)
    talk.hear(0, B, packet())
    assert Notice("stored", A) in talk.wake(20 * MS)
    assert talk.hear(30 * MS, C, Ack(tx(77)))[-1] == WakeAt(30 * MS)
    ((to, again),) = data(talk.wake(30 * MS))
    assert (to, again.dests, again.age_ns) == (C, (S,), 45 * MS)
    assert Persist(ReleasedRecord(event().id)) in talk.hear(50 * MS, C, Ack(again.tx))
    assert data(talk.wake(10 * SECOND)) == []


def test_it_is_tried_again_from_time_to_time_where_nothing_is_heard() -> None:
    talk = Talk("d-tree", graph=LINE, persistence=True)
    talk.hear(0, B, packet())
    talk.wake(20 * MS)
    assert data(talk.wake(1019 * MS)) == []
    assert [to for to, _ in data(talk.wake(1020 * MS))] == [C]


def test_a_destination_that_is_back_gets_its_events_soon_also_if_it_is_far() -> None:
    """No link of this peer has changed, and the pauses between attempts have grown."""
    talk = Talk("d-tree", graph=LINE, persistence=True)
    talk.hear(0, B, packet())
    tried = [ms // 1000 for ms in range(10, 20_000, 10) if data(talk.wake(ms * MS))]
    assert tried == [1, 3, 7, 15]
    now = 20 * SECOND
    for version in ((1, 2), (1, 3)):  # it wants something else
        talk.hear(now, B, talk.reliable(B, durably(version)))
        assert data(talk.wake(now)) == []
    talk.hear(now, B, talk.reliable(B, durably((2, 1))))
    assert [(to, m.dests) for to, m in data(talk.wake(now))] == [(C, (S,))]


def durably(version: tuple[int, int], away_ns: int = 0) -> PeerInterest:
    return PeerInterest(S, version, wanting(S).subscriptions, (), True, away_ns)


def test_events_for_a_peer_that_stays_away_are_stored_as_long_as_it_announced() -> None:
    talk = Talk("d-tree", graph=LINE, persistence=True)
    talk.hear(0, B, talk.reliable(B, durably((1, 2), away_ns=10 * SECOND)))
    talk.hear(0, B, packet(dests=(S, T)))
    found = [effect for ms in range(10, 10_000, 10) for effect in talk.wake(ms * MS)]
    assert not [effect for effect in found if isinstance(effect, Drop)]
    assert talk(9 * SECOND, Publication({"topic": "t"}))[-1]
    found = [effect for ms in range(10_000, 20_000, 10) for effect in talk.wake(ms * MS)]
    assert {(e.id.publisher, e.dests, e.code) for e in found if isinstance(e, Drop)} == {
        (A, (S,), "subscriber-away"),
        (B, (S,), "subscriber-away"),
    }
    (receipt,) = [e for e in talk(20 * SECOND, Publication({"topic": "t"})) if isinstance(e, Receipt)]
    assert receipt.targets == (T,)
    talk.hear(20 * SECOND, B, talk.reliable(B, durably((2, 1))))
    (receipt,) = [e for e in talk(20 * SECOND, Publication({"topic": "t"})) if isinstance(e, Receipt)]
    assert receipt.targets == (S, T)


def test_how_long_a_peer_is_away_is_known_after_a_restart() -> None:
    left = (
        StateRecord("flooded", S, durably((1, 5), away_ns=10 * SECOND)),
        PendingRecord(event(1), BORN, (S,)),
    )
    talk = Talk("d-tree", graph=LINE, persistence=True, stored=left, incarnation=2, wants=(), quiet=False)
    found = [effect for ms in range(10, 20_000, 10) for effect in talk.peer.handle(ms * MS, Woken())]
    assert [e for e in found if isinstance(e, Drop)] == [Drop(event(1).id, (S,), "subscriber-away")]


def test_a_peer_without_durable_subscriptions_gets_what_waits_when_it_is_due() -> None:
    talk = Talk("d-tree", graph=LINE, persistence=True)
    talk.hear(0, B, packet())
    talk.wake(20 * MS)
    talk.hear(30 * MS, B, talk.reliable(B, PeerInterest(S, (2, 1), wanting(S).subscriptions, ())))
    assert data(talk.wake(30 * MS)) == []


def test_what_another_copy_took_along_is_not_stored() -> None:
    talk = Talk("multipath", persistence=True, wants=(S,))
    first, second = data(talk(0, Publication({"topic": "t"})))
    assert (first[0], second[0]) == (C, D)
    assert any(isinstance(r, ReleasedRecord) for r in records(talk.hear(20 * MS, C, Ack(first[1].tx))))
    assert Notice("copy-superseded", A) in talk.wake(40 * MS)
    assert data(talk.wake(10 * SECOND)) == []


def test_an_intermediate_peer_sends_a_stored_copy_as_one() -> None:
    talk = Talk("multipath", persistence=True, wants=(S,))
    talk.hear(0, B, Data(tx(101), event(), 5 * MS, (S,), (B,), SourceRoutes(((C, S),))))
    assert Notice("stored", A) in talk.wake(20 * MS)
    assert [(to, m.header) for to, m in data(talk.wake(1020 * MS))] == [(C, SourceRoutes(((S,),)))]


def test_the_ack_of_a_lower_copy_does_not_end_the_record_of_a_higher_one() -> None:
    talk = Talk(persistence=True)
    ((_, on),) = data(talk.hear(0, B, packet()))
    returned = Data(tx(1), event(), 30 * MS, (S,), (B, A, C), None, (fork(0, C),))
    talk.hear(15 * MS, C, returned)  # handed back, and its ACK on the way here was late
    assert records(talk.hear(16 * MS, C, Ack(on.tx))) == []


@pytest.mark.parametrize("limit", [{"retry_limit": 1}, {"store_limit": event_bytes(event(1))}])
def test_when_there_is_no_room_the_oldest_deadline_goes_and_is_counted(limit: dict[str, int]) -> None:
    talk = Talk("d-tree", graph=LINE, persistence=True, wants=(), **limit)
    talk.hear(0, B, talk.reliable(B, wanting(S, deadline_ms=100)))
    talk.hear(0, B, talk.reliable(B, wanting(T, deadline_ms=500)))
    talk.hear(0, B, packet(1, sequence=1, dests=(T,)))
    talk.hear(0, B, packet(2, sequence=2, dests=(S,)))
    answer = talk.wake(20 * MS)
    assert Drop(event(2).id, (S,), NO_ROOM) in answer
    assert Persist(ReleasedRecord(event(2).id)) in answer
    assert [m.event.id.sequence for _, m in data(talk.wake(1020 * MS))] == [1]


def test_a_crash_is_survived() -> None:
    left = (
        PendingRecord(event(1), BORN, (S,)),
        PendingRecord(event(2), BORN, (S, T), (fork(0, C), 0)),
        ReleasedRecord(event(1).id),
        DeliveredRecord(event(3).id),
        StateRecord("flooded", S, PeerInterest(S, (1, 5), wanting(S).subscriptions, ())),
    )
    mine = (LocalSubscription(0, "topic = 't'"),)
    talk = Talk("dcrd", graph=LINE, persistence=True, stored=left, incarnation=2, mine=mine, quiet=False)
    stored = [e for e in talk.heard if isinstance(e, Notice) and e.what == "stored"]
    assert len(stored) == 1
    tried = data(talk.peer.handle(1 * SECOND, Woken()))
    assert [(to, m.event.id.sequence, m.dests) for to, m in tried] == [(C, 2, (S, T))]
    assert tried[0][1].ranks == (fork(fork(0, C), A), fork(0, A))
    assert not [e for e in talk.hear(0, B, packet(1, sequence=3, dests=(A,))) if isinstance(e, Deliver)]


def test_what_a_restarted_peer_remembers_is_told_to_its_neighbours() -> None:
    left = (StateRecord("flooded", S, PeerInterest(S, (1, 5), wanting(S).subscriptions, ())),)
    talk = Talk("d-tree", graph=LINE, persistence=True, stored=left, incarnation=2, wants=(), quiet=False)
    told = [
        (to, m.body.origin) for to, m in sent(talk.heard) if isinstance(m, Control) and isinstance(m.body, PeerInterest)
    ]
    assert {(B, S), (C, S)} <= set(told)


def test_recovered_packets_over_the_limit_are_dropped_aloud() -> None:
    left = tuple(PendingRecord(event(n), BORN + n, (S,)) for n in range(5))
    talk = Talk("d-tree", graph=LINE, persistence=True, retry_limit=2, stored=left, incarnation=2, quiet=False)
    assert len([e for e in talk.heard if isinstance(e, Drop) and e.code == NO_ROOM]) == 3


def test_a_stored_packet_goes_on_where_the_tree_no_longer_passes() -> None:
    graph = {(A, B): 10, (A, C): 10, (B, S): 10, (C, S): 10}  # B's tree reaches S directly, not over A
    talk = Talk("d-tree", graph=graph, persistence=True, wants=(S,))
    assert Notice("stored", A) in talk.hear(0, B, packet())
    assert [m.dests for _, m in data(talk.wake(1 * SECOND))] == [(S,)]


def test_a_partly_handed_on_packet_stays_for_the_rest() -> None:
    queue = RetryQueue(100, 10**9)
    queue.accept(PendingRecord(event(), 0, (S, T)))
    assert queue.hand_over(event().id, (S,), ()) is None
    assert queue.restrict_to_owed(GiveUp(event(), 0, (S, T), "stuck")) == GiveUp(event(), 0, (T,), "stuck", (0,))
    assert queue.hand_over(event().id, (T,), ()) == ReleasedRecord(event().id)
    assert queue.restrict_to_owed(GiveUp(event(), 0, (S, T), "stuck")) is None


def sized(sequence: int, payload: int) -> Event:
    return Event(EventId(B, 1, sequence), {"topic": "t"}, bytes(payload))


moves = st.one_of(
    st.tuples(st.just("wait"), st.integers(0, 9), st.sampled_from([None, 0, 1, 2, 3])),
    st.tuples(st.just("take"), st.integers(1, 3), st.none()),
    st.tuples(st.just("end"), st.integers(0, 9), st.none()),
)


@given(st.lists(moves, max_size=60), st.integers(1, 6), st.integers(1, 6))
def test_the_earliest_deadlines_go_first_whatever_came_before(
    moves: list[tuple[str, int, Any]], limit: int, limit_sizes: int
) -> None:
    """Beside a queue that looks at all of its events each time."""
    events = [sized(number, 100 * (number % 4)) for number in range(10)]
    limit_bytes = limit_sizes * event_bytes(events[2])
    queue, waiting = RetryQueue(limit, limit_bytes), dict[int, int]()
    for kind, number, deadline in moves:
        if kind == "wait":
            queue.accept(PendingRecord(events[number], 0, (S,)))
            lost = queue.wait(GiveUp(events[number], 0, (S,), "stuck"), deadline)
            waiting[number] = min(FOREVER if deadline is None else deadline, waiting.get(number, FOREVER))
            expected = []
            while len(waiting) > limit or sum(event_bytes(events[n]) for n in waiting) > limit_bytes:
                expected.append(min(waiting, key=lambda n: (waiting[n], n)))
                del waiting[expected[-1]]
            assert [one.event.id.sequence for one in lost] == expected
        elif kind == "take":
            for one in queue.take(0, number):
                del waiting[one.event.id.sequence]
        else:
            queue.abandon(events[number].id, (S,))
            waiting.pop(number, None)
        assert len(queue) == len(waiting)
