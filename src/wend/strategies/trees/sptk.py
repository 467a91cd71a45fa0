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


def link_cost(unreliability: float) -> int:
    """The cost of a link that fails with this probability."""
    return max(1, round(-math.log1p(-min(unreliability, 1.0 - 1e-9)) * SCALE))


def draw_lot(seed: int, peer: PeerId) -> float:
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
        self.is_complete = False
        """Whether this peer knows that all trees are complete."""
        self._k = k
        self._base = {peer: link_cost(weights[peer]) for peer in sorted(weights)}
        self._coordinator = coordinator
        self._count = roots
        self._penalty = penalty
        self._lot = draw_lot(seed, me)
        self._used = dict.fromkeys(self._base, 0)
        self._branches: list[tuple[PeerId, ...]] = []
        self._out: SptOutbound = []
        # the exploring wave leaves a tree, over which the coordinator communicates
        self._up: PeerId | None = None
        self._down: set[PeerId] = set()
        self._awaited = set(self._base)
        self._is_explored = False
        self._peers = 1
        self._lots: list[tuple[float, PeerId]] = [(self._lot, me)]
        self._tree = -1
        self._is_measuring = False
        self._early: list[tuple[PeerId, SptMessage]] = []

    def branches(self, tree: int) -> tuple[PeerId, ...]:
        return self._branches[tree] if tree < len(self._branches) else ()

    @property
    def is_decided(self) -> bool:
        return len(self._branches) == self._k

    def start(self) -> SptOutbound:
        if self.me == self._coordinator:
            self._is_explored = True
            for peer in self._base:
                self._send(peer, Explore())
            self._send_echo()
        return self._take_outbound()

    def on_message(self, sender: PeerId, message: SptMessage) -> SptOutbound | None:
        """Handle a message. Return the messages to send, or None if no honest neighbour sends such a message."""
        if sender not in self._base:
            return None
        if isinstance(message, Explore | Echo):
            return self._handle_exploring(sender, message)
        if isinstance(message, TreesComplete):
            if (
                sender != self._up
                or self._tree != self._k - 1
                or self.is_complete
                or not self._can_choose(message.chosen)
            ):
                return None
            self._pass_complete(message)
            return self._take_outbound()
        if message.tree < 0:
            return None
        if self._is_early(message):
            return self._take_outbound() if self._defer(sender, message) else None
        if not (
            self._handle_begin(sender, message) if isinstance(message, Begin) else self._handle_in_tree(sender, message)
        ):
            return None
        early, self._early = self._early, []
        for peer, waiting in early:
            if self._is_early(waiting):
                self._early.append((peer, waiting))
            else:
                self._handle_in_tree(peer, waiting)
        return self._take_outbound()

    def _handle_begin(self, sender: PeerId, message: Begin) -> bool:
        """Start the next tree. Return False if no honest neighbour says so."""
        if sender != self._up or not self._tree + 1 == message.tree < self._k:
            return False
        if message.tree > 0 and not self._can_choose(message.chosen):
            return False
        self._begin_tree(sender, message)
        return True

    def _defer(self, sender: PeerId, message: Distances | Parents | Sizes | Best) -> bool:
        """Store a message until this peer is as far. Return False if no honest neighbour is so far ahead."""
        if message.tree > self._tree + 1 or sum(peer == sender for peer, _ in self._early) >= EARLY:
            return False
        self._early.append((sender, message))
        return True

    def _is_early(self, message: SptMessage) -> TypeGuard[Distances | Parents | Sizes | Best]:
        if isinstance(message, Parents | Sizes | Best):
            return message.tree > self._tree or (message.tree == self._tree and not self._is_measuring)
        return isinstance(message, Distances) and message.tree > self._tree

    def _send(self, peer: PeerId, message: SptMessage) -> None:
        self._out.append((peer, message))

    def _take_outbound(self) -> SptOutbound:
        out, self._out = self._out, []
        return out

    # ---------------------------------------------------------------- exploring

    def _handle_exploring(self, sender: PeerId, message: Explore | Echo) -> SptOutbound | None:
        if sender not in self._awaited:
            return None
        self._awaited.discard(sender)
        if isinstance(message, Echo):
            self._down.add(sender)
            self._peers += message.peers
            self._lots = sorted({*self._lots, *message.lots})[: self._count]
        if not self._is_explored:
            self._is_explored = True
            self._up = sender
            for peer in self._base:
                if peer != sender:
                    self._send(peer, Explore())
        self._send_echo()
        return self._take_outbound()

    def _send_echo(self) -> None:
        if self._awaited or not self._is_explored:
            return
        if self._up is not None:
            self._send(self._up, Echo(self._peers, tuple(self._lots)))
        else:
            self._begin_tree(self.me, Begin(0, tuple(peer for _, peer in self._lots), self._peers, 0))

    # ---------------------------------------------------------------- one tree: distances

    def _begin_tree(self, sender: PeerId, message: Begin) -> None:
        if message.tree > 0:
            self._add_tree(message.chosen)
        self._tree = message.tree
        self._roots = message.roots
        self._peers = message.peers
        self._is_measuring = False
        self._costs = {n: round(c * (1 + self._penalty * self._used[n])) for n, c in self._base.items()}
        self._my_distances = [0 if root == self.me else NOWHERE for root in self._roots]
        self._their_distances = {peer: [NOWHERE] * len(self._roots) for peer in self._base}
        self._changed: dict[PeerId, set[int]] = {peer: set() for peer in self._base}
        self._unanswered: set[PeerId] = set()
        """Neighbours that have not answered the last distances. They get no others until they do."""
        self._unsettled = 0
        self._engager: PeerId | None = sender if sender != self.me else None
        self._sizes: dict[PeerId, dict[int, tuple[int, float]]] = {}
        self._children: dict[PeerId, tuple[int, ...]] = {}
        self._bests: dict[PeerId, tuple[float, int]] = {}
        self._measured: set[int] = set()
        self._totals: dict[int, float] = {}
        self._has_sent_best = False
        for peer in sorted(self._down):
            self._unsettled += 1
            self._send(peer, message)
        for place, root in enumerate(self._roots):
            if root == self.me:
                self._mark_changed(place)
        self._send_distances()
        self._check_settled()

    def _mark_changed(self, place: int) -> None:
        for changed in self._changed.values():
            changed.add(place)

    def _send_distances(self) -> None:
        """Send changed distances, except to neighbours that are nearer to the root than over this peer."""
        for peer, changed in self._changed.items():
            if changed and peer not in self._unanswered:
                theirs, over = self._their_distances[peer], self._costs[peer]
                news = tuple(
                    (p, self._my_distances[p]) for p in sorted(changed) if self._my_distances[p] + over <= theirs[p]
                )
                changed.clear()
                if news:
                    self._unanswered.add(peer)
                    self._unsettled += 1
                    self._send(peer, Distances(self._tree, news))

    def _update_distances(self, sender: PeerId, message: Distances) -> None:
        idle = self._engager is None and self._unsettled == 0 and self.me != self._coordinator
        theirs = self._their_distances[sender]
        for place, distance in message.costs:
            theirs[place] = distance
            here = distance + self._costs[sender]
            if here < self._my_distances[place]:
                self._my_distances[place] = here
                self._mark_changed(place)
        if idle:
            self._engager = sender  # it gets its answer when all effects have settled
        else:
            self._send(sender, Settled(self._tree))
        self._send_distances()
        self._check_settled()

    def _handle_settled(self, sender: PeerId) -> None:
        self._unsettled -= 1
        self._unanswered.discard(sender)
        self._send_distances()
        self._check_settled()

    def _check_settled(self) -> None:
        if self._unsettled:
            return
        if self._engager is not None:
            self._send(self._engager, Settled(self._tree))
            self._engager = None
        elif self.me == self._coordinator and not self._is_measuring:
            self._begin_measuring()

    # ---------------------------------------------------------------- one tree: choosing the root

    def _nearest_parent(self, place: int) -> PeerId | None:
        """The neighbour with the least distance to the root; the id breaks ties."""
        if self._roots[place] == self.me:
            return None
        return min(self._base, key=lambda peer: (self._their_distances[peer][place] + self._costs[peer], peer))

    def _begin_measuring(self) -> None:
        self._is_measuring = True
        self._parents = [self._nearest_parent(place) for place in range(len(self._roots))]
        for peer in sorted(self._down):
            self._send(peer, Measure(self._tree))
        for peer in self._base:
            self._send(peer, Parents(self._tree, tuple(p for p, parent in enumerate(self._parents) if parent == peer)))
        self._send_sizes()

    def _send_sizes(self) -> None:
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
                self._send(parent, Sizes(self._tree, tuple(sizes)))
        self._send_best()

    def _send_best(self) -> None:
        mine = [place for place, root in enumerate(self._roots) if root == self.me]
        if self._has_sent_best or self._bests.keys() != self._down or any(place not in self._totals for place in mine):
            return
        self._has_sent_best = True
        best = min([*self._bests.values(), *((self._totals[p], p) for p in mine)], default=(math.inf, -1))
        if self._up is not None:
            self._send(self._up, Best(self._tree, *best))
        elif self._tree + 1 < self._k:
            self._begin_tree(self.me, Begin(self._tree + 1, self._roots, self._peers, best[1]))
        else:
            self._pass_complete(TreesComplete(best[1]))

    def _can_choose(self, place: int) -> bool:
        """Only a tree that was measured can be chosen."""
        return self._is_measuring and 0 <= place < len(self._parents)

    def _add_tree(self, place: int) -> None:
        parent = self._parents[place]
        links = {peer for peer, places in self._children.items() if place in places}
        links |= set() if parent is None else {parent}
        for peer in links:
            self._used[peer] += 1
        self._branches.append(tuple(sorted(links)))

    def _pass_complete(self, message: TreesComplete) -> None:
        self._add_tree(message.chosen)
        self.is_complete = True
        for peer in sorted(self._down):
            self._send(peer, message)

    # ---------------------------------------------------------------- messages

    def _handle_in_tree(self, sender: PeerId, message: SptMessage) -> bool:
        """Handle a message about the present tree. Return False if no honest neighbour sends it."""
        if isinstance(message, Explore | Echo | TreesComplete) or message.tree != self._tree:
            return False
        match message:
            case Distances():
                return self._handle_distances(sender, message)
            case Settled():
                if not self._unsettled:
                    return False
                self._handle_settled(sender)
            case Measure():
                if sender != self._up or self._is_measuring:
                    return False
                self._begin_measuring()
            case Parents(places=places):
                if sender in self._children:
                    return False
                self._children[sender] = places
                self._send_sizes()
            case Sizes(sizes=sizes):
                self._sizes.setdefault(sender, {}).update({place: (size, total) for place, size, total in sizes})
                self._send_sizes()
            case Best():
                return self._handle_best(sender, message)
        return True

    def _handle_distances(self, sender: PeerId, message: Distances) -> bool:
        in_range = all(0 <= place < len(self._my_distances) and distance >= 0 for place, distance in message.costs)
        if self._is_measuring or not in_range:
            return False
        self._update_distances(sender, message)
        return True

    def _handle_best(self, sender: PeerId, message: Best) -> bool:
        if sender not in self._down or sender in self._bests or not -1 <= message.place < len(self._roots):
            return False
        self._bests[sender] = (message.total, message.place)
        self._send_best()
        return True
