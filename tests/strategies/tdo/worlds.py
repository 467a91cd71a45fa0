"""Small worlds for memberships: routers, peers that come, go and crash, messages that are late, lost or overtaken."""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import numpy as np

from wend.model.paths import Path
from wend.model.randomness import stream
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Due, EndLink, Heard, MakeLink, Reroute, SendTo, Timer
from wend.protocol.ports import FindPath, PathFound, Refuse, Stopping
from wend.strategies.registry import MEMBERSHIP, joins_by_contacts, plugin

PERIOD = 1000 * MS
LINKING = tuple(kind for kind in MEMBERSHIP if not joins_by_contacts(kind))
"""The memberships that make links; `pastry` and `clusters` need none."""


class Underlay:
    """A random connected graph of routers; delays are unique, so shortest paths are too, and symmetric."""

    def __init__(self, seed: int, routers: int, peers: int) -> None:
        draw = stream(seed, "underlay")
        links = {(i, int(draw.integers(i))) for i in range(1, routers)}
        for _ in range(routers // 2):
            a, b = sorted(int(r) for r in draw.integers(routers, size=2))
            if a != b:
                links.add((b, a))
        self._links = sorted(links)
        self._routers = routers
        self.draw_delays(draw)
        self.homes = [int(r) for r in draw.integers(routers, size=peers)]

    def draw_delays(self, draw: np.random.Generator) -> None:
        """Give every link another delay, and so other paths to many routers."""
        routers, far = self._routers, 1 << 40
        lengths = [[far] * routers for _ in range(routers)]
        self._next = [[-1] * routers for _ in range(routers)]
        for r in range(routers):
            lengths[r][r], self._next[r][r] = 0, r
        for number, (a, b) in enumerate(self._links):
            lengths[a][b] = lengths[b][a] = int(draw.integers(1, 1000)) * 4096 + (1 << number % 40)
            self._next[a][b], self._next[b][a] = b, a
        for m in range(routers):
            for a in range(routers):
                for b in range(routers):
                    if lengths[a][m] + lengths[m][b] < lengths[a][b]:
                        lengths[a][b] = lengths[a][m] + lengths[m][b]
                        self._next[a][b] = self._next[a][m]

    def path(self, a: int, b: int) -> tuple[int, ...]:
        """Read from the lower router to the higher, and turned round where needed: the same both ways."""
        start, end = self.homes[a], self.homes[b]
        low, high = min(start, end), max(start, end)
        path = [low]
        while path[-1] != high:
            path.append(self._next[path[-1]][high])
        return tuple(path if start == low else path[::-1])


class World:
    """Virtual time over peers of one membership. Messages have random delays and may overtake each other."""

    def __init__(
        self,
        kind: str,
        underlay: Underlay,
        seed: int,
        contacts: tuple[int, ...],
        loss: float = 0.0,
        blur: Callable[[np.random.Generator, Path], Path | None] | None = None,
        k: int = 15,
        degree: int = 15,
    ) -> None:
        self.kind = kind
        self.underlay = underlay
        self.config = PeerConfig(
            peer=0, seed=seed, membership_k=k, membership_degree=degree, membership_period_ns=PERIOD
        )
        self.members: dict[int, Any] = {}
        self.links: dict[int, dict[int, Path]] = {}
        self.said: Counter[str] = Counter()
        self.traces = 0
        self.now = 0
        self.contacts = contacts
        self._loss = loss
        self._blur = blur
        self._incarnations: Counter[int] = Counter()
        self._draw = stream(seed, "world")
        self._agenda: list[tuple[int, int, int, int, Any]] = []
        self._count = 0

    def at(self, period: float, what: str, peer: int) -> None:
        self._push(round(period * PERIOD), peer, 0, what)

    def run(self, until: float) -> None:
        while self._agenda and self._agenda[0][0] <= until * PERIOD:
            self.now, _, peer, incarnation, event = heappop(self._agenda)
            if isinstance(event, str):
                self.change(peer, event)
            elif peer in self.members and incarnation in (0, self._incarnations[peer]):
                self._carry_out(peer, self.members[peer].handle(self.now, event))

    def tell(self, peer: int, event: Any) -> None:
        self._carry_out(peer, self.members[peer].handle(self.now, event))

    def _push(self, time: int, peer: int, incarnation: int, event: Any) -> None:
        self._count += 1
        heappush(self._agenda, (time, self._count, peer, incarnation, event))

    def hears(self, sender: int, receiver: int) -> bool:
        """Whether messages get through, but for those that are lost."""
        return True

    def change(self, peer: int, what: str) -> None:
        """Let a peer join, leave or crash."""
        if what == "join" and peer not in self.members:
            self._incarnations[peer] += 1
            config = self.config.with_(peer=peer, incarnation=self._incarnations[peer])
            self.members[peer] = plugin("membership", self.kind)(config)
            self.links[peer] = {}
            self.tell(peer, Begun(self.contacts))
        elif what == "leave" and peer in self.members:
            self.tell(peer, Stopping())
            assert self.links[peer] == {}
            del self.members[peer]
        elif what == "crash" and peer in self.members:
            del self.members[peer]

    def _carry_out(self, peer: int, effects: list[Any]) -> None:
        links = self.links[peer]
        for effect in effects:
            match effect:
                case SendTo(other, message, acknowledged=False):
                    assert other != peer
                    if not self.hears(peer, other):
                        continue
                    self.said[type(message).__name__] += 1
                    if self._draw.random() >= self._loss:
                        self._push(self.now + int(self._draw.integers(1, PERIOD // 4)), other, 0, Heard(peer, message))
                case FindPath(other):
                    self.traces += 1
                    path: Path | None = self.underlay.path(peer, other)
                    if self._blur is not None and path is not None:
                        path = self._blur(self._draw, path)
                    when = self.now + int(self._draw.integers(1, PERIOD))
                    self._push(when, peer, self._incarnations[peer], PathFound(other, path))
                case Timer(time, name):
                    self._push(time, peer, self._incarnations[peer], Due(name))
                case MakeLink(other, path):
                    assert other not in links and other != peer, f"{peer} links {other} twice"
                    links[other] = path
                case Reroute(other, path):
                    assert links[other] != path
                    links[other] = path
                case EndLink(other):
                    del links[other]
                case Refuse():
                    raise AssertionError(f"{peer} refuses: {effect}")
                case _:
                    raise AssertionError(f"{peer} answers {effect}")

    # ---------------------------------------------------------------- what it has come to

    def asymmetric(self) -> list[tuple[int, int]]:
        return [
            (peer, other)
            for peer in sorted(self.members)
            for other in sorted(self.links[peer])
            if other not in self.members or peer not in self.links[other]
        ]

    def components(self) -> list[list[int]]:
        left, found = set(self.members), []
        while left:
            reached, fresh = set(), [min(left)]
            while fresh:
                peer = fresh.pop()
                if peer not in reached:
                    reached.add(peer)
                    fresh += [other for other in self.links[peer] if other in self.members]
            left -= reached
            found.append(sorted(reached))
        return found


def turbulent(kind: str, seed: int, end: float, restarts: bool = True, **options: Any) -> World:
    """Peers join in any order; meanwhile some leave, crash and return. One contact is there to stay."""
    draw = stream(seed, "turbulence")
    peers = int(draw.integers(4, 11))
    underlay = Underlay(seed, int(draw.integers(3, 16)), peers)
    order = [int(p) for p in draw.permutation(peers)]
    stays, *others = order
    contacts = tuple(order[:3])
    world = World(kind, underlay, seed, contacts, **options)
    joins = {peer: float(draw.random()) * 12 for peer in order}
    for peer in sorted(joins):
        world.at(joins[peer], "join", peer)
    for peer in others[: peers // 2]:
        when = joins[peer] + 1 + float(draw.random()) * 16
        world.at(when, "leave" if draw.random() < 0.5 else "crash", peer)
        if restarts and draw.random() < 0.4:
            world.at(when + 1 + float(draw.random()) * 4, "join", peer)
    world.run(end)
    assert stays in world.members
    return world
