"""One tree of one generation, at one peer: what lies behind each neighbour on it, and what the neighbours were told.

A tree has no cycles, so all that a neighbour needs to know is what is wanted on this side of the link to it. A peer
tells it once everybody else on this side has told. So a peer that has heard from all its neighbours on a tree knows
that events find everyone on it. What a peer tells is short: `identity` names equal filters once, `covering` only
filters that no other covers, `merging` several as one where that matches nothing more.

A peer also tells who is on its side, by name: so it is known whom a copy that cannot go on would have reached. Filters
are told by the reliability target of their subscriptions, each target with the costs of the worst route to any of
them; from these a publisher knows how many trees an event needs.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

from wend.matching.filters import Filter, parse
from wend.matching.merge import merge
from wend.matching.reduction import uncovered
from wend.model.errors import FilterError
from wend.model.events import Attributes, PeerId
from wend.protocol.messages import MAX_CONTROL_BYTES
from wend.protocol.trees.messages import FilterDemand, Generation, SubtreeInterest
from wend.protocol.trees.reliability import RouteCost

MERGED = 64
"""More filters than this are not tried in pairs."""
ANYTHING = "true"
WIDE_CHARS = MAX_CONTROL_BYTES // 5
"""Filters of one side of a link, of up to four bytes a character; where there are more, it is said to want everything,
since no more can be told."""


def reduced(texts: Iterable[str], how: str) -> tuple[str, ...]:
    """As few filters as tell the same, in their canonical form and order."""
    filters = [parse(text) for text in sorted(set(texts))]
    if how == "identity":
        return tuple(sorted({str(one) for one in filters}))
    kept = [filters[i] for i in uncovered(filters)]
    if how == "merging" and len(kept) <= MERGED:
        kept = _merged(kept)
    return tuple(sorted({str(one) for one in kept}))


def _merged(filters: list[Filter]) -> list[Filter]:
    """Pairs as one, wherever the one matches what the two match and nothing else."""
    found = list(filters)
    i = 0
    while i < len(found):
        for j in range(i + 1, len(found)):
            one = merge(found[i], found[j])
            if one.perfect and len(found[i].conjunctions) == len(found[j].conjunctions) == 1:
                found[i] = one.filter
                del found[j]
                i = -1  # the new one may go with any
                break
        i += 1
    return found


def _bounded(claims: tuple[FilterDemand, ...]) -> tuple[FilterDemand, ...]:
    """The same as long as it can be told, else everything: what nobody wants is left aside where it arrives."""
    if sum(len(text) for claim in claims for text in claim.filters) <= WIDE_CHARS:
        return claims
    return tuple(FilterDemand(claim.need, claim.own, claim.shared, (ANYTHING,)) for claim in claims)


TreeEdge = tuple[int, bool]
"""The cost of a link on a tree, and whether other trees use it too."""


class TreeInterestTable:
    """One tree of one generation at one peer: what each neighbour on it wants, and was told."""

    def __init__(
        self, me: PeerId, generation: Generation, tree: int, edges: Mapping[PeerId, TreeEdge], through: int = 0
    ) -> None:
        self.me = me
        self.generation = generation
        self.tree = tree
        self.neighbours = tuple(edges)
        self._edges = edges
        self._through = through
        """What it costs to pass this peer."""
        self._claims: dict[PeerId, list[tuple[float, RouteCost, tuple[str, ...], tuple[Filter, ...]]]] = {}
        self._ways: dict[PeerId, dict[PeerId, RouteCost]] = {}
        self._toward: dict[PeerId, PeerId] = {}
        self._heard: dict[PeerId, int] = {}
        self._told: dict[PeerId, SubtreeInterest] = {}
        self.wide: dict[PeerId, bool] = {}
        """Whether a neighbour was told more than is wanted."""

    @property
    def ready(self) -> bool:
        """Whether every neighbour has told."""
        return len(self._heard) == len(self.neighbours)

    @cached_property
    def members(self) -> frozenset[PeerId]:
        """All peers on the tree; to be asked once it is ready."""
        return frozenset({self.me}.union(*self._ways.values()))

    def behind(self, peer: PeerId) -> frozenset[PeerId]:
        """A neighbour, and all whose only way is over it."""
        return frozenset((peer, *self._ways.get(peer, ())))

    # ---------------------------------------------------------------- what is heard and told

    def hear(self, sender: PeerId, wants: SubtreeInterest) -> bool | None:
        """Whether it is news; None for what cannot be."""
        if sender not in self._edges:
            return None
        if self._heard.get(sender, 0) >= wants.version:
            return False
        edge = self._edges[sender]
        ways = {peer: RouteCost(own, shared).over(*edge) for peer, own, shared in wants.peers}
        if sender not in ways or self.me in ways or min(min(way) for way in ways.values()) < 0:
            return None
        claims = []
        try:
            for claim in wants.claims:
                way = RouteCost(claim.own, claim.shared).over(*edge)
                if not (0.0 < claim.need <= 1.0 and min(way) >= 0):
                    return None
                claims.append((claim.need, way, claim.filters, tuple(parse(text) for text in claim.filters)))
        except FilterError:
            return None
        self._heard[sender], self._claims[sender] = wants.version, claims
        if sender not in self._ways:
            self._ways[sender] = ways
            for peer in ways:
                self._toward.setdefault(peer, sender)
        return True

    def tell(self, mine: Mapping[str, float], how: str) -> list[tuple[PeerId, SubtreeInterest]]:
        """What neighbours do not know yet; `mine` are the filters here, with their targets."""
        told = []
        for peer in self.neighbours:
            others = [n for n in self.neighbours if n != peer]
            if any(n not in self._heard for n in others):
                continue
            exact, before = self._side(mine, others, how), self._told.get(peer)
            claims = _bounded(exact)
            self.wide[peer] = claims is not exact
            if before is None or claims != before.claims:
                here = {self.me: RouteCost(), **{p: w for n in others for p, w in self._ways[n].items()}}
                peers = tuple(
                    (p, *(w if p == self.me else w.over(self._through, True))) for p, w in sorted(here.items())
                )
                version = 1 if before is None else before.version + 1
                self._told[peer] = wants = SubtreeInterest(self.generation, self.tree, version, claims, peers)
                told.append((peer, wants))
        return told

    def _side(self, mine: Mapping[str, float], others: list[PeerId], how: str) -> tuple[FilterDemand, ...]:
        """All that is wanted on one side of a link, by target."""
        texts: dict[float, list[str]] = {}
        worst: dict[float, RouteCost] = {}
        for text, need in mine.items():
            texts.setdefault(need, []).append(text)
            worst.setdefault(need, RouteCost())
        for need, way, filters, _ in (claim for n in others for claim in self._claims[n]):
            texts.setdefault(need, []).extend(filters)
            worst[need] = way.over(self._through, True).worse(worst.get(need, RouteCost()))
        return tuple(FilterDemand(need, *worst[need], reduced(texts[need], how)) for need in sorted(texts))

    def again(self, peer: PeerId) -> list[SubtreeInterest]:
        """What a neighbour was told last."""
        return [self._told[peer]] if peer in self._told else []

    # ---------------------------------------------------------------- where an event goes

    def hops(
        self, attributes: Attributes, sender: PeerId, dests: tuple[PeerId, ...] = ()
    ) -> list[tuple[PeerId, tuple[PeerId, ...]]]:
        """The neighbours at or behind which somebody wants it, but for the one that it comes from.

        Where it is meant for some only, those who are not there are left out; each neighbour comes with its share.
        """
        found = []
        for peer in self.neighbours:
            if peer == sender or peer not in self._heard:
                continue
            share = tuple([d for d in dests if d in self._ways[peer]])
            if (share or not dests) and any(one.matches(attributes) for *_, fs in self._claims[peer] for one in fs):
                found.append((peer, share))
        return found

    def toward(self, dest: PeerId) -> PeerId | None:
        """The neighbour over which somebody is reached by name."""
        return self._toward.get(dest)

    def worst_to(self, dests: tuple[PeerId, ...]) -> RouteCost:
        """A way that is not better than that to any of them."""
        worst = RouteCost()
        for dest in dests:
            if dest in self._toward:
                worst = worst.worse(self._ways[self._toward[dest]][dest])
        return worst

    def worst(self, attributes: Attributes) -> tuple[float, RouteCost] | None:
        """The highest target of those who want it, and a way that is not better than that to any of them."""
        need, worst = 0.0, RouteCost()
        for claims in self._claims.values():
            for target, way, _, filters in claims:
                if any(one.matches(attributes) for one in filters):
                    need, worst = max(need, target), worst.worse(way)
        return (need, worst) if need else None
