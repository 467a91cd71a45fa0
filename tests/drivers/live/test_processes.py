"""Eight peers as eight processes: a link is cut while events flow, and every event arrives, once."""

import asyncio
import re
import signal
import socket
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import wend
from tests.drivers.live.net import known, until
from wend.drivers.live.client import Client, EventStream

PEERS = 8
# A ring, and a chord from every peer to the one across.
LINKS = [(a, (a + 1) % PEERS) for a in range(PEERS)] + [(a, a + PEERS // 2) for a in range(PEERS // 2)]
EVENTS = 300
SUBSCRIBERS = (2, 4, 5)
START = [sys.executable, "-m", "wend.console.app", "peer", "--config"]


def free_ports(count: int) -> list[int]:
    """All held at once, so that they differ; the kernel does not hand them out again at once."""
    held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def write_config(folder: Path, peer: int, ports: list[int], strategy: str) -> Path:
    lines = [
        f"id = {peer}",
        f'listen = "127.0.0.1:{ports[peer]}"',
        'clients = "127.0.0.1:0"',
        f'strategy = "{strategy}"',
        "persistency = true",
        f'store = "{peer}.store"',
        "experiments = true",
        'margin = "50ms"',
        'detection = "300ms"',
    ]
    for a, b in LINKS:
        if peer in (a, b):
            other = a + b - peer
            lines += ["[[neighbours]]", f"id = {other}", f'address = "127.0.0.1:{ports[other]}"', 'delay = "5ms"']
            lines += ["[neighbours.shape]", 'delay = "5ms"', "loss = 0.001"]
    path = folder / f"{peer}.toml"
    path.write_text("\n".join(lines))
    return path


class Process:
    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    @classmethod
    async def start(cls, config: Path) -> "Process":
        process = await asyncio.create_subprocess_exec(*START, str(config), stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        said = (await process.stdout.readline()).decode()
        found = re.search(r"clients on (wend://\S+)", said)
        assert found is not None, said
        return cls(process, found[1])

    async def stop(self) -> int:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


class Stage(AsyncExitStack):
    """Processes and clients that are ended whatever happens."""

    async def peers(self, folder: Path, strategy: str) -> list[Process]:
        ports = free_ports(PEERS)
        configs = [write_config(folder, peer, ports, strategy) for peer in range(PEERS)]
        starting = [asyncio.create_task(Process.start(config)) for config in configs]
        done = await asyncio.gather(*starting, return_exceptions=True)
        for one in done:
            if isinstance(one, Process):
                self.push_async_callback(one.stop)
        for one in done:
            if isinstance(one, BaseException):
                raise one
        return [one for one in done if isinstance(one, Process)]

    async def client(self, process: Process) -> Client:
        return await self.enter_async_context(wend.connect(process.url))


async def set_link(clients: list[Client], a: int, b: int, up: bool) -> None:
    for here, there in ((a, b), (b, a)):
        await (clients[here].heal(there) if up else clients[here].cut(there))


async def collect(events: EventStream, into: Counter[bytes]) -> None:
    async for event in events:
        if event.payload != b"are you there":
            into[event.payload] += 1


@pytest.mark.parametrize("strategy", ["dcrd", "adaptive"])
def test_a_link_is_cut_in_mid_stream_and_every_event_arrives_once(tmp_path: Path, strategy: str) -> None:
    async def scene() -> None:
        async with asyncio.timeout(240), Stage() as stage:
            processes = await stage.peers(tmp_path, strategy)
            clients = [await stage.client(process) for process in processes]
            got: dict[int, Counter[bytes]] = {peer: Counter() for peer in SUBSCRIBERS}
            tasks: list[asyncio.Task[Any]] = []
            for peer in SUBSCRIBERS:
                events = await stage.enter_async_context(clients[peer].subscribe("topic = 'x'", deadline=1.0))
                tasks.append(asyncio.create_task(collect(events, got[peer])))
            await known(clients[0], "x", len(SUBSCRIBERS))
            for number in range(EVENTS):
                if number == EVENTS // 4:
                    await set_link(clients, 0, 4, up=False)
                    await set_link(clients, 0, 1, up=False)
                if number == 3 * EVENTS // 4:
                    await set_link(clients, 0, 4, up=True)
                assert (await clients[0].publish({"topic": "x"}, b"%d" % number)).kept
            await until(lambda: all(len(one) == EVENTS for one in got.values()))
            for client in clients:
                await client.drain()
            once = Counter({b"%d" % number: 1 for number in range(EVENTS)})
            assert all(one == once for one in got.values())
            cut = await clients[0].status()
            assert cut.shaper["lost"] > 0 and not cut.failed
            for task in tasks:
                task.cancel()
            assert [await process.stop() for process in processes] == [0] * PEERS

    asyncio.run(scene())


def test_a_crashed_peer_returns_with_what_it_kept(tmp_path: Path) -> None:
    """Killed, not stopped: the event was promised, so it arrives."""

    async def scene() -> None:
        async with asyncio.timeout(240), Stage() as stage:
            processes = await stage.peers(tmp_path, "dcrd")
            here, there = await stage.client(processes[0]), await stage.client(processes[2])
            async with there.subscribe("topic = 'x'") as events:
                await known(here, "x", 1)
                for neighbour in (1, 4, 7):
                    await here.cut(neighbour)
                assert (await here.publish({"topic": "x"}, b"promised")).kept
                processes[0].process.kill()
                await processes[0].process.wait()
                again = await Process.start(tmp_path / "0.toml")
                stage.push_async_callback(again.stop)
                while (await anext(events)).payload != b"promised":
                    pass

    asyncio.run(scene())
