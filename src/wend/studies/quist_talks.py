"""Peers that agree by messages, without a simulator around them: overlays that grow, and trees over them.

The state machines are the protocol's own. Only what they need is there: words that take as long as their way through
the underlay, traceroutes that take a round trip, and alarms. No event is published, so nothing else is simulated,
and 250 peers come to rest within seconds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Any

import msgspec
import numpy as np

from wend.model.errors import ConfigError, WendError
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.units import SECOND, Nanos
from wend.protocol.membership.settings import MembershipSettings
from wend.protocol.membership.shape import (
    Begun,
    Link,
    OverlayEffect,
    OverlayInput,
    Rerouted,
    Ring,
    Rung,
    Say,
    Told,
    Unlink,
)
from wend.protocol.membership.table import overlay as member_of
from wend.protocol.ports import FindPath, PathFound
from wend.protocol.trees.ghs import GhsBuilder
from wend.protocol.trees.sptk import SptBuilder
from wend.topology.graph import Overlay
from wend.topology.ground import Ground, Pair
from wend.topology.underlay import Floats

PERIOD_NS: Nanos = SECOND
REST = 4
"""Periods without a change after which an overlay has come to rest."""
MOST = 200
"""Periods after which it never will."""


class Grown(msgspec.Struct, frozen=True):
    """An overlay, and what it took."""

    overlay: Overlay
    traced: tuple[Pair, ...]
    """Who measured the way to whom."""
    messages: int
    members: Mapping[PeerId, Any]


def gather(
    ground: Ground, kind: str, k: int, *, seed: int, more: int = 10, rest: int = REST, most: int = MOST
) -> Grown:
    """Peers that start within one period, each knowing k + `more` others, until their links no longer change."""
    return _Gathering(ground, kind, k, seed, more).run(rest, most)


class _Gathering:
    def __init__(self, ground: Ground, kind: str, k: int, seed: int, more: int) -> None:
        self._ground = ground
        self._what = f"{kind} with k = {k} on {ground.underlay.name}, seed {seed}"
        self._delay = (ground.direct_ns + 2 * ground.last_mile_ns).tolist()
        settings = MembershipSettings(
            membership_k=k,
            membership_degree=k,
            membership_sample=more,
            membership_period_ns=PERIOD_NS,
            trace_both_ends=False,
        )
        self._members = {peer: member_of(kind, peer, 1, settings, seed) for peer in range(ground.peers)}
        self._links: list[set[PeerId]] = [set() for _ in self._members]
        self._traced: set[Pair] = set()
        self._messages = 0
        self._changed: Nanos = 0
        self._agenda: list[tuple[Nanos, int, PeerId, OverlayInput]] = []
        self._count = 0
        for peer in self._members:
            draw = stream(seed, "quist", "begin", peer)
            others = [int(p) for p in draw.permutation(ground.peers) if p != peer]
            self._push(int(draw.random() * PERIOD_NS), peer, Begun(tuple(others[: k + more])))

    def run(self, rest: int, most: int) -> Grown:
        while self._agenda[0][0] < most * PERIOD_NS:
            now, _, peer, event = heappop(self._agenda)
            if now - self._changed > rest * PERIOD_NS and self._at_rest():
                pairs = [(a, b) for a, links in enumerate(self._links) for b in links]
                overlay = self._ground.overlay(pairs)
                return Grown(overlay, tuple(sorted(self._traced)), self._messages, self._members)
            self._carry_out(now, peer, self._members[peer].handle(now, event))
        raise WendError(f"{self._what}: the overlay does not come to rest within {most} periods")

    def _push(self, time: Nanos, peer: PeerId, event: OverlayInput) -> None:
        self._count += 1
        heappush(self._agenda, (time, self._count, peer, event))

    def _carry_out(self, now: Nanos, peer: PeerId, effects: list[OverlayEffect]) -> None:
        for effect in effects:
            match effect:
                case Say(other, word):
                    self._messages += 1
                    self._push(now + self._delay[peer][other], other, Told(peer, word))
                case FindPath(other):
                    self._traced.add((peer, other))
                    path = tuple(self._ground.path(peer, other))
                    self._push(now + 2 * self._delay[peer][other], peer, PathFound(other, path))
                case Ring(time):
                    self._push(time, peer, Rung())
                case Link(other):
                    self._links[peer].add(other)
                    self._changed = now
                case Unlink(other):
                    self._links[peer].discard(other)
                    self._changed = now
                case Rerouted():
                    pass
                case _:
                    raise WendError(f"{self._what}: peer {peer} distrusts {effect.peer}: {effect.reason}")

    def _at_rest(self) -> bool:
        """Links that both ends know of, and a way to everyone over them."""
        self._changed += PERIOD_NS  # look again in a period, not at every word
        if not all(a in self._links[b] for a, links in enumerate(self._links) for b in links):
            return False
        reached, fresh = {0}, [0]
        while fresh:
            more = self._links[fresh.pop()] - reached
            reached |= more
            fresh += sorted(more)
        return len(reached) == self._ground.peers


# ---------------------------------------------------------------- trees


class Built(msgspec.Struct, frozen=True):
    trees: list[list[int]]
    """Links of the overlay, sorted, as `topology.trees` gives them."""
    messages: int
    by_word: dict[str, int]


def build(overlay: Overlay, weight: Floats, k: int, kind: str, *, seed: int, roots: int | None = None) -> Built:
    """k trees by messages with random delays, in order on each link; `kind` is mrst or spt-k."""
    near: list[dict[PeerId, float]] = [{} for _ in range(overlay.peers)]
    index: dict[Pair, int] = {}
    for i, link in enumerate(overlay.links):
        near[link.a][link.b] = near[link.b][link.a] = float(weight[i])
        index[link.a, link.b] = i
    builders: dict[PeerId, GhsBuilder | SptBuilder]
    if kind == "mrst":
        builders = {peer: GhsBuilder(peer, k, near[peer]) for peer in range(overlay.peers)}
    elif kind == "spt-k":
        more = {} if roots is None else {"roots": roots}
        builders = {peer: SptBuilder(peer, k, near[peer], 0, seed=seed, **more) for peer in range(overlay.peers)}
    else:
        raise ConfigError(f"trees are built as mrst or spt-k, not as {kind!r}")
    said = _talk(builders, stream(seed, "quist", "delays"))
    if not all(builder.complete and builder.decided for builder in builders.values()):
        raise WendError(f"{kind}: the trees are not complete though nobody has anything left to say")
    trees = [
        sorted({index[min(p, o), max(p, o)] for p, builder in builders.items() for o in builder.branches(tree)})
        for tree in range(k)
    ]
    return Built(trees, said.total(), dict(sorted(said.items())))


def _talk(builders: Mapping[PeerId, Any], draw: np.random.Generator) -> Counter[str]:
    """Until nobody has anything to say."""
    said: Counter[str] = Counter()
    last: dict[Pair, float] = {}
    words: list[tuple[float, int, PeerId, PeerId, Any]] = []
    delays: list[float] = []

    def send(now: float, sender: PeerId, says: Iterable[tuple[PeerId, Any]]) -> None:
        for peer, word in says:
            said[type(word).__name__] += 1
            if not delays:
                delays.extend(draw.exponential(size=4096).tolist())
            arrival = max(now + delays.pop(), last.get((sender, peer), 0.0))
            last[sender, peer] = arrival
            heappush(words, (arrival, said.total(), sender, peer, word))

    for peer in draw.permutation(len(builders)).tolist():
        send(0.0, peer, builders[peer].start())
    while words:
        now, _, sender, peer, word = heappop(words)
        says = builders[peer].hear(sender, word)
        if says is None:
            raise WendError(f"peer {peer} finds no sense in {type(word).__name__} of {sender}")
        send(now, peer, says)
    return said
