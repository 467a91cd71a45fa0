"""Who wants this, on trees: filters are passed along each tree, and an event follows them back (quist, section 6.2).

A tree has no cycles, so all that a neighbour needs to know is what is wanted on this side of the link to it. It is
told so first when everybody else on this side has told; so whoever has heard from all its neighbours on a tree knows
that events that it sends find everyone, and may use the tree. What is told is short: by `identity` equal filters once,
by `covering` only those that no other covers, by `merging` several as one where that matches nothing more.

Who is on this side is told along, by name: so it is known whom a copy that cannot go on would have reached, and whom
newer trees reach that older ones did not.

Those who die are forgotten with the generation of trees that they were part of.
"""

from collections.abc import Iterable
from functools import cached_property

from wend.matching.filters import Filter, parse
from wend.matching.merge import merge
from wend.matching.reduction import uncovered
from wend.model.errors import FilterError
from wend.model.events import Attributes, PeerId
from wend.model.units import Nanos
from wend.protocol.interest.flooded import FloodedInterest
from wend.protocol.messages import Interest
from wend.protocol.plugins import CHANGED, Changed, PluginEffect, PluginInput, View
from wend.protocol.trees.words import Generation, Wants

MERGED = 64
"""More filters than this are not tried in pairs."""


class TreeInterest(FloodedInterest):
    """Knows what is wanted here and tells nobody: the trees do."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if isinstance(event, Changed):
            self._revision += 1
            mine = tuple(self._local[number] for number in sorted(self._local))
            self._take(Interest(view.me, (view.config.incarnation, self._revision), mine, self._offers))
            return [CHANGED]
        return []


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


class Table:
    """One tree of one generation at one peer: what each neighbour on it wants, and was told."""

    def __init__(self, me: PeerId, generation: Generation, tree: int, neighbours: tuple[PeerId, ...]) -> None:
        self.me = me
        self.generation = generation
        self.tree = tree
        self.neighbours = neighbours
        self._wants: dict[PeerId, tuple[tuple[Filter, ...], Wants]] = {}
        self._behind: dict[PeerId, frozenset[PeerId]] = {}
        self._told: dict[PeerId, Wants] = {}

    @property
    def ready(self) -> bool:
        """Whether every neighbour has told."""
        return len(self._wants) == len(self.neighbours)

    @cached_property
    def members(self) -> frozenset[PeerId]:
        """All peers on the tree; to be asked once it is ready."""
        return frozenset({self.me}.union(*self._behind.values()))

    def behind(self, peer: PeerId) -> frozenset[PeerId]:
        """A neighbour, and all whose only way is over it."""
        return self._behind.get(peer, frozenset((peer,)))

    def hear(self, sender: PeerId, wants: Wants) -> bool | None:
        """Whether it is news; None for what cannot be."""
        if sender not in self.neighbours or (wants.peers and (sender not in wants.peers or self.me in wants.peers)):
            return None
        if sender in self._wants and self._wants[sender][1].version >= wants.version:
            return False
        try:
            filters = tuple(parse(text) for text in wants.filters)
        except FilterError:
            return None
        self._wants[sender] = (filters, wants)
        self._behind.setdefault(sender, frozenset((sender, *wants.peers)))
        return True

    def tell(self, mine: tuple[str, ...], how: str) -> list[tuple[PeerId, Wants]]:
        """What neighbours do not know yet."""
        told = []
        for peer in self.neighbours:
            others = [n for n in self.neighbours if n != peer]
            if any(n not in self._wants for n in others):
                continue
            texts = reduced([*mine, *(text for n in others for text in self._wants[n][1].filters)], how)
            before = self._told.get(peer)
            if before is None or texts != before.filters:
                here = sorted({self.me}.union(*(self._behind[n] for n in others)))
                version = 1 if before is None else before.version + 1
                self._told[peer] = wants = Wants(self.generation, self.tree, version, texts, tuple(here))
                told.append((peer, wants))
        return told

    def again(self, peer: PeerId) -> list[Wants]:
        """What a neighbour was told last."""
        return [self._told[peer]] if peer in self._told else []

    def hops(
        self, attributes: Attributes, sender: PeerId, dests: tuple[PeerId, ...] = ()
    ) -> list[tuple[PeerId, tuple[PeerId, ...]]]:
        """The neighbours at or behind which somebody wants it, but for the one that it comes from.

        Where it is meant for some only, those who are not there are left out; each neighbour comes with its share.
        """
        found = []
        for peer in self.neighbours:
            if peer == sender or peer not in self._wants:
                continue
            share = tuple([d for d in dests if d in self._behind[peer]])
            if (share or not dests) and any(one.matches(attributes) for one in self._wants[peer][0]):
                found.append((peer, share))
        return found
