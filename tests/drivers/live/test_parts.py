"""Each part of a live peer works with what it is given, without the peer."""

import asyncio
import socket
from typing import Any

import pytest

from tests.drivers.live.net import run, until
from tests.security.roots import Laboratory
from wend.drivers.live.addressing.address_book import AddressBook
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.addressing.given_links import GivenLinks
from wend.drivers.live.addressing.host_names import HostNames
from wend.drivers.live.addressing.joining import Joining
from wend.drivers.live.clock import monotonic
from wend.drivers.live.config import NeighbourEntry
from wend.drivers.live.counters import Counters
from wend.drivers.live.paths.searches import PathSearches
from wend.drivers.live.pipes import PeerPipes
from wend.drivers.live.plans.followed_plan import FollowedPlan
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.link_log import LinkLog
from wend.drivers.live.transport.multicast import MulticastGroups, MulticastOptions
from wend.drivers.live.transport.sealed_links import SealedLinks
from wend.drivers.live.transport.senders import Senders
from wend.drivers.live.transport.socket import PeerSocket
from wend.model.errors import Refused
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Ack
from wend.protocol.peer import Peer
from wend.protocol.ports import ContactFound, FindPath, Input, LinkAdded, Multicast, Neighbour, PathFound
from wend.strategies.registry import make_peer

LAB = Laboratory()
THERE = ("127.0.0.1", 9)


class Parts:
    """What parts have in common: an address book, counters and a socket."""

    def __init__(self, me: PeerId = 0, **options: Any) -> None:
        self.me = me
        self.machine: Peer = make_peer(PeerConfig(peer=me, **options))
        self.counters = Counters()
        self.book = AddressBook(me)
        self.socket = PeerSocket(("127.0.0.1", 0), False, lambda *_: None, self.counters, monotonic)
        links = self.machine.links
        log = LinkLog(me, links, self.book.reachable, monotonic)
        transmit = self.socket.transmit
        self.senders = Senders(me, self.book, links, log, None, self.counters, transmit, monotonic)
        self.told: list[Input] = []

    def sealed(self, received: list[tuple[PeerId, bytes]]) -> SealedLinks:
        keys, where = LAB.keys(self.me), (self.socket, self.book, self.counters, monotonic)
        links = SealedLinks(self.me, 1, *keys, *where)
        links.connect(
            self.senders, lambda sender, _, __, body, *___: received.append((sender, bytes(body))), lambda *_: None
        )
        self.socket.receive = links.receive
        return links

    def pipes(self) -> PeerPipes:
        return PeerPipes(self.me, 1, self.socket, None, monotonic)

    def joining(self, *contacts: Address, admit: bool = True) -> Joining:
        return Joining(
            self.machine, self.socket.address, contacts, self.book, self.pipes(), self.counters, monotonic, admit=admit,
            tell=self.told.append, perform=lambda _: None, receive=lambda *_: None, is_silent=lambda _: False,
        )  # fmt: skip


def test_sealed_links_carry_bodies_between_two_sockets() -> None:
    async def scene() -> None:
        received: list[tuple[PeerId, bytes]] = []
        places = [Parts(0), Parts(1)]
        links = [place.sealed(received) for place in places]
        links[0].set_address(1, places[1].socket.address)
        for place, link in zip(places, links, strict=True):
            place.socket.open(asyncio.get_running_loop())
            link.open(asyncio.get_running_loop())
        links[0].send(1, wire.MESSAGE, b"hello")
        await until(lambda: received == [(0, b"hello")])
        for place, link in zip(places, links, strict=True):
            link.close()
            place.socket.close()

    run(scene())


@pytest.mark.parametrize(("admit", "admitted"), [(True, True), (False, False)])
def test_joining_decides_who_is_linked(admit: bool, admitted: bool) -> None:
    here = Parts()
    joining = here.joining(admit=admit)
    assert joining.may_link(5) is admitted and not joining.may_link(0)
    joining.removed.add(6)
    joining.on_contact(6)
    joining.on_contact(5)
    assert [event.neighbour.peer for event in here.told if isinstance(event, LinkAdded)] == [5]
    assert not joining.may_link(6)


def test_joining_by_a_membership_only_finds_contacts() -> None:
    here = Parts(strategy="scribe")
    joining = here.joining(THERE, here.socket.address)
    assert joining.contacts == (THERE,)
    joining.on_contact(5)
    assert here.told == [ContactFound(5)] and not joining.may_link(5)


def test_multicast_groups_refuse_what_is_not_for_all() -> None:
    here, heard = Parts(), []
    groups = MulticastGroups(
        0, 1, here.socket, wire.NO_TYPES, MulticastOptions(is_on=False), here.senders, None, here.counters, monotonic,
        arrive=lambda *_: None, hear=lambda *told: heard.append(told), tell=here.told.append,
    )  # fmt: skip
    groups.receive_body(1, b"\xc1")
    groups.receive_body(1, wire.encode_message(Ack(1)))
    assert not heard and here.counters.refused["garbage"] == 2
    groups.send(Multicast("g", None))
    assert here.counters.notices["multicast-off"] == 1


def test_given_links_follow_a_file() -> None:
    here = Parts()
    linked: list[Neighbour] = []
    unlinked: list[PeerId] = []
    given = GivenLinks(
        here.machine, HostNames(0, socket.AF_INET), here.book, here.pipes(), None,
        link=linked.append, unlink=unlinked.append, tell=here.told.append, is_silent=lambda _: False,
    )  # fmt: skip
    first, second = NeighbourEntry(1, "127.0.0.1:9"), NeighbourEntry(2, "127.0.0.1:10")
    given.begin([first])
    assert here.book.reachable == {1: THERE} and not linked
    given.update([NeighbourEntry(1, "127.0.0.1:9")], [first, second])
    assert [neighbour.peer for neighbour in linked] == [1, 2], "neither has a link yet"
    assert here.book.reachable == {1: THERE, 2: ("127.0.0.1", 10)}
    given.remove(2)
    assert unlinked == [2]


def test_a_strategy_without_plans_refuses_them() -> None:
    plan = FollowedPlan(Parts(strategy="dcrd").machine, lambda _: None, Counters(), None, None)
    with pytest.raises(Refused, match="follows no plan"):
        asyncio.run(plan.prepare(1, b""))


def test_a_path_search_that_fails_answers_too() -> None:
    class Broken:
        async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
            raise OSError

        def close(self) -> None: ...

    async def scene() -> None:
        answers: list[PathFound] = []
        failures: list[str] = []
        searches = PathSearches(0, Broken(), {1: THERE}, answers.append, lambda doing, _: failures.append(doing))
        searches.open(asyncio.get_running_loop())
        searches.find(FindPath(1))
        searches.find(FindPath(2))
        await until(lambda: len(answers) == 2)
        assert failures == ["carry-out-effect"] and set(answers) == {PathFound(1, None), PathFound(2, None)}
        searches.close()

    run(scene())
