"""Wend: `wend peer` on every host, linked to its neighbours, with persistence on; links are open or sealed.

Sealed links need keys. Each run makes a root of its own, which signs one certificate for each host.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack

from wend import __version__
from wend.drivers.live.access.throwaway_keys import ThrowawayRoot
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.connect import connect
from wend.drivers.live.client.event_stream import EventStream
from wend.drivers.workload import Topic
from wend.lab.address_plan import LabNode
from wend.lab.systems.system import Processes, Routes, RunContext, write_config
from wend.matching.filters import topic_filter
from wend.model.choices import Redundancy
from wend.model.events import PeerId
from wend.model.settings import declared_settings
from wend.model.units import MS, SECOND
from wend.strategies.registry import find_routing

PORT = 7701
CLIENTS_PORT = 7700
_NEIGHBOUR = """
[[neighbours]]
id = {id}
address = "{address}:{port}"
delay = "{delay_ms:.3f}ms"
"""
_OPEN = "insecure = true                  # no other hosts are on the lab's network"


class Wend:
    routes: Routes = "neighbours"

    def __init__(self, name: str, strategy: str, redundancy: Redundancy = "tight", *, sealed: bool = False) -> None:
        self.name = name
        routing = find_routing(strategy)
        setting = (
            f", redundancy {redundancy}"
            if routing is not None and any(one.name == "redundancy" for one in declared_settings(routing.settings))
            else ""
        )
        links = ", links sealed with keys (data packets as its peers count them)" if sealed else ""
        self.about = f"Wend's `{strategy}`{setting}, persistence on{links}, all else as shipped"
        self._strategy = strategy
        self._redundancy = redundancy
        self._root = ThrowawayRoot() if sealed else None
        self.processes = Processes()
        self._clients: dict[PeerId, Client] = {}
        self._topics: tuple[Topic, ...] = ()
        self._readers: list[asyncio.Task[None]] = []
        self._open = AsyncExitStack()

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return f"wend {__version__}"

    async def start(self, context: RunContext) -> None:
        world = context.world
        self._topics = world.topics
        for host in context.lab.hosts:
            config = write_config(
                context, "wend-peer.toml", f"peer-{host.number}.toml", **self.template_values(context, host)
            )
            self.processes.spawn(
                context, host, [sys.executable, "-m", "wend.console.start", "peer", "--config", str(config)], "peer"
            )
        for host in context.lab.hosts:
            await self.processes.wait_until_listening(context, host, CLIENTS_PORT)
            with context.lab.inside(host.number):
                client = await connect(f"wend://127.0.0.1:{CLIENTS_PORT}")
            self._open.push_async_callback(client.close)
            self._clients[host.number] = client
        for topic in world.topics:
            for subscriber in topic.subscribers:
                deadline = world.deadline_ns(topic.publisher, subscriber) / SECOND
                subscription = self._clients[subscriber].subscribe(topic_filter(topic.name), deadline=deadline)
                events = await subscription.__aenter__()
                self._readers.append(asyncio.create_task(_read(context, subscriber, events)))

    def template_values(self, context: RunContext, host: LabNode) -> dict[str, object]:
        """The values for the template of a peer file. Writes the keys that it names, if links are sealed."""
        mine = [topic_filter(t.name) for t in context.world.topics if t.publisher == host.number]
        neighbours = [
            _NEIGHBOUR.format(id=w.neighbour, address=w.remote, port=PORT, delay_ms=w.delay_ns / MS)
            for w in host.interfaces
        ]
        return {
            "id": host.number,
            "port": PORT,
            "clients_port": CLIENTS_PORT,
            "strategy": self._strategy,
            "redundancy": self._redundancy,
            "access": self._access_setting(context, host),
            "advertise": ", ".join(f'"{text}"' for text in mine),
            "neighbours": "".join(neighbours),
        }

    def _access_setting(self, context: RunContext, host: LabNode) -> str:
        """The setting that lets a peer listen on its links: the folder of its keys, or `insecure = true`."""
        if self._root is None:
            return _OPEN
        folder = self._root.write_folder(context.folder / f"keys-{host.number}", f"peer-{host.number}", host.number)
        return f'keys = "{folder.name}"'

    async def publish(self, topic: int, payload: bytes) -> None:
        await self._clients[self._topics[topic].publisher].publish({"topic": self._topics[topic].name}, payload)

    async def data_packets(self) -> int | None:
        """Count the data packets that the peers have sent. A datagram with several data packets counts as several."""
        if self._root is None:
            return None
        statuses = await asyncio.gather(*(client.status() for client in self._clients.values()))
        return sum(status.data for status in statuses)

    async def stop(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self._open.aclose()
        await self.processes.stop()


async def _read(context: RunContext, subscriber: PeerId, events: EventStream) -> None:
    async for event in events:
        context.arrive(subscriber, event.payload, time.monotonic_ns())
