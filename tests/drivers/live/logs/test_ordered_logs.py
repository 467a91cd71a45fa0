"""A log in publishers' order: complete and in order, while links fail and its peer is killed."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.drivers.live.log_events import open_log, read_all
from tests.drivers.live.log_peers import ORDERS, client_of, log_of, running, write_peers
from tests.drivers.live.net import known, run, until
from tests.drivers.live.processes import Process
from tests.errors import raises
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.process import PeerProcess
from wend.drivers.live.store.store import boot_name

IN_ORDER = ORDERS + 'order = "publisher"\n'


def order(number: int) -> dict[str, Any]:
    return {"topic": "order", "number": number}


def held(folder: Path) -> list[int]:
    events = [record.event() for record in read_all(open_log(folder / "logs-1" / "orders", boot=boot_name()))[0]]
    return [event.attributes["number"] for event in events if "number" in event.attributes]


def test_order_holds_while_the_link_fails_and_the_peer_is_killed(tmp_path: Path) -> None:
    async def scene() -> None:
        mine, its = write_peers(tmp_path, IN_ORDER)
        mine.write_text("experiments = true\n" + mine.read_text())
        async with AsyncExitStack() as stage:
            here = await stage.enter_async_context(running(mine))
            client = await stage.enter_async_context(client_of(here))
            process = await Process.start(its)
            await known(client, "order", 1)
            for number in range(400):
                assert (await client.publish(order(number))).kept
                if number % 80 == 20:
                    await client.cut(1)
                elif number % 80 == 60:
                    await client.heal(1)
                if number % 130 == 50:
                    await process.kill()
                    process = await Process.start(its)
            await client.heal(1)
            await until(lambda: not here.peer.peer.unfinished())
            await process.stop()
        assert held(tmp_path) == list(range(400))

    run(scene())


def test_a_reader_that_asks_for_order_gets_the_ordered_log(tmp_path: Path) -> None:
    async def scene() -> None:
        other = IN_ORDER.replace("orders", "in-order")
        (file,) = write_peers(tmp_path, ORDERS + other, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await client.publish_many([order(number) for number in range(10)])
            await until(lambda: log_of(peer, "in-order").next_position == 11)
            async with client.subscribe("topic = 'order'", since="first", order="publisher") as events:
                assert [(await anext(events)).attributes["number"] for _ in range(10)] == list(range(10))
                assert events.log == "in-order"
            async with client.subscribe("topic = 'order'", since="first") as events:
                await anext(events)
                assert events.log == "orders"
            assert await client.subscriptions() == ()  # the log's own is not a client's

    run(scene())


def test_a_log_that_is_gone_leaves_no_backlog(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, IN_ORDER, count=1)
        async with running(file) as peer, client_of(peer) as client:
            await client.publish(order(1))
            await until(lambda: log_of(peer).next_position == 2)
            assert len(peer.peer.peer.durable) == 1
        file.write_text(file.read_text().replace('order = "publisher"\n', ""))
        async with running(file) as peer, client_of(peer) as client:
            assert not peer.peer.peer.durable
            assert log_of(peer).next_position == 2
            async with client.subscribe("topic = 'order'", name="a name"):
                (number,) = peer.peer.peer.durable
                assert number < 1000

    run(scene())


def test_a_strategy_that_cannot_keep_order_refuses(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, IN_ORDER, count=1)
        file.write_text('strategy = "rendezvous"\n' + file.read_text())
        with raises("invalid-setting", "cannot keep publishers' order"):
            PeerProcess(load_peer_file(file))
        await asyncio.sleep(0)

    run(scene())
