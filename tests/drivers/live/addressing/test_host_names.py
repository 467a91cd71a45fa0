"""Neighbours that are given by host names: names that are not known yet, and sites that move."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import wend
from tests.drivers.live.net import run, until
from tests.errors import raises
from tests.ports import free_ports
from wend.drivers.live.addressing import host_names
from wend.drivers.live.addressing.addresses import Address, format_address
from wend.drivers.live.config import PeerFile
from wend.drivers.live.process import PeerProcess
from wend.model.errors import ConfigError


class Resolver:
    """Knows the hosts that a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: dict[str, list[str]] = {}
        self.asked = 0
        self.blocked = threading.Event()
        self.blocked.set()
        monkeypatch.setattr(host_names, "resolve_addresses", self.resolve)
        monkeypatch.setattr(host_names, "FIRST_PAUSE_S", 0.01)
        monkeypatch.setattr(host_names, "CHECK_S", 0.01)

    def resolve(self, address: Address, family: int) -> list[Address]:
        self.asked += 1
        self.blocked.wait()
        if address[0] not in self.hosts:
            raise ConfigError(f"cannot find the host {address[0]!r}: not yet")
        return [(host, address[1]) for host in self.hosts[address[0]]]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    return Resolver(monkeypatch)


@asynccontextmanager
async def site(peer: int, listen: Address, *neighbours: tuple[int, str], **fields: Any) -> AsyncIterator[PeerProcess]:
    others = [{"id": other, "address": address} for other, address in neighbours]
    service = PeerProcess(
        PeerFile(
            id=peer,
            listen=format_address(listen),
            clients="127.0.0.1:0",
            neighbours=others,
            **{"detection": "60ms", **fields},
        )
    )
    await service.start()
    try:
        yield service
    finally:
        await service.abort()


def works(service: PeerProcess, neighbour: int) -> bool:
    link = service.peer.status().link(neighbour)
    return link is not None and link.up


def test_a_name_that_does_not_resolve_yet_is_tried_again(resolver: Resolver, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        ports = free_ports(2)
        async with (
            site(1, ("127.0.0.1", ports[0]), (2, f"site-b:{ports[1]}")) as a,
            site(2, ("127.0.0.1", ports[1]), (1, f"127.0.0.1:{ports[0]}")),
        ):
            await until(lambda: resolver.asked > 3)
            assert [text for text in map(logging.LogRecord.getMessage, caplog.records) if "tries" in text] == [
                "peer 1: cannot find the host 'site-b': not yet; it tries again"
            ]
            assert not works(a, 2)
            resolver.hosts["site-b"] = ["127.0.0.1"]
            await until(lambda: works(a, 2))

    with caplog.at_level(logging.WARNING, logger="wend.peer"):
        run(scene())


def test_a_site_that_moved_is_found_and_a_second_address_is_tried(
    resolver: Resolver, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        ports = free_ports(2)
        resolver.hosts["site-b"] = ["127.0.0.1"]
        back = (1, f"127.0.0.1:{ports[0]}")
        async with site(1, ("127.0.0.1", ports[0]), (2, f"site-b:{ports[1]}")) as a:
            async with site(2, ("127.0.0.1", ports[1]), back):
                await until(lambda: works(a, 2))
            async with site(2, ("127.0.0.2", ports[1]), back):
                resolver.hosts["site-b"] = ["127.0.0.2"]
                await until(lambda: a.peer.addresses.reachable[2][0] == "127.0.0.2" and works(a, 2))
            async with site(2, ("127.0.0.3", ports[1]), back):
                resolver.hosts["site-b"] = ["127.0.0.2", "127.0.0.3"]
                await until(lambda: a.peer.addresses.reachable[2][0] == "127.0.0.3" and works(a, 2))
            moves = [record.getMessage() for record in caplog.records if " now, and was " in record.getMessage()]
            assert moves == [f"peer 1: site-b is 127.0.0.2:{ports[1]} now, and was 127.0.0.1:{ports[1]}"]

    with caplog.at_level(logging.INFO, logger="wend.peer"):
        run(scene())


def test_a_resolver_that_does_not_answer_holds_nobody_up(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_names, "START_S", 0.01)

    async def scene() -> None:
        resolver.blocked.clear()
        async with (
            site(1, ("127.0.0.1", 0), (2, "site-b:7701")) as a,
            wend.connect(f"wend://{format_address(a.listener.address)}") as client,
        ):
            assert (await client.status()).peer == 1
            assert resolver.asked == 1

    try:
        run(scene())
    finally:
        resolver.blocked.set()


def test_no_client_connects_before_the_peer_runs(resolver: Resolver) -> None:
    """One that came too early would be told that the peer is not running, and its subscriptions would end."""

    async def scene() -> None:
        resolver.blocked.clear()
        service = PeerProcess(
            PeerFile(
                id=1,
                listen="127.0.0.1:0",
                clients=f"127.0.0.1:{free_ports(1)[0]}",
                neighbours=[{"id": 2, "address": "site-b:7701"}],
            )
        )
        starting = asyncio.create_task(service.start())
        await until(lambda: resolver.asked == 1)
        with raises("unreachable"):
            await wend.connect(f"wend://{format_address(service.listener.address)}")
        resolver.blocked.set()
        await starting
        async with (
            wend.connect(f"wend://{format_address(service.listener.address)}") as client,
            client.subscribe("true"),
        ):
            pass
        await service.abort()

    run(scene())


def test_a_name_to_join_by_is_resolved_later(resolver: Resolver) -> None:
    async def scene() -> None:
        port = free_ports(1)[0]
        ring: dict[str, Any] = {"membership": "pastry", "pastry_round_trip": "5ms"}
        async with (
            site(1, ("127.0.0.1", 0), join=[f"site-b:{port}"], **ring) as a,
            site(2, ("127.0.0.1", port), **ring),
        ):
            assert not a.peer.status().plugins["pastry"]["joined"]
            resolver.hosts["site-b"] = ["127.0.0.1"]
            await until(lambda: bool(a.peer.status().plugins["pastry"]["joined"]))

    run(scene())
