"""The peer of a subscriber is killed and restarted: what was promised meanwhile arrives, once."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import wend
from tests.drivers.live.net import PATIENCE_S, known
from tests.drivers.live.test_processes import Process, free_ports
from wend.drivers.live.config import load
from wend.drivers.live.process import PeerService

EVENTS = 5


def write_pair(folder: Path) -> tuple[Path, Path]:
    here, there, clients = free_ports(3)
    for peer, port, other, door in ((0, here, there, 0), (1, there, here, clients)):
        (folder / f"{peer}.toml").write_text(
            f'id = {peer}\nlisten = "127.0.0.1:{port}"\nclients = "127.0.0.1:{door}"\nstrategy = "adaptive"\n'
            f'persistency = true\nstore = "{peer}.store"\ngrace = "10min"\nmargin = "100ms"\ndetection = "1s"\n'
            f'[[neighbours]]\nid = {1 - peer}\naddress = "127.0.0.1:{other}"\ndelay = "5ms"\n'
        )
    return folder / "0.toml", folder / "1.toml"


def test_events_wait_for_a_client_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with asyncio.timeout(240), AsyncExitStack() as stage:
            mine, its = write_pair(tmp_path)
            peer = PeerService(load(mine))
            await peer.start()
            stage.push_async_callback(peer.stop)
            process = await Process.start(its)
            stage.push_async_callback(process.stop)
            here = await stage.enter_async_context(wend.connect(f"wend://127.0.0.1:{peer.listener.address[1]}"))
            there = await stage.enter_async_context(wend.connect(process.url, patience=PATIENCE_S))
            events = await stage.enter_async_context(there.subscribe("topic = 'x'"))
            await known(here, "x", 1)
            restore = there._restore
            monkeypatch.setattr(there, "_restore", lambda: None)
            process.process.kill()
            await process.process.wait()
            for number in range(EVENTS):
                receipt = await here.publish({"topic": "x"}, b"%d" % number)
                assert (receipt.targets, receipt.kept) == (1, True)
            again = await Process.start(its)
            stage.push_async_callback(again.stop)
            while (await there.status()).notices.get("queued", 0) < EVENTS:  # all are there before the subscription
                await asyncio.sleep(0.05)
            restore()
            await known(here, "x", 1)
            await here.publish({"topic": "x"}, b"last")
            got: list[bytes] = []

            async def read() -> None:
                async for event in events:
                    got.extend([] if event.payload == b"are you there" else [event.payload])

            reading = asyncio.create_task(read())
            while not {b"last", *(b"%d" % number for number in range(EVENTS))} <= {*got}:
                await asyncio.sleep(0.05)
            await there.drain()
            reading.cancel()
            assert sorted(got) == sorted([b"last", *(b"%d" % number for number in range(EVENTS))])
            status = await there.status()
            assert "no-subscriber" not in status.notices and "no subscriber reconnected" not in status.drops

    asyncio.run(scene())
