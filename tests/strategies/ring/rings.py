"""Small worlds for `pastry`: virtual time, messages that are late, lost or overtaken, and the ring as it should be."""

from collections import Counter
from heapq import heappop, heappush
from math import hypot
from typing import Any

from wend.model.events import PeerId
from wend.model.keys import RING, distance, node_id
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Changed, Due, Heard, SendTo, Timer
from wend.protocol.ports import Refuse, Stopping
from wend.strategies.ring.leaf_set import HALF
from wend.strategies.ring.pastry import Pastry

DETECTION = 2 * SECOND


def leaf_set(pastry: Pastry) -> tuple[PeerId, ...]:
    """The neighbours of a peer on the ring, by distance, nearest first."""
    peers = [peer for name, peer in pastry.status().items() if name.startswith("leaf/")]
    return tuple(sorted(peers, key=lambda peer: (distance(node_id(peer), node_id(pastry.me)), node_id(peer))))


class RingWorld:
    """Peers on a plane: the delay between two grows with their distance."""

    def __init__(self, seed: int, loss: float = 0.0, widest_ms: int = 60, **settings: Any) -> None:
        self.config = PeerConfig(peer=0, seed=seed, **{"pastry_detection_ns": DETECTION, **settings})
        self.peers: dict[int, Pastry] = {}
        self.said: Counter[str] = Counter()
        self.changes: Counter[int] = Counter()
        self.wasted: Counter[int] = Counter()
        """Messages to peers that are not there."""
        self.now = 0
        self.loss = loss
        self._widest = widest_ms * MS
        self.cut: set[tuple[int, int]] = set()
        """Pairs of (sender, receiver) between which nothing gets through."""
        self._seed = seed
        self._places: dict[int, tuple[float, float]] = {}
        self._incarnations: Counter[int] = Counter()
        self._draw = peer_stream(seed, "ring world")
        self._agenda: list[tuple[int, int, int, int, Any]] = []
        self._count = 0

    # ---------------------------------------------------------------- what happens

    def begin(self, peer: int, *contacts: int) -> None:
        self._incarnations[peer] += 1
        made = Pastry(self.config.with_(peer=peer, incarnation=self._incarnations[peer]))
        self.peers[peer] = made
        self._carry_out(peer, made.handle(self.now, Begun(contacts)))

    def leave(self, peer: int) -> None:
        self._carry_out(peer, self.peers[peer].handle(self.now, Stopping()))
        del self.peers[peer]

    def crash(self, peer: int) -> None:
        del self.peers[peer]

    def tell(self, peer: int, event: Any) -> list[Any]:
        effects = self.peers[peer].handle(self.now, event)
        self._carry_out(peer, effects)
        return effects

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, peer, incarnation, event = heappop(self._agenda)
            if peer in self.peers and incarnation in (0, self._incarnations[peer]):
                self._carry_out(peer, self.peers[peer].handle(self.now, event))
        self.now = until

    def _carry_out(self, peer: int, effects: list[Any]) -> None:
        assert sum(isinstance(effect, Changed) for effect in effects) <= 1
        for effect in effects:
            match effect:
                case SendTo(other, message, acknowledged=False):
                    assert other != peer
                    self.said[type(message).__name__] += 1
                    self.wasted[other] += other not in self.peers
                    if self._draw.random() >= self.loss and (peer, other) not in self.cut:
                        self._push(self.now + self.delay(peer, other), other, 0, Heard(peer, message))
                case Timer(time, name):
                    assert time > self.now
                    self._push(time, peer, self._incarnations[peer], Due(name))
                case Changed("ownership"):
                    self.changes[peer] += 1
                case Refuse():
                    raise AssertionError(f"{peer} refuses: {effect}")
                case _:
                    raise AssertionError(f"{peer} answers {effect}")

    def _push(self, time: int, peer: int, incarnation: int, event: Any) -> None:
        self._count += 1
        heappush(self._agenda, (time, self._count, peer, incarnation, event))

    def trip(self, a: int, b: int) -> int:
        """The round trip between two peers, without jitter."""
        here, there = self._place(a), self._place(b)
        return 2 * MS + round(self._widest * hypot(here[0] - there[0], here[1] - there[1]))

    def delay(self, a: int, b: int) -> int:
        return self.trip(a, b) // 2 + round(20 * MS * self._draw.random())

    def _place(self, peer: int) -> tuple[float, float]:
        place = self._places.get(peer)
        if place is None:
            draw = peer_stream(self._seed, "place", peer)
            place = self._places[peer] = (draw.random(), draw.random())
        return place

    # ---------------------------------------------------------------- what it has come to

    def leaves_by_rights(self, peer: int) -> set[int]:
        """The leaf set of a peer, by sorting all peers."""
        ring = sorted(self.peers.keys() - {peer}, key=lambda other: (node_id(other) - node_id(peer)) % RING)
        return set(ring[:HALF] + ring[-HALF:])

    def wrong_leaf_sets(self) -> dict[int, tuple[set[int], set[int]]]:
        """By peer with a wrong leaf set: the members that it lacks, and those that should not be there."""
        found = {}
        for peer, pastry in sorted(self.peers.items()):
            has, due = set(leaf_set(pastry)), self.leaves_by_rights(peer)
            if has != due:
                found[peer] = (due - has, has - due)
        return found

    def owner(self, key: int) -> int:
        return min(self.peers, key=lambda peer: (distance(node_id(peer), key), node_id(peer)))

    def route(self, key: int, start: int) -> list[int]:
        """The peers that a key passes, the last of which takes it for its own."""
        route = [start]
        while True:
            hop = self.peers[route[-1]].next_hop(key)
            if hop == route[-1]:
                return route
            assert hop not in route, f"a loop: {[*route, hop]}"
            route.append(hop)

    def routes_well(self, keys: int) -> None:
        """Every leaf set is right, and keys reach their owners from everywhere; routes avoid dead table entries."""
        assert self.wrong_leaf_sets() == {}
        for number in range(keys):
            key = peer_stream(self._seed, "key", number).getrandbits(128)
            owner = self.owner(key)
            assert [peer for peer, pastry in self.peers.items() if pastry.owns(key)] == [owner]
            for peer in self.peers:
                assert self.route(key, peer)[-1] == owner
