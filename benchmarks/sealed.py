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

from wend.drivers.live.addresses import Address
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.socket import PeerSocket
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Deliver, LocalSubscription, Neighbour, Started
from wend.security.certificates import RootVerifier, make_credentials, make_request, make_root, sign
from wend.security.identity import Credentials, Verifier

ROUNDS = 9
EVENTS = 4000
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

    def delivered(self, effect: Deliver) -> None:
        self.count += 1
        if self.count >= self.wanted:
            self.there.set()


class _Datagrams:
    """Counts what the sockets send."""

    def __init__(self) -> None:
        self.count = 0
        transmit = PeerSocket.transmit

        def counted(socket: PeerSocket, address: Address, datagram: bytes) -> None:
            self.count += 1
            transmit(socket, address, datagram)

        PeerSocket.transmit = counted  # type: ignore[method-assign]


def keys_of(peers: int) -> list[tuple[Credentials, Verifier]]:
    """Keys that a root of this moment has signed."""
    now_s, secret = int(time.time()), bytes(32)
    root = make_root("bench", secret, serial=1, not_before_s=now_s - 60, not_after_s=now_s + 86_400)
    found: list[tuple[Credentials, Verifier]] = []
    for peer in range(peers):
        signing, session = bytes([peer + 1]) * 32, bytes([peer + 101]) * 32
        certificate = sign(
            make_request(f"site-{peer}", signing, session), root, secret,
            serial=peer + 2, peer=peer, groups=(), not_before_s=now_s - 60, not_after_s=now_s + 86_400,
        )  # fmt: skip
        found.append((make_credentials(certificate, session, signing), RootVerifier([root])))
    return found


async def cost(sealed: bool, payload: bytes, at_once: int, events: int, datagrams: _Datagrams) -> Cost:
    """What one event and one datagram cost."""
    keys = keys_of(2) if sealed else [None, None]
    here, there = (LivePeer(PeerConfig(peer=peer, margin_ns=100 * MS), keys=keys[peer]) for peer in (0, 1))
    here.add_peer(1, there.address)
    there.add_peer(0, here.address)
    arrivals = _Arrivals()
    there.observe(arrivals)
    here.start(Started((Neighbour(1, MS),), advertisements=("topic = 'x'",)))
    there.start(Started((Neighbour(0, MS),), (LocalSubscription(1, "topic = 'x'"),)))
    while not here.publish({"topic": "x"}).targets:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    before, begin, sent = arrivals.count, time.process_time(), datagrams.count
    for number in range(0, events, at_once):
        arrivals.wanted = before + number + at_once
        arrivals.there.clear()
        for _ in range(at_once):
            here.publish({"topic": "x", "number": number}, payload)
        await asyncio.wait_for(arrivals.there.wait(), 10)
    spent = time.process_time() - begin
    found = Cost(1e6 * spent / events, 1e6 * spent / (datagrams.count - sent))
    here.close()
    there.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--events", type=int, default=EVENTS)
    options = parser.parse_args()
    datagrams = _Datagrams()
    print("payload, events at a time: CPU microseconds per event open, sealed, ratio; per datagram open, sealed, ratio")
    for size, at_once in CASES:
        found: dict[bool, list[Cost]] = {False: [], True: []}
        for _ in range(options.rounds):
            for sealed in (False, True):
                found[sealed].append(uvloop.run(cost(sealed, bytes(size), at_once, options.events, datagrams)))
        ratios = [b.event_us / a.event_us for a, b in zip(found[False], found[True], strict=True)]
        each = [b.datagram_us / a.datagram_us for a, b in zip(found[False], found[True], strict=True)]
        opened, sealed_ = ([median(c[i] for c in found[key]) for i in (0, 1)] for key in (False, True))
        print(
            f"{size:5} B {at_once:3}: {opened[0]:7.1f} {sealed_[0]:7.1f} {median(ratios):6.3f}; "
            f"{opened[1]:7.1f} {sealed_[1]:7.1f} {median(each):6.3f}"
        )


if __name__ == "__main__":
    main()
