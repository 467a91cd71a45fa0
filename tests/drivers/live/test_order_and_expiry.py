"""Order and expiry at the client's end: a burst, a link that fails and heals, events that nobody needs any more."""

import asyncio

import wend
from tests.drivers.live.net import PAIR, Site, known, overlay, run, until
from tests.errors import raises
from wend.drivers.live.peer import LivePeer
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Started

BURST = 3000


def test_a_burst_comes_in_the_order_of_publication() -> None:
    async def scene() -> None:
        async with (
            overlay([(0, 1), (1, 2), (0, 2)]) as sites,
            wend.connect(sites[0].url) as publisher,
            wend.connect(sites[2].url) as subscriber,
            subscriber.subscribe("topic = 't'", order="publisher") as events,
        ):
            await known(publisher, "t", 1)
            await publisher.publish_many([({"topic": "t"}, str(number).encode()) for number in range(BURST)])
            got: list[int] = []
            while not got or got[-1] != BURST - 1:
                payload = (await anext(events)).payload
                got += [int(payload)] if payload.isdigit() else []
            assert got == list(range(BURST))
            assert not events.missed

    run(scene())


def test_what_a_cut_link_held_up_comes_in_order() -> None:
    async def scene() -> None:
        async with (
            overlay([(0, 1), (1, 2), (0, 2)]) as sites,
            wend.connect(sites[0].url) as publisher,
            wend.connect(sites[2].url) as subscriber,
            subscriber.subscribe("topic = 't'", order="publisher") as events,
        ):
            await known(publisher, "t", 1)
            while (await anext(events)).payload != b"first":
                await publisher.publish({"topic": "t"}, b"first")
            first = await publisher.publish({"topic": "t"}, b"x")
            sites[0].peer.pipes.cut(2)
            for _ in range(20):
                await publisher.publish({"topic": "t"}, b"x")
            sites[0].peer.pipes.heal(2)
            last = await publisher.publish({"topic": "t"}, b"last")
            got = [await anext(events)]
            while got[-1].payload != b"last":
                got.append(await anext(events))
            numbers = [event.id.sequence for event in got if event.id.sequence >= first.id.sequence]
            assert numbers == list(range(first.id.sequence, last.id.sequence + 1))

    run(scene())


def test_an_event_past_the_deadline_is_dropped_where_that_is_asked_for() -> None:
    """The link fails for longer than the deadline: one subscription gets the event late, the other one is told."""

    async def scene() -> None:
        async with (
            overlay(PAIR, persistence=True) as sites,
            wend.connect(sites[0].url) as publisher,
            wend.connect(sites[1].url) as subscriber,
            subscriber.subscribe("topic = 't'", deadline=0.2) as patient,
            subscriber.subscribe("topic = 't'", deadline=0.2, expire=True) as hasty,
        ):
            await known(publisher, "t", 1)
            sites[0].peer.pipes.cut(1)
            await publisher.publish({"topic": "t"}, b"slow")
            await asyncio.sleep(0.4)
            sites[0].peer.pipes.heal(1)
            while (late := await anext(patient)).payload != b"slow":
                pass
            assert late.late
            await until(lambda: hasty.missed["expired"] > 0)

    run(scene())


def test_an_event_past_its_ttl_is_never_delivered() -> None:
    async def scene() -> None:
        async with overlay([]) as (site,), wend.connect(site.url) as client:
            await client.subscribe("topic = 't'", name="away")
            await client.close()
            async with wend.connect(site.url) as publisher:
                await publisher.publish({"topic": "t"}, b"short", ttl=0.05)
                await publisher.publish({"topic": "t"}, b"long", ttl=60)
                await asyncio.sleep(0.1)
                async with publisher.subscribe("topic = 't'", name="away") as events:
                    assert (await anext(events)).payload == b"long"
                    await until(lambda: events.missed == {"expired": 1})
                assert (await publisher.status()).drops["expired"] == 1

    run(scene())


def test_a_strategy_that_names_no_destinations_refuses_order() -> None:
    async def scene() -> None:
        site = Site(LivePeer(PeerConfig(peer=0, strategy="mrst")))
        await site.listener.start()
        site.peer.start(Started(()))
        try:
            async with wend.connect(site.url) as client:
                with raises("not-supported"):
                    await client.subscribe("true", order="publisher")
        finally:
            await site.listener.stop()
            site.peer.close()

    run(scene())
