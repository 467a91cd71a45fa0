"""Twelve peers, each a process of its own, on two trees; a link is cut and a peer killed, and no event is missing.

    python examples/trees.py --events 1000

The peers know each other's addresses and, from a file, the routers between them. They choose landmarks, make links that
follow the routers, and build two trees. While events flow, a link of one tree is cut. When the trees have been rebuilt,
the peer with the most links on them, other than the publisher, is killed. The example exits with code 1 if a
subscriber at a live peer lacks an event or gets one twice.
"""

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path

from peer_processes import PeerScene, collect, free_ports, play_example
from wend.topology.catalog import make
from wend.topology.placement import attach_peers

PEERS = 12
PUBLISHER = 0
SUBSCRIBERS = (1, 3, 4, 6, 8, 9, 11)
ALL, HALF = "topic = 'power'", "topic = 'power' and load >= 50"
"""The first covers the second. A peer with both announces the first alone."""
LOAD = 100
PATIENCE_S = 200.0
CONFIG = """
id = {peer}
listen = "127.0.0.1:{port}"
keys = "keys-{peer}"
clients = "127.0.0.1:0"
strategy = "{strategy}"
trees = 2
covering = "covering"
membership = "tdo-landmark"
membership_k = 3
membership_period = "250ms"
paths = "paths"
detection = "800ms"
margin = "200ms"
experiments = true
"""
NEIGHBOUR = """
[[neighbours]]
id = {peer}
address = "127.0.0.1:{port}"
delay = "1ms"
"""

Trees = dict[int, dict[int, set[int]]]
"""Tree -> peer -> its neighbours on it."""


class Scene(PeerScene):
    def __init__(self, folder: Path, strategy: str, events: int, rate: float) -> None:
        super().__init__(folder)
        self.strategy = strategy
        self.events = events
        self.pause_s = 1.0 / rate
        self.got: dict[tuple[int, str], Counter[bytes]] = {}
        self.killed = asyncio.Event()
        self.cut: tuple[int, int] | None = None
        self.victim = -1

    # ---------------------------------------------------------------- the peers

    async def start(self) -> None:
        ports = free_ports(PEERS)
        (self.folder / "paths").write_text(_paths())
        files = []
        for peer, port in enumerate(ports):
            text = CONFIG.format(peer=peer, port=port, strategy=self.strategy)
            files.append(text + "".join(NEIGHBOUR.format(peer=p, port=at) for p, at in enumerate(ports) if p != peer))
        await self.start_peers(files)
        await self.connect_clients()

    async def subscribe(self) -> None:
        for peer in SUBSCRIBERS:
            for text in (ALL, HALF):
                counts = self.got[peer, text] = Counter()
                events = await self.enter_async_context(self.clients[peer].subscribe(text))
                self.go_on(collect(events, counts))

    # ---------------------------------------------------------------- the trees

    async def trees(self) -> tuple[tuple[int, int], Trees] | None:
        """The generation that all live peers use, and its trees; None while peers differ, or a link is missing."""
        trees: Trees = {0: {}, 1: {}}
        generations = set()
        for peer, client in sorted(self.clients.items()):
            status = (await client.status()).flat()
            if "trees.generation" not in status:
                return None
            generations.add((status["trees.generation"], status["trees.caller"]))
            for tree, rows in trees.items():
                names = [name.split(".") for name in status]
                rows[peer] = {int(n[2]) for n in names if n[:2] == ["trees", str(tree)]}
        spanned = all(_spans(rows, set(self.clients)) for rows in trees.values())
        return (generations.pop(), trees) if len(generations) == 1 and spanned else None

    async def renewed(self, after: tuple[int, int], without: tuple[int, int] | None = None) -> Trees:
        """Wait until all live peers use the same later trees, without the link that is cut."""
        while True:
            generation, trees = await self.agreed()
            if generation > after:
                a, b = without or (-1, -1)
                if all(b not in rows.get(a, ()) for rows in trees.values()):
                    return trees
            await asyncio.sleep(0.2)

    async def ready(self) -> None:
        """Wait until events from the publisher reach every subscription."""
        number = 0
        while not all(counts[b"are you there"] for counts in self.got.values()):
            number += 1
            await self.clients[PUBLISHER].publish({"topic": "power", "load": LOAD}, b"are you there")
            await asyncio.sleep(0.1)

    # ---------------------------------------------------------------- events and failures

    async def publish(self) -> None:
        """Publish at a steady rate; the last third waits until the peer is killed."""
        for number in range(self.events):
            if number == 2 * self.events // 3:
                await self.killed.wait()
            await self.clients[PUBLISHER].publish({"topic": "power", "load": number % LOAD}, b"%d" % number)
            await asyncio.sleep(self.pause_s)

    async def trouble(self) -> None:
        await asyncio.sleep(self.pause_s * self.events / 6)
        generation, trees = await self.agreed()
        a, b = _link_of_one_tree(trees)
        for here, there in ((a, b), (b, a)):
            await self.clients[here].cut(there)
        self.cut = (a, b)
        print(f"cut the link {a}-{b}, which one tree uses", flush=True)
        trees = await self.renewed(generation, (a, b))
        print("the trees have been rebuilt without it", flush=True)
        degrees = {p: sum(len(rows[p]) for rows in trees.values()) for p in self.clients if p != PUBLISHER}
        self.victim = max(degrees, key=lambda peer: (degrees[peer], -peer))
        await self.processes[self.victim].kill()
        await self.clients.pop(self.victim).close()
        print(f"killed peer {self.victim}, which had {degrees[self.victim]} links on the trees", flush=True)
        self.killed.set()

    async def agreed(self) -> tuple[tuple[int, int], Trees]:
        while (agreed := await self.trees()) is None:
            await asyncio.sleep(0.2)
        return agreed

    async def arrived(self) -> None:
        """Wait until nobody lacks an event; the caller limits the time."""
        while any(self.lacking(key) for key in self.living()):
            await asyncio.sleep(0.1)
        for peer in sorted({peer for peer, _ in self.living()}):
            await self.clients[peer].drain()

    def living(self) -> list[tuple[int, str]]:
        return [key for key in self.got if key[0] != self.victim]

    def expected(self, text: str) -> set[bytes]:
        return {b"%d" % n for n in range(self.events) if text == ALL or n % LOAD >= 50}

    def lacking(self, key: tuple[int, str]) -> list[bytes]:
        return sorted(self.expected(key[1]) - self.got[key].keys(), key=int)

    def wrong(self) -> list[str]:
        """A sentence for each live subscription that did not get every event once."""
        said = []
        for peer, text in self.living():
            counts = {what: n for what, n in self.got[peer, text].items() if what != b"are you there"}
            twice = sorted(int(what) for what, n in counts.items() if n > 1)
            strange = sorted(counts.keys() - self.expected(text))
            lacking = [int(what) for what in self.lacking((peer, text))]
            if twice or lacking or strange:
                said.append(f"peer {peer}, {text}: lacks {_runs(lacking)}, has twice {_runs(twice)}, unasked {strange}")
        return said


async def play(scene: Scene) -> list[str]:
    """Run the example; a sentence for each mistake."""
    async with scene:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scene.start()
                await scene.subscribe()
                _, trees = await scene.agreed()
                links = {(a, b) for rows in trees.values() for a in rows for b in rows[a] if a < b}
                print(f"{PEERS} peers have built two trees with {len(links)} links", flush=True)
                await scene.ready()
                await asyncio.gather(scene.publish(), scene.trouble())
                await scene.arrived()
        except TimeoutError:
            return [f"not done within {PATIENCE_S:g} s", *scene.wrong()]
        if not scene.wrong():
            print(f"every live subscriber has each of {scene.events} events once")
        return scene.wrong()


# ---------------------------------------------------------------- helpers


def _paths() -> str:
    """A line per pair of peers: the routers between them, on a map of a real network."""
    placement = attach_peers(make("topohub:topozoo/Abilene", 1), PEERS, 1, share=True)
    pairs = [(a, b) for a in range(PEERS) for b in range(a + 1, PEERS)]
    return "".join(f"{a} {b}  {' '.join(f'r{r}' for r in placement.path(a, b))}\n" for a, b in pairs)


def _spans(rows: dict[int, set[int]], peers: set[int]) -> bool:
    """Whether a tree's rows agree with each other and connect all peers."""
    if any(b not in rows or a not in rows[b] for a in rows for b in rows[a]):
        return False
    reached, fresh = set(), [min(peers)]
    while fresh:
        peer = fresh.pop()
        if peer not in reached:
            reached.add(peer)
            fresh += sorted(rows[peer])
    return reached == peers


def _link_of_one_tree(trees: Trees) -> tuple[int, int]:
    """A link that the other tree does not use, at the publisher if there is one."""
    links = [{(a, b) for a in rows for b in rows[a] if a < b} for rows in trees.values()]
    alone = links[0] - links[1] or links[1] - links[0] or links[0]
    return min(alone, key=lambda link: (PUBLISHER not in link, link))


def _runs(numbers: list[int]) -> str:
    """`3-5 9`"""
    begins = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(begins, ends, strict=True)) or "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description="Twelve peers on two trees, a cut link, a killed peer.")
    parser.add_argument("--strategy", choices=("mrst", "spt-k"), default="mrst")
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=100.0, help="events per second")
    given = parser.parse_args()
    if given.events < 1 or not 0 < given.rate < float("inf"):
        parser.error(f"needs events and a rate above 0, got {given.events} and {given.rate:g}")
    return play_example(lambda folder: play(Scene(folder, given.strategy, given.events, given.rate)))


if __name__ == "__main__":
    sys.exit(main())
