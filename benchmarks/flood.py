"""A flood of handshakes by strangers at a peer with keys: its links, the delays of its events, and its memory.

One process runs two peers and publishes events from one to the other. A second process sends initiations to the second
peer as fast as it can, from many ports; their macs are right, so each could cost a public-key operation. `python -m
benchmarks.flood [--seconds N] [--rate N]` prints a line for the time before the flood, during it, and after it; and one
for a flood at another socket, because the attacker takes time of the processor, too.
"""

import argparse
import asyncio
import os
import resource
import socket
import subprocess
import sys
import time
from typing import NamedTuple

import uvloop

from benchmarks.sealed import make_keys
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport.socket import PeerSocket
from wend.model.publication import Publication
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.ports import Deliver, LocalSubscription, Neighbour, Started
from wend.security import packets
from wend.security.cookies import mac, mac1_key
from wend.security.handshakes import PROLOGUE
from wend.security.noise import InitiatorHandshake, KeyPair

DEADLINE_MS = 100
EVENTS_PER_S = 200
PACKETS = 200
PORTS = 50


class Phase(NamedTuple):
    published: int
    on_time: int
    cpu: float
    kilobytes: int
    entries: int


class _AgeObserver(Observer):
    def __init__(self) -> None:
        self.delivered_in_time = 0

    def on_delivered(self, effect: Deliver) -> None:
        self.delivered_in_time += effect.age_ns <= DEADLINE_MS * MS


def send_flood(port: int, seconds: float, rate: float) -> None:
    """The attacker: prints how many datagrams it has sent."""
    (credentials, _), key = make_keys(2)[0], KeyPair(make_keys(2)[1][0].session_secret).public
    made = []
    for number in range(PACKETS):
        said = packets.Introduction(3, 1, number, credentials.certificate[:-1]).encode(padded=True)
        stranger = InitiatorHandshake(KeyPair(os.urandom(32)), key, os.urandom(32), PROLOGUE)
        packet = packets.encode_initiation(number + 1, stranger.write(said))
        made.append(packet + mac(mac1_key(key), packet) + bytes(16))
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(PORTS)]
    for one in sockets:
        one.setblocking(False)
        one.connect(("127.0.0.1", port))
    begin, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        if sent > passed * rate:
            continue
        for number in range(100):
            try:
                sockets[(sent + number) % PORTS].send(made[(sent + number) % PACKETS])
            except OSError:
                continue
        sent += 100
    print(sent)


async def measure(seconds: float, rate: float) -> None:
    longest: dict[int, int] = {}
    transmit = PeerSocket.transmit

    def watched(self: PeerSocket, address: Address, datagram: bytes) -> None:
        longest[datagram[3]] = max(longest.get(datagram[3], 0), len(datagram))
        transmit(self, address, datagram)

    PeerSocket.transmit = watched  # type: ignore[method-assign]
    keys = make_keys(2)
    here, there = (LivePeer(PeerConfig(peer=peer, margin_ns=100 * MS), keys=keys[peer]) for peer in (0, 1))
    here.add_peer(1, there.address)
    there.add_peer(0, here.address)
    ages = _AgeObserver()
    there.observe(ages)
    here.start(Started((Neighbour(1, MS),), advertisements=("topic = 'x'",)))
    there.start(Started((Neighbour(0, MS),), (LocalSubscription(1, "topic = 'x'"),)))
    while not here.publish(Publication({"topic": "x"})).targets:
        await asyncio.sleep(0.01)
    elsewhere = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    elsewhere.bind(("127.0.0.1", 0))
    for name in ("before", "elsewhere", "flood", "elsewhere", "flood", "after"):
        flood = None
        if name in ("flood", "elsewhere"):
            port = there.address[1] if name == "flood" else elsewhere.getsockname()[1]
            words = [sys.executable, "-m", "benchmarks.flood", "--port", str(port)]
            words += ["--seconds", str(seconds), "--rate", str(rate)]
            flood = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        phase = await _phase(here, there, ages, seconds)
        text = f"{name:9}: {phase.on_time} of {phase.published} events within {DEADLINE_MS} ms, "
        text += f"CPU {phase.cpu:.0%}, {phase.kilobytes} kB, {phase.entries} entries of sessions"
        print(text, flush=True)
        if flood is not None:
            sent, _ = await asyncio.to_thread(flood.communicate)
            print(f"        {int(sent) / seconds:.0f} initiations/s sent; counted: {dict(there.counters.refused)}, "
                  f"{ {k: v for k, v in there.counters.notices.items() if 'cookie' in k or 'hand' in k} }")  # fmt: skip
    replies = max((size for kind, size in longest.items() if kind in (packets.COOKIE, packets.ANSWER)), default=0)
    print(f"longest reply {replies} bytes, an initiation has {packets.INITIATION_BYTES}; "
          f"links down: {here.counters.notices['link-down'] + there.counters.notices['link-down']}")  # fmt: skip
    here.close()
    there.close()


async def _phase(here: LivePeer, there: LivePeer, ages: _AgeObserver, seconds: float) -> Phase:
    before, spent, begin = ages.delivered_in_time, time.process_time(), time.monotonic()
    published = 0
    while (passed := time.monotonic() - begin) < seconds:
        while published < passed * EVENTS_PER_S:
            here.publish(Publication({"topic": "x"}, b"payload"))
            published += 1
        await asyncio.sleep(0.001)
    cpu = (time.process_time() - spent) / (time.monotonic() - begin)
    await asyncio.sleep(0.5)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    entries = 0 if there.sealed is None else there.sealed.entry_count
    return Phase(published, ages.delivered_in_time - before, cpu, kilobytes, entries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=100_000)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.port is not None:
        send_flood(options.port, options.seconds, options.rate)
    else:
        uvloop.run(measure(options.seconds, options.rate))


if __name__ == "__main__":
    main()
