"""Peers that join a ring by an address, on real sockets in one process."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import wend
from tests.drivers.live.locators import datagram as about_addresses
from tests.drivers.live.net import run, until
from tests.errors import raises
from tests.ports import free_ports
from wend.drivers.live.addressing import address_messages, contacts, joining
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.config import PeerFile
from wend.drivers.live.process import PeerProcess, serve
from wend.drivers.live.transport import wire
from wend.model.units import MS


def file_of(peer: int, *join: Address, **fields: Any) -> PeerFile:
    return PeerFile(
        id=peer,
        clients="127.0.0.1:0",
        membership="pastry",
        join=[format_address(address) for address in join],
        **{"listen": "127.0.0.1:0", "pastry_detection": "600ms", "pastry_round_trip": "5ms", **fields},
    )


@asynccontextmanager
async def started(file: PeerFile) -> AsyncIterator[PeerProcess]:
    service = PeerProcess(file)
    await service.start()
    try:
        yield service
    finally:
        await service.abort()


def url(service: PeerProcess) -> str:
    return f"wend://{format_address(service.listener.address)}"


def ring(service: PeerProcess) -> dict[str, int]:
    return service.peer.status().plugins["pastry"]


def test_peers_join_by_one_address_and_find_the_others() -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(started(file_of(0)))
            others = [await stack.enter_async_context(started(file_of(n, first.peer.address))) for n in range(1, 6)]
            peers = [first, *others]
            await until(lambda: all(ring(one)["joined"] and ring(one)["leaf-set"] == 5 for one in peers))
            there = await stack.enter_async_context(wend.connect(url(others[4])))
            events = await stack.enter_async_context(there.subscribe("price > 10 and price < 20"))
            here = await stack.enter_async_context(wend.connect(url(others[0])))
            got: list[bytes] = []

            async def collect() -> None:
                async for event in events:
                    got.append(event.payload)

            collecting = asyncio.create_task(collect())
            number = 0
            while not got:  # the subscription is on its way to the owner of its region
                number += 1
                await here.publish({"price": 15.0}, b"%d" % number)
                await asyncio.sleep(0.02)
            collecting.cancel()
            assert len(got) == len(set(got))
            # a peer more, and the first one gone for good: no file names either
            late = await stack.enter_async_context(started(file_of(6, others[2].peer.address)))
            await first.stop()
            living = [*others, late]
            await until(lambda: all(ring(one)["joined"] and ring(one)["leaf-set"] == 5 for one in living))
            assert all(one.peer.counters.refused["no-address"] == 0 for one in living)

    run(scene())


def test_a_second_peer_with_an_id_is_refused_and_the_first_goes_on() -> None:
    async def scene() -> None:
        async with started(file_of(0)) as first, started(file_of(5, first.peer.address)) as fifth:
            await until(lambda: ring(fifth)["joined"] == 1)
            for taken, at in ((0, first), (5, fifth)):
                with raises(
                    "id-in-use", match=f"^peer {taken} runs already, at {format_address(at.peer.address)}: give"
                ):
                    await serve(file_of(taken, first.peer.address), lambda service: None)
            assert first.peer.addresses.reachable[5] == fifth.peer.address
            assert ring(first)["leaf-set"] == ring(fifth)["leaf-set"] == 1

    run(scene())


def test_a_peer_returns_at_another_address() -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(started(file_of(0)))
            others = [await stack.enter_async_context(started(file_of(n, first.peer.address))) for n in range(1, 4)]
            await until(lambda: all(ring(one)["leaf-set"] == 3 for one in (first, *others)))
            gone = others.pop()
            await gone.abort()
            back = await stack.enter_async_context(started(file_of(3, first.peer.address)))
            assert back.peer.address != gone.peer.address
            await until(lambda: ring(back)["leaf-set"] == 3)
            peers = [first, *others]
            await until(lambda: all(one.peer.addresses.reachable[3] == back.peer.address for one in peers))

    run(scene())


def test_the_first_peer_begins_another_ring_and_the_others_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contacts, "RECHECK_NS", 100 * MS)

    async def scene() -> None:
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(started(file_of(0, listen=listen)))
            others = [await stack.enter_async_context(started(file_of(n, first.peer.address))) for n in range(1, 4)]
            await until(lambda: all(ring(one)["leaf-set"] == 3 for one in (first, *others)))
            await first.abort()
            await until(lambda: all(ring(one)["leaf-set"] == 2 for one in others))
            back = await stack.enter_async_context(started(file_of(0, listen=listen)))
            await until(lambda: all(ring(one)["leaf-set"] == 3 for one in (back, *others)))

    run(scene())


def test_a_peer_that_nobody_answers_says_so_and_serves_its_clients(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(joining, "PATIENCE_S", 0.05)

    async def scene() -> None:
        silent = ("127.0.0.1", free_ports(1)[0])
        async with started(file_of(3, silent)) as service, wend.connect(url(service)) as client:
            async with client.subscribe("price > 10") as events:
                await client.publish({"price": 15.0}, b"at home")
                assert (await anext(events)).payload == b"at home"
            await until(lambda: bool(caplog.records))
            assert [record.getMessage() for record in caplog.records] == [
                f"peer 3: nobody listens at {format_address(silent)}; it keeps trying, and serves its clients"
            ]
            assert ring(service)["joined"] == 0
            async with started(file_of(1, service.peer.address)) as other:  # they know only each other
                await until(lambda: bool(ring(service)["joined"] and ring(other)["joined"]))

    with caplog.at_level(logging.WARNING, logger="wend.peer"):
        run(scene())


def test_hostile_datagrams_are_counted() -> None:
    async def scene() -> None:
        async with started(file_of(0)) as service:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                to, refused = service.peer.address, service.peer.counters.refused
                stranger.sendto(b"what is this", to)
                stranger.sendto(wire.frame_datagram(wire.make_header(7, 9, 1), b"\x80"), to)  # for another peer
                stranger.sendto(
                    wire.frame_datagram(wire.make_header(2**40, 0, 1), b"\x80"), to
                )  # no peer has such an id
                stranger.sendto(wire.frame_datagram(wire.make_header(0, 0, 1), b"\x80"), to)  # in its own name
                stranger.sendto(wire.frame_datagram(wire.make_header(7, 0, 1, wire.ADDRESSES), b"\x80"), to)
                answer = address_messages.AddressReply(1, 2)
                stranger.sendto(about_addresses(answer, 7, 0), to)
                question = about_addresses(address_messages.AddressQuery(1, None, bytes(32)), 7, 0)
                stranger.sendto(question[:-1] + bytes((question[-1] ^ 1,)), to)
                stranger.sendto(question[:2] + bytes((wire.VERSION - 1,)) + question[3:], to)
                stranger.sendto(b"xx" + question[2:], to)
                await until(lambda: sum(refused.values()) == 9)
                unasked = "unexpected-addresses"
                assert refused == {"stranger": 5, "garbage": 1, unasked: 1, "corrupted": 1, "other-version": 1}
                assert not service.peer.addresses.reachable

    run(scene())


def test_peers_with_given_neighbours_that_admit_nobody_answer_no_question_about_addresses() -> None:
    async def scene() -> None:
        file = PeerFile(id=0, listen="127.0.0.1:0", clients="127.0.0.1:0", admit=False)
        async with started(file) as service:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.setblocking(False)
                question = about_addresses(
                    address_messages.AddressQuery(1, None, bytes(32)), 7, address_messages.ANYONE
                )
                stranger.sendto(question, service.peer.address)
                await until(lambda: service.peer.counters.refused["stranger"] == 1)
                with pytest.raises(BlockingIOError):
                    stranger.recv(2000)

    run(scene())
