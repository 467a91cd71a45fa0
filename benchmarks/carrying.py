"""Processor time of live peers per packet, beside a bare UDP forwarder.

Six peers run on loopback, each in a process, with the settings of the lab (`adaptive`, persistence with a store). Each
has links to four others and publishes a topic that all others want. A packet is a message sent or received, ACKs and
hellos included. The forwarder is an asyncio process that does the least possible: it receives a packet, sends an ACK,
sends the packet on, and receives an ACK. Times include the kernel's work for a process. The times by kind of work are
sampled (`sampling.py`).

`python -m benchmarks.carrying [events per second and topic] [seconds]`; `--json` for machines.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from benchmarks.loopback import open_client, write_peer
from benchmarks.rows import Row
from benchmarks.sampling import Sampler
from wend.drivers.live.client.client import Client
from wend.drivers.live.client.event_stream import EventStream
from wend.matching.filters import topic_filter

RATE = 50.0
SECONDS = 6.0
PAYLOAD_BYTES = 1000
PEERS = 6
STEPS = (1, 2, 4, 5)
"""The neighbours of a peer on the ring: all but the opposite one."""
_PORT = 17700
_WARM_UP_S = 1.5
_ACK = bytes(48)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SETTINGS = """
strategy = "adaptive"
persistence = true
store = "peer-{id}.store"
advertise = ["topic = 't{id}'"]
"""


class CpuTime:
    """The CPU seconds that processes have used since this object was made."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._began = [_cpu_s(pid) for pid in pids]

    def seconds(self) -> float:
        return sum(_cpu_s(pid) for pid in self._pids) - sum(self._began)


def _cpu_s(pid: int) -> float:
    """The CPU seconds of all threads of a process, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


# ---------------------------------------------------------------- Wend


def carry(rate: float = RATE, seconds: float = SECONDS) -> dict[str, float]:
    """Microseconds of processor time of the peers, by kind of work."""
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(_carry(Path(folder), rate, seconds))


async def _carry(folder: Path, rate: float, seconds: float) -> dict[str, float]:
    async with AsyncExitStack() as open_:
        peers = [open_.enter_context(_peer(folder, number)) for number in range(PEERS)]
        clients = [await open_.enter_async_context(open_client(_PORT, number)) for number in range(PEERS)]
        got: Counter[int] = Counter()
        for number, client in enumerate(clients):
            for other in range(PEERS):
                if other != number:
                    wanted = client.subscribe(topic_filter(f"t{other}"), deadline=1.0)
                    events = await open_.enter_async_context(wanted)
                    reader = asyncio.create_task(_read(number, events, got))
                    open_.callback(reader.cancel)
        await _publish(clients, rate, _WARM_UP_S)
        sent, spent, own = await _count_packets(clients), CpuTime([p.pid for p in peers]), time.process_time()
        got.clear()
        published = await _publish(clients, rate, seconds)
        cpu_s, own_s = spent.seconds(), time.process_time() - own
        packets = 2 * (await _count_packets(clients) - sent)
        await asyncio.sleep(0.2)
        delivered = sum(got.values())
    split: Counter[str] = Counter()
    for number in range(PEERS):
        split.update(json.loads((folder / f"split-{number}.json").read_text()))
    return {
        "events_per_s": published / seconds,
        "packets_per_s": packets / seconds,
        "delivered_share": delivered / (published * (PEERS - 1)),
        "peers_cpu": cpu_s / seconds,
        "us_per_packet": cpu_s / packets * 1e6,
        "us_per_delivery": cpu_s / delivered * 1e6,
        "clients_us_per_delivery": own_s / delivered * 1e6,
    } | {f"us_per_packet.{kind}": cpu_s / packets * 1e6 * n / split.total() for kind, n in split.most_common()}


def _peer(folder: Path, number: int) -> "_ChildProcess":
    neighbours = [(number + step) % PEERS for step in STEPS]
    file = write_peer(folder, _PORT, number, neighbours, _SETTINGS.format(id=number))
    return _ChildProcess("--peer", str(file), str(folder / f"split-{number}.json"))


class _ChildProcess(subprocess.Popen[bytes]):
    """A process that runs this file."""

    def __init__(self, *arguments: str) -> None:
        super().__init__([sys.executable, "-m", "benchmarks.carrying", *arguments])

    def __exit__(self, *_: object) -> None:
        self.terminate()
        self.wait(timeout=10.0)


async def _read(number: int, events: EventStream, got: Counter[int]) -> None:
    async for _ in events:
        got[number] += 1


async def _publish(clients: list[Client], rate: float, seconds: float) -> int:
    """Publish evenly over time, one topic after the other; the number of events."""
    wanted, begin, payload = int(rate * seconds) * PEERS, time.monotonic(), bytes(PAYLOAD_BYTES)
    answers: set[asyncio.Task[object]] = set()
    for number in range(wanted):
        await asyncio.sleep(max(0.0, begin + number / (rate * PEERS) - time.monotonic()))
        publisher = number % PEERS
        task = asyncio.create_task(clients[publisher].publish({"topic": f"t{publisher}"}, payload))
        answers.add(task)
        task.add_done_callback(answers.discard)
    if answers:
        await asyncio.wait(answers)
    return wanted


async def _count_packets(clients: list[Client]) -> int:
    counted = [await client.status() for client in clients]
    return sum(status.data + sum(status.control.values()) for status in counted)


def _serve(file: Path, split: Path) -> None:
    """Run one peer as `wend peer` does, and write how it spent its time."""
    from wend.drivers.live.config import load_peer_file
    from wend.drivers.live.process import serve

    sampler = Sampler()
    uvloop.run(serve(load_peer_file(file), lambda _: sampler.start()))
    split.write_text(json.dumps(sampler.stop()))


# ---------------------------------------------------------------- the forwarder


def forward(packets_per_s: float, seconds: float = SECONDS) -> float:
    """Microseconds of processor time of the forwarder per packet."""
    with _ChildProcess("--forward") as forwarder:
        return uvloop.run(_feed(forwarder.pid, packets_per_s / 4, seconds))


class _Forwarder(asyncio.DatagramProtocol):
    """Acknowledges packets of one side and sends them to the other; a packet from there is an ACK."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if len(data) == PAYLOAD_BYTES:
            self._transport.sendto(_ACK, addr)
            self._transport.sendto(data, ("127.0.0.1", _PORT + 2))


class _Sink(_Forwarder):
    received = 0

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.received += 1
        self._transport.sendto(_ACK, addr)


async def _forward() -> None:
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(_Forwarder, local_addr=("127.0.0.1", _PORT))
    await asyncio.Event().wait()


async def _feed(pid: int, rate: float, seconds: float) -> float:
    loop = asyncio.get_running_loop()
    source, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", _PORT + 1))
    sink, sink_protocol = await loop.create_datagram_endpoint(_Sink, local_addr=("127.0.0.1", _PORT + 2))
    payload, there = bytes(PAYLOAD_BYTES), ("127.0.0.1", _PORT)
    while not sink_protocol.received:
        source.sendto(payload, there)
        await asyncio.sleep(0.05)
    spent, begin, before = CpuTime([pid]), time.monotonic(), sink_protocol.received
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begin + number / rate - time.monotonic()))
        source.sendto(payload, there)
    await asyncio.sleep(0.1)
    source.close()
    sink.close()
    return spent.seconds() / (4 * (sink_protocol.received - before)) * 1e6


def measure(rate: float = RATE, seconds: float = SECONDS) -> dict[str, float]:
    found = carry(rate, seconds)
    return found | {"forwarder_us_per_packet": forward(found["packets_per_s"] / PEERS, seconds)}


def rows() -> list[Row]:
    found = measure()
    what = "processor time of a peer per packet that it handles, us (bare asyncio UDP forwarder)"
    return [Row("carrying.us_per_packet", what, found["us_per_packet"], found["forwarder_us_per_packet"], True)]


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if argument != "--json"]
    if arguments[:1] == ["--peer"]:
        _serve(Path(arguments[1]), Path(arguments[2]))
        return
    if arguments[:1] == ["--forward"]:
        uvloop.run(_forward())
        return
    metrics = measure(float(arguments[0]) if arguments else RATE, float(arguments[1]) if arguments[1:] else SECONDS)
    if "--json" in sys.argv:
        print(json.dumps(metrics, indent=2))
    else:
        for name, value in metrics.items():
            print(f"{name:28} {value:12,.2f}")


if __name__ == "__main__":
    main()
