"""Three sites of four peers each; coordinators are killed, a link between sites is cut, and no event is missing.

    python examples/clusters.py
    python examples/clusters.py --block-multicast     # needs root and nft: sites send to each member instead

Each site is a cluster: two of its peers coordinate it, each with a backup, and events travel by multicast inside it.
Links and multicast are sealed, with keys that the example makes. While 1000 events flow from all sites, the example
kills (SIGKILL) a coordinator of one site, then one of another, and cuts the first two sites off from each other for a
while. It exits with code 1 if a subscriber at a live peer lacks an event whose receipt says `kept`, or gets an event
twice.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import wend
from peer_processes import PeerScene, collect, free_ports, nonzero, play_example, shown

SITES = ("north", "south", "west")
MEMBERS = 4
FIRST = 0
TOPICS = ("alarms", "readings")
PATIENCE_S = 240.0
CONFIG = """
id = {peer}
listen = "127.0.0.1:{port}"
clients = "127.0.0.1:{clients}"
strategy = "clusters"
cluster = "{site}"
{join}
coordinators = 2
backups = 1
cluster_detection = "2s"
directory = "2s"
cluster_beacon = "5s"
persistence = true
store = "{peer}.store"
keys = "keys-{peer}"
grace = "0s"
experiments = true
"""


class Scene(PeerScene):
    def __init__(self, folder: Path, events: int, rate: float) -> None:
        super().__init__(folder)
        self.events = events
        self.pause_s = 1.0 / rate
        self.peers = range(len(SITES) * MEMBERS)
        self.got: dict[int, Counter[bytes]] = {peer: Counter() for peer in self.peers}
        self.kept: dict[bytes, str] = {}
        """The topics of events that got a receipt as stored, by payload."""
        self.other: Counter[str] = Counter()
        self.killed: list[int] = []
        self.number = 0

    def site(self, peer: int) -> str:
        return SITES[peer % len(SITES)]

    def topics(self, peer: int) -> tuple[str, ...]:
        """What the subscriber at a peer wants."""
        return TOPICS if peer % 2 else TOPICS[:1]

    def living(self) -> list[int]:
        return [peer for peer in self.processes if peer not in self.killed]

    # ---------------------------------------------------------------- the peers

    async def start(self) -> None:
        ports = free_ports(2 * len(self.peers))
        files = []
        for peer in self.peers:
            join = "" if peer == FIRST else f'join = ["127.0.0.1:{ports[FIRST]}"]'
            clients = ports[len(self.peers) + peer]
            files.append(CONFIG.format(peer=peer, port=ports[peer], clients=clients, site=self.site(peer), join=join))
        await self.start_peers(files)
        await self.connect_clients()

    async def coordinators(self, site: str) -> list[int]:
        """The peers that coordinate a site, the coordinator of the first tree first."""
        coordinators = []
        for peer in self.living():
            if self.site(peer) == site:
                status = (await self.clients[peer].status()).plugins["clusters"]
                coordinators += [(tree, peer) for tree in range(2) if status.get(f"active/{tree}")]
        return [peer for _, peer in sorted(coordinators)]

    # ---------------------------------------------------------------- subscriptions and events

    async def subscribe(self) -> None:
        for peer in self.peers:
            wanted = " or ".join(f"topic = '{topic}'" for topic in self.topics(peer))
            events = await self.enter_async_context(self.clients[peer].subscribe(wanted))
            self.go_on(collect(events, self.got[peer]))

    async def ready(self) -> None:
        """Wait until every site has two coordinators, and events of every site reach all subscribers."""
        for site in SITES:
            while len(set(await self.coordinators(site))) < 2:
                await asyncio.sleep(0.2)
        for publisher in range(len(SITES)):
            for number in range(10_000):
                for topic in TOPICS:
                    await self.clients[publisher].publish({"topic": topic}, f"ready {publisher} {topic}".encode())
                await asyncio.sleep(0.3)
                if number and all(self._is_ready(peer, publisher) for peer in self.peers):
                    break

    def _is_ready(self, peer: int, publisher: int) -> bool:
        return all(f"ready {publisher} {topic}".encode() in self.got[peer] for topic in self.topics(peer))

    async def publish(self) -> None:
        began = time.monotonic()
        for number in range(self.events):
            self.number = number
            peer, topic, payload = number % len(self.peers), TOPICS[number % 3 == 0], b"%d" % number
            if peer in self.killed:
                self.other["the publisher's peer was dead"] += 1
            else:
                await self._publish_one(peer, topic, payload)
            await asyncio.sleep(max(0.0, began + (number + 1) * self.pause_s - time.monotonic()))

    async def _publish_one(self, peer: int, topic: str, payload: bytes) -> None:
        try:
            receipt = await self.clients[peer].publish({"topic": topic}, payload)
        except wend.WendError as error:
            self.other[type(error).__name__] += 1
            return
        if receipt.kept:
            self.kept[payload] = topic

    # ---------------------------------------------------------------- failures

    async def trouble(self) -> None:
        await self._until(self.events // 5)
        await self.kill((await self.coordinators(SITES[1]))[0], SITES[1])
        await self._until(2 * self.events // 5)
        await self.cut(SITES[0], SITES[1], down=True)
        print(f"event {self.number}: cut {SITES[0]} off from {SITES[1]}", flush=True)
        await self._until(3 * self.events // 5)
        await self.kill((await self.coordinators(SITES[2]))[-1], SITES[2])
        await self._until(4 * self.events // 5)
        await self.cut(SITES[0], SITES[1], down=False)
        print(f"event {self.number}: healed", flush=True)

    async def kill(self, peer: int, site: str) -> None:
        self.killed.append(peer)
        await self.processes[peer].kill()
        print(f"event {self.number}: killed peer {peer}, a coordinator of {site}", flush=True)

    async def cut(self, one: str, other: str, down: bool) -> None:
        for peer in self.living():
            for far in self.living():
                if {self.site(peer), self.site(far)} == {one, other}:
                    with suppress(wend.WendError):  # most members do not know those of other sites
                        await (self.clients[peer].cut(far) if down else self.clients[peer].heal(far))

    async def _until(self, number: int) -> None:
        while self.number < min(number, self.events - 1):
            await asyncio.sleep(0.02)

    # ---------------------------------------------------------------- what arrived

    async def arrived(self) -> None:
        """Wait until nobody lacks an event; the caller limits the time."""
        while any(self.lacking(peer) for peer in self.living()):
            await asyncio.sleep(0.2)
        await asyncio.sleep(1.0)  # for events that arrive twice

    def lacking(self, peer: int) -> list[bytes]:
        wanted, got = self.topics(peer), self.got[peer]
        return [payload for payload, topic in self.kept.items() if topic in wanted and payload not in got]

    def wrong(self) -> list[str]:
        """A sentence for each subscriber that did not get every stored event once."""
        said = []
        for peer in self.living():
            twice = [payload for payload, count in self.got[peer].items() if payload.isdigit() and count > 1]
            lacking = self.lacking(peer)
            if lacking or twice:
                said.append(f"peer {peer} at {self.site(peer)} lacks {shown(lacking)}, has twice {shown(twice)}")
        return said

    async def counts(self) -> Counter[str]:
        """The drops, refusals and notices about multicast of the living peers."""
        counts: Counter[str] = Counter()
        for peer in self.living():
            status = await self.clients[peer].status()
            counts.update(nonzero(status.drops, "drops"))
            counts.update(nonzero(status.refused, "refused"))
            counts.update({name: count for name, count in status.notices.items() if "multicast" in name})
        return counts


async def play(scene: Scene) -> list[str]:
    """Run the example; a sentence for each mistake."""
    async with scene:
        try:
            async with asyncio.timeout(PATIENCE_S):
                began = time.monotonic()
                await scene.start()
                await scene.subscribe()
                await scene.ready()
                print(f"{len(scene.peers)} peers at {len(SITES)} sites work, after {time.monotonic() - began:.1f} s")
                for site in SITES:
                    names = " and ".join(map(str, await scene.coordinators(site)))
                    print(f"peers {names} coordinate {site}", flush=True)
                await asyncio.gather(scene.publish(), scene.trouble())
                print(f"all events are published, after {time.monotonic() - began:.1f} s", flush=True)
                await scene.arrived()
                print(f"all have arrived, after {time.monotonic() - began:.1f} s", flush=True)
        except TimeoutError:
            return [f"not done within {PATIENCE_S:g} s", *scene.wrong()]
        for why, count in sorted((await scene.counts() + scene.other).items()):
            print(f"{count:6} {why}")
        deliveries = sum(sum(got.values()) for got in scene.got.values())
        print(f"the receipts of {len(scene.kept)} of {scene.events} events say kept; {deliveries} deliveries")
        if not scene.wrong():
            print("every live subscriber has each of them once")
        return scene.wrong()


@contextmanager
def blocked_multicast() -> Iterator[None]:
    """Drop all multicast packets of this machine. Raises OSError without nft or the right to use it."""
    rules = (
        "table ip wend_example { chain out { type filter hook output priority 0; ip daddr 239.192.0.0/14 drop; }\n}\n"
    )
    subprocess.run(["nft", rules], check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete table ip wend_example"], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Three sites; coordinators are killed and a link is cut.")
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50.0, help="events per second")
    parser.add_argument("--block-multicast", action="store_true", help="drop all multicast packets (root and nft)")
    given = parser.parse_args()
    if given.events < 10 or not 0 < given.rate < float("inf"):
        parser.error("needs at least 10 events and a rate above 0")
    try:
        with blocked_multicast() if given.block_multicast else nullcontext():
            return play_example(lambda folder: play(Scene(folder, given.events, given.rate)))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"cannot block multicast: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
