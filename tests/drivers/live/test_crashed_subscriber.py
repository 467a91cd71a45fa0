"""The peer of a subscriber is killed, or stopped in order, and restarted: events that were promised meanwhile arrive,
once."""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

import wend
from tests.drivers.live.net import PATIENCE_S, known
from tests.drivers.live.processes import Process
from tests.ports import free_ports
from wend.drivers.live.addressing.addresses import parse_urls
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.process import PeerProcess

EVENTS = 5


def write_pair(folder: Path) -> tuple[Path, Path]:
    here, there, listener = free_ports(3)
    for peer, port, other, clients in ((0, here, there, 0), (1, there, here, listener)):
        (folder / f"{peer}.toml").write_text(
            f'id = {peer}\nlisten = "127.0.0.1:{port}"\nclients = "127.0.0.1:{clients}"\nstrategy = "adaptive"\n'
            f'persistence = true\nstore = "{peer}.store"\ngrace = "10min"\nmargin = "100ms"\ndetection = "1s"\n'
            f'[[neighbours]]\nid = {1 - peer}\naddress = "127.0.0.1:{other}"\ndelay = "5ms"\n'
        )
    return folder / "0.toml", folder / "1.toml"


class Gate:
    """A TCP proxy in front of a peer's listener. While it is shut, connections wait."""

    def __init__(self, url: str) -> None:
        (self._target,) = parse_urls(url)
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return f"wend://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        from_peer, to_peer = await asyncio.open_connection(*self._target)
        self._tasks += [asyncio.create_task(_copy(reader, to_peer)), asyncio.create_task(_copy(from_peer, writer))]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_events_wait_for_a_client_that_comes_back(tmp_path: Path, how: str) -> None:
    async def scene() -> None:
        async with asyncio.timeout(240), AsyncExitStack() as stage:
            mine, its = write_pair(tmp_path)
            peer = PeerProcess(load_peer_file(mine))
            await peer.start()
            stage.push_async_callback(peer.stop)
            process = await Process.start(its)
            stage.push_async_callback(process.stop)
            here = await stage.enter_async_context(wend.connect(f"wend://127.0.0.1:{peer.listener.address[1]}"))
            gate = Gate(process.url)
            there = await stage.enter_async_context(wend.connect(await gate.start(), patience=PATIENCE_S))
            stage.push_async_callback(gate.close)
            events = await stage.enter_async_context(there.subscribe("topic = 'x'"))
            await known(here, "x", 1)
            gate.shut()
            await (process.kill() if how == "kill" else process.stop())
            for number in range(EVENTS):
                receipt = await here.publish({"topic": "x"}, b"%d" % number)
                assert (receipt.targets, receipt.kept) == (1, True)
            again = await Process.start(its)
            stage.push_async_callback(again.stop)
            async with wend.connect(again.url) as operator:
                while (await operator.status()).notices.get("queued", 0) < EVENTS:  # all come before the subscription
                    await asyncio.sleep(0.02)
            assert there.reconnects == 0
            gate.open()
            await known(here, "x", 1)
            await here.publish({"topic": "x"}, b"last")
            got: list[bytes] = []

            async def read() -> None:
                async for event in events:
                    got.extend([] if event.payload == b"are you there" else [event.payload])

            reading = asyncio.create_task(read())
            while not {b"last", *(b"%d" % number for number in range(EVENTS))} <= {*got}:
                await asyncio.sleep(0.02)
            await there.drain()
            reading.cancel()
            assert there.reconnects == 1
            assert sorted(got) == sorted([b"last", *(b"%d" % number for number in range(EVENTS))])
            status = await there.status()
            assert "no-subscriber" not in status.notices and "no-reconnect" not in status.drops

    asyncio.run(scene())
