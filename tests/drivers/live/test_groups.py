"""Queue groups of clients: one member gets each event, at one peer and across peers."""

import asyncio
from collections import Counter

import wend
from tests.drivers.live.net import PAIR, Site, overlay, run, take, until
from tests.errors import raises
from wend.drivers.live.peer import LivePeer
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Started


def test_members_at_one_peer_take_turns() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as one,
            wend.connect(a.url) as two,
            one.subscribe("topic = 'x'", group="workers") as first,
            two.subscribe("topic = 'x'", group="workers") as second,
            two.subscribe("topic = 'x'") as everything,
        ):
            await one.publish_many([({"topic": "x"}, b"%d" % number) for number in range(10)])
            assert len(await take(everything, 10)) == 10
            shares = [[event.payload for event in await take(events, 5)] for events in (first, second)]
            assert shares == [[b"%d" % number for number in range(start, 10, 2)] for start in (0, 1)]
            await second.close()
            await one.publish({"topic": "x"}, b"alone")
            assert (await anext(first)).payload == b"alone"

    run(scene())


def test_members_at_several_peers_share_events_and_requests() -> None:
    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(a.url) as here,
            wend.connect(b.url) as there,
            here.subscribe("topic = 'x'", group="workers") as first,
            there.subscribe("topic = 'x'", group="workers") as second,
        ):
            done: Counter[str] = Counter()

            async def work(name: str, events: wend.EventStream) -> None:
                async for event in events:
                    done[name] += 1
                    await event.reply(name.encode())

            workers = [asyncio.create_task(work(*each)) for each in (("first", first), ("second", second))]
            known = a.peer.peer.plugins["flooded"].table.interests  # type: ignore[attr-defined]
            await until(lambda: 1 in known and bool(known[1].subscriptions))
            replies = [await here.request({"topic": "x"}, b"%d" % number) for number in range(40)]
            assert done.total() == 40 and min(done.values()) > 5
            assert Counter(reply.payload.decode() for reply in replies) == done
            for worker in workers:
                worker.cancel()

    run(scene())


def test_what_a_group_cannot_be_is_said() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            for wrong, why in (
                ({"group": 3}, "the name of a queue group is a text, got 3"),
                ({"group": ""}, "has 1 to 200 printable characters"),
                ({"group": "g", "order": "publisher"}, "so it cannot be ordered"),
                ({"group": "g", "name": "n"}, "so it cannot be durable"),
            ):
                with raises("invalid-call", match=why):
                    client.subscribe("topic = 'x'", **wrong)  # type: ignore[arg-type]
        site = Site(LivePeer(PeerConfig(peer=0, strategy="mrst")))
        await site.listener.start()
        site.peer.start(Started(()))
        async with wend.connect(site.url) as client:
            with raises("not-supported"):
                await client.subscribe("topic = 'x'", group="workers")
        await site.listener.stop()
        site.peer.close()

    run(scene())
