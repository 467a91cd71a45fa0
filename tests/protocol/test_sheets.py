"""Control that is larger than a datagram: nothing is lost or heard twice, and nobody fills the room of others."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.talk import A, B, C, D, S, Talk, sent, tx
from wend.drivers.live import wire
from wend.model.events import PeerId, Subscription, SubscriptionId
from wend.model.units import MS
from wend.protocol.interest.subscriptions import PeerInterest
from wend.protocol.link.control_fragments import (
    MAX_CONTROL_BYTES,
    MAX_SHEETS,
    ROOM_BYTES,
    SHEET_BYTES,
    STALE_NS,
    ControlFragments,
)
from wend.protocol.messages import Ack, Body, Control, ControlFragment, Message, control_kind
from wend.protocol.notices import TOO_LARGE
from wend.protocol.plugins import Tell
from wend.protocol.ports import Effect, LocalSubscription, Notice, Published, Refuse, Send, Subscribed

WIDE = 200
"""Subscriptions of a thousand characters: more than a datagram carries."""


def interest(origin: PeerId, version: int = 1, count: int = WIDE, topic: str = "t") -> PeerInterest:
    texts = [f"topic = '{topic}'", *(f"topic = '{i:04d}{'x' * 1000}'" for i in range(count))]
    wanted = tuple(Subscription(SubscriptionId(origin, i), text) for i, text in enumerate(texts))
    return PeerInterest(origin, (1, version), wanted, ())


def cut(body: Body, sheets: ControlFragments | None = None, slot: str = "i") -> list[ControlFragment]:
    tells = (sheets or ControlFragments()).cut(Tell(B, (slot, S), body), [])
    return [tell.body for tell in tells if isinstance(tell.body, ControlFragment)]


def sheets_to(peer: PeerId, effects: list[Effect]) -> list[Control]:
    found = [m for p, m in sent(effects) if p == peer and isinstance(m, Control)]
    return [m for m in found if isinstance(m.body, ControlFragment)]


def fits(message: Message) -> bool:
    return wire.decode(wire.encode(wire.header(A, B, 1), message)).message == message


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(2, 6), st.integers(0, 20))
def test_sheets_in_any_order_and_number_make_the_whole_once(random: object, count: int, twice: int) -> None:
    body = interest(S, count=count * 15)
    pieces = cut(body)
    assert len(pieces) > 1
    order = pieces + [random.choice(pieces) for _ in range(twice)]  # type: ignore[attr-defined]
    random.shuffle(order)  # type: ignore[attr-defined]
    taken, effects = ControlFragments(), list[Effect]()
    found = [taken.take(0, B, piece, effects) for piece in order if taken.refuses(0, B, piece) is None]
    assert [one for one in found if one is not None] == [body]
    assert (len(found), effects) == (len(order), [])


def test_what_is_small_is_told_as_it_is() -> None:
    small = Tell(B, ("i", S), interest(S, count=1))
    assert ControlFragments().cut(small, []) == [small]


def test_a_newer_telling_replaces_one_that_is_half_there() -> None:
    sender, taken = ControlFragments(), ControlFragments()
    old, new = cut(interest(S, 1), sender), cut(interest(S, 2), sender)
    assert not any(taken.take(0, B, piece, []) for piece in (old[0], *new[:-1], *old[1:]))
    assert taken.take(0, B, new[-1], []) == interest(S, 2)
    again = cut(interest(S, 2), sender)  # told once more: it may have been forgotten meanwhile
    assert [taken.take(0, B, piece, []) for piece in again][-1] == interest(S, 2)


def test_what_nobody_could_put_together_is_not_told_and_counted() -> None:
    effects: list[Effect] = []
    assert ControlFragments().cut(Tell(B, ("i", S), interest(S, count=MAX_CONTROL_BYTES // 1000)), effects) == []
    assert effects == [Notice(TOO_LARGE, B)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"count": 1, "index": 0}, "a fragment of nothing"),
        ({"count": MAX_SHEETS + 1}, "a fragment of nothing"),
        ({"index": -1}, "a fragment of nothing"),
        ({"chunk": b""}, "a malformed fragment"),
        ({"chunk": bytes(SHEET_BYTES + 1)}, "a malformed fragment"),
        ({"slot": ("x" * 65, S)}, "a malformed fragment"),
        ({"count": 3}, "a fragment that does not fit the others"),
    ],
)
def test_a_sheet_that_cannot_be_is_not_acknowledged(change: dict[str, object], reason: str) -> None:
    talk = Talk()
    good = ControlFragment("subscriptions", ("i", S), 1, 1, 2, b"x")
    assert (C, Ack(tx(91))) in sent(talk.hear(0, C, Control(tx(91), good)))
    bad = msgspec.structs.replace(good, **change)
    assert talk.hear(0, C, Control(tx(92), bad)) == [Refuse(C, reason)]


def test_sheets_that_make_no_sense_are_refused() -> None:
    talk = Talk()
    for index in range(2):
        answer = talk.hear(0, C, Control(tx(91 + index), ControlFragment("subscriptions", ("i", S), 1, index, 2, b"x")))
    assert Refuse(C, "fragments that make no sense together") in answer


def test_who_fills_its_room_hurts_nobody_else_and_not_for_ever() -> None:
    taken, chunk = ControlFragments(), bytes(SHEET_BYTES)
    refused = 0
    for number in range(ROOM_BYTES // SHEET_BYTES + 1):
        piece = ControlFragment("subscriptions", (f"i{number}", S), 1, 0, 2, chunk)
        if taken.refuses(0, B, piece) is None:
            taken.take(0, B, piece, [])
        else:
            refused += 1
    assert 0 < refused < ROOM_BYTES // SHEET_BYTES // 2
    assert taken.refuses(0, B, piece) == "more incomplete control than there is room for"
    assert taken.refuses(0, C, piece) is None
    assert taken.refuses(STALE_NS + 1, B, piece) is None


def test_a_new_life_does_not_go_on_with_what_the_former_began() -> None:
    talk = Talk(wants=())
    pieces = cut(interest(S))
    for number, piece in enumerate(pieces[:-1]):
        talk.hear(0, C, Control(tx(91 + number), piece))
    talk.hear(0, C, Control(tx(1, life=2), pieces[-1]))
    assert S not in talk.peer.interest.origins


def test_a_large_interest_is_learned_and_flooded_on_in_datagrams() -> None:
    talk = Talk(wants=())
    acked, told = [], list[Control]()
    for number, piece in enumerate(cut(interest(S))):
        answer = talk.hear(0, C, Control(tx(91 + number), piece))
        acked += [m for p, m in sent(answer) if p == C and isinstance(m, Ack)]
        told += sheets_to(D, answer)
        assert sheets_to(C, answer) == []
    assert acked == [Ack(tx(91 + number)) for number in range(len(acked))]
    assert len(told) == len(acked) > 3
    assert all(fits(message) and control_kind(message) == "subscriptions" for message in told)
    receiver = ControlFragments()
    assert [receiver.take(0, A, m.body, []) for m in told if isinstance(m.body, ControlFragment)][-1] == interest(S)


def test_subscriptions_beside_many_long_topics_get_out() -> None:
    """Offers of one client and a subscription of another travel together, and a lost sheet alone is repeated."""
    talk = Talk(wants=())
    for number in range(256):
        talk(0, Published({"topic": f"{number:03d}/" + "x" * 226}))
    answer = talk(0, Subscribed(LocalSubscription(1, "topic = 'alarm'")))
    told = sheets_to(C, answer)
    assert all(fits(message) for _, message in sent(answer))
    receiver = ControlFragments()
    heard = [receiver.take(0, A, m.body, []) for m in told if isinstance(m.body, ControlFragment)]
    assert isinstance(heard[-1], PeerInterest)
    assert [s.filter for s in heard[-1].subscriptions] == ["topic = 'alarm'"]
    for message in told[1:]:
        talk.hear(20 * MS, C, Ack(message.tx))
    assert [e for e in talk.wake(300 * MS) if isinstance(e, Send) and e.peer == C and e.message in told] == [
        Send(C, told[0])
    ]
