"""Twenty-four peers, each a process of its own, on a ring; four are killed, two return, and no stored event is missing.

    python examples/ring.py

Every peer but the first knows one address. Its file names no other peer, and no file changes when peers come and go.
200 subscriptions ask for ranges of prices and volumes. While 2000 events flow, the example kills (SIGKILL) the owner of
the busiest region, a publisher's peer and two others. The publisher's peer and one more return. It exits with code 1 if
a subscriber whose peer stays alive lacks an event whose receipt says `kept`, or gets an event twice.
"""

import argparse
import asyncio
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

import wend
from peer_processes import PeerScene, free_ports, nonzero, play_example, shown

FIRST = 0
HOT = 20.0
"""Half of all events have a price below this."""
PATIENCE_S = 300.0
CONFIG = """
id = {peer}
listen = "127.0.0.1:{port}"
keys = "keys-{peer}"
clients = "127.0.0.1:{clients}"
strategy = "rendezvous"
{join}
persistence = true
store = "{peer}.store"
grace = "0s"
pastry_detection = "2s"
pastry_round_trip = "20ms"
beacon = "5s"
expiry = "20s"
split_entries = 40
split_rate = 30.0
"""

Event = dict[str, float]


class Wanted:
    """A subscription at a peer, and what its client got."""

    def __init__(self, peer: int, price: tuple[float, float], volume: tuple[float, float] | None) -> None:
        self.peer = peer
        self.price = price
        self.volume = volume
        self.got: Counter[bytes] = Counter()
        self.lost = 0
        """Events that the client's buffer dropped."""

    @property
    def filter(self) -> str:
        text = f"price >= {self.price[0]} and price <= {self.price[1]}"
        return text if self.volume is None else f"{text} and volume >= {self.volume[0]} and volume <= {self.volume[1]}"

    def matches(self, event: Event) -> bool:
        low, high = self.volume or (0.0, 1e9)
        return self.price[0] <= event["price"] <= self.price[1] and low <= event["volume"] <= high


class Scene(PeerScene):
    def __init__(
        self,
        folder: Path,
        peers: int,
        subscriptions: int,
        events: int,
        rate: float,
        seed: int = 1,
        *,
        at_once: bool = False,
    ) -> None:
        super().__init__(folder)
        self.peers = peers
        self.at_once = at_once
        self.events = events
        self.pause_s = 1.0 / rate
        self.random = random.Random(seed)
        self.wanted = [self._draw(peer % peers) for peer in range(subscriptions)]
        self.kept: dict[bytes, Event] = {}
        """The events that got a receipt as stored, by payload."""
        self.other: Counter[str] = Counter()
        """Why the other events did not."""
        self.publishers = [1, 2, 3, 4]
        self.killed: list[int] = []
        self.returned: dict[int, int] = {}
        """Peers that returned, with the number of the first event after which they had joined again."""
        self.number = 0

    def _draw(self, peer: int) -> Wanted:
        low = self.random.uniform(0, HOT if self.random.random() < 0.5 else 100.0)
        price = (round(low, 3), round(low + self.random.uniform(0.5, 6.0), 3))
        from_ = self.random.uniform(0, 500)
        volume = (round(from_), round(from_ + self.random.uniform(100, 500))) if self.random.random() < 0.4 else None
        return Wanted(peer, price, volume)

    # ---------------------------------------------------------------- the peers

    async def start(self) -> None:
        ports = free_ports(2 * self.peers)
        files = []
        for peer in range(self.peers):
            join = "" if peer == FIRST else f'join = ["127.0.0.1:{ports[FIRST]}"]'
            files.append(CONFIG.format(peer=peer, port=ports[peer], clients=ports[self.peers + peer], join=join))
        await self.start_peers(files)
        await self.connect_clients()
        await self.joined(range(self.peers), self.peers)

    async def joined(self, peers: "range | list[int]", ring: int) -> None:
        """Wait until each of these peers has joined and has as many neighbours as the ring allows."""
        for peer in peers:
            while True:
                ring_status = (await self.clients[peer].status()).plugins["pastry"]
                if ring_status["joined"] and ring_status["leaf-set"] >= min(16, ring - 1):
                    break
                await asyncio.sleep(0.1)

    def living(self) -> list[int]:
        return [peer for peer in self.processes if peer not in self.killed or peer in self.returned]

    # ---------------------------------------------------------------- subscriptions and events

    async def subscribe(self) -> None:
        for wanted in self.wanted:
            events = await self.enter_async_context(self.clients[wanted.peer].subscribe(wanted.filter))
            self.go_on(_collect(events, wanted))

    async def ready(self) -> None:
        """Wait until every subscription gets an event that it wants."""
        number, client = 0, self.clients[self.publishers[0]]
        while missing := [wanted for wanted in self.wanted if not wanted.got]:
            for wanted in missing[:20]:
                number += 1
                event = {"price": wanted.price[0], "volume": 0.0 if wanted.volume is None else wanted.volume[0]}
                await client.publish({**event}, b"ready %d" % number)
            await asyncio.sleep(0.2)

    def draw_event(self) -> Event:
        hot = self.random.random() < 0.5
        return {
            "price": round(self.random.uniform(0, HOT if hot else 100.0), 3),
            "volume": self.random.uniform(0, 1000),
        }

    async def publish(self) -> None:
        began = time.monotonic()
        for number in range(self.events):
            self.number = number
            event, payload = self.draw_event(), b"%d" % number
            peer = self.publishers[number % len(self.publishers)]
            await self._publish_one(peer, event, payload)
            await asyncio.sleep(max(0.0, began + (number + 1) * self.pause_s - time.monotonic()))

    async def _publish_one(self, peer: int, event: Event, payload: bytes) -> None:
        if peer not in self.living():
            self.other["the publisher's peer was dead"] += 1
            return
        try:
            receipt = await self.clients[peer].publish({**event}, payload)
        except wend.WendError as error:
            self.other[re.sub(r"[\d.:]+\d", "N", str(error))] += 1
            return
        if receipt.kept:
            self.kept[payload] = event
        else:
            self.other["the receipt does not say that it is stored"] += 1

    # ---------------------------------------------------------------- failures

    async def trouble(self) -> None:
        owner = await self.busiest()
        others = [p for p in range(self.peers) if p not in (FIRST, owner, *self.publishers)]
        publisher = next(p for p in self.publishers if p != owner)
        published = owner in self.publishers  # what it has stored needs it back
        victims = [(owner, published), (publisher, True), (others[0], False), (others[-1], not published)]
        for turn, (peer, returns) in enumerate(victims):
            await self._until(self.events * (1 if self.at_once else turn + 1) // 6)
            what = "the owner of the busiest region" if turn == 0 else "a publisher's peer" if turn == 1 else "a peer"
            self.killed.append(peer)
            await self.processes[peer].kill()
            print(f"event {self.number}: killed peer {peer}, {what}", flush=True)
            if returns and not self.at_once:
                await self._return(peer)
        if self.at_once:
            await asyncio.gather(*(self._return(peer) for peer, returns in victims if returns))

    async def _return(self, peer: int) -> None:
        await self._until(self.number + self.events // 12)
        self.processes[peer] = await self.launch(self.config(peer))
        await self.joined([peer], self.peers - 3)
        self.returned[peer] = self.events
        print(f"event {self.number}: peer {peer} is back", flush=True)
        before = {id(w): sum(w.got.values()) for w in self.wanted}
        while any(sum(w.got.values()) == before[id(w)] for w in self._matched_often(peer)):
            if self.number == self.events - 1:
                return  # too late to see whether its subscriptions work again
            await asyncio.sleep(0.1)
        self.returned[peer] = self.number + 1

    def _matched_often(self, peer: int) -> list[Wanted]:
        """Some subscriptions at a peer whose clients should get events soon."""
        mine = [wanted for wanted in self.wanted if wanted.peer == peer and wanted.volume is None]
        return sorted(mine, key=lambda w: w.price[0] - w.price[1])[:1]

    async def _until(self, number: int) -> None:
        while self.number < min(number, self.events - 1):
            await asyncio.sleep(0.02)

    async def busiest(self) -> int:
        """The owner of the region with the most events, other than the first peer."""
        await self._until(self.events // 12)
        loads: dict[int, int] = {}
        for peer in self.living():
            status = (await self.clients[peer].status()).plugins["rendezvous"]
            loads[peer] = max((count for name, count in status.items() if name.startswith("events/")), default=0)
        print(f"regions: {sum(1 for load in loads.values() if load)} peers own a busy one", flush=True)
        return max((peer for peer in loads if peer != FIRST), key=lambda peer: (loads[peer], -peer))

    # ---------------------------------------------------------------- what arrived

    async def arrived(self) -> None:
        """Wait until nobody lacks an event; the caller limits the time."""
        while any(self.lacking(wanted) for wanted in self.wanted):
            await asyncio.sleep(0.2)
        await asyncio.sleep(1.0)  # for events that arrive twice

    def judged(self) -> list[Wanted]:
        """The subscriptions at peers that were alive all the time."""
        return [wanted for wanted in self.wanted if wanted.peer not in self.killed]

    def expected(self, wanted: Wanted) -> list[bytes]:
        """The stored events that its client must have got."""
        since = self.returned.get(wanted.peer, self.events if wanted.peer in self.killed else 0)
        return [p for p, event in self.kept.items() if int(p) >= since and wanted.matches(event)]

    def lacking(self, wanted: Wanted) -> list[bytes]:
        return [payload for payload in self.expected(wanted) if payload not in wanted.got]

    def wrong(self) -> list[str]:
        """A sentence for each subscription that did not get every stored event once, or got others."""
        said = []
        for wanted in self.wanted:
            got = {payload: count for payload, count in wanted.got.items() if payload.isdigit()}
            lacking = self.lacking(wanted)
            twice = [payload for payload, count in got.items() if count > 1]
            unasked = [payload for payload in got if payload in self.kept and not wanted.matches(self.kept[payload])]
            if lacking or twice or unasked or wanted.lost:
                said.append(
                    f"peer {wanted.peer}, {wanted.filter}: lacks {shown(lacking)}, has twice {shown(twice)}, "
                    f"unasked {shown(unasked)}, its buffer dropped {wanted.lost}"
                )
        return said

    async def drops(self) -> Counter[str]:
        """The drops and refusals of the living peers."""
        counts: Counter[str] = Counter()
        for peer in self.living():
            status = await self.clients[peer].status()
            counts.update(nonzero(status.drops, "drops"))
            counts.update(nonzero(status.refused, "refused"))
        return counts


async def play(scene: Scene) -> list[str]:
    """Run the example; a sentence for each mistake."""
    async with scene:
        try:
            async with asyncio.timeout(PATIENCE_S):
                began = time.monotonic()
                await scene.start()
                print(f"{scene.peers} peers have joined, after {time.monotonic() - began:.1f} s", flush=True)
                await scene.subscribe()
                await scene.ready()
                print(f"{len(scene.wanted)} subscriptions work, after {time.monotonic() - began:.1f} s", flush=True)
                await asyncio.gather(scene.publish(), scene.trouble())
                print(f"all events are published, after {time.monotonic() - began:.1f} s", flush=True)
                await scene.arrived()
                print(f"all have arrived, after {time.monotonic() - began:.1f} s", flush=True)
        except TimeoutError:
            return [f"not done within {PATIENCE_S:g} s", *scene.wrong()]
        for why, count in sorted((await scene.drops() + scene.other).items()):
            print(f"{count:6} {why}")
        deliveries = sum(sum(wanted.got.values()) for wanted in scene.wanted)
        print(f"the receipts of {len(scene.kept)} of {scene.events} events say kept; {deliveries} deliveries")
        if not scene.wrong():
            print("every live subscriber has each of them once")
        return scene.wrong()


# ---------------------------------------------------------------- helpers


async def _collect(events: wend.EventStream, into: Wanted) -> None:
    async for event in events:
        into.got[event.payload] += 1
        into.lost = events.dropped


def main() -> int:
    parser = argparse.ArgumentParser(description="Peers on a ring; four are killed, two return.")
    parser.add_argument("--peers", type=int, default=24)
    parser.add_argument("--subscriptions", type=int, default=200)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=50.0, help="events per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", action="store_true", help="kill all four at the same moment")
    given = parser.parse_args()
    if given.peers < 9 or given.events < 12 or not 0 < given.rate < float("inf"):
        parser.error("needs at least 9 peers, 12 events and a rate above 0")
    size = (given.peers, given.subscriptions, given.events, given.rate, given.seed)
    return play_example(lambda folder: play(Scene(folder, *size, at_once=given.at_once)))


if __name__ == "__main__":
    sys.exit(main())
