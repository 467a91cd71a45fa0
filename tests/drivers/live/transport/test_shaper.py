"""A shaped link delays, loses and fails. It corrupts and reorders if asked to, and never else."""

import asyncio
import time

from tests.errors import raises
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.clock import monotonic
from wend.drivers.live.pipes import PeerPipes
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.shaper import PacketFaults, Shaper
from wend.drivers.live.transport.socket import PeerSocket, SendQueue
from wend.model.units import MS


class Link:
    """A pipe that records arrivals and their times at its far end."""

    def __init__(self, **shape: object) -> None:
        self.arrived: list[tuple[int, bytes]] = []
        self.changed = asyncio.Event()
        self.pipe = Shaper(self._note, **shape)  # type: ignore[arg-type]

    def _note(self, datagram: bytes) -> None:
        self.arrived.append((time.monotonic_ns(), datagram))
        self.changed.set()

    async def until(self, count: int) -> list[bytes]:
        while len(self.arrived) < count:
            self.changed.clear()
            await self.changed.wait()
        return [datagram for _, datagram in self.arrived]


class Socket(PeerSocket):
    """A socket that keeps what it is to send."""

    def __init__(self) -> None:
        self.queue = SendQueue(monotonic)
        self.sent: list[bytes] = []

    def transmit(self, address: Address, datagram: bytes) -> None:
        self.sent.append(datagram)

    def pipes(self) -> PeerPipes:
        return PeerPipes(0, 1, self, None, monotonic)


def test_order_is_kept_and_nothing_is_early() -> None:
    async def scene() -> None:
        link = Link(delay_ns=20 * MS)
        sent = []
        for number in range(200):
            sent.append(time.monotonic_ns())
            link.pipe.send(b"%d" % number)
            if number % 50 == 0:
                await asyncio.sleep(0.003)
        assert await link.until(200) == [b"%d" % number for number in range(200)]
        assert all(at - when > 19 * MS for (at, _), when in zip(link.arrived, sent, strict=True))

    asyncio.run(scene())


def test_without_a_shape_a_datagram_passes_at_once() -> None:
    link = Link()
    link.pipe.send(b"now")
    assert [datagram for _, datagram in link.arrived] == [b"now"]


def test_the_same_seed_loses_the_same_datagrams() -> None:
    def survivors(seed: int) -> list[bytes]:
        link = Link(loss=0.3, seed=seed)
        for number in range(300):
            link.pipe.send(b"%d" % number)
        assert link.pipe.lost == 300 - len(link.arrived)
        return [datagram for _, datagram in link.arrived]

    assert survivors(5) == survivors(5) != survivors(6)
    assert 150 < len(survivors(5)) < 260


def test_a_cut_link_loses_everything_until_it_is_healed() -> None:
    socket = Socket()
    pipes = socket.pipes()
    pipes.add(7, ("127.0.0.1", 9))
    pipes.cut(7)
    socket.queue.send(7, b"lost")
    pipes.heal(7)
    socket.queue.send(7, b"found")
    assert [b"found" in datagram for datagram in socket.sent] == [True]
    assert pipes.lost_count() == 1


def test_a_schedule_decides_at_the_moment_of_sending() -> None:
    up = {"now": True}
    link = Link(is_up=lambda _: up["now"])
    link.pipe.send(b"up")
    up["now"] = False
    link.pipe.send(b"down")
    assert [datagram for _, datagram in link.arrived] == [b"up"]


def test_a_corrupted_datagram_differs_in_one_bit_and_fails_its_checksum() -> None:
    link = Link(faults=PacketFaults(corruption=0.5), seed=3)
    datagram = wire.frame_datagram(wire.make_header(1, 2, 1), b"some message")
    for _ in range(200):
        link.pipe.send(datagram)
    changed = [arrived for _, arrived in link.arrived if arrived != datagram]
    assert len(link.arrived) == 200
    assert link.pipe.corrupted == len(changed)
    assert 60 < len(changed) < 140
    for arrived in changed:
        assert sum((a ^ b).bit_count() for a, b in zip(arrived, datagram, strict=True)) == 1
        assert wire.find_fault(arrived) is not None


def test_reordered_datagrams_are_overtaken_and_nothing_is_lost() -> None:
    async def scene() -> None:
        link = Link(delay_ns=MS, faults=PacketFaults(reordering=0.2, hold_ns=30 * MS), seed=1)
        for number in range(200):
            link.pipe.send(b"%d" % number)
            if number % 20 == 0:
                await asyncio.sleep(0.003)
        found = await link.until(200)
        sent = [b"%d" % number for number in range(200)]
        assert found != sent
        assert sorted(found) == sorted(sent)
        assert link.pipe.in_flight() == 0

    asyncio.run(scene())


def test_a_datagram_without_delay_overtakes_one_that_is_held_back() -> None:
    async def scene() -> None:
        link = Link(faults=PacketFaults(reordering=0.5, hold_ns=20 * MS), seed=1)
        for number in range(10):
            link.pipe.send(b"%d" % number)
        at_once = [datagram for _, datagram in link.arrived]
        assert 0 < len(at_once) < 10
        assert link.pipe.in_flight() == 10 - len(at_once)
        assert len(await link.until(10)) == 10

    asyncio.run(scene())


def test_multicast_loses_what_it_would_corrupt() -> None:
    """Its checksum was checked before the receiver shapes it."""
    pipes, heard = Socket().pipes(), list[bytes]()
    pipes.add(7, ("127.0.0.1", 9), loss=0.2, faults=PacketFaults(corruption=0.5), seed=1)
    for number in range(200):
        pipes.receive_multicast(7, b"%d" % number, heard.append)
    assert set(heard) <= {b"%d" % number for number in range(200)}
    assert pipes.lost_count() == 200 - len(heard)
    assert 40 < len(heard) < 120


def test_mistakes_are_one_sentence() -> None:
    with raises("invalid-setting", match=r"corrupt 1\.5"):
        Link(faults=PacketFaults(corruption=1.5))
    with raises("invalid-setting", match="no link to peer 3"):
        Socket().pipes().cut(3)
    with raises("invalid-setting", match="loss of 2"):
        Link(loss=2.0)
