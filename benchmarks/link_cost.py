"""What a link costs: the traffic of two live peers over a link of 20 ms, both directions together, headers included.

The link is idle or carries one event of 64 bytes per second, is open or sealed, and its peers detect outages in 160 ms,
500 ms or 2 s. All cases run side by side, each with its own two peers. Measuring begins when idle peers have become
slow. `python -m benchmarks.link_cost [--seconds N] [--json]` prints kbit/s, and packets per second in brackets.
"""

import argparse
import asyncio
import json
from collections import Counter
from itertools import product
from typing import NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row
from benchmarks.sealed import make_keys
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport.socket import PeerSocket
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import LocalSubscription, Neighbour, Started

DETECTION_MS = (160, 500, 2000)
DELAY_NS = 20 * MS
PAYLOAD_BYTES = 64
HEADER_BYTES = 20 + 8
"""The headers of IPv4 and UDP."""
SETTLING_S = 15.0
"""Peers become idle ten seconds after the last event."""
SECONDS = 30.0


class Case(NamedTuple):
    """A link and what it carries."""

    detection_ms: int
    sealed: bool
    events_hz: int

    @property
    def name(self) -> str:
        load = f"{self.events_hz}_event_per_s" if self.events_hz else "idle"
        return f"{'sealed' if self.sealed else 'open'}_{self.detection_ms}ms_{load}"


class Cost(NamedTuple):
    """Both directions together."""

    kbit_per_s: float
    packets_per_s: float


CASES = [Case(ms, sealed, hz) for sealed, ms, hz in product((False, True), DETECTION_MS, (0, 1))]


class Traffic:
    """Counts what sockets send, by their addresses."""

    def __init__(self) -> None:
        self.packets: Counter[Address] = Counter()
        self.bytes: Counter[Address] = Counter()
        transmit = PeerSocket.transmit

        def counted(socket: PeerSocket, address: Address, datagram: bytes) -> None:
            self.packets[socket.address] += 1
            self.bytes[socket.address] += HEADER_BYTES + len(datagram)
            transmit(socket, address, datagram)

        PeerSocket.transmit = counted  # type: ignore[method-assign]


def measure(seconds: float = SECONDS) -> dict[Case, Cost]:
    return uvloop.run(_measure_all(seconds))


async def _measure_all(seconds: float) -> dict[Case, Cost]:
    transmit = PeerSocket.transmit
    traffic = Traffic()
    try:
        costs = await asyncio.gather(*(_measure(case, traffic, seconds) for case in CASES))
    finally:
        PeerSocket.transmit = transmit  # type: ignore[method-assign]
    return dict(zip(CASES, costs, strict=True))


async def _measure(case: Case, traffic: Traffic, seconds: float) -> Cost:
    keys = make_keys(2)
    here, there = (
        LivePeer(
            PeerConfig(peer=peer, strategy="adaptive", detection_ns=case.detection_ms * MS),
            keys=keys[peer] if case.sealed else None,
        )
        for peer in (0, 1)
    )
    here.add_peer(1, there.address, delay_ns=DELAY_NS)
    there.add_peer(0, here.address, delay_ns=DELAY_NS)
    here.start(Started((Neighbour(1, DELAY_NS),)))
    there.start(Started((Neighbour(0, DELAY_NS),), (LocalSubscription(1, "topic = 't'"),)))
    publishing = asyncio.create_task(_publish(here, case.events_hz))
    try:
        await asyncio.sleep(SETTLING_S)
        before = _sent(traffic, here, there)
        await asyncio.sleep(seconds)
        size, packets = (now - then for now, then in zip(_sent(traffic, here, there), before, strict=True))
    finally:
        publishing.cancel()
        here.close()
        there.close()
    return Cost(size * 8 / 1000 / seconds, packets / seconds)


def _sent(traffic: Traffic, *peers: LivePeer) -> tuple[int, int]:
    addresses = [peer.address for peer in peers]
    return sum(traffic.bytes[at] for at in addresses), sum(traffic.packets[at] for at in addresses)


async def _publish(peer: LivePeer, events_hz: int) -> None:
    while events_hz:
        peer.publish(Publication({"topic": "t"}, bytes(PAYLOAD_BYTES)))
        await asyncio.sleep(1 / events_hz)


def rows() -> list[Row]:
    return [
        Row(f"link_cost.{case.name}_kbit_per_s", f"link cost, {case.name.replace('_', ' ')} (kbit/s)", cost.kbit_per_s)
        for case, cost in measure().items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    costs = measure(options.seconds)
    if options.json:
        print(json.dumps([{**case._asdict(), **cost._asdict()} for case, cost in costs.items()], indent=2))
        return
    table = Table("detection", "open, idle", "open, 1 event/s", "sealed, idle", "sealed, 1 event/s")
    for ms in DETECTION_MS:
        cells = [costs[Case(ms, sealed, hz)] for sealed, hz in product((False, True), (0, 1))]
        table.add_row(f"{ms} ms", *(f"{cost.kbit_per_s:.1f} ({cost.packets_per_s:.1f}/s)" for cost in cells))
    Console().print(table)


if __name__ == "__main__":
    main()
