"""The traffic of `experiment.py`: peers with their clients, events at a fixed rate, and a TCP flow."""

import asyncio
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from wend.drivers.live.client.client import Client
from wend.drivers.live.client.connect import connect
from wend.drivers.live.client.event_stream import EventStream
from wend.lab.emulator_control import MARKER
from wend.lab.lab import Lab
from wend.matching.filters import topic_filter
from wend.model.errors import ClientError, LabError
from wend.model.units import MS, SECOND, Nanos

PAYLOAD_BYTES = 500
DEADLINES_NS: tuple[Nanos, ...] = (100 * MS, 250 * MS, 1000 * MS)
"""The deadlines of events, in turn."""
PORT, CLIENTS_PORT, TCP_PORT = 7711, 7611, 5001
LARGEST_WAITING = 2000
"""Publications that may wait for the peer; the client drops the next ones."""
START_S = 20.0
TCP_CHUNK = bytes(16_384)
_STAMP = struct.Struct("!qq")
_PEER = """id = {id}
listen = "0.0.0.0:{port}"
clients = "127.0.0.1:{clients}"
insecure = true
strategy = "{strategy}"
{settings}
[[neighbours]]
id = {other}
address = "{address}:{port}"
delay = "{delay_ms:g}ms"
"""


class EventFlow:
    """A publisher on one host and its subscribers on the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: list[Nanos] = []
        """When each event was published."""
        self.came: dict[int, Nanos] = {}
        """When each event arrived first."""
        self.refused = 0
        self._waiting: set[asyncio.Task[None]] = set()

    def topic_name(self, event: int) -> str:
        return f"flow{self.number}-{event % len(DEADLINES_NS)}"

    async def publish(self, client: Client, rate: float, seconds: float) -> None:
        """Publish at this rate. An event that the peer cannot take at once is dropped, and counts as not on time."""
        began = time.monotonic_ns()
        for event in range(int(rate * seconds)):
            due = began + int(event / rate * SECOND)
            if (ahead := due - time.monotonic_ns()) > 0:
                await asyncio.sleep(ahead / SECOND)
            elif not event % 50:
                await asyncio.sleep(0)
            self._offer_event(client, len(self.sent))
        for task in self._waiting:
            task.cancel()

    def _offer_event(self, client: Client, event: int) -> None:
        now = time.monotonic_ns()
        self.sent.append(now)
        if len(self._waiting) >= LARGEST_WAITING:
            self.refused += 1
            return
        head = _STAMP.pack(event, now) + MARKER
        task = asyncio.create_task(self._publish_event(client, self.topic_name(event), head.ljust(PAYLOAD_BYTES, b".")))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _publish_event(self, client: Client, topic: str, payload: bytes) -> None:
        try:
            if await client.try_publish({"topic": topic}, payload) is None:
                self.refused += 1
        except ClientError:
            self.refused += 1

    async def read_events(self, events: EventStream) -> None:
        async for arrival in events:
            event, _ = _STAMP.unpack_from(arrival.payload)
            self.came.setdefault(event, time.monotonic_ns())

    def count_by_deadline(self, begin: Nanos, end: Nanos) -> list[tuple[int, int, int]]:
        """For each deadline, count the events of this period that arrived on time, those that arrived late, and all."""
        totals = [[0, 0, 0] for _ in DEADLINES_NS]
        for event, sent in enumerate(self.sent):
            if begin <= sent < end:
                counts, came = totals[event % len(DEADLINES_NS)], self.came.get(event)
                counts[2] += 1
                if came is not None:
                    counts[came - sent > DEADLINES_NS[event % len(DEADLINES_NS)]] += 1
        return [(good, late, due) for good, late, due in totals]

    def count_delivered(self, begin: Nanos, end: Nanos) -> int:
        return sum(begin <= came < end for came in self.came.values())


@asynccontextmanager
async def run_linked_peers(
    lab: Lab, folder: Path, flow: EventFlow, strategy: str, settings: tuple[tuple[str, str], ...]
) -> AsyncIterator[tuple[Client, Client]]:
    """Run two linked peers, one on each host, with subscribers for the flow. Yields the publisher's client, once the
    publisher's peer knows the subscriptions, and another client of that peer: a peer with congested links does not
    read publishers."""
    lines = "\n".join(f"{name} = {value}" for name, value in settings)
    processes = []
    for host in lab.hosts:
        (interface,) = host.interfaces
        text = _PEER.format(
            id=2 * flow.number + host.number,
            other=2 * flow.number + interface.neighbour,
            port=PORT + flow.number,
            clients=CLIENTS_PORT + flow.number,
            strategy=strategy,
            settings=lines,
            address=interface.remote,
            delay_ms=interface.delay_ns / MS,
        )
        file = folder / f"peer-{flow.number}-{host.number}.toml"
        file.write_text(text, encoding="utf-8")
        argv = [sys.executable, "-m", "wend.console.start", "peer", "--config", str(file)]
        with file.with_suffix(".log").open("wb") as log:
            processes.append(lab.popen(host.number, argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    async with AsyncExitStack() as stack:
        publisher, observer, subscriber = [
            await _connect_client(stack, lab, host, CLIENTS_PORT + flow.number, processes[host], folder)
            for host in (0, 0, 1)
        ]
        for number, deadline in enumerate(DEADLINES_NS):
            subscription = subscriber.subscribe(topic_filter(flow.topic_name(number)), deadline=deadline / SECOND)
            reader = asyncio.create_task(flow.read_events(await stack.enter_async_context(subscription)))
            stack.callback(reader.cancel)
        give_up = time.monotonic() + START_S
        for number in range(len(DEADLINES_NS)):
            while not (await publisher.publish({"topic": flow.topic_name(number)}, _STAMP.pack(-1, 0))).targets:
                if time.monotonic() > give_up:
                    raise LabError(f"the peers did not find each other in {START_S:g} s")
                await asyncio.sleep(0.05)
        yield publisher, observer


async def _connect_client(
    stack: AsyncExitStack, lab: Lab, host: int, port: int, process: "subprocess.Popen[bytes]", folder: Path
) -> Client:
    give_up = time.monotonic() + START_S
    while True:
        try:
            with lab.inside(host):
                client = await connect(f"wend://127.0.0.1:{port}")
        except ClientError:
            if process.poll() is not None or time.monotonic() > give_up:
                logs = " ".join(path.read_text(errors="replace").strip() for path in sorted(folder.glob("*.log")))
                raise LabError(f"a peer did not start: {logs[-300:] or 'its log is empty'}") from None
            await asyncio.sleep(0.1)
            continue
        stack.push_async_callback(client.close)
        return client


def start_tcp_flow(lab: Lab) -> Callable[[], None]:
    """Start a TCP transfer (cubic) from host 0 to host 1, as fast as it can. Call the result to end it."""
    with lab.inside(1):
        server = socket.create_server(("0.0.0.0", TCP_PORT))
    (interface,) = lab.hosts[0].interfaces
    with lab.inside(0):
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        client.connect((str(interface.remote), TCP_PORT))
    accepted, _ = server.accept()
    threads = [
        threading.Thread(target=target, daemon=True)
        for target in (lambda: _send_endlessly(client), lambda: _receive_endlessly(accepted))
    ]
    for thread in threads:
        thread.start()

    def end() -> None:
        for each in (client, accepted, server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in threads:
            thread.join()

    return end


def _send_endlessly(client: socket.socket) -> None:
    with suppress(OSError):
        while True:
            client.sendall(TCP_CHUNK)


def _receive_endlessly(server: socket.socket) -> None:
    with suppress(OSError):
        while server.recv(len(TCP_CHUNK)):
            pass
