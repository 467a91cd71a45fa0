"""Control larger than a datagram: no message is lost or heard twice, and nobody uses up the memory of others."""

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drivers.live import datagrams
from tests.protocol.talk import A, B, C, D, S, Talk, sent, tx
from wend.drivers.live.transport import wire
from wend.model.events import Event, EventId, PeerId, Subscription, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import MS, Nanos
from wend.protocol.link.control_fragments import ControlFragments
from wend.protocol.link.fragments import CONTROL, CONTROL_FRAGMENT_BYTES, STALE_NS
from wend.protocol.link.retransmission import OutgoingControl
from wend.protocol.messages import MAX_CONTROL_BYTES, Ack, Control, ControlFragment, Message, control_name
from wend.protocol.notices import TOO_LARGE
from wend.protocol.plugins import FLOODED
from wend.protocol.ports import Effect, LocalSubscription, Notice, Refuse, Send, Subscribed
from wend.strategies.clusters.interest.messages import TreeEvent
from wend.strategies.subscriptions.table import PAUSE_NS, PeerInterest

WIDE = 200
"""Subscriptions of a thousand characters: more than a datagram carries."""
TYPES = wire.MessageTypes(Talk().peer.message_types, Talk().peer.header_type)


def interest(origin: PeerId, version: int = 1, count: int = WIDE, topic: str = "t") -> PeerInterest:
    texts = [f"topic = '{topic}'", *(f"topic = '{i:04d}{'x' * 1000}'" for i in range(count))]
    wanted = tuple(Subscription(SubscriptionId(origin, i), text) for i, text in enumerate(texts))
    return PeerInterest(origin, (1, version), wanted, ())


def split(body: PeerInterest, fragments: ControlFragments | None = None, slot: str = "i") -> list[ControlFragment]:
    found = (fragments or ControlFragments()).split(OutgoingControl(B, FLOODED, (slot, S), body), [])
    return [control.body for control in found if isinstance(control.body, ControlFragment)]


def receive(
    receiver: ControlFragments,
    piece: ControlFragment,
    effects: list[Effect] | None = None,
    sender: PeerId = B,
    now: Nanos = 0,
) -> PeerInterest | None:
    """The message that a fragment completes, as a peer would find it."""
    effects = [] if effects is None else effects
    if not receiver.accept(now, sender, FLOODED, piece, effects):
        return None
    found = receiver.pop_complete(sender, FLOODED, piece, PeerInterest, effects)
    assert found is None or isinstance(found, PeerInterest)
    return found


def refuses(receiver: ControlFragments, piece: ControlFragment, sender: PeerId = B, now: Nanos = 0) -> str | None:
    effects: list[Effect] = []
    accepted = receiver.accept(now, sender, FLOODED, piece, effects)
    reasons = [e.code for e in effects if isinstance(e, Refuse)]
    assert accepted == (not reasons)
    return reasons[0] if reasons else None


def fragments_to(peer: PeerId, effects: list[Effect]) -> list[Control]:
    found = [m for p, m in sent(effects) if p == peer and isinstance(m, Control)]
    return [m for m in found if isinstance(m.body, ControlFragment)]


def fits(message: Message) -> bool:
    return datagrams.decode(datagrams.encode(wire.make_header(A, B, 1), message), TYPES).message == message


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(2, 6), st.integers(0, 20))
def test_fragments_in_any_order_and_number_make_the_message_once(random: Random, count: int, twice: int) -> None:
    body = interest(S, count=count * 15)
    pieces = split(body)
    assert len(pieces) > 1
    order = pieces + [random.choice(pieces) for _ in range(twice)]
    random.shuffle(order)
    receiver, effects = ControlFragments(), list[Effect]()
    found = [receive(receiver, piece, effects) for piece in order]
    assert [one for one in found if one is not None] == [body]
    assert effects == []


def test_a_small_message_is_sent_as_it_is() -> None:
    small = OutgoingControl(B, FLOODED, ("i", S), interest(S, count=1))
    assert ControlFragments().split(small, []) == [small]


def test_a_newer_message_replaces_one_that_is_incomplete() -> None:
    sender, receiver = ControlFragments(), ControlFragments()
    old, new = split(interest(S, 1), sender), split(interest(S, 2), sender)
    assert not any(receive(receiver, piece) for piece in (old[0], *new[:-1], *old[1:]))
    assert receive(receiver, new[-1]) == interest(S, 2)
    again = split(interest(S, 2), sender)  # sent once more: the receiver may have forgotten it meanwhile
    assert [receive(receiver, piece) for piece in again][-1] == interest(S, 2)


def test_a_message_that_nobody_would_reassemble_is_not_sent_but_counted() -> None:
    effects: list[Effect] = []
    large = OutgoingControl(B, FLOODED, ("i", S), interest(S, count=MAX_CONTROL_BYTES // 1000))
    assert ControlFragments().split(large, effects) == []
    assert effects == [Notice(TOO_LARGE, B)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"count": 1, "index": 0}, "invalid-fragment-index"),
        ({"count": CONTROL.fragments + 1}, "invalid-fragment-index"),
        ({"index": -1}, "invalid-fragment-index"),
        ({"chunk": b""}, "malformed-fragment"),
        ({"chunk": bytes(CONTROL_FRAGMENT_BYTES + 1)}, "malformed-fragment"),
        ({"slot": ("x" * 65, S)}, "malformed-fragment"),
        ({"count": 3}, "fragment-mismatch"),
    ],
)
def test_an_impossible_fragment_is_not_acknowledged(change: dict[str, object], reason: str) -> None:
    talk = Talk()
    good = ControlFragment(("i", S), 1, 1, 2, b"x")
    assert (C, Ack(tx(91))) in sent(talk.hear(0, C, Control(tx(91), FLOODED, good)))
    bad = msgspec.structs.replace(good, **change)
    assert talk.hear(0, C, Control(tx(92), FLOODED, bad)) == [Refuse(C, reason)]


def test_fragments_that_make_no_sense_are_refused() -> None:
    talk = Talk()
    for index in range(2):
        fragment = ControlFragment(("i", S), 1, index, 2, b"x")
        answer = talk.hear(0, C, Control(tx(91 + index), FLOODED, fragment))
    assert Refuse(C, "undecodable-fragments") in answer


def test_a_fragment_for_a_plug_in_that_is_not_hosted_is_refused_and_not_held() -> None:
    talk = Talk()
    for number in range(3):
        fragment = ControlFragment(("i", S), 1, 0, 2, b"x")
        answer = talk.hear(0, C, Control(tx(91 + number), "unknown", fragment))
        assert Refuse(C, "unknown-plugin") in answer


def test_a_neighbour_that_uses_up_its_memory_hurts_nobody_else_and_not_for_ever() -> None:
    receiver, chunk = ControlFragments(), bytes(CONTROL_FRAGMENT_BYTES)
    most = CONTROL.neighbour_bytes // CONTROL_FRAGMENT_BYTES
    refused = 0
    for number in range(most + 1):
        piece = ControlFragment((f"i{number}", S), 1, 0, 2, chunk)
        refused += refuses(receiver, piece) is not None
    assert 0 < refused < most // 2
    assert refuses(receiver, piece) == "reassembly-full"
    assert refuses(receiver, piece, sender=C) is None
    assert refuses(receiver, piece, now=STALE_NS + 1) is None


def test_memory_for_all_neighbours_together_is_bounded() -> None:
    receiver, chunk = ControlFragments(), bytes(CONTROL_FRAGMENT_BYTES)
    accepted = 0
    for sender in range(100, 140):
        for number in range(CONTROL.neighbour_bytes // CONTROL_FRAGMENT_BYTES // 4):
            piece = ControlFragment((f"i{number}", S), 1, 0, 2, chunk)
            accepted += refuses(receiver, piece, sender=sender) is None
    assert CONTROL.total_bytes * 0.9 < accepted * CONTROL_FRAGMENT_BYTES <= CONTROL.total_bytes


def test_a_fragment_of_a_message_that_was_dropped_is_refused_and_a_newer_message_is_not() -> None:
    receiver, chunk = ControlFragments(), bytes(CONTROL_FRAGMENT_BYTES)
    stale = ControlFragment(("stale", S), 5, 0, 2, chunk)
    assert refuses(receiver, stale) is None
    effects: list[Effect] = []
    for number in range(CONTROL.neighbour_bytes // CONTROL_FRAGMENT_BYTES):
        receiver.accept(STALE_NS + 1, B, FLOODED, ControlFragment((f"i{number}", S), 1, 0, 2, chunk), effects)
    assert Notice("reassembly-dropped", B) in effects
    assert refuses(receiver, msgspec.structs.replace(stale, index=1)) == "fragment-of-dropped"
    receiver.forget(B)
    assert refuses(receiver, msgspec.structs.replace(stale, index=1)) is None


def test_a_new_incarnation_does_not_continue_a_message_of_the_former_one() -> None:
    talk = Talk(wants=())
    pieces = split(interest(S))
    for number, piece in enumerate(pieces[:-1]):
        talk.hear(0, C, Control(tx(91 + number), FLOODED, piece))
    talk.hear(0, C, Control(tx(1, incarnation=2), FLOODED, pieces[-1]))
    assert S not in talk.peer.subscriptions.origins


def test_a_large_interest_is_learned_and_flooded_on_in_datagrams() -> None:
    talk = Talk(wants=())
    acked, told = [], list[Control]()
    for number, piece in enumerate(split(interest(S))):
        answer = talk.hear(0, C, Control(tx(91 + number), FLOODED, piece))
        acked += [m for p, m in sent(answer) if p == C and isinstance(m, Ack)]
        told += fragments_to(D, answer)
        assert fragments_to(C, answer) == []
    assert acked == [Ack(tx(91 + number)) for number in range(len(acked))]
    assert len(told) == len(acked) > 3
    assert all(fits(message) and control_name(message) == FLOODED for message in told)
    receiver = ControlFragments()
    assert [receive(receiver, m.body, sender=A) for m in told][-1] == interest(S)


def test_subscriptions_beside_many_long_topics_get_out() -> None:
    """Advertisements of one client and a subscription of another travel together; a lost fragment alone is repeated."""
    talk = Talk(wants=())
    for number in range(256):
        talk(0, Publication({"topic": f"{number:03d}/" + "x" * 226}))
    talk(0, Subscribed(LocalSubscription(1, "topic = 'alarm'")))
    answer = talk.wake(PAUSE_NS)
    told = fragments_to(C, answer)
    assert all(fits(message) for _, message in sent(answer))
    receiver = ControlFragments()
    heard = [receive(receiver, m.body, sender=A) for m in told]
    assert heard[-1] is not None
    assert [s.filter for s in heard[-1].subscriptions] == ["topic = 'alarm'"]
    for message in told[1:]:
        talk.hear(PAUSE_NS + 20 * MS, C, Ack(message.tx))
    assert [e for e in talk.wake(350 * MS) if isinstance(e, Send) and e.peer == C and e.message in told] == [
        Send(C, told[0])
    ]


def test_fragments_do_not_hide_an_event() -> None:
    """A driver looks into messages with events, because a neighbour may forward only those of some publishers."""
    event = Event(EventId(D, 1, 1), {"topic": "t"}, bytes(2 * CONTROL_FRAGMENT_BYTES))
    hidden = TreeEvent("here", 0, "there", "t", 1, event, 0, 0)
    pieces = [
        control.body for control in ControlFragments().split(OutgoingControl(B, "cluster-trees", ("t", D), hidden), [])
    ]
    receiver, effects = ControlFragments(), list[Effect]()
    for piece in pieces:
        assert isinstance(piece, ControlFragment) and receiver.accept(0, B, "cluster-trees", piece, effects)
        assert receiver.pop_complete(B, "cluster-trees", piece, TreeEvent, effects) is None
    assert len(pieces) > 1 and effects == [Refuse(B, "undecodable-fragments")]
