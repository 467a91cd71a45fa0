"""Eight peers, each a process of its own; all are killed or stopped again and again, and no stored event is missing.

    python examples/restarts.py
    python examples/restarts.py --rolling

Two publishers send events to durable subscriptions at four peers. Meanwhile the example kills peers (SIGKILL), stops
others gracefully (SIGTERM), and starts each again after a while; with `--rolling` it restarts each peer once, one after
the other, as an upgrade does. Some subscribers stay and reconnect. Others vanish, and a new client takes over their
subscription by its name. The example exits with code 1 if a subscriber lacks an event whose receipt says `kept`, or
gets an event again that its client has acknowledged.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import wend
from peer_processes import PeerScene, free_ports, nonzero, shown

PATIENCE_S = 600.0
DRAIN_S = 120.0
"""How long the last events may take once all peers run again."""
REGIONS = 10
CONFIG = """
id = {peer}
listen = "127.0.0.1:{port}"
keys = "keys-{peer}"
clients = "127.0.0.1:{clients}"
strategy = "adaptive"
persistence = true
store = "{peer}.store"
detection = "1s"
margin = "100ms"
"""
NEIGHBOUR = """
[[neighbours]]
id = {peer}
address = "127.0.0.1:{port}"
delay = "2ms"
"""


class Reader:
    """A durable subscription, and what its clients got."""

    def __init__(self, peer: int, name: str, regions: tuple[int, int], restless: bool) -> None:
        self.peer = peer
        self.name = name
        self.regions = regions
        self.restless = restless
        """Whether its client vanishes now and then, and another one goes on."""
        self.got: Counter[bytes] = Counter()
        self.sure: set[bytes] = set()
        """Acknowledged, and the peer has answered a later request: it knows of it."""
        self.doubled: list[bytes] = []
        self.redelivered = 0
        self.ages: list[float] = []
        self.clients = 0

    @property
    def filter(self) -> str:
        return f"region in [{self.regions[0]}, {self.regions[1]}]"

    def wants(self, region: int) -> bool:
        return self.regions[0] <= region <= self.regions[1]

    def take(self, event: wend.Arrival, by_this_client: set[bytes]) -> None:
        payload = event.payload
        if payload in by_this_client or payload in self.sure:
            self.doubled.append(payload)
        by_this_client.add(payload)
        self.got[payload] += 1
        self.ages.append(event.age)
        if getattr(event, "redelivered", False):
            self.redelivered += 1


class Scene(PeerScene):
    def __init__(self, folder: Path, peers: int, events: int, rate: float, seed: int = 1) -> None:
        super().__init__(folder)
        self.peers = peers
        self.events = events
        self.rate = rate
        self.random = random.Random(seed)
        self.urls: dict[int, str] = {}
        self.publishers = (0, peers // 2)
        last = REGIONS - 1
        self.readers = [
            Reader(0, "beside a publisher", (last, last), restless=False),
            Reader(peers // 4, "steady", (0, last - 1), restless=False),
            Reader(peers - 1, "restless", (0, last - 1), restless=True),
            Reader(peers // 2 + 1, "half", (0, last // 2), restless=True),
        ]
        self.kept: dict[bytes, int] = {}
        """The events that got a receipt as stored, with their regions."""
        self.unsure: dict[bytes, int] = {}
        """The others: nobody knows whether the peer accepted them."""
        self.other: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """How often peers were killed and stopped."""
        self.number = 0
        self.done = asyncio.Event()
        """All peers run again for good."""
        self.longest_stop_s = 0.0
        self.longest_absence_s = 0.0

    # ---------------------------------------------------------------- the peers

    def links(self) -> dict[int, set[int]]:
        """A ring with chords."""
        links: dict[int, set[int]] = {peer: set() for peer in range(self.peers)}
        for peer in range(self.peers):
            for other in {(peer + 1) % self.peers, (peer + self.peers // 2) % self.peers} - {peer}:
                links[peer].add(other)
                links[other].add(peer)
        return links

    async def start(self) -> None:
        ports = free_ports(2 * self.peers)
        files = []
        for peer, near in self.links().items():
            text = CONFIG.format(peer=peer, port=ports[peer], clients=ports[self.peers + peer])
            files.append(text + "".join(NEIGHBOUR.format(peer=other, port=ports[other]) for other in sorted(near)))
            self.urls[peer] = f"wend://127.0.0.1:{ports[self.peers + peer]}"
        await self.start_peers(files)

    # ---------------------------------------------------------------- publishers

    async def ready(self) -> None:
        """Wait until both publishers' peers know all subscriptions."""
        for reader in self.readers:
            self.go_on(self._read(reader))
        for peer in self.publishers:
            async with wend.connect(self.urls[peer]) as client:
                for region in range(REGIONS):
                    wanted = len({reader.peer for reader in self.readers if reader.wants(region)})
                    while (await client.publish({"region": region}, b"ready")).targets < wanted:
                        await asyncio.sleep(0.05)

    async def publish(self) -> None:
        await asyncio.gather(*(self._publish_at(peer) for peer in self.publishers))

    async def _publish_at(self, peer: int) -> None:
        pause_s = len(self.publishers) / self.rate
        async with wend.connect(self.urls[peer], patience=PATIENCE_S) as client:
            while self.number < self.events or not self.done.is_set():
                self.number += 1
                region, payload = self.random.randrange(REGIONS), b"%d" % self.number
                try:
                    receipt = await client.publish({"region": region}, payload)
                except wend.ConnectionLost:
                    self.unsure[payload] = region
                    self.other["published without an answer"] += 1
                except wend.Refused as error:
                    self.other[f"refused: {error}"] += 1
                else:
                    (self.kept if receipt.kept else self.unsure)[payload] = region
                    if not receipt.kept:
                        self.other["published without a promise"] += 1
                await asyncio.sleep(pause_s)

    # ---------------------------------------------------------------- subscribers

    async def _read(self, reader: Reader) -> None:
        """Read with one client after the other. The last one stays."""
        while True:
            stays = self.done.is_set() or not reader.restless
            client = wend.connect(self.urls[reader.peer], patience=PATIENCE_S)
            try:
                await client
            except wend.ConnectionLost:  # its peer is down
                await asyncio.sleep(0.1)
                continue
            reader.clients += 1
            reading = asyncio.create_task(self._read_with(client, reader))
            try:
                if stays:
                    await reading
                else:
                    await asyncio.wait([reading], timeout=self.random.uniform(0.2, 3.0))
                    if reading.done():
                        reading.result()
            finally:  # the client vanishes without closing the subscription
                reading.cancel()
                with suppress(asyncio.CancelledError, wend.ClientError):
                    await reading
                await client.close()

    async def _read_with(self, client: wend.Client, reader: Reader) -> None:
        mine: set[bytes] = set()
        try:
            if not reader.restless:
                async with client.subscribe(reader.filter, name=reader.name) as events:
                    async for event in events:
                        reader.take(event, mine)
            events = await client.subscribe(reader.filter, name=reader.name, ack="explicit", window=64)
            acknowledged: set[bytes] = set()
            async for event in events:
                reader.take(event, mine)
                if not self.done.is_set() and self.random.random() < 0.02:
                    continue  # the application fails with this one; it comes to the next client
                event.ack()  # type: ignore[attr-defined]
                acknowledged.add(event.payload)
                if len(acknowledged) >= 10:
                    reconnects = client.reconnects
                    await asyncio.sleep(0)  # the acknowledgements leave
                    await client.subscriptions()
                    if client.reconnects == reconnects:
                        reader.sure |= acknowledged
                    acknowledged.clear()
        except wend.ConnectionLost:
            return

    # ---------------------------------------------------------------- restarts

    async def trouble(self, kills: int, stops: int) -> None:
        """Kill and stop random peers, up to two at a time, and start them again."""
        ends = ["killed"] * kills + ["stopped"] * stops
        self.random.shuffle(ends)
        count = len(ends)
        free = set(range(self.peers))

        async def make() -> None:
            while ends:
                how = ends.pop()
                peer = self.random.choice(sorted(free))
                free.discard(peer)
                await asyncio.sleep(self.random.uniform(0.0, 1.0))
                await self.restart(peer, how, self.random.choice((0.0, 0.3, 1.5)))
                free.add(peer)
                if (done := count - len(ends)) % 10 == 0:
                    print(f"{done} of {count} restarts, {self.number} events published", flush=True)

        await asyncio.gather(make(), make())
        self.done.set()

    async def roll(self) -> None:
        """Restart every peer, one after the other."""
        for peer in range(self.peers):
            while self.number < self.events * (peer + 1) // (self.peers + 2):
                await asyncio.sleep(0.02)
            await self.restart(peer, "stopped", 0.0)
            print(f"event {self.number}: peer {peer} is back", flush=True)
        self.done.set()

    async def restart(self, peer: int, how: str, pause_s: float) -> None:
        process, began = self.processes[peer], time.monotonic()
        await (process.kill() if how == "killed" else process.stop())
        self.ended[how] += 1
        if how == "stopped":
            self.longest_stop_s = max(self.longest_stop_s, time.monotonic() - began)
        await asyncio.sleep(pause_s)
        self.processes[peer] = await self.launch(self.config(peer))
        self.longest_absence_s = max(self.longest_absence_s, time.monotonic() - began)

    # ---------------------------------------------------------------- what arrived

    async def arrived(self) -> None:
        """Wait until nobody lacks an event and no peer has one left; the caller limits the time."""
        while any(self.lacking(reader) for reader in self.readers) or await self.waiting():
            await asyncio.sleep(0.2)
        await asyncio.sleep(1.0)  # for events that arrive twice

    async def waiting(self) -> int:
        """Events that are in a backlog or between peers."""
        count = 0
        for url in self.urls.values():
            async with wend.connect(url) as client:
                status = await client.status()
                count += status.waiting + status.in_flight
                count += sum(one.events for one in await client.subscriptions())
        return count

    def lacking(self, reader: Reader) -> list[bytes]:
        return [payload for payload, region in self.kept.items() if reader.wants(region) and payload not in reader.got]

    def doubled(self, reader: Reader) -> list[bytes]:
        return [payload for payload in reader.doubled if payload != b"ready"]

    def unasked(self, reader: Reader) -> list[bytes]:
        published = self.kept | self.unsure
        return [p for p in reader.got if p != b"ready" and not (p in published and reader.wants(published[p]))]

    def wrong(self) -> list[str]:
        """A sentence for each subscription that did not get every stored event once, or got others."""
        said = []
        for reader in self.readers:
            lacking, doubled, unasked = self.lacking(reader), self.doubled(reader), self.unasked(reader)
            if lacking or doubled or unasked:
                said.append(
                    f"{reader.name}, at peer {reader.peer}: lacks {shown(lacking)}, has twice {shown(doubled)}, "
                    f"unasked {shown(unasked)}"
                )
        return said

    async def drops(self) -> Counter[str]:
        """The drops and failures of the peers since their last start."""
        counts: Counter[str] = Counter()
        for url in self.urls.values():
            async with wend.connect(url) as client:
                status = await client.status()
                counts.update(nonzero(status.drops, "drops"))
                counts.update(nonzero(status.failed, "failed"))
        return counts

    def table(self) -> str:
        rows = [("subscription", "peer", "clients", "kept", "lost", "doubled", "repeated", "median", "99 %", "slowest")]
        for reader in self.readers:
            kept = sum(reader.wants(region) for region in self.kept.values())
            ages = sorted(reader.ages) or [0.0]
            repeated = sum(count - 1 for payload, count in reader.got.items() if payload != b"ready")
            rows.append(
                (
                    reader.name,
                    str(reader.peer),
                    str(reader.clients),
                    str(kept),
                    str(len(self.lacking(reader))),
                    str(len(self.doubled(reader))),
                    str(repeated),
                    *(f"{1000 * ages[int(share * (len(ages) - 1))]:.0f} ms" for share in (0.5, 0.99, 1.0)),
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


async def play(scene: Scene, kills: int, stops: int, *, rolling: bool = False) -> list[str]:
    """Run the example; a sentence for each mistake."""
    async with scene:
        try:
            async with asyncio.timeout(PATIENCE_S) as patience:
                await scene.start()
                await scene.ready()
                print(f"{scene.peers} peers know {len(scene.readers)} durable subscriptions", flush=True)
                await asyncio.gather(scene.publish(), scene.roll() if rolling else scene.trouble(kills, stops))
                began = time.monotonic()
                print(f"all peers are back, {scene.number} events are published", flush=True)
                patience.reschedule(asyncio.get_running_loop().time() + DRAIN_S)
                await scene.arrived()
                print(f"all have arrived, {time.monotonic() - began:.1f} s later", flush=True)
        except TimeoutError:
            return ["not done in time", *scene.wrong(), scene.table()]
        print(scene.table())
        print(
            f"{scene.ended['killed']} killed, {scene.ended['stopped']} stopped, in {scene.longest_stop_s:.1f} s at most"
        )
        print(f"away for {scene.longest_absence_s:.1f} s at most")
        for why, count in sorted((await scene.drops() + scene.other).items()):
            print(f"{count:6} {why}")
        return scene.wrong()


def main() -> int:
    parser = argparse.ArgumentParser(description="Peers that are killed, stopped and started again.")
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--events", type=int, default=2000, help="at least so many")
    parser.add_argument("--rate", type=float, default=60.0, help="events per second")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--rolling", action="store_true", help="restart every peer once, one after the other")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="for files and stores; if not given, a temporary one")
    given = parser.parse_args()
    if given.peers < 4 or given.events < 1 or min(given.kills, given.stops) < 0 or not 0 < given.rate < float("inf"):
        parser.error("needs at least 4 peers, an event and a rate above 0")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        scene = Scene(folder, given.peers, given.events, given.rate, given.seed)
        wrong = asyncio.run(play(scene, given.kills, given.stops, rolling=given.rolling))
    print("\n".join(wrong) or "every stored event arrived, none twice")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
