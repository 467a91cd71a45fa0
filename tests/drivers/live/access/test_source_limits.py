"""Limits on strangers: bounded in number, in rate and in memory, whatever they try."""

import random

import pytest

import wend
from tests.drivers.live.key_ring import KeyRing
from tests.drivers.live.net import RawClient, overlay, run, until
from tests.errors import raises
from wend.drivers.live import frames
from wend.drivers.live.access.admission import ClientAdmission
from wend.drivers.live.access.source_limits import (
    BURST,
    MAX_WAITING,
    MAX_WAITING_PER_SOURCE,
    RATE_PER_S,
    SOURCE_BURST,
    SOURCE_RATE_PER_S,
    ClientSlots,
    StrangerLimits,
)
from wend.security.token_buckets import MAX_SOURCES


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_connections_that_wait_are_bounded_by_source_and_in_all() -> None:
    clock = Clock()
    limits = StrangerLimits(clock)
    admitted: list[str] = []
    for attempt in range(MAX_WAITING_PER_SOURCE + 5):
        source = limits.admit("10.0.0.1")
        assert (source is not None) == (attempt < MAX_WAITING_PER_SOURCE)
        admitted += [source] if source else []
    for host in range(2000):
        clock.now_s += 0.1
        source = limits.admit(f"10.1.{host // 250}.{host % 250}")
        admitted += [source] if source else []
    assert len(admitted) == limits.waiting == MAX_WAITING
    for source in admitted:
        limits.release(source)
    assert limits.waiting == 0
    assert limits.admit("10.0.0.1") == "10.0.0.1"


def test_one_source_does_not_take_all_the_clients_that_a_peer_accepts() -> None:
    slots = ClientSlots(8)
    for _ in range(6):
        slots.take_slot("10.0.0.1")
    for source in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2"):
        if source == "10.0.0.1":
            with raises("too-many-clients"):
                slots.take_slot(source)
        else:
            slots.take_slot(source)
    with raises("too-many-clients"):
        slots.take_slot("10.0.0.3")
    slots.release_slot("10.0.0.2")
    slots.take_slot("10.0.0.3")
    for _ in range(6):
        slots.release_slot("10.0.0.1")
    for _ in range(4):
        slots.take_slot("10.0.0.3")


def test_a_client_that_leaves_makes_room_for_another() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            a.listener.slots = ClientSlots(4)
            clients = [await wend.connect(a.url) for _ in range(3)]
            with raises("too-many-clients"):
                await wend.connect(a.url)
            assert a.counts["refused"] == 1
            await clients.pop().close()
            await until(lambda: a.counts["now"] == 2)
            clients.append(await wend.connect(a.url))
            for client in clients:
                await client.close()

    run(scene())


def test_new_connections_are_bounded_in_their_rate() -> None:
    clock, seconds = Clock(), 20
    limits = StrangerLimits(clock)
    one = others = 0
    for step in range(seconds * 1000):
        clock.now_s = step / 1000
        for host in ("10.0.0.1", f"10.1.{step % 200}.1"):
            source = limits.admit(host)
            if source is not None:
                limits.release(source)
                one, others = one + (host == "10.0.0.1"), others + (host != "10.0.0.1")
    assert one <= SOURCE_BURST + SOURCE_RATE_PER_S * seconds + 1
    assert BURST + RATE_PER_S * seconds * 0.9 <= one + others <= BURST + RATE_PER_S * seconds + 1


def test_memory_for_strangers_is_bounded() -> None:
    limits, draw = StrangerLimits(Clock()), random.Random(1)
    for _ in range(5 * MAX_SOURCES):
        source = limits.admit(f"10.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(256)}")
        if source is not None:
            limits.release(source)
    assert len(limits) == MAX_SOURCES and limits.waiting == 0


def test_loopback_has_no_limits_unless_they_are_asked_for() -> None:
    limits = StrangerLimits(Clock())
    assert all(limits.admit("127.0.0.1") for _ in range(2000)) and limits.waiting == 0
    strict = StrangerLimits(Clock(), exempt_loopback=False)
    assert sum(strict.admit("127.0.0.1") is not None for _ in range(2000)) == MAX_WAITING_PER_SOURCE


# ---------------------------------------------------------------- at a live listener


def test_strangers_that_say_nothing_do_not_keep_clients_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def scene() -> None:
        ring = KeyRing(tmp_path_factory.mktemp("keys"))
        admission = ClientAdmission(ring.keys("site", 0), tls=True)
        clock = Clock()
        limits = StrangerLimits(clock, exempt_loopback=False)
        async with overlay([], admission=admission, limits=limits, greet_s=30.0) as (site,):
            url = site.url.replace("wend://", "wends://")
            async with wend.connect(url, keys=ring.enrol("alice")) as client:
                silent = [await RawClient.connect(site.listener.address) for _ in range(200)]
                await until(lambda: site.counts["flood-refused"] == 200 - MAX_WAITING_PER_SOURCE)
                assert limits.waiting == MAX_WAITING_PER_SOURCE
                await client.publish({"topic": "a"})
                assert client.reconnects == 0
                for one in silent:
                    one.close()
                await until(lambda: limits.waiting == 0)
                clock.now_s += 60.0
                async with wend.connect(url, keys=ring.enrol("bob")) as other:
                    await other.publish({"topic": "a"})

    run(scene())


def test_a_client_that_greeted_is_no_stranger() -> None:
    async def scene() -> None:
        clock = Clock()
        limits = StrangerLimits(clock, exempt_loopback=False)
        async with overlay([], limits=limits) as (site,):
            clients = []
            for _ in range(2 * MAX_WAITING_PER_SOURCE):
                clock.now_s += 1.0
                client = await RawClient.connect(site.listener.address)
                client.send(frames.Greet())
                assert isinstance((await client.receive())[0], frames.Welcome)
                clients.append(client)
            assert limits.waiting == 0 and site.counts["now"] == len(clients)
            for client in clients:
                client.close()

    run(scene())
