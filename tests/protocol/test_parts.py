"""Events larger than a packet: cut, repeated where a part is lost, put together, and bounded."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.talk import A, B, C, D, S, T, Talk, event, sent, tx, wanting
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.model.events import Event
from wend.model.units import MS
from wend.protocol.link.fragments import (
    IN_FLIGHT,
    MAX_PARTS,
    MAX_PAYLOAD_BYTES,
    PART_BYTES,
    FragmentedEvent,
    Reassembly,
)
from wend.protocol.messages import Ack, Data, Fragment, Hello
from wend.protocol.plugins import Forward
from wend.protocol.ports import Notice, Persist, Published, Refuse, Send
from wend.protocol.records import ReleasedRecord

LARGE = random.Random(1).randbytes(5 * PART_BYTES - 7)


def large(payload: bytes = LARGE, sequence: int = 1) -> Event:
    small = event(sequence)
    return Event(small.id, small.attributes, payload)


def parts_of(whole: Event, first: int = 100, dests: tuple[int, ...] = (S,), age_ns: int = 5 * MS) -> list[Fragment]:
    """As B would send them to A."""
    cut = FragmentedEvent(Forward(A, whole, -age_ns, dests), tx(first))
    return [cut.part(0, tx(first + 1 + index), index, B) for index in range(cut.count)]


def parts(effects: list) -> list[Fragment]:
    return [m for _, m in sent(effects) if isinstance(m, Fragment)]


@settings(max_examples=50)
@given(st.integers(PART_BYTES + 1, 40 * PART_BYTES), st.randoms(use_true_random=False))
def test_in_whatever_order_parts_come_the_event_is_whole(size: int, order: random.Random) -> None:
    made = large(order.randbytes(size))
    pieces = parts_of(made)
    order.shuffle(pieces)
    assembly = Reassembly()
    for piece in pieces[:-1]:
        assert assembly.refuses(B, piece) is None
        assert not assembly.completes(B, piece)
        assembly.add(0, B, piece)
    assert assembly.completes(B, pieces[-1])
    done = assembly.finish(7, B, pieces[-1])
    assert done.event == made
    assert (done.tx, done.dests, done.path) == (pieces[-1].tx, (S,), (B,))
    assert done.age_ns in (5 * MS, 5 * MS + 7)  # it aged while parts were missing, unless the first came last
    assert assembly._held == 0


def test_each_part_is_acknowledged_and_the_last_one_brings_the_event_on_its_way() -> None:
    talk = Talk()
    pieces = parts_of(large())
    for piece in pieces[:-1]:
        answer = talk.hear(0, B, piece)
        assert answer[0] == Send(B, Ack(piece.tx))
        assert not parts(answer)
    answer = talk.hear(3 * MS, B, pieces[-1])
    assert answer[0] == Send(B, Ack(pieces[-1].tx, taken=True))
    on = parts(answer)
    assert [p.chunk for p in on] == [p.chunk for p in pieces]
    assert on[0].head is not None and (on[0].head.dests, on[0].head.path) == ((S,), (B, A))
    assert on[0].head.age_ns == 5 * MS + 10 * MS + 3 * MS  # as it was sent, the link, and waiting for the rest


def test_a_part_that_is_lost_is_sent_again_alone() -> None:
    talk = Talk()
    on = parts(talk.peer.handle(0, Published({"topic": "t"}, LARGE)))
    assert len(on) == 5
    for part in on[:2] + on[3:]:
        talk.hear(1 * MS, C, Ack(part.tx))
    again = parts(talk.wake(20 * MS))
    assert [(p.tx, p.index) for p in again] == [(on[2].tx, 2)]
    assert not parts(talk.hear(21 * MS, C, Ack(on[2].tx, taken=True)))
    assert not talk.peer.transmissions.under_way()


def test_what_no_part_gets_through_goes_another_way_as_a_whole() -> None:
    talk = Talk(wants=(S,))
    first = talk.peer.handle(0, Published({"topic": "t"}, LARGE))
    assert {to for to, m in sent(first) if isinstance(m, Fragment)} == {C}
    seen, now = [], 0
    while now < 2000 * MS and Notice("reroute", C) not in seen:
        now += 5 * MS
        seen += talk.wake(now)
    ((to, first_part),) = [(to, m) for to, m in sent(seen) if isinstance(m, Fragment) and to != C]
    rest = parts(talk.hear(now, to, Ack(first_part.tx)))  # it had not answered either, so it was asked with one
    assert [first_part.index, *(p.index for p in rest)] == [0, 1, 2, 3, 4]


def test_only_some_parts_are_under_way_at_a_time() -> None:
    talk = Talk()
    on = parts(talk.peer.handle(0, Published({"topic": "t"}, bytes(100 * PART_BYTES))))
    assert len(on) == IN_FLIGHT
    assert [p.index for p in parts(talk.hear(0, C, Ack(on[0].tx)))] == [IN_FLIGHT]


def test_a_part_twice_is_a_duplicate_also_after_the_event_is_whole() -> None:
    talk = Talk()
    pieces = parts_of(large())
    talk.hear(0, B, pieces[0])
    assert Notice("duplicate", B) in talk.hear(0, B, pieces[0])
    for piece in pieces[1:]:
        talk.hear(0, B, piece)
    again = talk.hear(1 * MS, B, pieces[-1])
    assert again[:2] == [Notice("duplicate", B), Send(B, Ack(pieces[-1].tx, taken=True))]
    assert not parts(again)


def test_without_room_the_oldest_goes_and_its_parts_are_not_acknowledged_any_more() -> None:
    assembly = Reassembly(room_bytes=10_000)
    old, new = parts_of(large(bytes(8_000))), parts_of(large(bytes(8_000), 2), 200)
    assert sum(assembly.add(0, B, piece) for piece in old[:-1]) == 0
    assert sum(assembly.add(0, B, piece) for piece in new[:-1]) == 1
    assert assembly.refuses(B, old[-1]) == "a fragment of an event that was dropped"
    assert assembly.refuses(B, new[-1]) is None
    assert assembly.finish(0, B, new[-1]).event.payload == bytes(8_000)


@pytest.mark.parametrize(
    "bad",
    [
        {"count": 0}, {"count": 1}, {"count": MAX_PARTS + 1}, {"index": -1}, {"index": 5}, {"chunk": b""},
        {"chunk": bytes(PART_BYTES + 1)}, {"head": None}, {"index": 1}, {"count": 6},
        {"head": Data(tx(99), event(), 0, (S,), routes=((S,), (T,)))},
    ],
)  # fmt: skip
def test_a_part_that_cannot_be_is_refused(bad: dict[str, object]) -> None:
    talk = Talk()
    pieces = parts_of(large())
    talk.hear(0, B, pieces[1])
    fields = {name: getattr(pieces[0], name) for name in Fragment.__struct_fields__} | bad
    answer = talk.hear(0, B, Fragment(**fields))
    assert [type(e) for e in answer[:1]] == [Refuse]
    assert not any(isinstance(m, Ack) for _, m in sent(answer))


def test_a_neighbours_new_life_does_not_go_on_with_the_old_ones_parts() -> None:
    talk = Talk()
    pieces = parts_of(large())
    for piece in pieces[:-1]:
        talk.hear(0, B, piece)
    talk.hear(0, B, Data(tx(1, life=2), event(9), 0, (A,), (B,)))
    assert not talk.peer._assembly._unfinished


def test_parts_acknowledged_one_by_one_do_not_end_the_duty() -> None:
    talk = Talk(wants=(S,), persistency=True)
    on = parts(talk(0, Published({"topic": "t"}, LARGE)))
    answers = [talk.hear(20 * MS, C, Ack(part.tx)) for part in on]
    assert Notice("not-accepted", C) in answers[-1]
    assert not any(isinstance(e, Persist) for answer in answers for e in answer)
    (to, *_), again = zip(*[(to, m) for to, m in sent(answers[-1]) if isinstance(m, Fragment)], strict=True)
    assert to == D
    ended = talk.hear(60 * MS, D, Ack(again[-1].tx, taken=True))
    assert Persist(ReleasedRecord(on[0].id)) in ended
    assert not talk.peer.transmissions.under_way()


def test_a_neighbours_new_life_gets_all_parts() -> None:
    talk = Talk(wants=(S,))
    talk.hear(0, C, talk.reliable(C, wanting(S)))
    on = parts(talk(0, Published({"topic": "t"}, LARGE)))
    for part in on[:3]:
        talk.hear(20 * MS, C, Ack(part.tx))
    restarted = talk.hear(21 * MS, C, Hello(2, hearing=True))
    again = [(to, m.index) for to, m in sent(restarted) if isinstance(m, Fragment)]
    assert again == [(C, index) for index in range(5)]
    assert {p.whole for p in parts(restarted)}.isdisjoint({p.whole for p in on})
    for part in on[3:]:
        assert talk.hear(22 * MS, C, Ack(part.tx)) == [Notice("late-ack", C)]
    assert len(talk.peer.transmissions.under_way()) == 1


@pytest.mark.parametrize("life", [1, 2])
def test_parts_of_two_lives_make_no_event(life: int) -> None:
    """Neither where this peer restarted between them, nor where the sender's numbers ran over."""
    pieces = parts_of(large())
    former = Talk()
    for piece in pieces[:3]:
        former.hear(0, B, piece)
    talk = former if life == 2 else Talk()
    for number, piece in enumerate(pieces[3:]):
        late = Fragment(tx(900 + number, life), piece.whole, piece.index, piece.count, piece.id, piece.chunk)
        assert Send(B, Ack(late.tx, taken=False)) in talk.hear(0, B, late)


def test_an_event_taken_on_waits_for_no_lost_ack() -> None:
    talk = Talk(wants=(S,))
    on = parts(talk(0, Published({"topic": "t"}, LARGE)))
    talk.hear(20 * MS, C, Ack(on[4].tx, taken=True))
    assert not talk.peer.transmissions.under_way()
    assert not parts(talk.wake(500 * MS))


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive"])
def test_large_events_survive_lossy_and_failing_links(strategy: str) -> None:
    lossy = Scenario(
        strategy=strategy, topology="regular", peers=8, degree=3, topics=2, pf=0.05, pl=0.03, payload_bytes=20_000,
        duration="20s", persistency=True, heal="20s", drain="30s", transmissions=2,
    )  # fmt: skip
    summary = simulate(lossy).summary
    assert summary.delivery == 1.0
    assert summary.transmissions > 18 * summary.expected


def test_the_largest_event_fits() -> None:
    assert FragmentedEvent(Forward(A, large(bytes(MAX_PAYLOAD_BYTES)), 0, (S,)), 1).count == MAX_PARTS
