"""One tree of one generation at one peer: the interest behind each neighbour, and the interest sent to each.

A tree has no cycles, so a neighbour needs to know only the filters on this side of the link to it. A peer sends them
once all its other neighbours on the tree have sent theirs. So when a peer has heard from all its neighbours on a tree,
its events reach every subscriber on it. The peer reduces the filters first: `identity` sends equal filters once,
`covering` only filters that no other covers, `merging` several as one if the one matches nothing more.

A peer also names the peers on its side, so that a neighbour knows whom a blocked copy would have reached. It groups
filters by the reliability target of their subscriptions, each target with the costs of the worst route to any of them.
From these a publisher computes how many trees an event needs.

A route on a tree has two costs, each a sum of -ln r: over links that no other tree uses, and over links shared with
other trees and the peers between, which may be on any. Routes on several trees fail independently on their own links.
The estimate charges the shared cost once per tree. So it is never above the true probability, if links fail
independently with the reliabilities that the trees were built from.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import combinations
from typing import NamedTuple

from wend.matching.covering import find_uncovered
from wend.matching.filters import Filter, parse
from wend.matching.merge import merge
from wend.model.errors import FilterError
from wend.model.events import Attributes, PeerId
from wend.protocol.plugins import MAX_CONTROL_BYTES
from wend.strategies.subscriptions.table import DEFAULT_RELIABILITY
from wend.strategies.trees.messages import FilterDemand, Generation, SubtreeInterest
from wend.strategies.trees.sptk import SCALE

MERGED = 64
"""The most filters for which a peer tries to merge pairs."""
ANYTHING = "true"
WIDE_CHARS = MAX_CONTROL_BYTES // 5
"""The limit for the filters of one side of a link, at up to four bytes a character. If they are longer, the peer asks
for all events, since longer filters fit no message."""


def reduce_filters(texts: Iterable[str], how: str) -> tuple[str, ...]:
    """Reduce filters to an equivalent set, in canonical form and order."""
    filters = [parse(text) for text in sorted(set(texts))]
    if how == "identity":
        return tuple(sorted({str(one) for one in filters}))
    minimal = [filters[i] for i in find_uncovered(filters)]
    if how == "merging" and len(minimal) <= MERGED:
        minimal = _merge_pairs(minimal)
    return tuple(sorted({str(one) for one in minimal}))


def _merge_pairs(filters: list[Filter]) -> list[Filter]:
    """Merge pairs of filters if the merged filter matches exactly the same events."""
    merged = list(filters)
    i = 0
    while i < len(merged):
        for j in range(i + 1, len(merged)):
            one = merge(merged[i], merged[j])
            if one.is_perfect and len(merged[i].conjunctions) == len(merged[j].conjunctions) == 1:
                merged[i] = one.filter
                del merged[j]
                i = -1  # the new one may merge with any
                break
        i += 1
    return merged


def _widen_if_too_long(claims: tuple[FilterDemand, ...]) -> tuple[FilterDemand, ...]:
    """Return the claims if they fit a message, else claims for all events: the receiver drops those without
    subscriber."""
    if sum(len(text) for claim in claims for text in claim.filters) <= WIDE_CHARS:
        return claims
    return tuple(FilterDemand(claim.need, claim.own, claim.shared, (ANYTHING,)) for claim in claims)


class RouteCost(NamedTuple):
    """The costs of a route in units of 1 / SCALE. They are integers, so that sums do not depend on their order."""

    own: int = 0
    shared: int = 0

    def plus_link(self, cost: int, shared: bool) -> "RouteCost":
        return RouteCost(self.own, self.shared + cost) if shared else RouteCost(self.own + cost, self.shared)

    def maximum(self, other: "RouteCost") -> "RouteCost":
        """The higher of each of the two costs."""
        return RouteCost(max(self.own, other.own), max(self.shared, other.shared))


def joint_reliability(routes: Sequence[RouteCost]) -> float:
    """A lower bound of the probability that at least one of the routes works."""
    shared = math.exp(-sum(route.shared for route in routes) / SCALE)
    return shared * (1.0 - math.prod(-math.expm1(-route.own / SCALE) for route in routes))


@lru_cache(maxsize=4096)
def fewest_trees(routes: tuple[RouteCost, ...], need: float) -> tuple[int, ...]:
    """The best smallest set of trees that reaches the target, or all trees if none does."""
    every = tuple(range(len(routes)))
    for count in range(1, len(routes)) if need < DEFAULT_RELIABILITY else ():
        best = max(combinations(every, count), key=lambda chosen: joint_reliability([routes[tree] for tree in chosen]))
        if joint_reliability([routes[tree] for tree in best]) >= need:
            return best
    return every


TreeEdge = tuple[int, bool]
"""The cost of a link on a tree, and whether other trees use it too."""


class TreeInterestTable:
    """One tree of one generation at one peer: the interest received from and sent to each neighbour on it."""

    def __init__(
        self, me: PeerId, generation: Generation, tree: int, edges: Mapping[PeerId, TreeEdge], through: int = 0
    ) -> None:
        self.me = me
        self.generation = generation
        self.tree = tree
        self.neighbours = tuple(edges)
        self._edges = edges
        self._through = through
        """The cost of transit through this peer."""
        self._claims: dict[PeerId, list[tuple[float, RouteCost, tuple[str, ...], tuple[Filter, ...]]]] = {}
        self._routes: dict[PeerId, dict[PeerId, RouteCost]] = {}
        self._toward: dict[PeerId, PeerId] = {}
        self._heard: dict[PeerId, int] = {}
        self._told: dict[PeerId, SubtreeInterest] = {}
        self.asks_for_all: dict[PeerId, bool] = {}
        """By neighbour: whether this peer asked it for all events instead of the exact filters."""

    @property
    def is_ready(self) -> bool:
        """Whether every neighbour has sent its interest."""
        return len(self._heard) == len(self.neighbours)

    @cached_property
    def members(self) -> frozenset[PeerId]:
        """All peers on the tree. Valid once the table is ready."""
        return frozenset({self.me}.union(*self._routes.values()))

    def peers_behind(self, peer: PeerId) -> frozenset[PeerId]:
        """A neighbour and all peers behind it."""
        return frozenset((peer, *self._routes.get(peer, ())))

    # ---------------------------------------------------------------- interest received and sent

    def on_interest(self, sender: PeerId, interest: SubtreeInterest) -> bool | None:
        """Store a neighbour's interest. Return whether it is news, or None if it is invalid."""
        if sender not in self._edges:
            return None
        if self._heard.get(sender, 0) >= interest.version:
            return False
        edge = self._edges[sender]
        routes = {peer: RouteCost(own, shared).plus_link(*edge) for peer, own, shared in interest.peers}
        if sender not in routes or self.me in routes or min(min(route) for route in routes.values()) < 0:
            return None
        claims = []
        try:
            for claim in interest.claims:
                route = RouteCost(claim.own, claim.shared).plus_link(*edge)
                if not (0.0 < claim.need <= 1.0 and min(route) >= 0):
                    return None
                claims.append((claim.need, route, claim.filters, tuple(parse(text) for text in claim.filters)))
        except FilterError:
            return None
        self._heard[sender], self._claims[sender] = interest.version, claims
        if sender not in self._routes:
            self._routes[sender] = routes
            for peer in routes:
                self._toward.setdefault(peer, sender)
        return True

    def updates(self, mine: Mapping[str, float], how: str) -> list[tuple[PeerId, SubtreeInterest]]:
        """The messages that neighbours need; `mine` are the local filters with their targets."""
        told = []
        for peer in self.neighbours:
            others = [n for n in self.neighbours if n != peer]
            if any(n not in self._heard for n in others):
                continue
            exact, before = self._claims_behind(mine, others, how), self._told.get(peer)
            claims = _widen_if_too_long(exact)
            self.asks_for_all[peer] = claims is not exact
            if before is None or claims != before.claims:
                here = {self.me: RouteCost(), **{p: w for n in others for p, w in self._routes[n].items()}}
                peers = tuple(
                    (p, *(w if p == self.me else w.plus_link(self._through, True))) for p, w in sorted(here.items())
                )
                version = 1 if before is None else before.version + 1
                self._told[peer] = interest = SubtreeInterest(self.generation, self.tree, version, claims, peers)
                told.append((peer, interest))
        return told

    def _claims_behind(self, mine: Mapping[str, float], others: list[PeerId], how: str) -> tuple[FilterDemand, ...]:
        """The filters on one side of a link, by target."""
        texts: dict[float, list[str]] = {}
        worst: dict[float, RouteCost] = {}
        for text, need in mine.items():
            texts.setdefault(need, []).append(text)
            worst.setdefault(need, RouteCost())
        for need, route, filters, _ in (claim for n in others for claim in self._claims[n]):
            texts.setdefault(need, []).extend(filters)
            worst[need] = route.plus_link(self._through, True).maximum(worst.get(need, RouteCost()))
        return tuple(FilterDemand(need, *worst[need], reduce_filters(texts[need], how)) for need in sorted(texts))

    def last_update(self, peer: PeerId) -> list[SubtreeInterest]:
        """The last message to a neighbour, if any."""
        return [self._told[peer]] if peer in self._told else []

    # ---------------------------------------------------------------- next hops of an event

    def hops(
        self, attributes: Attributes, sender: PeerId, dests: tuple[PeerId, ...] = ()
    ) -> list[tuple[PeerId, tuple[PeerId, ...]]]:
        """The neighbours with a matching subscription at or behind them, without the sender.

        If the event names destinations, each neighbour comes with those behind it, and the others are left out.
        """
        hops = []
        for peer in self.neighbours:
            if peer == sender or peer not in self._heard:
                continue
            share = tuple([d for d in dests if d in self._routes[peer]])
            if (share or not dests) and any(one.matches(attributes) for *_, fs in self._claims[peer] for one in fs):
                hops.append((peer, share))
        return hops

    def next_hop_to(self, dest: PeerId) -> PeerId | None:
        """The next hop to a peer on this tree."""
        return self._toward.get(dest)

    def worst_cost_to(self, dests: tuple[PeerId, ...]) -> RouteCost:
        """Route costs that are not better than those to any of these peers."""
        worst = RouteCost()
        for dest in dests:
            if dest in self._toward:
                worst = worst.maximum(self._routes[self._toward[dest]][dest])
        return worst

    def worst_match(self, attributes: Attributes) -> tuple[float, RouteCost] | None:
        """The highest target of the matching subscriptions, and route costs that are not better than those to any."""
        need, worst = 0.0, RouteCost()
        for claims in self._claims.values():
            for target, route, _, filters in claims:
                if any(one.matches(attributes) for one in filters):
                    need, worst = max(need, target), worst.maximum(route)
        return (need, worst) if need else None
