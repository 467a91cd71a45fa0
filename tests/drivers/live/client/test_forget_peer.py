"""A peer that never returns is forgotten by an administrator, at any other peer."""

import wend
from tests.drivers.live.net import overlay, run, until
from tests.errors import raises

LINE = [(0, 1), (1, 2)]


def test_all_peers_drop_what_they_store_for_it() -> None:
    async def scene() -> None:
        async with overlay(LINE, persistence=True) as (a, b, c), wend.connect(a.url) as client:
            async with wend.connect(c.url) as subscriber, subscriber.subscribe("topic = 'x'"):
                await until(lambda: a.peer.interested_peers({"topic": "x"}) == (2,))
                await c.listener.stop()
                c.peer.close()
                receipt = await client.publish({"topic": "x"})
                assert receipt.targets == 1
                await until(lambda: bool((*a.peer.peer.responsible_ids, *b.peer.peer.responsible_ids)))
                await client.forget_peer(2)
                assert (await client.publish({"topic": "x"})).targets == 0
                await until(lambda: not (*a.peer.peer.responsible_ids, *b.peer.peer.responsible_ids))
            with raises("no-such-peer"):
                await client.forget_peer(9)

    run(scene())
