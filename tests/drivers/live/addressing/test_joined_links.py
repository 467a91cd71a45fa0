"""Peers with links that join by one address: no other peer's file names them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import wend
from tests.drivers.live.net import run, until
from tests.errors import raises
from tests.ports import free_ports
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.config import PeerFile
from wend.drivers.live.process import PeerProcess, serve


def file_of(peer: int, *join: Address, **fields: Any) -> PeerFile:
    places = {"listen": "127.0.0.1:0", "clients": "127.0.0.1:0", "detection": "80ms"}
    return PeerFile(id=peer, join=[format_address(address) for address in join], **{**places, **fields})


@asynccontextmanager
async def started(file: PeerFile) -> AsyncIterator[PeerProcess]:
    service = PeerProcess(file)
    await service.start()
    try:
        yield service
    finally:
        await service.abort()


def client_of(service: PeerProcess) -> wend.Client:
    return wend.connect(f"wend://{format_address(service.listener.address)}")


def working(service: PeerProcess) -> set[int]:
    return {link.neighbour for link in service.peer.status().links if link.up}


async def reaches(publisher: wend.Client, events: wend.EventStream) -> None:
    """Publish until an event has arrived: interest takes a while to spread."""
    arriving = asyncio.create_task(anext(events))
    while not arriving.done():
        await publisher.publish({"x": 1})
        await asyncio.sleep(0.01)
    await arriving


def test_a_new_site_joins_by_one_address_and_no_other_file_names_it() -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(started(file_of(1)))
            second = await stack.enter_async_context(started(file_of(2, first.peer.address)))
            third = await stack.enter_async_context(started(file_of(3, second.peer.address)))
            await until(lambda: (working(first), working(second), working(third)) == ({2}, {1, 3}, {2}))
            here = await stack.enter_async_context(client_of(first))
            there = await stack.enter_async_context(client_of(third))
            for publisher, subscriber in ((here, there), (there, here)):
                async with subscriber.subscribe("x = 1") as events:
                    await reaches(publisher, events)
            assert (await here.status()).link(2).address == format_address(second.peer.address)

    run(scene())


def test_a_peer_that_restarts_gets_back_those_that_joined_by_it() -> None:
    async def scene() -> None:
        at = ("127.0.0.1", free_ports(1)[0])
        async with AsyncExitStack() as stack:
            async with started(file_of(1, listen=format_address(at))) as first:
                second = await stack.enter_async_context(started(file_of(2, at)))
                await until(lambda: working(first) == {2} and working(second) == {1})
            await until(lambda: not working(second))
            again = await stack.enter_async_context(started(file_of(1, listen=format_address(at))))
            await until(lambda: working(again) == {2} and working(second) == {1})
            # the peer that joined returns, too, at another address
            await second.abort()
            back = await stack.enter_async_context(started(file_of(2, at)))
            await until(lambda: working(back) == {1} and working(again) == {2})
            assert again.peer.addresses.reachable[2] == back.peer.address

    run(scene())


def test_a_peer_that_admits_nobody_says_so_and_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        known = {"id": 7, "address": "127.0.0.1:7707"}
        async with (
            started(file_of(1, ("127.0.0.1", 7707), neighbours=[known], admit=False)) as first,
            started(file_of(2, first.peer.address)) as second,
        ):
            await until(lambda: any("admit = false" in record.getMessage() for record in caplog.records))
            assert not second.peer.peer.links and set(first.peer.peer.links) == {7}
            at = format_address(first.peer.address)
            assert f"peer 2: peer 1 at {at} makes no link with it: " in caplog.text

    with caplog.at_level(logging.WARNING, logger="wend.peer"):
        run(scene())


def test_a_removed_link_is_not_made_again_by_joining() -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(started(file_of(1)))
            second = await stack.enter_async_context(started(file_of(2, first.peer.address)))
            await until(lambda: working(first) == {2} and working(second) == {1})
            client = await stack.enter_async_context(client_of(first))
            await client.remove_link(2)
            await until(lambda: not working(second))
            asked = second.peer.counters.control.total()
            await until(lambda: second.peer.counters.control.total() > asked + 5)
            assert not first.peer.peer.links
            await client.add_link(2, format_address(second.peer.address))
            await until(lambda: working(first) == {2} and working(second) == {1})

    run(scene())


def test_a_second_peer_with_an_id_is_refused() -> None:
    async def scene() -> None:
        async with started(file_of(1)) as first, started(file_of(2, first.peer.address)) as second:
            await until(lambda: working(first) == {2})
            with raises("id-in-use", match=f"^peer 2 runs already, at {format_address(second.peer.address)}: give"):
                await serve(file_of(2, first.peer.address), lambda service: None)
            assert working(first) == {2}

    run(scene())


@pytest.mark.parametrize("membership", ["random", "tdo-random", "tdo-nearest", "tdo-landmark", "chain"])
def test_the_membership_links_peers_that_join_by_one_address(membership: str) -> None:
    async def scene() -> None:
        fields = {"membership": membership, "membership_period": "20ms"}
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(started(file_of(0, **fields)))
            others = [
                await stack.enter_async_context(started(file_of(n, first.peer.address, **fields))) for n in range(1, 5)
            ]
            peers = [first, *others]
            await until(lambda: all(working(one) for one in peers))
            here = await stack.enter_async_context(client_of(others[0]))
            there = await stack.enter_async_context(client_of(others[3]))
            events = await stack.enter_async_context(there.subscribe("x = 1"))
            await reaches(here, events)
            assert all(one.peer.counters.refused["no-address"] == 0 for one in peers)

    run(scene())
