"""Construction of overlays and trees by messages, without the simulator.

The state machines are the protocol's own. This module gives them only what they need: messages that take the delay of
their underlay path, traceroutes that take a round trip, and timers. No events are published, so nothing else is
simulated, and the overlay of 250 peers converges within seconds.
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
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import (
    Begun,
    Due,
    EndLink,
    Heard,
    MakeLink,
    PluginEffect,
    PluginInput,
    Reroute,
    SendTo,
    Timer,
)
from wend.protocol.ports import FindPath, PathFound
from wend.strategies.registry import plugin
from wend.strategies.trees.ghs import GhsBuilder
from wend.strategies.trees.sptk import SptBuilder
from wend.topology.component_reliability import path_reliabilities
from wend.topology.graph import Overlay
from wend.topology.placement import Pair, Placement
from wend.topology.underlay import Floats

PERIOD_NS: Nanos = SECOND
REST = 4
"""An overlay has converged after this many periods without a change."""
MOST = 200
"""The construction fails after this many periods."""


class FormedOverlay(msgspec.Struct, frozen=True):
    """An overlay, and the cost of its construction."""

    overlay: Overlay
    traced: tuple[Pair, ...]
    """The traceroutes: (source, target)."""
    messages: int
    members: Mapping[PeerId, Any]


def form_overlay(
    placement: Placement, kind: str, k: int, *, seed: int, more: int = 10, rest: int = REST, most: int = MOST
) -> FormedOverlay:
    """Start peers within one period, each knowing k + `more` others; run until their links no longer change."""
    return _Formation(placement, kind, k, seed, more).run(rest, most)


class _Formation:
    def __init__(self, placement: Placement, kind: str, k: int, seed: int, more: int) -> None:
        self._placement = placement
        self._what = f"{kind} with k = {k} on {placement.underlay.name}, seed {seed}"
        self._delay = (placement.direct_ns + 2 * placement.last_mile_ns).tolist()
        settings: dict[str, Any] = {
            "membership_k": k,
            "membership_degree": k,
            "membership_sample": more,
            "membership_period_ns": PERIOD_NS,
            "trace_both_ends": False,
        }
        membership = plugin("membership", kind)
        self._members: dict[PeerId, Any] = {
            peer: membership(PeerConfig(peer=peer, seed=seed, **settings)) for peer in range(placement.peers)
        }
        self._links: list[set[PeerId]] = [set() for _ in self._members]
        self._traced: set[Pair] = set()
        self._messages = 0
        self._changed: Nanos = 0
        self._agenda: list[tuple[Nanos, int, PeerId, PluginInput]] = []
        self._count = 0
        for peer in self._members:
            draw = stream(seed, "quist", "begin", peer)
            others = [int(p) for p in draw.permutation(placement.peers) if p != peer]
            self._push(int(draw.random() * PERIOD_NS), peer, Begun(tuple(others[: k + more])))

    def run(self, rest: int, most: int) -> FormedOverlay:
        while self._agenda[0][0] < most * PERIOD_NS:
            now, _, peer, event = heappop(self._agenda)
            if now - self._changed > rest * PERIOD_NS and self._has_converged():
                pairs = [(a, b) for a, links in enumerate(self._links) for b in links]
                overlay = self._placement.overlay(pairs)
                return FormedOverlay(overlay, tuple(sorted(self._traced)), self._messages, self._members)
            self._carry_out(now, peer, self._members[peer].handle(now, event))
        raise WendError(f"{self._what}: the overlay does not converge within {most} periods")

    def _push(self, time: Nanos, peer: PeerId, event: PluginInput) -> None:
        self._count += 1
        heappush(self._agenda, (time, self._count, peer, event))

    def _carry_out(self, now: Nanos, peer: PeerId, effects: list[PluginEffect]) -> None:
        for effect in effects:
            match effect:
                case SendTo(other, message):
                    self._messages += 1
                    self._push(now + self._delay[peer][other], other, Heard(peer, message))
                case FindPath(other):
                    self._traced.add((peer, other))
                    path = tuple(self._placement.path(peer, other))
                    self._push(now + 2 * self._delay[peer][other], peer, PathFound(other, path))
                case Timer(time):
                    self._push(time, peer, Due())
                case MakeLink(other):
                    self._links[peer].add(other)
                    self._changed = now
                case EndLink(other):
                    self._links[peer].discard(other)
                    self._changed = now
                case Reroute():
                    pass
                case _:
                    raise WendError(f"{self._what}: peer {peer} answers {effect}")

    def _has_converged(self) -> bool:
        """Whether both ends know every link, and the links connect all peers."""
        self._changed += PERIOD_NS  # check again after a period, not at every message
        if not all(a in self._links[b] for a, links in enumerate(self._links) for b in links):
            return False
        reached, fresh = {0}, [0]
        while fresh:
            more = self._links[fresh.pop()] - reached
            reached |= more
            fresh += sorted(more)
        return len(reached) == self._placement.peers


# ---------------------------------------------------------------- trees


def compute_link_weights(placement: Placement, overlay: Overlay, reliability: Floats) -> Floats:
    """The probability that an overlay link or one of its two peers fails (thesis, section 6.1)."""
    starts, components = placement.link_components(overlay)
    peers = reliability[placement.first_peer : placement.first_last_mile]
    ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.int64).reshape(-1, 2)
    return np.asarray(1 - path_reliabilities(starts, components, reliability) * peers[ends].prod(axis=1))


class BuiltTrees(msgspec.Struct, frozen=True):
    """Trees, and the messages that built them."""

    trees: list[list[int]]
    """Links of the overlay, sorted."""
    messages: int
    by_type: dict[str, int]


def build_trees(
    overlay: Overlay, weight: Floats, k: int, kind: str, *, seed: int, roots: int | None = None
) -> BuiltTrees:
    """Build k trees by messages with random delays, in order on each link; `kind` is mrst or spt-k."""
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
        raise ConfigError(f"the kind of trees must be mrst or spt-k, got {kind!r}")
    sent = _exchange_messages(builders, stream(seed, "quist", "delays"))
    if not all(builder.is_complete and builder.is_decided for builder in builders.values()):
        raise WendError(f"{kind}: the trees are incomplete, but no message is left")
    trees = [
        sorted({index[min(p, o), max(p, o)] for p, builder in builders.items() for o in builder.branches(tree)})
        for tree in range(k)
    ]
    return BuiltTrees(trees, sent.total(), dict(sorted(sent.items())))


def _exchange_messages(builders: Mapping[PeerId, Any], draw: np.random.Generator) -> Counter[str]:
    """Deliver messages until none is left; count them by type."""
    sent: Counter[str] = Counter()
    last: dict[Pair, float] = {}
    queue: list[tuple[float, int, PeerId, PeerId, Any]] = []
    delays: list[float] = []

    def send(now: float, sender: PeerId, messages: Iterable[tuple[PeerId, Any]]) -> None:
        for peer, message in messages:
            sent[type(message).__name__] += 1
            if not delays:
                delays.extend(draw.exponential(size=4096).tolist())
            arrival = max(now + delays.pop(), last.get((sender, peer), 0.0))
            last[sender, peer] = arrival
            heappush(queue, (arrival, sent.total(), sender, peer, message))

    for peer in draw.permutation(len(builders)).tolist():
        send(0.0, peer, builders[peer].start())
    while queue:
        now, _, sender, peer, message = heappop(queue)
        messages = builders[peer].on_message(sender, message)
        if messages is None:
            raise WendError(f"peer {peer} refuses {type(message).__name__} of {sender}")
        send(now, peer, messages)
    return sent
