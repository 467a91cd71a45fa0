"""Measures the delay error and the CPU time of the lab's emulator under load.

Datagrams with their sending time cross every link of the usual network (20 hosts, degree 5), in both directions, at a
constant total rate. The error is the time from sending to the kernel's receive timestamp at the receiving host, minus
the link's delay. It includes the sender, the emulator and the kernel, and excludes the Python receiver.

`python -m benchmarks.lab [packets per second] [seconds]`, as root; `--json` prints JSON.
"""

import json
import selectors
import socket
import struct
import sys
import threading
import time

import numpy as np

from wend.lab import Lab
from wend.model.units import SECOND
from wend.topology.generators import regular

RATE_PPS = 20_000
SECONDS = 5.0
PORT = 7000
_ROUND_S = 0.001
_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("qq")  # the wall-clock time of sending, and the delay of the link


def load(rate_pps: int = RATE_PPS, seconds: float = SECONDS) -> dict[str, float]:
    overlay = regular(20, 5, delay_ms=(10.0, 50.0), loss=0.0, seed=1)
    begin = time.monotonic()
    with Lab.up(overlay, name="benchmark") as lab:
        up_s = time.monotonic() - begin
        sockets = _sockets(lab)
        errors: list[int] = []
        done = threading.Event()
        receiver = threading.Thread(target=_receive, args=([s for s, _ in sockets], errors, done))
        receiver.start()
        lab.reset_counters()
        before, wall = lab.status(), time.monotonic()
        sent = _send(sockets, rate_pps, seconds)
        wall = time.monotonic() - wall
        time.sleep(0.2)
        after = lab.status()
        done.set()
        receiver.join()
        found = np.array(errors) / 1e6
        carried = sum(c.packets for c in lab.counters() if c.port == PORT)
        return {
            "lab.up_s": up_s,
            "lab.packets_per_s": carried / wall,
            "lab.arrived_share": len(found) / sent,
            "lab.mean_error_ms": float(np.mean(np.abs(found))),
            "lab.p99_error_ms": float(np.percentile(np.abs(found), 99)),
            "lab.emulator_late_mean_ms": after.late_mean_ns / 1e6,
            "lab.emulator_late_max_ms": after.late_max_ns / 1e6,
            "lab.emulator_cpu": (after.cpu_ns - before.cpu_ns) / SECOND / wall,
        }


def _sockets(lab: Lab) -> list[tuple[socket.socket, int]]:
    """One socket per interface, connected to the neighbour at the other end of the link."""
    found = []
    for host in lab.hosts:
        with lab.inside(host.number):
            for interface in host.interfaces:
                made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
                made.bind((interface.local, PORT))
                made.connect((interface.remote, PORT))
                made.setblocking(False)
                found.append((made, interface.delay_ns))
    return found


def _send(sockets: list[tuple[socket.socket, int]], rate_pps: int, seconds: float) -> int:
    """Send at a constant rate in rounds of a millisecond, evenly over the links."""
    begin, sent = time.monotonic(), 0
    wanted = int(rate_pps * seconds)
    while sent < wanted:
        due = min(wanted, int((time.monotonic() - begin) * rate_pps))
        for number in range(sent, due):
            made, delay_ns = sockets[number % len(sockets)]
            made.send(_STAMP.pack(time.time_ns(), delay_ns))
        sent = max(sent, due)
        time.sleep(_ROUND_S)
    return sent


def _receive(sockets: list[socket.socket], errors: list[int], done: threading.Event) -> None:
    with selectors.DefaultSelector() as selector:
        for made in sockets:
            selector.register(made, selectors.EVENT_READ)
        while not done.is_set():
            for key, _ in selector.select(0.1):
                _read_errors(key.fileobj, errors)  # type: ignore[arg-type]
            time.sleep(0.05)  # the kernel timestamps arrivals; few wake-ups leave the CPU to the sender


def _read_errors(made: socket.socket, errors: list[int]) -> None:
    while True:
        try:
            data, (note, *_), _, _ = made.recvmsg(64, 128)
        except BlockingIOError:
            return
        sent_ns, delay_ns = _STAMP.unpack(data)
        seconds, nanoseconds = struct.unpack("qq", note[2])
        errors.append(seconds * SECOND + nanoseconds - sent_ns - delay_ns)


def main() -> None:
    numbers = [argument for argument in sys.argv[1:] if argument != "--json"]
    metrics = load(int(numbers[0]) if numbers else RATE_PPS, float(numbers[1]) if numbers[1:] else SECONDS)
    if "--json" in sys.argv:
        print(json.dumps(metrics, indent=2))
    else:
        for name, value in metrics.items():
            print(f"{name:28} {value:12,.3f}")


if __name__ == "__main__":
    main()
