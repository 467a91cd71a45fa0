"""The locator: who is where in an open overlay. Several of them talk over a network that is a dictionary."""

from collections import deque
from itertools import count

import pytest

from wend.drivers.live import address_messages, wire
from wend.drivers.live.address_book import AddressBook
from wend.drivers.live.address_messages import ANYONE, AddressMessage, AddressQuery, AddressReply, KnownAddress, query
from wend.drivers.live.addresses import Address
from wend.drivers.live.counters import Counters
from wend.drivers.live.locator import (
    MOST_CLAIMS,
    MOST_LOOKUPS,
    WAITING_PER_PEER,
    Locator,
)
from wend.drivers.live.locator_state import CLAIM_TRIES
from wend.drivers.live.wire import Header
from wend.model.errors import WireError
from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.keys import distance, node_id
from wend.protocol.messages import PlainMessage
from wend.protocol.ports import Send

NO_ADDRESS = "no address"
STRANGER = "stranger"
STALE = "stale"
GARBAGE = "garbage"
MISDIRECTED = "misdirected"
SAME_ID = "an id that another peer has"
NO_ROOM = "a question about addresses that is shorter than its answer"
UNASKED = "an answer about addresses that nobody asked for"


def at(number: int) -> Address:
    return ("127.0.0.1", 7000 + number)


class Place:
    """A process with a locator, at an address."""

    def __init__(
        self, net: "Net", peer: PeerId, address: Address, incarnation: int = 1, asks_links: bool = False
    ) -> None:
        self._net = net
        self.peer = peer
        self.address = address
        self.book = AddressBook(peer)
        self.counters = Counters()
        numbers = count(1000 * (len(net.made) + 1))
        self.locator = Locator(
            *(peer, incarnation, address, self.book, self.counters, self),
            asks_links=asks_links,
            number=lambda: next(numbers),
        )
        self.links: list[PeerId] = []
        self.closed = False
        self.silent: set[PeerId] = set()
        self.refused_by: list[PeerId] = []
        self.contacts: list[PeerId] = []
        self.same_id: list[Address] = []
        self.sent: list[Send] = []
        self.admitted: list[bytes] = []
        self.waited_ns: list[Nanos] = []
        self.forgotten: list[PeerId] = []
        self.well_informed: tuple[PeerId, ...] = ()

    def informants(self) -> tuple[PeerId, ...]:
        return self.well_informed

    def transmit(self, address: Address, datagram: bytes) -> None:
        self._net.wires.append((self.address, address, datagram))

    def on_located(self, peer: PeerId, address: Address) -> None:
        assert self.book.reachable[peer] == address

    def on_forgotten(self, peer: PeerId) -> None:
        self.forgotten.append(peer)

    def on_found(self, waiting: Send, waited_ns: Nanos) -> None:
        assert waiting.peer in self.book.reachable
        self.sent.append(waiting)
        self.waited_ns.append(waited_ns)

    def on_admitted(self, datagram: bytes, address: Address, waited_ns: Nanos) -> None:
        self.admitted.append(datagram)
        self.waited_ns.append(waited_ns)

    def on_contact(self, peer: PeerId) -> None:
        self.contacts.append(peer)

    def on_same_id(self, address: Address) -> None:
        self.same_id.append(address)

    def admits(self, peer: PeerId) -> bool:
        return not self.closed

    def wants(self, peer: PeerId) -> bool:
        return True

    def is_silent(self, peer: PeerId) -> bool:
        return peer in self.silent

    def on_link_asked(self, peer: PeerId) -> None:
        self.links.append(peer)

    def on_not_admitted(self, peer: PeerId, address: Address) -> None:
        self.refused_by.append(peer)


class Net:
    def __init__(self) -> None:
        self.now: Nanos = 0
        self.places: dict[Address, Place] = {}
        self.made: list[Place] = []
        self.wires: deque[tuple[Address, Address, bytes]] = deque()

    def start(self, peer: PeerId, number: int, *join: Address, incarnation: int = 1, asks_links: bool = False) -> Place:
        place = self.places[at(number)] = Place(self, peer, at(number), incarnation, asks_links)
        self.made.append(place)
        place.locator.begin(self.now, join)
        return place

    def end(self, place: Place) -> None:
        del self.places[place.address]

    def run(self, seconds: float = 0.0) -> None:
        """Deliver all datagrams, and let this time pass."""
        until = self.now + round(seconds * SECOND)
        while True:
            while self.wires:
                source, to, datagram = self.wires.popleft()
                if to in self.places:
                    self.hear(self.places[to], source, datagram)
            if self.now >= until:
                return
            self.now = min(self.now + 50 * MS, until)
            for place in list(self.places.values()):
                due = place.locator.next_ns()
                if due is not None and due <= self.now:
                    place.locator.tick(self.now)

    def hear(self, place: Place, source: Address, datagram: bytes) -> None:
        place.locator.receive(self.now, memoryview(datagram), source)

    def speak(self, place: Place, claimed: PeerId, source: Address, incarnation: int = 1, text: bytes = b"x") -> bool:
        """A datagram of the protocol arrives from an address that the book does not have for this id."""
        me = place.peer
        datagram = wire.header(claimed, me, incarnation) + text
        return place.locator.hold(self.now, Header(claimed, me, incarnation), memoryview(datagram), source)


def message(peer: PeerId, body: object = "hello") -> Send:
    return Send(peer, PlainMessage("pastry", body))


# ---------------------------------------------------------------- contacts


def test_a_contact_is_told_once_it_answers() -> None:
    net = Net()
    joiner = net.start(2, 2, at(1))
    net.run(8)
    assert joiner.contacts == [] and joiner.locator.silent == (at(1),)
    net.start(1, 1)
    net.run(6)
    assert joiner.contacts == [1] and joiner.locator.silent == ()
    assert joiner.book.reachable == {1: at(1)}


def test_a_contact_that_restarts_is_told_again() -> None:
    net = Net()
    first = net.start(1, 1)
    joiner = net.start(2, 2, at(1))
    net.run(30)
    assert joiner.contacts == [1]
    net.end(first)
    net.start(1, 1, incarnation=2)
    net.run(30)
    assert joiner.contacts == [1, 1]


def test_the_peers_own_address_is_no_contact() -> None:
    net = Net()
    alone = net.start(1, 1, at(1))
    net.run(5)
    assert alone.contacts == [1] and alone.same_id == [] and alone.locator.silent == ()
    net.start(2, 2)
    several = net.start(3, 3, at(3), at(2))
    net.run(5)
    assert several.contacts == [2]


def test_a_second_peer_with_the_contacts_id_does_not_join() -> None:
    net = Net()
    net.start(1, 1)
    second = net.start(1, 2, at(1))
    net.run(3)
    assert second.same_id == [at(1)] and second.contacts == []


def test_a_second_peer_with_the_id_of_any_other_does_not_join() -> None:
    net = ring(12)
    first = net.places[at(7)]
    second = net.start(7, 50, at(0), incarnation=9)
    net.run(3)
    assert set(second.same_id) == {at(7)} and second.contacts == []
    assert not first.same_id
    assert all(place.book.reachable.get(7, at(7)) == at(7) for place in net.made)


def test_a_peer_that_crashed_returns_at_another_address() -> None:
    net = ring(6)
    net.end(net.places[at(4)])
    back = net.start(4, 50, at(0), incarnation=2)
    net.run(5)
    assert back.contacts == [0] and not back.same_id


# ---------------------------------------------------------------- lookups


def ring(peers: int) -> Net:
    """Peers that know four neighbours on either side, and peer 0."""
    net = Net()
    places = [net.start(peer, peer) for peer in range(peers)]
    for peer, place in enumerate(places):
        for other in {0, *beside(peer, peers)} - {peer}:
            net.speak(place, other, at(other))
    net.run(2)
    return net


def beside(peer: PeerId, peers: int) -> list[PeerId]:
    """The neighbours of a peer on the ring."""
    order = sorted(range(peers), key=node_id)
    here = order.index(peer)
    return [order[(here + step) % peers] for step in (-4, -3, -2, -1, 1, 2, 3, 4)]


def unknown_to(net: Net, peer: PeerId) -> PeerId:
    """A peer that this one does not know, and peer 0 does not either."""
    known = {peer, *net.places[at(peer)].book.reachable, 0, *net.places[at(0)].book.reachable}
    return next(other for other in range(len(net.made)) if other not in known)


def test_a_message_waits_until_the_address_of_its_peer_is_found() -> None:
    net = ring(30)
    here, other = net.places[at(6)], unknown_to(net, 6)
    knowing = beside(other, 30)[0]
    net.speak(here, knowing, at(knowing))
    net.run(2)
    here.locator.find(net.now, message(other), mentioned_by=knowing)
    here.locator.find(net.now, message(other, "again"), mentioned_by=knowing)
    here.locator.find(net.now, message(other), mentioned_by=knowing)
    assert here.sent == []
    net.now += 30 * MS
    net.run()
    assert here.sent == [message(other), message(other, "again")]
    assert here.waited_ns[-2:] == [30 * MS, 30 * MS]
    assert here.book.reachable[other] == at(other)


def test_whoever_mentioned_a_peer_need_not_know_it() -> None:
    net = ring(30)
    here, other = net.places[at(6)], unknown_to(net, 6)
    here.locator.find(net.now, message(other), mentioned_by=0)
    net.run(2)
    assert here.sent == [message(other)]


def test_what_is_not_found_in_time_is_dropped_and_counted() -> None:
    net = ring(6)
    here = net.places[at(2)]
    for number in range(WAITING_PER_PEER + 3):
        here.locator.find(net.now, message(99, number), mentioned_by=1)
    assert here.counters.refused[NO_ADDRESS] == 3
    net.run(6)
    assert here.counters.refused[NO_ADDRESS] == WAITING_PER_PEER + 3
    assert here.sent == [] and here.locator.next_ns() is None


def test_lookups_are_bounded() -> None:
    net = ring(4)
    here = net.places[at(1)]
    for peer in range(1000, 1000 + MOST_LOOKUPS + 5):
        here.locator.find(net.now, message(peer), mentioned_by=0)
    assert here.counters.refused[NO_ADDRESS] == 5


def test_a_peer_that_moved_is_found_again() -> None:
    net = ring(30)
    here = net.places[at(beside(7, 30)[0])]
    net.end(net.places[at(7)])
    net.start(7, 50, at(0), incarnation=2)
    net.run(3)
    for other in beside(7, 30)[2:6]:
        net.speak(net.places[at(other)], 7, at(50), incarnation=2)
    net.run(2)
    assert here.book.reachable[7] == at(7)
    here.locator.doubt(net.now, 7)
    net.run(4)
    assert here.book.reachable[7] == at(50)


def test_a_peer_that_only_is_slow_stays_where_it_is() -> None:
    net = ring(6)
    here = net.places[at(2)]
    here.locator.doubt(net.now, 3)
    net.run(4)
    assert here.book.reachable[3] == at(3)


# ---------------------------------------------------------------- links


def test_a_contact_is_asked_for_a_link_and_makes_it_once_the_address_has_answered() -> None:
    net = Net()
    there, here = net.start(1, 1, asks_links=True), net.start(2, 2, at(1), asks_links=True)
    net.run(0.5)
    assert set(there.links) == {2} and set(here.contacts) == {1}
    assert there.book.reachable == {2: at(2)} and here.book.reachable == {1: at(1)}
    # the contact has restarted and knows nobody: it is asked again at once
    net.end(there)
    again = net.start(1, 1, asks_links=True)
    here.silent.add(1)
    here.locator.hurry(net.now, 1)
    net.run(0.3)
    assert set(again.links) == {2}


def test_a_link_that_somebody_else_asks_for_is_not_made() -> None:
    net = Net()
    here = net.start(1, 1, asks_links=True)
    net.start(2, 2)
    for claimed, source in ((5, at(9)), (5, at(2)), (1, at(2))):  # nobody is there; peer 2 is; the peer itself
        question = address_messages.query(7, None, link=True)
        net.hear(here, source, address_messages.encode(claimed, 1, 1, question))
    net.run(3)
    assert here.links == [] and here.book.reachable == {}


def test_a_contact_that_admits_nobody_says_so() -> None:
    net = Net()
    there, here = net.start(1, 1), net.start(2, 2, at(1), asks_links=True)
    there.closed = True
    net.run(0.5)
    assert set(here.refused_by) == {1} and here.contacts == [] and there.links == []


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
    held = [net.speak(here, 2, at(number)) for number in range(10, 10 + MOST_CLAIMS + 3)]
    assert held == [True] * MOST_CLAIMS + [False] * 3
    net.run(CLAIM_TRIES)
    assert here.counters.refused[STRANGER] == MOST_CLAIMS


def test_the_oldest_address_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wend.drivers.live.locator.MOST_KNOWN", 3)
    net = Net()
    here = net.start(1, 1)
    for peer in range(2, 7):
        net.start(peer, peer)
        net.speak(here, peer, at(peer))
        net.run()
        here.book.confirm(Header(peer, 1, 9), at(peer), b"head")
    assert set(here.book.reachable) == {4, 5, 6} and here.forgotten == [2, 3]
    assert [here.book.incarnation(peer) for peer in (2, 3, 4)] == [0, 0, 9] and len(here.book.verified) == 3


# ---------------------------------------------------------------- what hostile peers send


def datagram(said: AddressMessage, sender: PeerId = 2, receiver: PeerId = 1) -> bytes:
    return address_messages.encode(sender, receiver, 1, said)


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (datagram(AddressReply(77, 1)), UNASKED),
        (datagram(query(7), receiver=3), MISDIRECTED),
        (datagram(AddressQuery(7)), NO_ROOM),
        (datagram(query(7), sender=2**40), GARBAGE),
        (datagram(AddressReply(1, 1, (KnownAddress(2, "127.0.0.1", 0),))), GARBAGE),
        (datagram(AddressReply(1, 1, (KnownAddress(2, "127.0.0.1", 70000),))), GARBAGE),
        (datagram(AddressReply(1, 1, (KnownAddress(2**40, "127.0.0.1", 7),))), GARBAGE),
        (datagram(AddressReply(1, 1, (KnownAddress(2, "127.0.0.1", 7),) * 5)), GARBAGE),
        (datagram(query(7))[:-3], GARBAGE),
        (datagram(query(7))[:28] + b"\xc1", GARBAGE),
        (b"xx" + datagram(query(7))[2:], GARBAGE),
        (datagram(query(7))[:2] + b"\x09" + datagram(query(7))[3:], GARBAGE),
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
    _, question = address_messages.decode(asked)
    net.hear(here, at(3), datagram(AddressReply(question.number, 5)))
    assert here.counters.refused[UNASKED] == 1 and not here.book.reachable


@pytest.mark.parametrize("host", ["localhost", "example.org", "::1", "", "127.0.0.1 "])
def test_only_numeric_addresses_of_the_same_family_are_asked(host: str) -> None:
    net = Net()
    here, liar = net.start(1, 1), net.start(2, 2)
    net.speak(here, 2, at(2))
    net.run()
    here.locator.find(net.now, message(9), mentioned_by=2)
    _, _, asked = net.wires.popleft()
    _, question = address_messages.decode(asked)
    reply = AddressReply(
        question.number, liar.locator.instance, (KnownAddress(9, host, 7009), KnownAddress(8, host, 7))
    )
    net.hear(here, at(2), datagram(reply))
    assert {to for _, to, _ in net.wires} <= {at(2)}


def test_an_answer_is_never_longer_than_its_question() -> None:
    net = ring(12)
    here = net.places[at(0)]
    for near in (None, *range(12)):
        for asked in (query(2**63 - 1, near), AddressQuery(2**63 - 1, near, bytes(60))):
            sent = datagram(asked, sender=2**32 - 1, receiver=ANYONE)
            net.hear(here, at(99), sent)
            assert len(net.wires) == 1 and len(net.wires.pop()[2]) <= len(sent)


def test_questions_about_addresses_are_no_messages_of_the_protocol() -> None:
    with pytest.raises(WireError, match="kind 2"):
        wire.decode_header(datagram(query(7)))
    assert wire.is_about_addresses(datagram(query(7)))
    assert not wire.is_about_addresses(wire.header(1, 2, 3) + b"x") and not wire.is_about_addresses(b"wd")


def test_peers_that_know_many_are_asked_although_others_are_closer() -> None:
    net = Net()
    places = {number: net.start(number, number) for number in range(12)}
    here, sought = places[0], places[11]
    *closest, head = sorted(range(1, 11), key=lambda peer: distance(node_id(peer), node_id(11)))
    for number in (*closest, head):  # none of the closest peers knows the one that is sought
        net.speak(here, number, at(number))
    net.speak(places[head], 11, at(11))
    net.run()
    here.well_informed = (head,)
    here.locator.find(net.now, message(11), mentioned_by=None)
    net.run(1.0)
    assert here.book.reachable[11] == sought.address and here.sent == [message(11)]
