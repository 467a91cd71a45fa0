"""Durable subscriptions, where the user stands: at the client's end, with peers as processes that are killed and
restarted, and clients that go and come back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import wend
from tests.drivers.live.net import PAIR, RawClient, Site, overlay, run, until
from tests.drivers.live.processes import Process
from tests.errors import raises
from tests.ports import free_ports
from wend.drivers.live import frames
from wend.drivers.live.client.arrivals import DurableArrival
from wend.drivers.live.client.event_stream import EventStream
from wend.model.events import DurableOptions

SLOW_MACHINE_S = 60


@asynccontextmanager
async def durable(client: wend.Client, name: str = "orders", **options: object) -> AsyncIterator[EventStream]:
    async with client.subscribe("topic = 't'", name=name, **options) as events:  # type: ignore[arg-type]
        assert isinstance(events, EventStream)
        yield events


async def numbers(events: wend.EventStream, count: int) -> list[int]:
    return [int((await anext(events)).payload) for _ in range(count)]


async def announced(client: wend.Client) -> None:
    """Until the client's peer knows the subscription of another."""
    while (await client.publish({"topic": "t"}, b"0")).targets == 0:
        await asyncio.sleep(0.01)


def test_events_wait_for_a_client_that_is_away() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as sites, wend.connect(sites[0].url) as publisher:
            async with wend.connect(sites[1].url) as client, durable(client) as events:
                await announced(publisher)
                await publisher.publish({"topic": "t"}, b"1")
                while await numbers(events, 1) != [1]:
                    pass
            for number in (2, 3):
                await publisher.publish({"topic": "t"}, str(number).encode())
            async with wend.connect(sites[1].url) as client, durable(client) as events:
                assert await numbers(events, 2) == [2, 3]

    run(scene())


def test_what_is_not_acknowledged_comes_again() -> None:
    async def scene() -> None:
        async with overlay([]) as (site,), wend.connect(site.url) as publisher:
            async with wend.connect(site.url) as client, durable(client, ack="explicit") as events:
                for number in (1, 2, 3):
                    await publisher.publish({"topic": "t"}, str(number).encode())
                one, two, three = [await anext(events) for _ in range(3)]
                assert isinstance(two, DurableArrival) and not two.redelivered
                two.ack()
            async with wend.connect(site.url) as client, durable(client, ack="explicit") as events:
                again = [await anext(events) for _ in range(2)]
                assert [
                    (int(event.payload), event.redelivered) for event in again if isinstance(event, DurableArrival)
                ] == [
                    (1, True),
                    (3, True),
                ]
                assert {one.id, three.id} == {event.id for event in again}

    run(scene())


def test_an_application_that_fails_gets_the_event_again() -> None:
    async def scene() -> None:
        async with overlay([]) as (site,), wend.connect(site.url) as publisher:
            await publisher.subscribe("topic = 't'", name="orders")
            for number in (1, 2):
                await publisher.publish({"topic": "t"}, str(number).encode())
            with pytest.raises(ZeroDivisionError):
                async with wend.connect(site.url) as client, durable(client) as events:
                    assert await numbers(events, 2) == [1, 2]
                    raise ZeroDivisionError
            async with wend.connect(site.url) as client, durable(client) as events:
                assert await numbers(events, 1) == [2]

    run(scene())


def test_a_lost_connection_repeats_nothing_that_the_application_has() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (site,),
            wend.connect(site.url) as publisher,
            wend.connect(site.url) as client,
            durable(client, ack="explicit") as events,
        ):
            for number in (1, 2, 3):
                await publisher.publish({"topic": "t"}, str(number).encode())
            first = await anext(events)
            _cut(site)
            await until(lambda: client.reconnects == 1 and client.connected)
            assert isinstance(first, DurableArrival)
            first.ack()
            assert await numbers(events, 2) == [2, 3]
            await publisher.publish({"topic": "t"}, b"4")
            assert await numbers(events, 1) == [4]

    run(scene())


def _cut(site: Site) -> None:
    """Break the connections of all clients."""
    for session in list(site.listener.sessions):
        assert session.transport is not None
        session.transport.abort()


def test_the_newest_client_of_a_name_takes_over() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (site,),
            wend.connect(site.url) as first,
            wend.connect(site.url) as second,
            durable(first) as old,
            durable(second) as new,
        ):
            await first.publish({"topic": "t"}, b"1")
            assert await numbers(new, 1) == [1]
            with raises("taken-over"):
                await anext(old)

    run(scene())


def test_it_is_listed_and_removed_by_its_name() -> None:
    async def scene() -> None:
        async with overlay([]) as (site,), wend.connect(site.url) as client:
            async with durable(client):
                (one,) = await client.subscriptions()
                assert (one.name, one.filter, one.attached, one.events) == ("orders", "topic = 't'", True, 0)
            await client.publish({"topic": "t"}, b"1")
            (one,) = await client.subscriptions()
            assert (one.attached, one.events) == (False, 1)
            await client.remove_subscription("orders")
            assert await client.subscriptions() == ()
            with raises("unknown-subscription"):
                await client.remove_subscription("orders")

    run(scene())


def test_a_client_is_told_what_it_missed() -> None:
    async def scene() -> None:
        async with overlay([]) as (site,), wend.connect(site.url) as client:
            async with durable(client, max_events=2):
                pass
            for number in range(5):
                await client.publish({"topic": "t"}, str(number).encode())
            async with durable(client, max_events=2) as events:
                assert await numbers(events, 2) == [3, 4]
                assert events.missed == {"backlog-full": 3}

    run(scene())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": ""}, "printable characters"),
        ({"name": 7}, "is a text"),
        ({"max_events": 5}, "give a name"),
        ({"name": "a", "max_events": 0}, "whole number above 0"),
        ({"name": "a", "max_age": -1}, "above 0 seconds"),
        ({"name": "a", "ack": "never"}, 'ack is "auto" or "explicit"'),
        ({"name": "a", "window": 0}, "at least 1"),
        ({"order": "total"}, 'order is "publisher"'),
        ({"expire": True}, "give a deadline"),
    ],
)
def test_options_that_make_no_sense_get_a_sentence(options: dict[str, object], sentence: str) -> None:
    async def scene() -> None:
        async with overlay([]) as (site,), wend.connect(site.url) as client:
            with raises("invalid-call", match=sentence):
                client.subscribe("true", **options)  # type: ignore[arg-type]
            with raises("invalid-event", match="above 0"):
                await client.publish({"topic": "t"}, ttl=0)

    run(scene())


# ---------------------------------------------------------------- peers as processes


def write_chain(folder: Path, peers: int) -> list[Path]:
    """The files of a chain of peers with stores, which clients find again after a restart."""
    ports = free_ports(2 * peers)
    for peer in range(peers):
        near = [n for n in (peer - 1, peer + 1) if 0 <= n < peers]
        entries = "".join(f'[[neighbours]]\nid = {n}\naddress = "127.0.0.1:{ports[n]}"\ndelay = "5ms"\n' for n in near)
        (folder / f"{peer}.toml").write_text(
            f'id = {peer}\nlisten = "127.0.0.1:{ports[peer]}"\nclients = "127.0.0.1:{ports[peers + peer]}"\n'
            f'persistence = true\nstore = "{peer}.store"\nmargin = "100ms"\ndetection = "1s"\n{entries}'
        )
    return [folder / f"{peer}.toml" for peer in range(peers)]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_peer_that_ends_and_comes_back_loses_nothing_for_a_durable_subscription(tmp_path: Path, how: str) -> None:
    """Events published before, while and after the subscriber's peer is away, also before its client is back."""

    async def scene() -> None:
        files = write_chain(tmp_path, 2)
        here, there = [await Process.start(file) for file in files]
        try:
            async with AsyncExitStack() as stack:
                publisher = await stack.enter_async_context(wend.connect(here.url))
                async with wend.connect(there.url) as client, durable(client) as events:
                    await announced(publisher)
                    await publisher.publish({"topic": "t"}, b"1")
                    while await numbers(events, 1) != [1]:
                        pass
                receipts = [await publisher.publish({"topic": "t"}, b"2")]
                await (there.kill() if how == "kill" else there.stop())
                receipts.append(await publisher.publish({"topic": "t"}, b"3"))
                there = await Process.start(files[1])
                for number in range(4, 40):
                    receipts.append(await publisher.publish({"topic": "t"}, str(number).encode()))
                    await asyncio.sleep(0.005)
                assert all(receipt.kept and receipt.targets == 1 for receipt in receipts)
                client = await stack.enter_async_context(wend.connect(there.url))
                events = await stack.enter_async_context(durable(client))
                async with asyncio.timeout(SLOW_MACHINE_S):
                    assert sorted(await numbers(events, 38)) == list(range(2, 40))
        finally:
            for process in (here, there):
                await process.kill()

    run(scene())


def test_a_peer_refuses_options_that_a_client_did_not_check() -> None:
    async def scene() -> None:
        async with overlay([]) as (site,):
            client = await RawClient.connect(site.listener.address)
            client.send(frames.Greet())
            for options in (
                DurableOptions("x" * 1000),
                DurableOptions("a", max_events=0),
                DurableOptions("a", max_bytes=-1),
                DurableOptions("a", max_age_ns=2**63 - 1),
            ):
                client.send(frames.Subscribe(7, 1, "true", durable=options))
            answers = await client.receive(5)
            assert [type(answer) for answer in answers[1:]] == [frames.RefusedFrame] * 4
            client.close()

    run(scene())
