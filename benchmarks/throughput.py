"""Events per second through peers, beside other brokers, and the delay of events at a moderate rate.

All systems carry messages of 100 bytes on loopback from one publisher to one subscriber: Python clients, in processes
of their own. Rounds are interleaved, so that all meet the same load of the machine; the table has medians. Publications
"with receipts" are acknowledged one by one: `client.publish` by 64 tasks, and MQTT's QoS 1 with 64 in flight. Those
"without" are `client.post`, QoS 0, and the usual ones of NATS and Zenoh.

`python -m benchmarks.throughput [--rounds N] [--only NAME,NAME] [--events N] [--json]`. It measures mosquitto,
nats-server and Zenoh if they and their Python clients (the extra `lab`) are installed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.carrying import CpuTime
from benchmarks.loopback import peer_command, peer_url, start_quietly, write_peer

ROUNDS = 5
EVENTS = 20_000
RATE = 1000.0
RATE_EVENTS = 3000
_MOSQUITTO = """
listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 64
max_queued_messages 0
"""


class Addresses(NamedTuple):
    """Where the publisher and the subscriber connect."""

    publisher: str
    subscriber: str


Start = Callable[[Path, int, list["subprocess.Popen[bytes]"]], Addresses]
"""Start the servers of a system: its folder, its first port, and the list of its processes."""


class System(NamedTuple):
    clients: str
    about: str
    start: Start
    receipts: bool
    missing: str = ""


def _run(processes: list["subprocess.Popen[bytes]"], *command: str) -> None:
    processes.append(start_quietly(command))


def _wend(peers: int) -> Start:
    def start(folder: Path, port: int, processes: list["subprocess.Popen[bytes]"]) -> Addresses:
        for me in range(peers):
            file = write_peer(folder, port, me, [other for other in range(peers) if other != me])
            _run(processes, *peer_command(file))
        return Addresses(peer_url(port, 0), peer_url(port, peers - 1))

    return start


def _mosquitto(folder: Path, port: int, processes: list["subprocess.Popen[bytes]"]) -> Addresses:
    file = folder / "mosquitto.conf"
    file.write_text(_MOSQUITTO.format(port=port))
    _run(processes, "mosquitto", "-c", str(file))
    return Addresses(f"127.0.0.1:{port}", f"127.0.0.1:{port}")


def _nats(folder: Path, port: int, processes: list["subprocess.Popen[bytes]"]) -> Addresses:
    _run(processes, "nats-server", "-a", "127.0.0.1", "-p", str(port))
    return Addresses(f"nats://127.0.0.1:{port}", f"nats://127.0.0.1:{port}")


def _zenoh(folder: Path, port: int, processes: list["subprocess.Popen[bytes]"]) -> Addresses:
    address = f"tcp/127.0.0.1:{port}"
    _run(processes, sys.executable, "-m", "benchmarks.throughput_clients", "zenoh", "router", address, "0", "0")
    return Addresses(address, address)


def _missing_part(program: str, module: str) -> str:
    if program and shutil.which(program) is None:
        return f"{program} is not installed"
    return "" if find_spec(module.partition(".")[0]) else f"the Python package {module} is not installed"


SYSTEMS: dict[str, System] = {
    "wend": System("wend-publish", "one peer, receipts", _wend(1), True),
    "wend-post": System("wend-post", "one peer, post", _wend(1), False),
    "wend-2": System("wend-publish", "two peers, receipts", _wend(2), True),
    "wend-2-post": System("wend-post", "two peers, post", _wend(2), False),
    "mosquitto-1": System("mqtt-1", "QoS 1", _mosquitto, True, _missing_part("mosquitto", "paho.mqtt")),
    "mosquitto-0": System("mqtt-0", "QoS 0", _mosquitto, False, _missing_part("mosquitto", "paho.mqtt")),
    "nats": System("nats", "core NATS", _nats, False, _missing_part("nats-server", "nats")),
    "zenoh": System("zenoh", "through a router", _zenoh, False, _missing_part("", "zenoh")),
}
CPU = ("publisher_us", "servers_us", "subscriber_us")
REFERENCES = {True: "mosquitto-1", False: "mosquitto-0"}


@contextmanager
def _client(system: System, role: str, address: str, events: int, rate: float) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "benchmarks.throughput_clients", system.clients, role, address]
    with subprocess.Popen(
        [*command, str(events), str(rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        try:
            yield client
        finally:
            if client.poll() is None:
                client.terminate()


def _read_value(client: "subprocess.Popen[str]", what: str) -> str:
    assert client.stdout is not None
    line = client.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"a client ended before it said {what!r}")
    return line


def measure(system: System, events: int, rate: float) -> dict[str, float]:
    """One run: events per second from the first publication to the last delivery, delays, and the share that came."""
    port = 21_000 + os.getpid() % 5_000
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        addresses = system.start(Path(folder), port, processes)
        try:
            _wait_until_listening(addresses)
            with (
                _client(system, "subscribe", addresses.subscriber, events, rate) as subscriber,
                _client(system, "publish", addresses.publisher, events, rate) as publisher,
            ):
                _read_value(subscriber, "ready")
                _read_value(subscriber, "warm")
                assert publisher.stdin is not None
                spent = CpuTime([process.pid for process in processes])
                publisher.stdin.write("\n")
                publisher.stdin.flush()
                began: dict[str, Any] = json.loads(_read_value(publisher, "began"))
                ended: dict[str, Any] = json.loads(_read_value(publisher, "ended"))
                got: dict[str, Any] = json.loads(_read_value(subscriber, "count"))
                servers_s = spent.seconds()
        finally:
            for process in processes:
                process.terminate()
                process.wait(10)
    seconds = (got["last_ns"] - began["began_ns"]) / 1e9
    return {
        "per_s": got["count"] / seconds,
        "share": got["count"] / events,
        "p50_ms": got["p50_ms"],
        "p99_ms": got["p99_ms"],
        "publisher_us": ended["cpu_s"] / events * 1e6,
        "servers_us": servers_s / events * 1e6,
        "subscriber_us": got["cpu_s"] / events * 1e6,
    }


def _wait_until_listening(addresses: Addresses) -> None:
    import socket

    until = time.monotonic() + 20
    for address in set(addresses):
        port = int(address.rpartition(":")[2])
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)


def measure_all(
    names: list[str], rounds: int, events: int, rate_events: int = RATE_EVENTS
) -> dict[str, dict[str, Any]]:
    """By system: the medians of all rounds."""
    fast: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    paced: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            fast[name].append(measure(SYSTEMS[name], events // 64 * 64, 0.0))
        for name in names:
            paced[name].append(measure(SYSTEMS[name], RATE_EVENTS, RATE))
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        reference = fast.get(REFERENCES[SYSTEMS[name].receipts])
        ratios = [a["per_s"] / b["per_s"] for a, b in zip(fast[name], reference or [], strict=False)]
        found[name] = {
            "per_s": median(run["per_s"] for run in fast[name]),
            "share": min(run["share"] for run in fast[name]),
            "ratio": median(ratios) if ratios else None,
            "p50_ms": median(run["p50_ms"] for run in paced[name]),
            "p99_ms": median(run["p99_ms"] for run in paced[name]),
        } | {key: median(run[key] for run in fast[name]) for key in CPU}
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=ROUNDS)
    asked.add_argument("--events", type=int, default=EVENTS)
    asked.add_argument("--only", default="", metavar="NAME,NAME", help=f"of {', '.join(SYSTEMS)}")
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    if given.rounds < 1 or given.events < 1:
        asked.error("it takes at least one round and one event")
    names = [name for name in given.only.split(",") if name] or list(SYSTEMS)
    if unknown := [name for name in names if name not in SYSTEMS]:
        asked.error(f"there is no system {unknown[0]!r}; there are {', '.join(SYSTEMS)}")
    for name in names:
        if SYSTEMS[name].missing:
            print(f"without {name}: {SYSTEMS[name].missing}", file=sys.stderr)
    found = measure_all([name for name in names if not SYSTEMS[name].missing], given.rounds, given.events)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{'system':14} {'':20} {'events/s':>9} {'came':>7} {'x QoS':>6} {'p50, p99 at 1000/s':>20}  CPU us per event"
    )
    for name, row in found.items():
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        print(
            f"{name:14} {SYSTEMS[name].about:20} {row['per_s']:9,.0f} {row['share']:7.1%} {ratio:>6} "
            f"{row['p50_ms']:8.1f} {row['p99_ms']:8.1f} ms  {' + '.join(f'{row[key]:.0f}' for key in CPU)}"
        )
    print("x QoS: with receipts, beside mosquitto QoS 1 of the same round; without, beside QoS 0.")
    print("CPU: of the publisher, the servers and the subscriber.")


if __name__ == "__main__":
    main()
