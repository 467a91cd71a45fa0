"""`spt-k`: k shortest-path trees on -ln r; links that earlier trees use cost more. Wend's own algorithm.

A spanning tree of the most reliable links has long routes between peers. A shortest-path tree on -ln r has short ones,
if its root is well placed. So peers draw lots for a few roots, and try all of them at once for each tree. Distances
spread as vectors (Bellman and Ford). A coordinator detects when they have settled (Dijkstra and Scholten). Each root
learns the cost of its tree between all pairs of peers, and the cheapest tree wins. Links that a tree uses cost more in
the next one, so the trees differ.

No peer knows the graph. The result does not depend on the delays of messages. Links must deliver messages in order and
without loss; the caller ensures that.
"""

import math
from collections.abc import Mapping
from typing import TypeGuard

from wend.model.events import PeerId
from wend.model.random_stream import peer_stream
from wend.strategies.trees.messages import (
    Begin,
    Best,
    Distances,
    Echo,
    Explore,
    Measure,
    Parents,
    Settled,
    Sizes,
    SptMessage,
    TreesComplete,
)

SCALE = 1 << 24
"""Costs are integers in this scale, so that both ends of a link and all sums agree."""
NOWHERE = 1 << 62
ROOTS = 5
PENALTY = 1.0
"""The cost that each use adds to a link, relative to its base cost."""
EARLY = 4
"""The most messages by which a neighbour may be ahead."""

SptOutbound = list[tuple[PeerId, SptMessage]]


def cost(unreliability: float) -> int:
    """The cost of a link that fails with this probability."""
    return max(1, round(-math.log1p(-min(unreliability, 1.0 - 1e-9)) * SCALE))


def lot(seed: int, peer: PeerId) -> float:
    """The lot of a peer. The peers with the lowest lots are candidates for roots."""
    return peer_stream(seed, "trees", "lot", peer).random()


class SptBuilder:
    """Builds k trees with the neighbours, at one peer that knows the failure probabilities of its links."""

    def __init__(
        self,
        me: PeerId,
        k: int,
        weights: Mapping[PeerId, float],
        coordinator: PeerId,
        *,
        roots: int = ROOTS,
        penalty: float = PENALTY,
        seed: int = 0,
    ) -> None:
        self.me = me
        self.complete = False
        """Whether this peer knows that all trees are complete."""
        self._k = k
        self._base = {peer: cost(weights[peer]) for peer in sorted(weights)}
        self._coordinator = coordinator
        self._count = roots
        self._penalty = penalty
        self._lot = lot(seed, me)
        self._used = dict.fromkeys(self._base, 0)
        self._branches: list[tuple[PeerId, ...]] = []
        self._out: SptOutbound = []
        # the exploring wave leaves a tree, over which the coordinator communicates
        self._up: PeerId | None = None
        self._down: set[PeerId] = set()
        self._awaited = set(self._base)
        self._reached = False
        self._peers = 1
        self._lots: list[tuple[float, PeerId]] = [(self._lot, me)]
        self._tree = -1
        self._measuring = False
        self._early: list[tuple[PeerId, SptMessage]] = []

    def branches(self, tree: int) -> tuple[PeerId, ...]:
        return self._branches[tree] if tree < len(self._branches) else ()

    @property
    def decided(self) -> bool:
        return len(self._branches) == self._k

    def start(self) -> SptOutbound:
        if self.me == self._coordinator:
            self._reached = True
            for peer in self._base:
                self._say(peer, Explore())
            self._echo()
        return self._spoken()

    def hear(self, sender: PeerId, message: SptMessage) -> SptOutbound | None:
        """Handle a message. Return the messages to send, or None if no honest neighbour sends such a message."""
        if sender not in self._base:
            return None
        if isinstance(message, Explore | Echo):
            return self._explored(sender, message)
        if isinstance(message, TreesComplete):
            if sender != self._up or self._tree != self._k - 1 or self.complete or not self._can_take(message.chosen):
                return None
            self._grown(message)
            return self._spoken()
        if message.tree < 0:
            return None
        if self._too_early(message):
            return self._spoken() if self._hold(sender, message) else None
        if not (self._begun(sender, message) if isinstance(message, Begin) else self._take(sender, message)):
            return None
        early, self._early = self._early, []
        for peer, waiting in early:
            if self._too_early(waiting):
                self._early.append((peer, waiting))
            else:
                self._take(peer, waiting)
        return self._spoken()

    def _begun(self, sender: PeerId, message: Begin) -> bool:
        """Start the next tree. Return False if no honest neighbour says so."""
        if sender != self._up or not self._tree + 1 == message.tree < self._k:
            return False
        if message.tree > 0 and not self._can_take(message.chosen):
            return False
        self._begin(sender, message)
        return True

    def _hold(self, sender: PeerId, message: Distances | Parents | Sizes | Best) -> bool:
        """Store a message until this peer is as far. Return False if no honest neighbour is so far ahead."""
        if message.tree > self._tree + 1 or sum(peer == sender for peer, _ in self._early) >= EARLY:
            return False
        self._early.append((sender, message))
        return True

    def _too_early(self, message: SptMessage) -> TypeGuard[Distances | Parents | Sizes | Best]:
        if isinstance(message, Parents | Sizes | Best):
            return message.tree > self._tree or (message.tree == self._tree and not self._measuring)
        return isinstance(message, Distances) and message.tree > self._tree

    def _say(self, peer: PeerId, message: SptMessage) -> None:
        self._out.append((peer, message))

    def _spoken(self) -> SptOutbound:
        out, self._out = self._out, []
        return out

    # ---------------------------------------------------------------- exploring

    def _explored(self, sender: PeerId, message: Explore | Echo) -> SptOutbound | None:
        if sender not in self._awaited:
            return None
        self._awaited.discard(sender)
        if isinstance(message, Echo):
            self._down.add(sender)
            self._peers += message.peers
            self._lots = sorted({*self._lots, *message.lots})[: self._count]
        if not self._reached:
            self._reached = True
            self._up = sender
            for peer in self._base:
                if peer != sender:
                    self._say(peer, Explore())
        self._echo()
        return self._spoken()

    def _echo(self) -> None:
        if self._awaited or not self._reached:
            return
        if self._up is not None:
            self._say(self._up, Echo(self._peers, tuple(self._lots)))
        else:
            self._begin(self.me, Begin(0, tuple(peer for _, peer in self._lots), self._peers, 0))

    # ---------------------------------------------------------------- one tree: distances

    def _begin(self, sender: PeerId, message: Begin) -> None:
        if message.tree > 0:
            self._take_tree(message.chosen)
        self._tree = message.tree
        self._roots = message.roots
        self._peers = message.peers
        self._measuring = False
        self._costs = {n: round(c * (1 + self._penalty * self._used[n])) for n, c in self._base.items()}
        self._mine = [0 if root == self.me else NOWHERE for root in self._roots]
        self._theirs = {peer: [NOWHERE] * len(self._roots) for peer in self._base}
        self._changed: dict[PeerId, set[int]] = {peer: set() for peer in self._base}
        self._open: set[PeerId] = set()
        """Neighbours that have not answered the last distances. They get no others until they do."""
        self._unsettled = 0
        self._engager: PeerId | None = sender if sender != self.me else None
        self._sizes: dict[PeerId, dict[int, tuple[int, float]]] = {}
        self._children: dict[PeerId, tuple[int, ...]] = {}
        self._bests: dict[PeerId, tuple[float, int]] = {}
        self._measured: set[int] = set()
        self._totals: dict[int, float] = {}
        self._voted = False
        for peer in sorted(self._down):
            self._unsettled += 1
            self._say(peer, message)
        for place, root in enumerate(self._roots):
            if root == self.me:
                self._spread(place)
        self._tell_all()
        self._settle()

    def _spread(self, place: int) -> None:
        for changed in self._changed.values():
            changed.add(place)

    def _tell_all(self) -> None:
        """Send changed distances, except to neighbours that are nearer to the root than over this peer."""
        for peer, changed in self._changed.items():
            if changed and peer not in self._open:
                theirs, over = self._theirs[peer], self._costs[peer]
                news = tuple((p, self._mine[p]) for p in sorted(changed) if self._mine[p] + over <= theirs[p])
                changed.clear()
                if news:
                    self._open.add(peer)
                    self._unsettled += 1
                    self._say(peer, Distances(self._tree, news))

    def _distances(self, sender: PeerId, message: Distances) -> None:
        idle = self._engager is None and self._unsettled == 0 and self.me != self._coordinator
        theirs = self._theirs[sender]
        for place, distance in message.costs:
            theirs[place] = distance
            here = distance + self._costs[sender]
            if here < self._mine[place]:
                self._mine[place] = here
                self._spread(place)
        if idle:
            self._engager = sender  # it gets its answer when all effects have settled
        else:
            self._say(sender, Settled(self._tree))
        self._tell_all()
        self._settle()

    def _settled(self, sender: PeerId) -> None:
        self._unsettled -= 1
        self._open.discard(sender)
        self._tell_all()
        self._settle()

    def _settle(self) -> None:
        if self._unsettled:
            return
        if self._engager is not None:
            self._say(self._engager, Settled(self._tree))
            self._engager = None
        elif self.me == self._coordinator and not self._measuring:
            self._measure()

    # ---------------------------------------------------------------- one tree: choosing the root

    def _parent(self, place: int) -> PeerId | None:
        """The neighbour with the least distance to the root; the id breaks ties."""
        if self._roots[place] == self.me:
            return None
        return min(self._base, key=lambda peer: (self._theirs[peer][place] + self._costs[peer], peer))

    def _measure(self) -> None:
        self._measuring = True
        self._parents = [self._parent(place) for place in range(len(self._roots))]
        for peer in sorted(self._down):
            self._say(peer, Measure(self._tree))
        for peer in self._base:
            self._say(peer, Parents(self._tree, tuple(p for p, parent in enumerate(self._parents) if parent == peer)))
        self._report()

    def _report(self) -> None:
        """Send the subtree of each tree to the parent once it is known. Then send the best root once all have voted."""
        if len(self._children) == len(self._base):
            ready: dict[PeerId, list[tuple[int, int, float]]] = {}
            for place, parent in enumerate(self._parents):
                children = sorted(peer for peer, places in self._children.items() if place in places)
                if place in self._measured or any(place not in self._sizes.get(c, {}) for c in children):
                    continue
                self._measured.add(place)
                size = 1 + sum(self._sizes[c][place][0] for c in children)
                total = sum((self._sizes[c][place][1] for c in children), 0.0)
                if parent is None:
                    self._totals[place] = total
                else:
                    total += float(self._costs[parent]) * size * (self._peers - size)
                    ready.setdefault(parent, []).append((place, size, total))
            for parent, sizes in sorted(ready.items()):
                self._say(parent, Sizes(self._tree, tuple(sizes)))
        self._vote()

    def _vote(self) -> None:
        mine = [place for place, root in enumerate(self._roots) if root == self.me]
        if self._voted or self._bests.keys() != self._down or any(place not in self._totals for place in mine):
            return
        self._voted = True
        best = min([*self._bests.values(), *((self._totals[p], p) for p in mine)], default=(math.inf, -1))
        if self._up is not None:
            self._say(self._up, Best(self._tree, *best))
        elif self._tree + 1 < self._k:
            self._begin(self.me, Begin(self._tree + 1, self._roots, self._peers, best[1]))
        else:
            self._grown(TreesComplete(best[1]))

    def _can_take(self, place: int) -> bool:
        """Only a tree that was measured can be chosen."""
        return self._measuring and 0 <= place < len(self._parents)

    def _take_tree(self, place: int) -> None:
        parent = self._parents[place]
        links = {peer for peer, places in self._children.items() if place in places}
        links |= set() if parent is None else {parent}
        for peer in links:
            self._used[peer] += 1
        self._branches.append(tuple(sorted(links)))

    def _grown(self, message: TreesComplete) -> None:
        self._take_tree(message.chosen)
        self.complete = True
        for peer in sorted(self._down):
            self._say(peer, message)

    # ---------------------------------------------------------------- messages

    def _take(self, sender: PeerId, message: SptMessage) -> bool:
        """Handle a message about the present tree. Return False if no honest neighbour sends it."""
        if isinstance(message, Explore | Echo | TreesComplete) or message.tree != self._tree:
            return False
        match message:
            case Distances():
                return self._take_distances(sender, message)
            case Settled():
                if not self._unsettled:
                    return False
                self._settled(sender)
            case Measure():
                if sender != self._up or self._measuring:
                    return False
                self._measure()
            case Parents(places=places):
                if sender in self._children:
                    return False
                self._children[sender] = places
                self._report()
            case Sizes(sizes=sizes):
                self._sizes.setdefault(sender, {}).update({place: (size, total) for place, size, total in sizes})
                self._report()
            case Best():
                return self._take_best(sender, message)
        return True

    def _take_distances(self, sender: PeerId, message: Distances) -> bool:
        in_range = all(0 <= place < len(self._mine) and distance >= 0 for place, distance in message.costs)
        if self._measuring or not in_range:
            return False
        self._distances(sender, message)
        return True

    def _take_best(self, sender: PeerId, message: Best) -> bool:
        if sender not in self._down or sender in self._bests or not -1 <= message.place < len(self._roots):
            return False
        self._bests[sender] = (message.total, message.place)
        self._vote()
        return True
