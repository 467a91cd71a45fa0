"""The logs of a live peer: they have every event that the peer acknowledged, once."""

import asyncio
import errno
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.live.log_events import numbers, open_log, read_all
from tests.drivers.live.log_peers import ORDERS, client_of, log_of, running, write_peers
from tests.drivers.live.net import known, run, until
from tests.drivers.live.processes import Process
from tests.errors import raises
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.logs.log import Log
from wend.model.errors import ConfigError


def order(number: int) -> dict[str, Any]:
    return {"topic": "order", "number": number}


def held(log: Log) -> list[int]:
    """The numbers of the orders in a log."""
    events = [record.event() for record in read_all(log)[0]]
    return [event.attributes["number"] for event in events if "number" in event.attributes]


def test_a_log_has_the_events_of_its_filter(tmp_path: Path) -> None:
    async def scene() -> None:
        mine, its = write_peers(tmp_path)
        async with running(mine) as here, running(its) as there, client_of(here) as client, client_of(there) as other:
            await known(client, "order", 1)
            begin = log_of(there).next_position
            assert (await other.publish(order(1))).kept
            for number in range(2, 20):
                assert (await client.publish(order(number))).kept
            await client.publish({"topic": "other", "number": 99})
            await until(lambda: log_of(there).next_position == begin + 19)
            status = (await other.status()).logs["orders"]
            assert (status.filter, status.next, status.events) == ("topic = 'order'", begin + 19, begin + 18)
            assert status.appended == status.events
            assert (await other.status()).flat()["logs.orders.next"] == begin + 19
        assert sorted(held(open_log(tmp_path / "logs-1" / "orders"))) == list(range(1, 20))

    run(scene())


def test_a_peer_that_is_killed_has_what_it_acknowledged_once(tmp_path: Path) -> None:
    async def scene() -> None:
        mine, its = write_peers(tmp_path)
        async with AsyncExitStack() as stage:
            here = await stage.enter_async_context(running(mine))
            client = await stage.enter_async_context(client_of(here))
            process = await Process.start(its)
            await known(client, "order", 1)
            kept = []
            for number in range(300):
                receipt = await client.publish(order(number))
                kept += [number] * (receipt.kept and receipt.targets == 1)
                if number % 60 == 30:
                    await process.kill()
                    process = await Process.start(its)
            assert len(kept) == 300
            await until(lambda: not here.peer.peer.unfinished())
            await process.stop()
        found = held(open_log(tmp_path / "logs-1" / "orders", boot=_boot()))
        assert sorted(found) == kept

    run(scene())


def _boot() -> str:
    from wend.drivers.live.store.store import boot_name

    return boot_name()


def test_nothing_is_promised_or_acknowledged_while_a_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        mine, its = write_peers(tmp_path)
        async with running(mine) as here, running(its) as there, client_of(here) as client, client_of(there) as other:
            await known(client, "order", 1)
            begin = log_of(there).next_position

            def full(*_: Any) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            async with other.subscribe("topic = 'order'", retained=False) as events:
                with monkeypatch.context() as patch:
                    patch.setattr(os, "pwrite", full)
                    assert not (await other.publish(order(1))).kept
                    assert (await client.publish(order(2))).kept
                    await until(lambda: there.peer.counters.failed["withheld-ack"] > 0)
                    assert there.peer.counters.failed["log-record"] > 0
                    assert here.peer.peer.unfinished()
                    assert log_of(there).next_position == begin
                assert {(await anext(events)).attributes["number"] for _ in range(2)} == {1, 2}
            await until(lambda: not here.peer.peer.unfinished())
            assert sorted(held(log_of(there))) == [1, 2]
            assert (await other.publish(order(3))).kept

    run(scene())


def test_an_event_that_expires_while_the_log_cannot_be_written_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, count=1)
        async with running(file) as peer, client_of(peer) as client:

            def full(*_: Any) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", full)
                await client.publish(order(1), ttl=0.05)
                await client.publish(order(2))
                await asyncio.sleep(0.1)
            await until(lambda: held(log_of(peer)) == [2])
            assert peer.peer.counters.drops["expired"] == 1

    run(scene())


def test_retention_goes_on_while_nothing_comes(tmp_path: Path) -> None:
    async def scene() -> None:
        (file,) = write_peers(tmp_path, ORDERS.replace("events = 1000000", 'keep = "1s"'), count=1)
        async with running(file) as peer, client_of(peer) as client:
            await client.publish(order(1))
            await until(lambda: log_of(peer).dropped_events == 1)
            assert (await client.status()).logs["orders"].events == 0

    run(scene())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("events = 1000000", ""), "log orders would grow for ever: give keep, bytes or events"),
        (("events = 1000000", 'keep = "soon"'), "cannot read 'soon' as a duration"),
        (("events = 1000000", 'keep = "1ms"'), "log orders keeps events for 1s or longer"),
        (("events = 1000000", 'bytes = "1MiB"'), "log orders needs 16MiB or more"),
        (("events = 1000000", 'bytes = "20 apples"'), "cannot read '20 apples' as a number of bytes"),
        (("events = 1000000", "events = 0"), "log orders holds 1 to"),
        (('name = "orders"', 'name = "../x"'), "the name of a log is letters, digits and hyphens"),
        (("topic = 'order'", "topic ="), "log orders: "),
        ((ORDERS, ORDERS + ORDERS), "the logs of a peer need different names"),
        (('store = "0.store"\n', ""), "logs need a store"),
        (("persistence = true", "persistence = false"), "logs need persistence = true"),
        (('name = "orders"', 'nam = "orders"'), "nam"),
        (("events = 1000000", 'events = 9\norder = "random"'), "order"),
    ],
)
def test_a_wrong_setting_ends_in_one_sentence(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    (file,) = write_peers(tmp_path, count=1)
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(ConfigError) as raised:
        load_peer_file(file)
    assert sentence in str(raised.value)
    assert str(raised.value).count("\n") == (2 if "topic =" in change else 0)  # a filter is shown with its mistake


def test_two_peers_do_not_share_a_log(tmp_path: Path) -> None:
    async def scene() -> None:
        file, other = write_peers(tmp_path)
        file.write_text(file.read_text() + ORDERS + "\n")
        file.write_text(file.read_text().replace("persistence", 'logs_folder = "logs-1"\npersistence', 1))
        async with running(other):
            with raises("log-in-use"):
                async with running(file):
                    pass

    run(scene())
    assert numbers(read_all(open_log(tmp_path / "logs-1" / "orders"))[0]) == []
