"""Claims that a peer is at an address: who is believed, and what hostile peers cannot do."""

import pytest

from tests.drivers.live import datagrams
from tests.drivers.live.locators import Net, at, datagram, message, ring
from tests.errors import raises
from wend.drivers.live.addressing import address_messages
from wend.drivers.live.addressing.address_claims import CLAIM_TRIES, MAX_CLAIMS
from wend.drivers.live.addressing.address_messages import ANYONE, AddressQuery, AddressReply, KnownAddress
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.wire import Header
from wend.model.units import MS

STRANGER = "stranger"
STALE = "stale"
GARBAGE = "garbage"
MISDIRECTED = "misdirected"
SAME_ID = "id-of-other-peer"
NO_ROOM = "short-address-question"
UNASKED = "unexpected-addresses"

QUERY = AddressQuery(7, None, bytes(32))


# ---------------------------------------------------------------- claims


def test_a_stranger_is_admitted_once_its_address_has_answered() -> None:
    net = Net()
    here = net.start(1, 1)
    net.start(2, 2)
    assert net.speak(here, 2, at(2), text=b"one") and net.speak(here, 2, at(2), text=b"two")
    assert here.admitted == [] and 2 not in here.book.reachable
    net.now += 70 * MS
    net.run()
    assert here.waited_ns == [70 * MS, 70 * MS]
    assert [datagram[-3:] for datagram in here.admitted] == [b"one", b"two"]
    assert here.book.reachable == {2: at(2)}


def test_a_forged_source_changes_nothing() -> None:
    net = Net()
    here = net.start(1, 1)
    net.start(2, 2)
    net.speak(here, 5, at(9))  # nobody is there
    net.speak(here, 5, at(2))  # peer 2 is
    net.run(3)
    assert here.book.reachable == {} and here.admitted == []
    assert here.counters.refused[STRANGER] == 2


def test_an_id_stays_with_the_peer_that_still_answers() -> None:
    net = ring(6)
    here = net.places[at(2)]
    net.start(3, 50, incarnation=9)
    before = len(here.admitted)
    assert net.speak(here, 3, at(50), incarnation=9)
    net.run(3)
    assert here.book.reachable[3] == at(3) and len(here.admitted) == before
    assert here.counters.refused[SAME_ID] == 1


def test_an_id_moves_when_its_old_address_is_silent() -> None:
    net = ring(6)
    here = net.places[at(2)]
    net.end(net.places[at(3)])
    net.start(3, 50, incarnation=2)
    before = len(here.admitted)
    net.speak(here, 3, at(50), incarnation=2)
    net.run(0.5)
    assert here.book.reachable[3] == at(3)
    net.run(2)
    assert here.book.reachable[3] == at(50) and len(here.admitted) == before + 1
    assert here.book.identify(Header(3, 2, 2), at(3)) == "stranger"


def test_an_earlier_incarnation_is_stale_wherever_it_is() -> None:
    net = ring(6)
    here = net.places[at(2)]
    here.book.confirm(Header(3, 2, 5), at(3), b"head")
    assert net.speak(here, 3, at(50), incarnation=4)
    assert here.counters.refused[STALE] == 1 and not net.wires


def test_a_peer_may_have_two_addresses() -> None:
    net = ring(6)
    here, there = net.places[at(2)], net.places[at(3)]
    net.places[at(60)] = there
    there.address = at(60)
    net.speak(here, 3, at(60))
    while net.wires:
        source, to, datagram = net.wires.popleft()
        answered = at(60) if to == at(60) else at(3)
        if to in (at(3), at(60)):
            there.address = answered
            net.hear(there, source, datagram)
        elif to in net.places:
            net.hear(net.places[to], source, datagram)
    assert here.book.reachable[3] == at(60)
    assert here.book.identify(Header(3, 2, 1), at(3)) == here.book.identify(Header(3, 2, 1), at(60)) == 3


def test_claims_are_bounded() -> None:
    net = Net()
    here = net.start(1, 1)
    held = [net.speak(here, 2, at(number)) for number in range(10, 10 + MAX_CLAIMS + 3)]
    assert held == [True] * MAX_CLAIMS + [False] * 3
    net.run(CLAIM_TRIES)
    assert here.counters.refused[STRANGER] == MAX_CLAIMS


def test_the_oldest_address_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wend.drivers.live.addressing.learned_addresses.MAX_LEARNED", 3)
    net = Net()
    here = net.start(1, 1)
    for peer in range(2, 7):
        net.start(peer, peer)
        net.speak(here, peer, at(peer))
        net.run()
        here.book.confirm(Header(peer, 1, 9), at(peer), b"head")
    assert set(here.book.reachable) == {4, 5, 6} and here.forgotten == [2, 3]
    assert [here.book.incarnation(peer) for peer in (2, 3, 4)] == [0, 0, 9] and len(here.book.verified) == 3


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (datagram(AddressReply(77, 1)), UNASKED),
        (datagram(QUERY, receiver=3), MISDIRECTED),
        (datagram(AddressQuery(7)), NO_ROOM),
        (datagram(QUERY, sender=2**40), GARBAGE),
        (datagram(AddressReply(1, 1, (KnownAddress(2, "127.0.0.1", 0),))), GARBAGE),
        (datagram(AddressReply(1, 1, (KnownAddress(2, "127.0.0.1", 70000),))), GARBAGE),
        (datagram(AddressReply(1, 1, (KnownAddress(2**40, "127.0.0.1", 7),))), GARBAGE),
        (datagram(AddressReply(1, 1, (KnownAddress(2, "127.0.0.1", 7),) * 5)), GARBAGE),
        (datagram(QUERY)[:-3], GARBAGE),
        (datagram(QUERY)[:28] + b"\xc1", GARBAGE),
    ],
)
def test_a_message_about_addresses_that_cannot_be_is_counted(body: bytes, refused: str) -> None:
    net = Net()
    here = net.start(1, 1)
    net.hear(here, at(2), body)
    assert here.counters.refused == {refused: 1} and not net.wires and not here.book.reachable


def test_an_answer_from_elsewhere_counts_for_nothing() -> None:
    net = Net()
    here = net.start(1, 1)
    net.speak(here, 2, at(2))
    _, _, asked = net.wires.popleft()
    question = address_messages.decode_address_message(1, wire.unframe_datagram(asked).body)
    net.hear(here, at(3), datagram(AddressReply(question.number, 5)))
    assert here.counters.refused[UNASKED] == 1 and not here.book.reachable


@pytest.mark.parametrize("host", ["localhost", "example.org", "::1", "", "127.0.0.1 "])
def test_only_numeric_addresses_of_the_same_family_are_asked(host: str) -> None:
    net = Net()
    here, liar = net.start(1, 1), net.start(2, 2)
    net.speak(here, 2, at(2))
    net.run()
    here.locator.find_address(net.now, message(9), mentioned_by=2)
    _, _, asked = net.wires.popleft()
    question = address_messages.decode_address_message(1, wire.unframe_datagram(asked).body)
    reply = AddressReply(
        question.number, liar.locator.instance, (KnownAddress(9, host, 7009), KnownAddress(8, host, 7))
    )
    net.hear(here, at(2), datagram(reply))
    assert {to for _, to, _ in net.wires} <= {at(2)}


def test_an_answer_is_never_longer_than_its_question() -> None:
    net = ring(12)
    here = net.places[at(0)]
    for near in (None, *range(12)):
        for room in (32 if near is None else 260, 60):
            sent = datagram(AddressQuery(2**63 - 1, near, bytes(room)), sender=2**32 - 1, receiver=ANYONE)
            net.hear(here, at(99), sent)
            assert len(net.wires) == 1 and len(net.wires.pop()[2]) <= len(sent)


def test_questions_about_addresses_are_no_messages_of_the_protocol() -> None:
    with raises("malformed"):
        datagrams.decode(datagram(QUERY))
    assert wire.unframe_datagram(datagram(QUERY)).kind == wire.ADDRESSES and wire.ADDRESSES not in wire.MESSAGES
