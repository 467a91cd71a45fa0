"""Peers with keys on real sockets: sealed links carry what open ones carry, and nobody else gets a word in."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.drivers.live import datagrams
from tests.drivers.live.net import PAIR, Record, Site, fresh, known, run, until
from tests.errors import raises
from tests.security.roots import Laboratory
from wend.console.app import app
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.client.connect import connect
from wend.drivers.live.config import PeerFile
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.process import PeerProcess
from wend.drivers.live.transport import wire
from wend.drivers.live.transport.shaper import PacketFaults
from wend.drivers.live.transport.socket import PeerSocket
from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Hello, PlainMessage
from wend.protocol.ports import Neighbour, Send, Started
from wend.security import packets

LAB = Laboratory()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What an observer on the path sees."""
    seen: list[bytes] = []
    transmit = PeerSocket.transmit

    def observed(self: PeerSocket, address: Address, datagram: bytes) -> None:
        seen.append(datagram)
        transmit(self, address, datagram)

    monkeypatch.setattr(PeerSocket, "transmit", observed)
    return seen


@asynccontextmanager
async def sealed_overlay(
    links: list[tuple[PeerId, PeerId]], open_peers: tuple[PeerId, ...] = (), **shape: Any
) -> AsyncIterator[list[Site]]:
    """Peers numbered from 0, which all have keys but those that are named."""
    ids = sorted({peer for link in links for peer in link})
    made = [make(peer, open_peers) for peer in ids]
    sites = [Site(peer) for peer in made]
    for a, b in links:
        made[a].add_peer(b, made[b].address, **shape)
        made[b].add_peer(a, made[a].address, **shape)
    for site in sites:
        await site.listener.start()
        near = sorted({b for a, b in links if a == site.peer.id} | {a for a, b in links if b == site.peer.id})
        site.peer.start(Started(tuple(Neighbour(n, 1 * MS) for n in near)))
    try:
        yield sites
    finally:
        for site in sites:
            await site.listener.stop()
            site.peer.close()


def make(peer: PeerId, open_peers: tuple[PeerId, ...] = (), incarnation: int = 1, **options: Any) -> LivePeer:
    keys = None if peer in open_peers else LAB.keys(peer)
    config = PeerConfig(peer=peer, incarnation=incarnation, margin_ns=100 * MS)
    return LivePeer(config, keys=keys, **options)


def up(site: Site) -> set[PeerId]:
    return {link.neighbour for link in site.peer.status().links if link.up}


@pytest.mark.parametrize("shape", [{}, {"delay_ns": 3 * MS, "loss": 0.05, "faults": PacketFaults(0.05, 0.1, 5 * MS)}])
def test_events_pass_sealed_links_in_both_directions(shape: dict[str, Any], sent: list[bytes]) -> None:
    async def scene() -> None:
        async with (
            sealed_overlay([(0, 1), (1, 2)], **shape) as (a, _, c),
            connect(a.url) as here,
            connect(c.url) as there,
            there.subscribe("topic = 'x'") as events,
            here.subscribe("topic = 'y'") as back,
        ):
            await known(here, "x", 1)
            await known(there, "y", 1)
            for publisher, topic, stream in ((here, "x", events), (there, "y", back)):
                for number in range(100):
                    await publisher.publish({"topic": topic}, b"a secret %d" % number)
                found = {(await fresh(stream)).payload for _ in range(20)}  # the links lose some
                assert len(found) == 20 and found < {b"a secret %d" % number for number in range(100)}

    run(scene())
    assert sent and (shape or all(packets.is_sealed(datagram) for datagram in sent)), "links may change any bit"
    assert not any(b"secret" in datagram or b"topic" in datagram for datagram in sent)


def test_messages_to_one_neighbour_are_bundled_in_one_sealed_datagram(sent: list[bytes]) -> None:
    async def scene() -> None:
        async with sealed_overlay(PAIR) as (a, b):
            await until(lambda: up(a) == {1} and up(b) == {0})
            record = Record()
            b.peer.observe(record)
            before = len(sent)
            a.peer.perform([Send(1, PlainMessage("nobody", None)) for _ in range(5)])  # not bundled
            assert [datagram[3] for datagram in sent[before:]] == [packets.TRANSPORT] * 5
            async with connect(a.url) as client, connect(b.url) as other, other.subscribe("topic = 'x'") as events:
                await known(client, "x", 1)
                await client.publish_many([({"topic": "x"}, b"%d" % number) for number in range(50)])
                assert {(await fresh(events)).payload for _ in range(50)} == {b"%d" % number for number in range(50)}
            assert any(datagram[3] == packets.TRANSPORT + 1 for datagram in sent)
            assert b.peer.counters.refused["unknown-plugin"] == 5

    run(scene())


def test_nobody_without_a_key_gets_a_word_in(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with sealed_overlay(PAIR) as (a, b):
            await until(lambda: up(a) == {1} and up(b) == {0})
            before = b.peer.peer.status()
            stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            stranger.bind(("127.0.0.1", 0))
            header = wire.make_header(0, 1, 99)
            forged = [
                datagrams.encode(header, Hello(99, True)),
                os.urandom(100),
                b"",
                b"ws",
                packets.packet_head(16) + bytes(40),
            ]
            for datagram in forged:
                stranger.sendto(datagram, b.peer.address)
            refused = b.peer.counters.refused
            await until(lambda: sum(refused.values()) >= len(forged))
            assert refused["not-sealed"] >= 2 and refused["unknown-keys"] == 1
            assert b.peer.peer.status().links == before.links or up(b) == {0}
            # and a peer of another root, which claims to be peer 0
            other = Laboratory("others")
            impostor = LivePeer(PeerConfig(peer=0, incarnation=5), keys=(other.credentials(0), LAB.verifier()))
            impostor.add_peer(1, b.peer.address)
            impostor.start(Started((Neighbour(1, 1 * MS),)))
            await until(lambda: refused["untrusted"] > 0)
            impostor.close()
            stranger.close()
            assert b.peer.addresses.reachable[0] == a.peer.address
            assert up(b) == {0}

    run(scene())
    assert "refuses datagrams from" in caplog.text and "not sealed" in caplog.text


def test_an_open_peer_and_one_with_keys_do_not_speak_and_say_why(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with sealed_overlay(PAIR, open_peers=(1,)) as (a, b):
            await until(lambda: a.peer.counters.refused["not-sealed"] > 0 and b.peer.counters.refused["garbage"] > 0)
            assert up(b) == set()

    run(scene())
    assert "this peer has keys" in caplog.text


def test_a_peer_that_restarts_elsewhere_is_found_by_its_session() -> None:
    async def scene() -> None:
        async with sealed_overlay(PAIR) as (a, b):
            await until(lambda: up(a) == {1} and up(b) == {0})
            former = b.peer.address
            b.peer.close()
            again = make(1, incarnation=2)
            assert again.address != former
            again.add_peer(0, a.peer.address)
            again.start(Started((Neighbour(0, 1 * MS),)))
            await until(lambda: a.peer.addresses.reachable[1] == again.address)
            await until(lambda: {link.neighbour for link in again.status().links if link.up} == {0})
            await until(lambda: a.peer.addresses.incarnation(1) == 2)
            again.close()

    run(scene())


def test_a_packet_with_the_source_of_another_neighbour_does_not_cut_that_one_off() -> None:
    """Whoever is on the path can pass a packet on with any source."""

    async def scene() -> None:
        async with sealed_overlay([(0, 1), (0, 2)]) as (a, b, c):
            await until(lambda: up(a) == {1, 2} and up(b) == {0} and up(c) == {0})
            assert a.peer.sealed is not None and b.peer.sealed is not None

            def rewritten(datagram: bytes) -> None:
                assert a.peer.sealed is not None
                a.peer.sealed.receive(memoryview(datagram), c.peer.address)

            b.peer.sealed.add_pipe(0, rewritten)
            await until(lambda: a.peer.addresses.reachable[1] == c.peer.address)
            b.peer.sealed.add_pipe(0, None)
            await until(lambda: a.peer.addresses.reachable == {1: b.peer.address, 2: c.peer.address})
            async with connect(c.url) as there, there.subscribe("topic = 'x'") as events, connect(a.url) as here:
                await known(here, "x", 1)
                await here.publish({"topic": "x"}, b"still there")
                assert (await fresh(events)).payload == b"still there"

    run(scene())


def test_time_goes_on_after_a_fault_and_an_address_that_cannot_be_is_only_counted() -> None:
    async def scene() -> None:
        async with sealed_overlay(PAIR) as (a, b):
            await until(lambda: up(a) == {1} and up(b) == {0})
            sealed = a.peer.sealed
            assert sealed is not None
            ticks, faults = 0, []

            def fail(now: Nanos) -> None:
                nonlocal ticks
                ticks += 1
                raise RuntimeError("a fault of this test")

            asyncio.get_running_loop().set_exception_handler(lambda _, told: faults.append(told))
            sealed.groups.tick = fail  # type: ignore[method-assign]
            await until(lambda: ticks >= 3)
            assert len(faults) >= 2
            failed = a.peer.counters.failed["send"]
            sealed.send_to(("fe80::1%x\0", 7700), wire.MESSAGE, wire.encode_message(Hello(1, True)))
            assert a.peer.counters.failed["send"] == failed + 1

    run(scene())


def test_a_revoked_neighbour_is_out_and_a_renewed_one_stays() -> None:
    async def scene() -> None:
        async with sealed_overlay(PAIR) as (a, b):
            record = Record()
            a.peer.observe(record)
            await until(lambda: up(a) == {1} and up(b) == {0})
            assert a.peer.sealed is not None and b.peer.sealed is not None
            identity = a.peer.sealed.identity(1)
            assert identity is not None and (identity.name, identity.groups) == ("site-1", ("plant",))
            b.peer.sealed.renew(LAB.credentials(1, serial=900), LAB.verifier())
            with raises("untrusted"):
                b.peer.sealed.renew(LAB.credentials(0), LAB.verifier())
            a.peer.sealed.renew(LAB.credentials(0), LAB.verifier(101))  # the former serial of peer 1
            await until(lambda: (found := a.peer.sealed.identity(1)) is not None and found.serial == 900)  # type: ignore[union-attr]
            await until(lambda: up(a) == {1})
            a.peer.sealed.renew(LAB.credentials(0), LAB.verifier(101, 900))
            await until(lambda: a.peer.counters.refused["untrusted"] > 0)
            await until(lambda: up(a) == set())

    run(scene())


def test_peers_with_keys_join_by_an_address() -> None:
    async def scene() -> None:
        first, second = make(0, join=()), None
        first.start(Started(()))
        second = make(1, join=(first.address,))
        second.start(Started(()))
        await until(lambda: {1} == {link.neighbour for link in first.status().links if link.up})
        await until(lambda: {0} == {link.neighbour for link in second.status().links if link.up})
        first.close()
        second.close()

    run(scene())


def test_a_peer_with_keys_may_listen_anywhere() -> None:
    async def scene() -> None:
        peer = make(0, listen=("0.0.0.0", 0))
        peer.close()
        await asyncio.sleep(0)

    run(scene())


def test_a_peer_of_a_file_with_keys_joins_renews_and_refuses_the_revoked(tmp_path: Path) -> None:
    """The whole of it, from key files: two services, one certificate is revoked, and SIGHUP's work is done."""

    async def scene() -> None:
        folders = {peer: enrol(tmp_path, peer) for peer in (1, 2)}
        files = {
            peer: PeerFile(id=peer, listen="127.0.0.1:0", clients="127.0.0.1:0", detection="80ms", keys=str(folder))
            for peer, folder in folders.items()
        }
        first = PeerProcess(files[1])
        await first.start()
        second = PeerProcess(msgspec.structs.replace(files[2], join=(format_address(first.peer.address),)))
        await second.start()
        try:
            await until(lambda: bool(first.peer.status().links) and first.peer.status().links[0].up)
            identity = first.peer.sealed.identity(2) if first.peer.sealed is not None else None
            assert identity is not None and identity.peer == 2
            (folders[1] / "revoked.txt").write_text(f"{identity.serial}  # lost\n")
            await first.reload(lambda: files[1])
            await until(lambda: first.peer.counters.refused["untrusted"] > 0)
            await until(lambda: not first.peer.status().links[0].up)
        finally:
            await first.abort()
            await second.abort()

    run(scene())


def enrol(folder: Path, peer: int) -> Path:
    """The folder of keys of a peer, made by `wend key`."""
    root, site = folder / "root", folder / f"site-{peer}"
    commands = [] if root.exists() else [["root", str(root), "--name", "plant"]]
    commands += [
        ["new", str(site), "--name", f"site-{peer}"],
        [
            "sign",
            str(site / "request.pem"),
            "--root",
            str(root),
            "--peer",
            str(peer),
            "--out",
            str(site / "certificate.pem"),
        ],
    ]
    for words in commands:
        done = CliRunner().invoke(app, ["key", *words])
        assert done.exit_code == 0, done.output
    return site


def test_peers_with_keys_make_a_ring_and_find_a_peer_that_returns_elsewhere(tmp_path: Path) -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:

            async def started(peer: int, *join: Address) -> PeerProcess:
                folder = tmp_path / f"site-{peer}"
                file = PeerFile(
                    id=peer, listen="127.0.0.1:0", clients="127.0.0.1:0", membership="pastry",
                    pastry_detection="600ms", pastry_round_trip="5ms",
                    join=[format_address(address) for address in join],
                    keys=str(folder if folder.exists() else enrol(tmp_path, peer)),
                )  # fmt: skip
                service = PeerProcess(file)
                await service.start()
                stack.push_async_callback(service.abort)
                return service

            def is_whole(services: list[PeerProcess]) -> bool:
                rings = [service.peer.status().plugins["pastry"] for service in services]
                return all(ring["joined"] and ring["leaf-set"] == len(services) - 1 for ring in rings)

            first = await started(0)
            peers = [first] + [await started(peer, first.peer.address) for peer in (1, 2, 3)]
            await until(lambda: is_whole(peers))
            await peers[3].abort()
            peers[3] = await started(3, first.peer.address)
            await until(lambda: is_whole(peers))
            async with (
                connect(f"wend://{format_address(peers[1].listener.address)}") as here,
                connect(f"wend://{format_address(peers[3].listener.address)}") as there,
                there.subscribe("price > 10") as events,
            ):
                arriving = asyncio.create_task(anext(events))
                while not arriving.done():
                    await here.publish({"price": 15.0})
                    await asyncio.sleep(0.02)
            assert not any(service.peer.counters.refused["stranger"] for service in peers)

    run(scene())
