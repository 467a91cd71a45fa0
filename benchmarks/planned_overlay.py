"""The overlay of a recorded run, live, with peers that follow plans: for `wend plan push` at the end of the loop.

`wend up` says in `run.json` which scenario it ran. This process starts its peers, with the same ids and links, in the
configuration that operators write, and with the strategy `planned`. Clients publish and subscribe as in the scenario.
When all peers take clients, their addresses are in the file that the caller names. It runs until it gets SIGTERM.

`python -m benchmarks.planned_overlay RUN.json --addresses peers.txt`
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path

import uvloop

import wend
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.process import PeerProcess
from wend.drivers.scenarios import make_scenario
from wend.drivers.workload import Topic
from wend.drivers.world import World, build_world
from wend.matching.filters import topic_filter
from wend.model.units import MS, SECOND


def peer_file(world: World, peer: int, ports: list[int]) -> str:
    """The file of one peer. Links have the delays of the world, and do not fail."""
    lines = [
        f"id = {peer}",
        f'listen = "127.0.0.1:{ports[peer]}"',
        'clients = "127.0.0.1:0"',
        'strategy = "planned"',
        'margin = "50ms"',
    ]
    for other in world.overlay.neighbours(peer):
        delay = f"{world.overlay.links[world.overlay.link(peer, other)].delay_ns / MS:g}ms"
        lines += ["[[neighbours]]", f"id = {other}", f'address = "127.0.0.1:{ports[other]}"', f'delay = "{delay}"']
        lines += ["[neighbours.shape]", f'delay = "{delay}"']
    return "\n".join(lines) + "\n"


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            one.bind(("127.0.0.1", 0))
            found.append(int(one.getsockname()[1]))
        return found


async def publish(client: wend.Client, topic: Topic) -> None:
    while True:
        await client.publish({"topic": topic.name}, bytes(topic.payload_bytes))
        await asyncio.sleep(topic.period_ns / SECOND)


async def read(events: wend.EventStream) -> None:
    async for _ in events:
        pass


async def run(world: World, folder: Path, addresses: Path, stopped: asyncio.Event) -> None:
    """Run the overlay until `stopped`. The file of addresses is there when events flow."""
    ports = free_ports(world.overlay.peers)
    services = []
    for peer in range(world.overlay.peers):
        path = folder / f"{peer}.toml"
        path.write_text(peer_file(world, peer, ports))
        services.append(PeerProcess(load_peer_file(path)))
    async with AsyncExitStack() as stack:
        for service in services:
            await service.start()
            stack.push_async_callback(service.abort)
        urls = [f"wend://127.0.0.1:{each.listener.address[1]}" for each in services]
        clients = [await stack.enter_async_context(wend.connect(url)) for url in urls]
        tasks = []
        for topic in world.topics:
            for peer in topic.subscribers:
                deadline_s = world.deadline_ns(topic.publisher, peer) / SECOND
                wanted = clients[peer].subscribe(topic_filter(topic.name), deadline=deadline_s)
                tasks.append(asyncio.create_task(read(await stack.enter_async_context(wanted))))
        tasks += [asyncio.create_task(publish(clients[topic.publisher], topic)) for topic in world.topics]
        draft = addresses.with_suffix(".part")
        draft.write_text("".join(f"{url.removeprefix('wend://')}\n" for url in urls))
        os.rename(draft, addresses)
        ended = asyncio.create_task(stopped.wait())
        await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task.done()]
        for task in (ended, *tasks):
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        if failed:
            sys.exit("a client ended before the overlay did")


async def until_signal(world: World, folder: Path, addresses: Path) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await run(world, folder, addresses, stopped)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="The run.json of `wend up --telemetry`.")
    parser.add_argument("--addresses", type=Path, required=True)
    given = parser.parse_args()
    world = build_world(make_scenario(json.loads(given.run.read_text())["scenario"]))
    with tempfile.TemporaryDirectory(prefix="wend-planned-") as name:
        uvloop.run(until_signal(world, Path(name), given.addresses))


if __name__ == "__main__":
    main()
