"""Links that are added, removed and moved while peers run: by clients, and by a file that is read again."""

import asyncio
import logging
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import wend
from tests.drivers.live.net import run, take, until
from tests.drivers.live.processes import Process
from tests.errors import raises
from tests.ports import free_ports
from wend.drivers.live.addressing.addresses import format_address
from wend.drivers.live.config import PeerFile, load_peer_file
from wend.drivers.live.process import PeerProcess


def file_of(peer: int, *neighbours: tuple[int, str], **fields: Any) -> PeerFile:
    others = [{"id": other, "address": address} for other, address in neighbours]
    places = {"listen": "127.0.0.1:0", "clients": "127.0.0.1:0"}
    return PeerFile(id=peer, neighbours=others, **{**places, "detection": "80ms", **fields})


async def started(stack: AsyncExitStack, file: PeerFile) -> PeerProcess:
    service = PeerProcess(file)
    await service.start()
    stack.push_async_callback(service.abort)
    return service


def client_of(service: PeerProcess) -> wend.Client:
    return wend.connect(f"wend://{format_address(service.listener.address)}")


def working(service: PeerProcess) -> set[int]:
    return {link.neighbour for link in service.peer.status().links if link.up}


def test_clients_add_and_remove_links_and_nothing_is_lost(tmp_path: Path) -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            stores = [str(tmp_path / f"{n}.store") for n in range(4)]
            a, b, c = [await started(stack, file_of(n, persistence=True, store=stores[n])) for n in (1, 2, 3)]
            peers = {1: a, 2: b, 3: c}
            clients = {n: await stack.enter_async_context(client_of(peer)) for n, peer in peers.items()}

            async def link(one: int, other: int) -> None:
                await clients[one].add_link(other, format_address(peers[other].peer.address), delay="1ms")

            await link(1, 2)
            await link(2, 3)
            await until(lambda: (working(a), working(b), working(c)) == ({2}, {1, 3}, {2}))
            events = await stack.enter_async_context(clients[3].subscribe("n >= 0"))
            while not (await clients[1].publish({"n": 0})).targets:
                await asyncio.sleep(0.005)
            await take(events, 1)
            for n in range(1, 20):
                await clients[1].publish({"n": n})
                if n == 5:  # some are in flight over it, and there is no other route
                    await clients[1].remove_link(2)
                if n == 10:
                    await link(1, 3)
            assert sorted(event.attributes["n"] for event in await take(events, 19)) == list(range(1, 20))
            await until(lambda: working(a) == {3})
            assert set(a.peer.peer.links) == {3}
            status = await clients[1].status()
            assert [(found.neighbour, found.address) for found in status.links] == [(3, format_address(c.peer.address))]

    run(scene())


@pytest.mark.parametrize(
    ("fields", "neighbour", "address", "sentence"),
    [
        ({}, 1, "127.0.0.1:7701", "peer 1 cannot be linked with itself"),
        ({}, 2, "127.0.0.1:7702", "peer 1 is linked with peer 2 already"),
        ({}, 3, "nowhere", "cannot read 'nowhere' as an address"),
        ({}, 3, "[::1]:7703", "cannot reach \\[::1\\]:7703 from a peer that listens on an IPv4 address"),
        ({"membership": "random"}, 3, "127.0.0.1:7703", "the membership random decides who is linked with peer 1"),
    ],
)
def test_a_link_that_cannot_be_is_refused(fields: dict[str, Any], neighbour: int, address: str, sentence: str) -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            service = await started(stack, file_of(1, (2, "127.0.0.1:7702"), **fields))
            client = await stack.enter_async_context(client_of(service))
            with raises("invalid-link", match=sentence):
                await client.add_link(neighbour, address)
            with raises("invalid-link", match="not linked with peer 9" if not fields else "membership random"):
                await client.remove_link(9)
            assert 3 not in service.peer.addresses.reachable

    run(scene())


def test_a_file_that_is_read_again_changes_links_and_says_what_needs_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        ports = free_ports(4)
        at = [f"127.0.0.1:{port}" for port in ports]
        async with AsyncExitStack() as stack:
            first = file_of(0, (1, at[1]), (2, at[2]), listen=at[0])
            service = await started(stack, first)
            client = await stack.enter_async_context(client_of(service))
            for n in (1, 2):
                await started(stack, file_of(n, (0, at[0]), listen=at[n]))
            await until(lambda: working(service) == {1, 2})
            await client.add_link(7, "127.0.0.1:7707")
            await started(stack, file_of(3, (0, at[0]), listen=at[3]))
            second = file_of(0, (2, at[2]), (3, at[3]), listen=at[0], grace="3s", advertise=["x > 1"])
            await service.reload(lambda: second)
            assert [link.neighbour for link in service.peer.status().links] == [2, 3, 7]
            await until(lambda: working(service) == {2, 3})
            texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            assert "peer 0 must be restarted to use these changes: advertise, grace" in texts
            # peer 2 is at another address now
            moved = await started(stack, file_of(2, (0, at[0])))
            third = file_of(0, (2, format_address(moved.peer.address)), (3, at[3]), listen=at[0])
            await service.reload(lambda: third)
            assert service.peer.addresses.reachable[2] == moved.peer.address

            def broken() -> PeerFile:
                return load_peer_file(Path("/nowhere"))

            await service.reload(broken)
            assert service.peer.counters.failed["read-file"] == 1
            assert caplog.records[-1].getMessage().startswith("peer 0 goes on as before: ")

    with caplog.at_level(logging.INFO, logger="wend.peer"):
        run(scene())


def test_a_membership_learns_of_the_peers_in_a_file_that_is_read_again() -> None:
    async def scene() -> None:
        ports = free_ports(2)
        at = [f"127.0.0.1:{port}" for port in ports]
        fields = {"membership": "random", "membership_period": "20ms"}
        async with AsyncExitStack() as stack:
            first = await started(stack, file_of(0, listen=at[0], **fields))
            other = await started(stack, file_of(1, listen=at[1], admit=False, **fields))
            await first.reload(lambda: file_of(0, (1, at[1]), listen=at[0], **fields))
            assert not working(first)
            await other.reload(lambda: file_of(1, (0, at[0]), listen=at[1], admit=False, **fields))
            await until(lambda: working(first) == {1} and working(other) == {0})
            await first.reload(lambda: file_of(0, listen=at[0], **fields))  # what peers know of each other stays
            assert set(first.peer.peer.links) == {1}

    run(scene())


def test_a_signal_has_the_file_read_again(tmp_path: Path) -> None:
    path = tmp_path / "peer.toml"
    plain = 'id = 1\nlisten = "127.0.0.1:0"\nclients = "127.0.0.1:0"\n'
    path.write_text(plain)

    async def scene() -> None:
        process = await Process.start(path)
        try:
            async with wend.connect(process.url) as client:
                assert not (await client.status()).links
                path.write_text(plain + '[[neighbours]]\nid = 2\naddress = "127.0.0.1:7702"\n')
                process.send_signal(signal.SIGHUP)
                while not (status := await client.status()).links:
                    await asyncio.sleep(0.01)
                assert (status.links[0].neighbour, status.links[0].address) == (2, "127.0.0.1:7702")
                assert not status.failed
        finally:
            await process.stop()

    run(scene())
