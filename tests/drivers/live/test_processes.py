"""Eight peers as eight processes: a link is cut while events flow, and every event arrives, once."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import wend
from tests.drivers.live.net import known, until
from tests.drivers.live.processes import Process
from tests.ports import free_ports
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.event_stream import EventStream

PEERS = 8
Links = list[tuple[int, int]]
# A ring, and a chord from every peer to the one across.
LINKS: Links = [(a, (a + 1) % PEERS) for a in range(PEERS)] + [(a, a + PEERS // 2) for a in range(PEERS // 2)]
TRIANGLE: Links = [(0, 1), (1, 2), (2, 0)]
EVENTS = 300
SUBSCRIBERS = (2, 4, 5)


def write_config(folder: Path, peer: int, ports: list[int], strategy: str, links: Links) -> Path:
    lines = [
        f"id = {peer}",
        f'listen = "127.0.0.1:{ports[peer]}"',
        'clients = "127.0.0.1:0"',
        f'strategy = "{strategy}"',
        "persistence = true",
        f'store = "{peer}.store"',
        "experiments = true",
        'margin = "50ms"',
        'detection = "300ms"',
    ]
    for a, b in links:
        if peer in (a, b):
            other = a + b - peer
            lines += ["[[neighbours]]", f"id = {other}", f'address = "127.0.0.1:{ports[other]}"', 'delay = "5ms"']
            lines += ["[neighbours.shape]", 'delay = "5ms"', "loss = 0.001"]
    path = folder / f"{peer}.toml"
    path.write_text("\n".join(lines))
    return path


class Stage(AsyncExitStack):
    """Processes and clients that are ended whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self._processes: list[Process] = []
        self.push_async_callback(self.stop)

    async def peers(self, folder: Path, strategy: str, links: Links) -> list[Process]:
        count = len({peer for link in links for peer in link})
        ports = free_ports(count)
        configs = [write_config(folder, peer, ports, strategy, links) for peer in range(count)]
        return list(await asyncio.gather(*(self.start(config) for config in configs)))

    async def start(self, config: Path) -> Process:
        process = await Process.start(config)
        self._processes.append(process)
        return process

    async def stop(self) -> list[int]:
        """All at once: one by one, each would wait for answers of those that are gone."""
        return list(await asyncio.gather(*(process.stop() for process in self._processes)))

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
            processes = await stage.peers(tmp_path, strategy, LINKS)
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
            assert await stage.stop() == [0] * PEERS

    asyncio.run(scene())


def test_a_crashed_peer_returns_with_what_it_kept(tmp_path: Path) -> None:
    """Killed, not stopped: the event was promised, so it arrives."""

    async def scene() -> None:
        async with asyncio.timeout(240), Stage() as stage:
            processes = await stage.peers(tmp_path, "dcrd", TRIANGLE)
            here, there = await stage.client(processes[0]), await stage.client(processes[2])
            async with there.subscribe("topic = 'x'") as events:
                await known(here, "x", 1)
                for neighbour in (1, 2):
                    await here.cut(neighbour)
                assert (await here.publish({"topic": "x"}, b"promised")).kept
                await processes[0].kill()
                await stage.start(tmp_path / "0.toml")
                while (await anext(events)).payload != b"promised":
                    pass

    asyncio.run(scene())
