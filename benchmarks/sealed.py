"""What sealing costs: CPU time per datagram of two live peers, with keys beside without, in interleaved rounds.

Both peers run in this process, so its CPU time is that of sending and of receiving, with everything that a peer does
for an event. Events come 32 at a time, or one at a time. `python -m benchmarks.sealed [--rounds N] [--events N]`
prints the medians and their ratio.
"""

import argparse
import asyncio
import time
from statistics import median
from typing import NamedTuple

import uvloop

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport.socket import PeerSocket
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Deliver, LocalSubscription, Neighbour, Started
from wend.security.certificates import RootVerifier, make_credentials, make_request, make_root, sign_certificate
from wend.security.identity import Credentials, Verifier

ROUNDS = 100
EVENTS = 320
CASES = ((100, 1), (100, 32), (1000, 1), (1000, 32))
"""Bytes of payload, and events at a time."""


class Cost(NamedTuple):
    event_us: float
    datagram_us: float


class _Arrivals(Observer):
    def __init__(self) -> None:
        self.count = 0
        self.wanted = 0
        self.there = asyncio.Event()

    def on_delivered(self, effect: Deliver) -> None:
        self.count += 1
        if self.count >= self.wanted:
            self.there.set()


class _Datagrams:
    """Counts the datagrams that the sockets send."""

    def __init__(self) -> None:
        self.count = 0
        transmit = PeerSocket.transmit

        def counted(socket: PeerSocket, address: Address, datagram: bytes) -> None:
            self.count += 1
            transmit(socket, address, datagram)

        PeerSocket.transmit = counted  # type: ignore[method-assign]


def make_keys(peers: int) -> list[tuple[Credentials, Verifier]]:
    """Make the keys of peers, signed by a new root."""
    now_s, secret = int(time.time()), bytes(32)
    root = make_root("bench", secret, serial=1, not_before_s=now_s - 60, not_after_s=now_s + 86_400)
    found: list[tuple[Credentials, Verifier]] = []
    for peer in range(peers):
        signing, session = bytes([peer + 1]) * 32, bytes([peer + 101]) * 32
        certificate = sign_certificate(
            make_request(f"site-{peer}", signing, session), root, secret,
            serial=peer + 2, peer=peer, groups=(), not_before_s=now_s - 60, not_after_s=now_s + 86_400,
        )  # fmt: skip
        found.append((make_credentials(certificate, session, signing), RootVerifier([root])))
    return found


class _Pair:
    """Two peers with a link."""

    def __init__(self, sealed: bool) -> None:
        keys = make_keys(2) if sealed else [None, None]
        self._here, self._there = (
            LivePeer(PeerConfig(peer=peer, margin_ns=100 * MS), keys=keys[peer]) for peer in (0, 1)
        )
        self._here.add_peer(1, self._there.address)
        self._there.add_peer(0, self._here.address)
        self._arrivals = _Arrivals()
        self._there.observe(self._arrivals)

    async def start(self) -> None:
        self._here.start(Started((Neighbour(1, MS),), advertisements=("topic = 'x'",)))
        self._there.start(Started((Neighbour(0, MS),), (LocalSubscription(1, "topic = 'x'"),)))
        while not self._here.publish(Publication({"topic": "x"})).targets:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    async def carry(self, payload: bytes, at_once: int, events: int) -> float:
        """Processor seconds for these events."""
        arrivals = self._arrivals
        before, begin = arrivals.count, time.process_time()
        for number in range(0, events, at_once):
            arrivals.wanted = before + number + at_once
            arrivals.there.clear()
            for _ in range(at_once):
                self._here.publish(Publication({"topic": "x", "number": number}, payload))
            await asyncio.wait_for(arrivals.there.wait(), 60)
        return time.process_time() - begin

    def close(self) -> None:
        self._here.close()
        self._there.close()


async def measure_costs(
    payload: bytes, at_once: int, rounds: int, events: int, datagrams: _Datagrams
) -> list[list[Cost]]:
    """The costs of one event and of one datagram, without and with keys, alternating in each round."""
    pairs = [_Pair(sealed=False), _Pair(sealed=True)]
    for pair in pairs:
        await pair.start()
    found = []
    for number in range(rounds + 1):
        row: dict[int, Cost] = {}
        for which in (0, 1) if number % 2 else (1, 0):
            sent = datagrams.count
            spent = await pairs[which].carry(payload, at_once, events)
            row[which] = Cost(1e6 * spent / events, 1e6 * spent / (datagrams.count - sent))
        found.append([row[0], row[1]])
    for pair in pairs:
        pair.close()
    return found[1:]  # the first one warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--events", type=int, default=EVENTS)
    options = parser.parse_args()
    datagrams = _Datagrams()
    print("payload, events at a time: CPU microseconds per event open, sealed, ratio; per datagram open, sealed, ratio")
    for size, at_once in CASES:
        found = uvloop.run(measure_costs(bytes(size), at_once, options.rounds, options.events, datagrams))
        shown = []
        for field in (0, 1):
            opened, sealed = ([row[which][field] for row in found] for which in (0, 1))
            ratio = median(b / a for a, b in zip(opened, sealed, strict=True))
            shown.append(f"{median(opened):7.1f} {median(sealed):7.1f} {ratio:6.3f}")
        print(f"{size:5} B {at_once:3}: {'; '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
