"""Locators that talk over a network that is a dictionary."""

from collections import deque
from itertools import count

from wend.drivers.live.addressing import address_messages
from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.address_messages import AddressMessage
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.addressing.locator import Locator
from wend.drivers.live.counters import Counters
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.wire import Header, InnerDatagram
from wend.model.events import PeerId
from wend.model.keys import node_id
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.messages import PlainMessage
from wend.protocol.ports import Send


def at(number: int) -> Address:
    return ("127.0.0.1", 7000 + number)


class Place:
    """A process with a locator, at an address."""

    def __init__(
        self, net: "Net", peer: PeerId, address: Address, incarnation: int = 1, asks_links: bool = False
    ) -> None:
        self._net = net
        self.peer = peer
        self.incarnation = incarnation
        self.address = address
        self.book = AddressBook(peer)
        self.counters = Counters()
        numbers = count(1000 * (len(net.made) + 1))
        self.locator = Locator(
            *(peer, address, self.book, self.counters, self),
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

    def transmit(self, address: Address, receiver: PeerId, body: bytes) -> None:
        header = wire.make_header(self.peer, receiver, self.incarnation, wire.ADDRESSES)
        self._net.wires.append((self.address, address, wire.frame_datagram(header, body)))

    def on_located(self, peer: PeerId, address: Address) -> None:
        assert self.book.reachable[peer] == address

    def on_forgotten(self, peer: PeerId) -> None:
        self.forgotten.append(peer)

    def on_address_found(self, waiting: Send, waited_ns: Nanos) -> None:
        assert waiting.peer in self.book.reachable
        self.sent.append(waiting)
        self.waited_ns.append(waited_ns)

    def on_admitted(self, inner: InnerDatagram, address: Address, waited_ns: Nanos) -> None:
        self.admitted.append(bytes(inner.body))
        self.waited_ns.append(waited_ns)

    def on_contact(self, peer: PeerId) -> None:
        self.contacts.append(peer)

    def on_same_id(self, address: Address) -> None:
        self.same_id.append(address)

    def may_link(self, peer: PeerId) -> bool:
        return not self.closed

    def wants_link(self, peer: PeerId) -> bool:
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
        place.locator.receive(self.now, wire.unframe_datagram(memoryview(datagram)), source)

    def speak(self, place: Place, claimed: PeerId, source: Address, incarnation: int = 1, text: bytes = b"x") -> bool:
        """A datagram of the protocol arrives from an address that the book does not have for this id."""
        inner = InnerDatagram(Header(claimed, place.peer, incarnation), wire.MESSAGE, memoryview(text))
        return place.locator.hold(self.now, inner, source)


def message(peer: PeerId, body: object = "hello") -> Send:
    return Send(peer, PlainMessage("pastry", body))


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


# ---------------------------------------------------------------- what hostile peers send


def datagram(said: AddressMessage, sender: PeerId = 2, receiver: PeerId = 1) -> bytes:
    return wire.frame_datagram(
        wire.make_header(sender, receiver, 1, wire.ADDRESSES), address_messages.encode_address_message(said)
    )
