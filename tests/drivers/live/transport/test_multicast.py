"""Real UDP multicast on loopback: who hears what, and what is refused."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.drivers.live.net import run, until
from tests.errors import raises
from tests.multicasters import CASTS, GROUP, Casts, Number
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.config import PeerFile
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.multicast import MulticastOptions, group_address, group_number, parse_multicast
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Ack, PlainMessage
from wend.protocol.ports import ContactFound, LeaveMulticast, Multicast, Neighbour, Started
from wend.strategies.registry import PLUGINS, load

SCOPES = iter(range(10**6))


def has_multicast() -> bool:
    """Whether loopback carries multicast here."""
    membership = socket.inet_aton("239.192.0.1") + socket.inet_aton("127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind(("239.192.0.1", 0))
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            one.settimeout(1)
            one.sendto(b"x", one.getsockname())
            return one.recv(10) == b"x"
        except OSError:
            return False


needs_multicast = pytest.mark.skipif(not has_multicast(), reason="the loopback interface carries no multicast here")


@pytest.fixture(autouse=True)
def own_tables() -> Iterator[None]:
    before = dict(PLUGINS["membership"])
    load("membership", CASTS)
    yield
    PLUGINS["membership"].clear()
    PLUGINS["membership"].update(before)


def made(
    peer: int, scope: str, listen: Address = ("127.0.0.1", 0), join: tuple[Address, ...] | None = None, **options: Any
) -> LivePeer:
    config = PeerConfig(peer=peer, membership=CASTS, margin_ns=100 * MS)
    return LivePeer(config, listen=listen, join=join, multicast=MulticastOptions(scope=scope, **options))


@asynccontextmanager
async def group(
    count: int = 3, shape: dict[str, Any] | None = None, known: bool = True, **options: Any
) -> AsyncIterator[list[LivePeer]]:
    """Peers that joined one group, which no other test has; whether they know each other's addresses."""
    scope = f"test {id(asyncio.get_running_loop())} {next(SCOPES)} "
    peers = [made(peer, scope, **options) for peer in range(count)]
    for here in peers:
        for there in peers:
            if there is not here and known:
                here.add_peer(there.id, there.address, **(shape or {}))
    for here in peers:
        here.start(Started(tuple(Neighbour(there.id, MS) for there in peers if there is not here and known)))
    try:
        yield peers
    finally:
        for peer in peers:
            peer.close()


def heard(peer: LivePeer) -> list[tuple[int, int]]:
    plugin = peer.peer.plugins[CASTS]
    assert isinstance(plugin, Casts)
    return plugin.heard_asked


def cast(peer: LivePeer) -> None:
    peer.tell(ContactFound(peer.id))


def bare(peer: LivePeer, payload: bytes) -> None:
    """A packet of another program to the address of the group."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        other.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        other.sendto(payload, at(peer))


def scope_of(peer: LivePeer) -> str:
    return peer.multicast.options.scope


def at(peer: LivePeer) -> Address:
    return peer.multicast.options.address or group_address(scope_of(peer) + GROUP)


def number(value: int = 107) -> bytes:
    return wire.encode_message(PlainMessage(CASTS, Number(value)))


# ---------------------------------------------------------------- who hears what


@needs_multicast
def test_all_other_peers_of_a_group_hear_one_packet() -> None:
    async def scene() -> None:
        async with group(4) as peers:
            cast(peers[0])
            cast(peers[2])
            await until(lambda: all(len(heard(peer)) == 2 - (peer.id in (0, 2)) for peer in peers))
            assert sorted(heard(peers[1])) == [(0, 101), (2, 101)] and heard(peers[0]) == [(2, 101)]
            for peer in peers:
                assert peer.counters.notices["multicast"] == peer.counters.control[CASTS] >= (peer.id in (0, 2))
                assert not peer.counters.refused and not peer.counters.failed

    run(scene())


@needs_multicast
def test_a_peer_that_left_hears_nothing_more() -> None:
    async def scene() -> None:
        async with group() as peers:
            peers[1].perform([LeaveMulticast(GROUP), LeaveMulticast("never joined")])
            cast(peers[0])
            await until(lambda: heard(peers[2]) == [(0, 101)])
            assert heard(peers[1]) == []

    run(scene())


@needs_multicast
def test_groups_that_share_an_address_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        address = ("239.195.77.1", 16000 + next(SCOPES) % 300)
        async with group(address=address) as (a, b, c):
            a.perform([Multicast("another", PlainMessage(CASTS, Number(9)))])
            await until(lambda: c.counters.refused["other-multicast-group"] == 1)
            cast(a)
            await until(lambda: heard(b) == heard(c) == [(0, 101)])
            assert "other programs, such as that at 127.0.0.1:" in caplog.text and "239.195.77.1" in caplog.text

    with caplog.at_level(logging.WARNING, logger="wend.peer"):
        run(scene())


@needs_multicast
def test_a_cut_link_and_a_lossy_one_lose_multicast_too() -> None:
    async def scene() -> None:
        async with group() as (a, b, c):
            b.pipes.cut(0)
            cast(a)
            await until(lambda: heard(c) == [(0, 101)] and b.pipes.lost_count() >= 1)
            assert heard(b) == []
            b.pipes.heal(0)
            cast(a)
            await until(lambda: heard(b) == [(0, 102)])
        async with group(shape={"loss": 1.0}) as (a, b, c):
            cast(a)
            await until(lambda: min(b.pipes.lost_count(), c.pipes.lost_count()) >= 1)
            assert heard(b) == heard(c) == []
        async with group(shape={"delay_ns": 5 * MS}) as (a, b, c):
            cast(a)
            await until(lambda: heard(b) == heard(c) == [(0, 101)])

    run(scene())


@needs_multicast
def test_in_an_open_overlay_an_unknown_sender_is_asked_who_it_is() -> None:
    async def scene() -> None:
        async with group(known=False, join=()) as (a, b, c):
            cast(a)
            await until(lambda: heard(b) == heard(c) == [(0, 101)])
            assert b.addresses.reachable[0] == c.addresses.reachable[0] == a.address
            cast(a)
            await until(lambda: heard(b) == heard(c) == [(0, 101), (0, 102)])
            assert not b.counters.refused

    run(scene())


# ---------------------------------------------------------------- what is refused


@needs_multicast
def test_a_message_that_is_too_large_goes_back_to_its_plugin() -> None:
    async def scene() -> None:
        async with group(1) as (peer,):
            peer.perform([Multicast(GROUP, PlainMessage(CASTS, Number(3, bytes(70_000))))])
            plugin = peer.peer.plugins[CASTS]
            assert isinstance(plugin, Casts) and plugin.too_large == [3]
            assert peer.counters.refused == {"oversize": 1}

    run(scene())


@needs_multicast
def test_strangers_others_and_corrupted_packets_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with group(1) as (peer,):
            right = group_number(scope_of(peer) + GROUP)
            head, refused = wire.make_header(5, right, 1, wire.MULTICAST), peer.counters.refused
            bare(peer, wire.frame_datagram(head, number()))
            bare(peer, b"a program that has nothing to do with Wend, and long enough for a header")
            bare(peer, b"short")
            bare(peer, wire.frame_datagram(wire.make_header(5, 77, 1, wire.MULTICAST), number()))
            bare(peer, wire.frame_datagram(wire.make_header(5, right, 1), number()))
            bare(
                peer,
                wire.frame_datagram(wire.make_header(peer.id, right, peer.incarnation + 1, wire.MULTICAST), number()),
            )
            bare(peer, wire.frame_datagram(head, number())[:-1] + b"?")
            bare(peer, b"wd\x02" + wire.frame_datagram(head, number())[3:])
            await until(lambda: refused.total() == 8)
            assert refused == {
                "stranger": 1,
                "foreign-multicast": 3,
                "other-multicast-group": 1,
                "misdirected": 1,
                "corrupted": 1,
                "other-version": 1,
            }
            assert not heard(peer) and not peer.counters.failed
            assert caplog.text.count("use the multicast address") == 1 and "version 2" in caplog.text

    with caplog.at_level(logging.WARNING, logger="wend.peer"):
        run(scene())


@needs_multicast
def test_a_known_peer_is_refused_in_an_earlier_incarnation_and_with_other_messages() -> None:
    async def scene() -> None:
        async with group(1) as (peer,):
            right, refused = group_number(scope_of(peer) + GROUP), peer.counters.refused
            other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            other.bind(("127.0.0.1", 0))
            other.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            peer.add_peer(5, other.getsockname())

            def say(sender: int, incarnation: int, body: bytes) -> None:
                other.sendto(
                    wire.frame_datagram(wire.make_header(sender, right, incarnation, wire.MULTICAST), body), at(peer)
                )

            say(5, 2, number(101))
            say(5, 1, number(2))
            say(6, 2, number(3))
            say(5, 2, wire.encode_message(Ack(1)))
            say(5, 2, b"\xc1")
            say(5, 2, number(104))
            await until(lambda: heard(peer) == [(5, 101), (5, 104)])
            assert refused == {"stale": 1, "misdirected": 1, "garbage": 2}
            other.close()

    run(scene())


# ---------------------------------------------------------------- where there is none


def test_multicast_that_is_off_is_counted() -> None:
    async def scene() -> None:
        async with group(2, is_on=False) as (a, b):
            cast(a)
            assert a.counters.notices["multicast-off"] >= 1
            assert not a.counters.failed and not a.counters.control[CASTS] and not heard(b)

    run(scene())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"interface": "203.0.113.1"}, "cannot multicast on the interface '203.0.113.1'"),
        ({"listen": ("::1", 0)}, "it does not listen on an IPv4 address"),
        ({"address": ("127.0.0.1", 7999)}, "cannot join the multicast group 'g' at 127.0.0.1:7999"),
    ],
)
def test_multicast_that_cannot_be_had_is_one_sentence(
    options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with group(1, **options) as (peer,):
            cast(peer)
            cast(peer)
            assert peer.counters.failed == {"multicast": 1} and peer.counters.notices["multicast-off"] >= 2
            assert caplog.text.count("goes on without") == 1 and said in caplog.text

    if "listen" in options and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with caplog.at_level(logging.WARNING, logger="wend.peer"):
        run(scene())


# ---------------------------------------------------------------- settings


def test_an_address_follows_from_the_name_of_a_group() -> None:
    found = [group_address(f"site {number}") for number in range(200)]
    assert len(set(found)) == 200 and found == [group_address(f"site {number}") for number in range(200)]
    for host, port in found:
        first, second, *_ = map(int, host.split("."))
        assert first == 239 and 192 <= second <= 195 and 16384 <= port < 32768


def test_the_file_says_where_to_multicast() -> None:
    assert PeerFile(id=1).multicast_options == MulticastOptions()
    stated = PeerFile(id=1, multicast_address="239.1.2.3:7000", multicast_ttl=4, multicast_interface="127.0.0.2")
    stated.check()
    assert stated.multicast_options == MulticastOptions(True, ("239.1.2.3", 7000), 4, "127.0.0.2")
    assert not PeerFile(id=1, multicast_address="off").multicast_options.is_on
    for text in ("on", "127.0.0.1:7000", "239.1.2.3:0", "[ff05::1]:7000", "239.1.2.3"):
        with raises("invalid-setting", match=r"multicast_address is \"auto\", \"off\" or|cannot read"):
            parse_multicast(text)
    with raises("invalid-setting", match="not 'eth0'"):
        PeerFile(id=1, multicast_interface="eth0").check()
    with raises("invalid-setting", match="insecure = true"):
        PeerFile(id=1, multicast_interface="203.0.113.1").check()
    with raises("invalid-setting", match="multicast_ttl"):
        PeerFile(id=1, multicast_ttl=300)
