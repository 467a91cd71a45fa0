"""Events larger than a packet: split, retransmitted where a fragment is lost, reassembled, and bounded."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.talk import A, B, C, D, S, Talk, event, sent, tx, wanting
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.model.events import Event
from wend.model.publication import MAX_PAYLOAD_BYTES, Publication
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.link.event_fragments import IN_FLIGHT, EventReassembly, FragmentedEvent
from wend.protocol.link.fragments import EVENTS, FRAGMENT_BYTES, STALE_NS
from wend.protocol.link.link import Link
from wend.protocol.messages import Ack, Data, Fragment, Hello
from wend.protocol.plugins import Forward
from wend.protocol.ports import Effect, Notice, Persist, Refuse, Send
from wend.protocol.records import ReleasedRecord

LARGE = random.Random(1).randbytes(5 * FRAGMENT_BYTES - 7)


def large(payload: bytes = LARGE, sequence: int = 1) -> Event:
    small = event(sequence)
    return Event(small.id, small.attributes, payload)


def fragments_of(made: Event, first: int = 100, dests: tuple[int, ...] = (S,), age_ns: int = 5 * MS) -> list[Fragment]:
    """As B would send them to A."""
    split = FragmentedEvent(Forward(A, made, -age_ns, dests), tx(first))
    return [split.make_fragment(0, tx(first + 1 + index), index, B) for index in range(split.count)]


def fragments(effects: list[Effect]) -> list[Fragment]:
    return [m for _, m in sent(effects) if isinstance(m, Fragment)]


def link(peer: int = B) -> Link:
    made = Link(peer, 10 * MS, 1.0, PeerConfig(peer=A))
    made.begin_incarnation(1)
    return made


def receive(
    reassembly: EventReassembly, over: Link, pieces: list[Fragment], now: int = 0
) -> tuple[list[Event], list[Effect]]:
    """The events that fragments complete, and what else happens."""
    effects: list[Effect] = []
    found = [reassembly.receive(now, over, piece, effects) for piece in pieces]
    return [one.event for one in found if one is not None], effects


def test_fragments_bring_all_that_an_event_says_of_itself() -> None:
    made = msgspec.structs.replace(
        large(), headers={"a": "b"}, ttl_ns=7 * MS, previous=((A, 3),), groups=(("workers", (A,)),)
    )
    (found,), _ = receive(EventReassembly(), link(), fragments_of(made))
    assert found == made


@settings(max_examples=50)
@given(st.integers(FRAGMENT_BYTES + 1, 40 * FRAGMENT_BYTES), st.randoms(use_true_random=False))
def test_fragments_in_any_order_make_the_event(size: int, order: random.Random) -> None:
    made = large(order.randbytes(size))
    pieces = fragments_of(made)
    order.shuffle(pieces)
    reassembly, over, effects = EventReassembly(), link(), list[Effect]()
    for piece in pieces[:-1]:
        assert reassembly.receive(0, over, piece, effects) is None
    assert effects == [Send(B, Ack(piece.tx)) for piece in pieces[:-1]]
    assert reassembly.size > size - FRAGMENT_BYTES
    done = reassembly.receive(7, over, pieces[-1], effects)
    assert done is not None
    assert done.event == made
    assert len(effects) == len(pieces) - 1, "the last one is acknowledged with the event"
    assert (done.tx, done.dests, done.path) == (pieces[-1].tx, (S,), (B,))
    assert done.age_ns in (5 * MS, 5 * MS + 7)  # it aged while fragments were missing, unless the first came last
    assert reassembly.size == 0
    assert not reassembly


def test_each_fragment_is_acknowledged_and_the_last_one_sends_the_event_on() -> None:
    talk = Talk()
    pieces = fragments_of(large())
    for piece in pieces[:-1]:
        answer = talk.hear(0, B, piece)
        assert answer[0] == Send(B, Ack(piece.tx))
        assert not fragments(answer)
    answer = talk.hear(3 * MS, B, pieces[-1])
    assert answer[0] == Send(B, Ack(pieces[-1].tx, accepted=True))
    on = fragments(answer)
    assert [p.chunk for p in on] == [p.chunk for p in pieces]
    assert on[0].head is not None and (on[0].head.dests, on[0].head.path) == ((S,), (B, A))
    assert on[0].head.age_ns == 5 * MS + 10 * MS + 3 * MS  # as it was sent, the link, and waiting for the rest


def test_a_lost_fragment_is_sent_again_alone() -> None:
    talk = Talk()
    on = fragments(talk.peer.handle(0, Publication({"topic": "t"}, LARGE)))
    assert len(on) == 5
    for fragment in on[:2] + on[3:]:
        talk.hear(1 * MS, C, Ack(fragment.tx))
    again = fragments(talk.wake(20 * MS))
    assert [(p.tx, p.index) for p in again] == [(on[2].tx, 2)]
    assert not fragments(talk.hear(21 * MS, C, Ack(on[2].tx, accepted=True)))
    assert not talk.peer.unfinished()


def test_an_event_that_no_fragment_gets_through_of_takes_another_route() -> None:
    talk = Talk(wants=(S,))
    first = talk.peer.handle(0, Publication({"topic": "t"}, LARGE))
    assert {to for to, m in sent(first) if isinstance(m, Fragment)} == {C}
    seen, now = [], 0
    while now < 2000 * MS and Notice("reroute", C) not in seen:
        now += 5 * MS
        seen += talk.wake(now)
    ((to, first_fragment),) = [(to, m) for to, m in sent(seen) if isinstance(m, Fragment) and to != C]
    rest = fragments(talk.hear(now, to, Ack(first_fragment.tx)))  # it had not answered either, so it was asked with one
    assert [first_fragment.index, *(p.index for p in rest)] == [0, 1, 2, 3, 4]


def test_only_some_fragments_are_in_flight_at_a_time() -> None:
    talk = Talk()
    on = fragments(talk.peer.handle(0, Publication({"topic": "t"}, bytes(100 * FRAGMENT_BYTES))))
    assert len(on) == IN_FLIGHT
    assert [p.index for p in fragments(talk.hear(0, C, Ack(on[0].tx)))] == [IN_FLIGHT]


def test_a_repeated_fragment_is_a_duplicate_also_after_the_event_is_complete() -> None:
    talk = Talk()
    pieces = fragments_of(large())
    talk.hear(0, B, pieces[0])
    assert Notice("duplicate", B) in talk.hear(0, B, pieces[0])
    for piece in pieces[1:]:
        talk.hear(0, B, piece)
    again = talk.hear(1 * MS, B, pieces[-1])
    assert again[:2] == [Notice("duplicate", B), Send(B, Ack(pieces[-1].tx, accepted=True))]
    assert not fragments(again)


DROPPED = "fragment-of-dropped"


def test_without_memory_the_oldest_event_is_dropped_and_its_fragments_are_refused() -> None:
    reassembly, over = EventReassembly(limits=msgspec.structs.replace(EVENTS, neighbour_bytes=10_000)), link()
    old, new = fragments_of(large(bytes(8_000))), fragments_of(large(bytes(8_000), 2), 200)
    _, first = receive(reassembly, over, old[:-1])
    assert {type(e) for e in first} == {Send}
    _, second = receive(reassembly, over, new[:-1])
    assert [e for e in second if not isinstance(e, Send)] == [Notice("reassembly-dropped", B)]
    assert reassembly.size <= 10_000
    assert receive(reassembly, over, [old[-1]]) == ([], [Refuse(B, DROPPED)])
    assert receive(reassembly, over, [new[-1]]) == ([large(bytes(8_000), 2)], [])


def test_a_neighbour_that_sends_too_much_loses_its_own_events_before_those_of_others() -> None:
    limits = msgspec.structs.replace(EVENTS, neighbour_bytes=30_000, total_bytes=40_000)
    reassembly, over_b, over_c = EventReassembly(limits=limits), link(B), link(C)
    modest = fragments_of(large(bytes(8_000)))
    receive(reassembly, over_c, modest[:-1])
    for number in range(20):
        _, effects = receive(reassembly, over_b, fragments_of(large(bytes(8_000), number), 100 + 50 * number)[:-1])
        assert {e.peer for e in effects if isinstance(e, Notice)} <= {B}
        assert reassembly.size <= 40_000
    assert receive(reassembly, over_c, modest[-1:]) == ([large(bytes(8_000))], [])


def test_an_event_that_does_not_grow_is_the_first_to_go() -> None:
    limits = msgspec.structs.replace(EVENTS, neighbour_bytes=20_000)
    reassembly, over = EventReassembly(limits=limits), link()
    grows, stale, new = (fragments_of(large(bytes(8_000), n), 100 * n) for n in (1, 2, 3))
    receive(reassembly, over, grows[:1])
    receive(reassembly, over, stale[:-1])
    receive(reassembly, over, grows[1:-1], now=STALE_NS)
    _, effects = receive(reassembly, over, new[:-1], now=STALE_NS + 1)
    assert [e for e in effects if isinstance(e, Notice)] == [Notice("reassembly-dropped", B)]
    assert receive(reassembly, over, stale[-1:])[1] == [Refuse(B, DROPPED)]
    assert receive(reassembly, over, grows[-1:])[0] == [large(bytes(8_000), 1)]


@pytest.mark.parametrize(
    "bad",
    [
        {"count": 0}, {"count": 1}, {"count": EVENTS.fragments + 1}, {"index": -1}, {"index": 5}, {"chunk": b""},
        {"chunk": bytes(FRAGMENT_BYTES + 1)}, {"head": None}, {"index": 1}, {"count": 6},
        {"head": Data(tx(99), event(), 0, (S,), ranks=(1, 2))},
        {"head": Data(tx(99), event(), 0, (S,), header="of another routing")},
    ],
)  # fmt: skip
def test_an_impossible_fragment_is_refused(bad: dict[str, object]) -> None:
    talk = Talk()
    pieces = fragments_of(large())
    talk.hear(0, B, pieces[1])
    fields = {name: getattr(pieces[0], name) for name in Fragment.__struct_fields__} | bad
    answer = talk.hear(0, B, Fragment(**fields))
    assert [type(e) for e in answer[:1]] == [Refuse]
    assert not any(isinstance(m, Ack) for _, m in sent(answer))


def test_a_new_incarnation_of_a_neighbour_does_not_continue_events_of_the_former_one() -> None:
    talk = Talk()
    pieces = fragments_of(large())
    for piece in pieces[:-1]:
        talk.hear(0, B, piece)
    assert talk.peer.is_reassembling
    talk.hear(0, B, Data(tx(1, incarnation=2), event(9), 0, (A,), (B,)))
    assert not talk.peer.is_reassembling


def test_acks_of_fragments_alone_do_not_release_the_event() -> None:
    talk = Talk(wants=(S,), persistence=True)
    on = fragments(talk(0, Publication({"topic": "t"}, LARGE)))
    answers = [talk.hear(20 * MS, C, Ack(fragment.tx)) for fragment in on]
    assert Notice("not-accepted", C) in answers[-1]
    assert not any(isinstance(e, Persist) for answer in answers for e in answer)
    (to, *_), again = zip(*[(to, m) for to, m in sent(answers[-1]) if isinstance(m, Fragment)], strict=True)
    assert to == D
    ended = talk.hear(60 * MS, D, Ack(again[-1].tx, accepted=True))
    assert Persist(ReleasedRecord(on[0].id)) in ended
    assert not talk.peer.unfinished()


def test_a_new_incarnation_of_a_neighbour_gets_all_fragments() -> None:
    talk = Talk(wants=(S,))
    talk.hear(0, C, talk.reliable(C, wanting(S)))
    on = fragments(talk(0, Publication({"topic": "t"}, LARGE)))
    for fragment in on[:3]:
        talk.hear(20 * MS, C, Ack(fragment.tx))
    restarted = talk.hear(21 * MS, C, Hello(2, hearing=True))
    again = [(to, m.index) for to, m in sent(restarted) if isinstance(m, Fragment)]
    assert again == [(C, index) for index in range(5)]
    assert {p.number for p in fragments(restarted)}.isdisjoint({p.number for p in on})
    for fragment in on[3:]:
        assert talk.hear(22 * MS, C, Ack(fragment.tx)) == [Notice("late-ack", C)]
    assert len(talk.peer.unfinished()) == 1


@pytest.mark.parametrize("incarnation", [1, 2])
def test_fragments_of_two_incarnations_make_no_event(incarnation: int) -> None:
    """Neither where this peer restarted between them, nor where the sender's numbers ran over."""
    pieces = fragments_of(large())
    former = Talk()
    for piece in pieces[:3]:
        former.hear(0, B, piece)
    talk = former if incarnation == 2 else Talk()
    for number, piece in enumerate(pieces[3:]):
        late = Fragment(tx(900 + number, incarnation), piece.number, piece.index, piece.count, piece.id, piece.chunk)
        assert Send(B, Ack(late.tx, accepted=False)) in talk.hear(0, B, late)


def test_an_accepted_event_waits_for_no_lost_ack() -> None:
    talk = Talk(wants=(S,))
    on = fragments(talk(0, Publication({"topic": "t"}, LARGE)))
    talk.hear(20 * MS, C, Ack(on[4].tx, accepted=True))
    assert not talk.peer.unfinished()
    assert not fragments(talk.wake(500 * MS))


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive"])
def test_large_events_survive_lossy_and_failing_links(strategy: str) -> None:
    lossy = Scenario(
        strategy=strategy, topology="regular", peers=8, degree=3, topics=2, pf=0.05, pl=0.03, payload_bytes=20_000,
        duration="20s", persistence=True, heal="20s", drain="30s", transmissions=2,
    )  # fmt: skip
    summary = simulate(lossy).summary
    assert summary.delivery == 1.0
    assert summary.data_packets > 18 * summary.expected


def test_the_largest_event_fits() -> None:
    assert FragmentedEvent(Forward(A, large(bytes(MAX_PAYLOAD_BYTES)), 0, (S,)), 1).count == EVENTS.fragments
