"""Zenoh: a router on every host, linked to its neighbours. The router process also publishes and subscribes.

The tuned variant uses UDP links with a short lease and weights by delay. Its advanced publisher and subscriber detect
gaps, and the subscriber requests missing samples from the publisher's cache.
"""

import asyncio
import struct
import subprocess
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import msgspec

from wend.lab.address_plan import LabNode
from wend.lab.systems.system import START_S, Processes, Routes, RunContext, find_missing_module, write_config
from wend.lab.systems.zenoh_host import DELIVERY, PUBLISH, Advanced, ZenohHostConfig
from wend.model.errors import LabError
from wend.model.events import PeerId
from wend.model.units import MS

PORT = 7447
HEARTBEAT_S = 0.02
"""The longest time until a subscriber learns of a lost last sample; it is short against any deadline."""


class Zenoh:
    routes: Routes = "neighbours"

    def __init__(self, name: str, *, tuned: bool = False) -> None:
        self.name = name
        self.about = "Zenoh routers linked to their neighbours"
        self.about += (
            ", tuned: UDP links, short lease, quick reconnection, weights by delay, advanced publisher and subscriber"
            if tuned
            else ", as shipped"
        )
        self._tuned = tuned
        self.processes = Processes()
        self._pipes: dict[PeerId, subprocess.Popen[bytes]] = {}
        self._publishers: list[PeerId] = []
        self._readers: list[asyncio.Task[None]] = []

    def missing(self) -> str | None:
        return find_missing_module(["zenoh"])

    def version(self) -> str:
        try:
            return f"eclipse-zenoh {version('eclipse-zenoh')}"
        except PackageNotFoundError:
            return "unknown"

    async def start(self, context: RunContext) -> None:
        self._publishers = [topic.publisher for topic in context.world.topics]
        template = "zenoh-tuned.json5" if self._tuned else "zenoh.json5"
        for host in context.lab.hosts:
            config = write_config(context, template, f"zenoh-{host.number}.json5", **self.template_values(host))
            topics = list(enumerate(context.world.topics))
            settings = ZenohHostConfig(
                config=str(config),
                publishes={number: t.name for number, t in topics if t.publisher == host.number},
                subscribes=[t.name for _, t in topics if host.number in t.subscribers],
                advanced=Advanced(heartbeat_s=HEARTBEAT_S) if self._tuned else None,
            )
            path = context.folder / f"zenoh-{host.number}.host.json"
            path.write_bytes(msgspec.json.encode(settings))
            argv = [sys.executable, "-m", "wend.lab.systems.zenoh_host", str(path)]
            self._pipes[host.number] = self.processes.spawn(
                context, host, argv, "zenoh", stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        for number, process in self._pipes.items():
            reader = await _open_reader(process)
            try:
                async with asyncio.timeout(START_S):
                    await reader.readuntil(b"ready\n")
            except (TimeoutError, asyncio.IncompleteReadError):
                raise LabError(f"Zenoh on host {number} did not start; its log is in {context.folder}") from None
            self._readers.append(asyncio.create_task(_read(context, number, reader)))

    def template_values(self, host: LabNode) -> dict[str, object]:
        """The values for the template of a router.

        The end with the lower number opens the connection, so each link has one.
        """
        link = "udp" if self._tuned else "tcp"
        up = [
            f'"{link}/{interface.remote}:{PORT}"' for interface in host.interfaces if interface.neighbour > host.number
        ]
        listen = [f'"{link}/{interface.local}:{PORT}"' for interface in host.interfaces]
        weights = [
            f'{{ dst_zid: "{zenoh_id(interface.neighbour)}", weight: {max(1, round(10 * interface.delay_ns / MS))} }}'
            for interface in host.interfaces
        ]
        values: dict[str, object] = {"id": zenoh_id(host.number), "listen": ", ".join(listen), "connect": ", ".join(up)}
        return {**values, "weights": ", ".join(weights)} if self._tuned else values

    async def publish(self, topic: int, payload: bytes) -> None:
        pipe = self._pipes[self._publishers[topic]].stdin
        assert pipe is not None
        pipe.write(struct.pack(PUBLISH, topic, len(payload)) + payload)
        pipe.flush()

    async def stop(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self.processes.stop()


def zenoh_id(number: PeerId) -> str:
    return f"{0xA000 + number:x}"


async def _open_reader(process: subprocess.Popen[bytes]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    return reader


async def _read(context: RunContext, host: PeerId, reader: asyncio.StreamReader) -> None:
    """Read the deliveries of a host. Its process reads the same clock and sends the time of each."""
    size = struct.calcsize(DELIVERY)
    while True:
        now, length = struct.unpack(DELIVERY, await reader.readexactly(size))
        context.arrive(host, await reader.readexactly(length), now)


ZENOH = {
    "zenoh": partial(Zenoh, "zenoh"),
    "zenoh-tuned": partial(Zenoh, "zenoh-tuned", tuned=True),
}
