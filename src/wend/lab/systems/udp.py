"""The UDP baselines as systems of the bench. `wend.lab.systems.udp_forwarder` forwards the packets."""

import asyncio
import socket
import subprocess
import sys
import time
from contextlib import suppress

import msgspec

from wend.lab.systems.system import START_S, Processes, Routes, RunContext
from wend.lab.systems.udp_forwarder import Mode, make_plan
from wend.model.errors import LabError
from wend.model.events import PeerId

PORT = 9101
CANARY_PORT = 9000
_SINK = 1
"""The bench listens for deliveries on the forwarder's port plus this."""

_ABOUT = {
    "tree": "one UDP copy along the publisher's shortest-delay tree, no retransmission",
    "two-path": "two UDP copies per subscriber on two routes that share few links",
    "flood": "one UDP copy over every link",
}


class Udp:
    routes: Routes = "neighbours"

    def __init__(self, mode: Mode, port: int = PORT) -> None:
        self.name = f"udp-{mode}"
        self.about = _ABOUT[mode]
        self._mode: Mode = mode
        self._port = port
        self.processes = Processes()
        self._sockets: list[socket.socket] = []
        self._publishers: list[PeerId] = []

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return f"UDP of this kernel, forwarded by Python {sys.version.split()[0]}"

    async def start(self, context: RunContext) -> None:
        loop = asyncio.get_running_loop()
        self._publishers = [topic.publisher for topic in context.world.topics]
        for host in context.lab.hosts:
            with context.lab.inside(host.number):
                sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._sockets.append(sink)
            sink.bind(("127.0.0.1", self._port + _SINK))
            loop.add_reader(sink, self._read, context, host.number, sink)
        plan = make_plan(context.world, context.lab.name, self._mode, self._port, self._port + _SINK)
        path = context.folder / f"{self.name}-{self._port}.json"
        path.write_bytes(msgspec.json.encode(plan))
        argv = [sys.executable, "-m", "wend.lab.systems.udp_forwarder", str(path)]
        # The process enters every namespace itself, so it can start in any.
        process = self.processes.spawn(
            context, context.lab.hosts[0], argv, f"{self.name}-{self._port}", stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await loop.run_in_executor(None, process.stdout.readline)
        except TimeoutError:
            line = b""
        if line.strip() != b"ready":
            raise LabError(f"the forwarder of {self.name} did not start; its log is in {context.folder}")

    @staticmethod
    def _read(context: RunContext, host: PeerId, sink: socket.socket) -> None:
        with suppress(BlockingIOError):
            while True:
                data = sink.recv(65_535)
                context.arrive(host, data, time.monotonic_ns())

    async def publish(self, topic: int, payload: bytes) -> None:
        self._sockets[self._publishers[topic]].sendto(b"\0" + payload, ("127.0.0.1", self._port))

    async def stop(self) -> None:
        loop = asyncio.get_running_loop()
        for sink in self._sockets:
            loop.remove_reader(sink)
            sink.close()
        self._sockets.clear()
        await self.processes.stop()
