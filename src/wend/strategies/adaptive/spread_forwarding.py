"""Forwarding while links are full: a packet follows its tree, and current prices if the tree would be late."""

from wend.model.events import PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.plugins import View
from wend.strategies.adaptive.packets import Groups, Packet
from wend.strategies.adaptive.priced_routes import WORTH_NS, PricedRoutes, SpreadRoutes, class_weight, event_class
from wend.strategies.adaptive.routes import Edge
from wend.strategies.adaptive.spread_trees import Branch, SpreadTree, SpreadTrees, branches_at

Deadlines = dict[PeerId, Nanos | None]
"""By destination, the time from publication until the event is due there."""
Ranked = dict[PeerId, int]
"""Destinations with their ranks."""


class SpreadForwarding:
    """Forwards packets by price, and along the trees of this peer's own events. It makes routes and trees on demand."""

    def __init__(self) -> None:
        self._routes: PricedRoutes | None = None
        self._trees: SpreadTrees | None = None

    def forget_routes(self) -> None:
        """Discard the routes, because the graph or its prices have changed."""
        self._routes = None

    def clear(self) -> None:
        """Discard routes and trees, because no link is full any longer."""
        self._routes = self._trees = None

    def assign(
        self, now: Nanos, packet: Packet, deadlines: Deadlines, view: View
    ) -> tuple[Groups, dict[PeerId, SpreadTree], list[tuple[PeerId, int]]]:
        """Assign the destinations to next hops. Return them with the tree of each hop, and the destinations without a
        link."""
        links, path = view.links, packet.path
        up = [hop for hop in links if hop not in path and links[hop].is_working(now)]
        untried = [hop for hop in up if hop not in packet.tried]
        near = view.graph.distances(view.me)
        ranked = sorted(zip(packet.dests, packet.ranks, strict=True), key=lambda one: near.get(one[0], 0))
        unassigned = dict(ranked)
        deadlines = {dest: deadlines[dest] for dest in unassigned}
        groups: Groups = {}
        trees: dict[PeerId, SpreadTree] = {}
        for branch in self._branches(now, packet, deadlines, up, view):
            if branch.hop in untried:
                trees[branch.hop] = branch.tree
                _assign_branch(branch, now, packet, deadlines, unassigned, groups, view)
        stuck = (
            self._assign_by_price(now, packet, deadlines, unassigned, groups, trees, up, untried, view)
            if unassigned
            else []
        )
        return groups, trees, stuck

    def _assign_by_price(
        self,
        now: Nanos,
        packet: Packet,
        deadlines: Deadlines,
        unassigned: Ranked,
        groups: Groups,
        trees: dict[PeerId, SpreadTree],
        up: list[PeerId],
        untried: list[PeerId],
        view: View,
    ) -> list[tuple[PeerId, int]]:
        """Assign the destinations to which no tree leads in time. Return the destinations without an untried link."""
        if self._routes is None:
            self._routes = PricedRoutes(view)
        spreading = SpreadRoutes(self._routes, view, class_weight(event_class(packet.event.id)))
        worth = FOREVER if packet.tried else WORTH_NS
        born = packet.born_ns
        stuck: list[tuple[PeerId, int]] = []
        for dest, rank in unassigned.items():  # routes to far destinations branch off those to near ones
            deadline = deadlines[dest]
            slack = FOREVER if deadline is None else deadline - now + born
            route = spreading.choose(dest, untried, slack, worth)
            due = FOREVER
            if route is None:  # it is late on every route, so other events go first
                route = spreading.choose(dest, up, FOREVER)
            elif deadline is not None:
                due = born + deadline - route[1]
            if route is None:
                stuck.append((dest, rank))
            else:
                groups.setdefault(route[0], []).append((dest, rank, due))
        for hop in groups:
            trees[hop] = _add_links(trees.get(hop), spreading.tree(hop))
        return stuck

    def _branches(self, now: Nanos, packet: Packet, deadlines: Deadlines, up: list[PeerId], view: View) -> list[Branch]:
        """The branches of a packet's tree from this peer: its own choice if it published the event, else the
        publisher's."""
        if packet.tree is not None:
            return branches_at(packet.tree, view.me, tuple(deadlines), view)
        if packet.path or packet.tried:
            return []
        if self._trees is None:
            self._trees = SpreadTrees(view.me)
        due = tuple([(dest, FOREVER if due is None else due) for dest, due in deadlines.items()])
        return self._trees.branches(now, event_class(packet.event.id), due, up, view)


def _assign_branch(
    branch: Branch, now: Nanos, packet: Packet, deadlines: Deadlines, unassigned: Ranked, groups: Groups, view: View
) -> None:
    """Move the destinations of a branch that it reaches in time from `unassigned` to its hop."""
    link = view.links[branch.hop]
    earliest = now + link.delay_ns + link.queue_ns
    for dest, rest in branch.dests:
        deadline = deadlines[dest]
        due = FOREVER if deadline is None or rest == FOREVER else packet.born_ns + deadline - rest
        if due >= earliest:
            groups.setdefault(branch.hop, []).append((dest, unassigned.pop(dest), due))


def _add_links(tree: SpreadTree | None, links: tuple[Edge, ...]) -> SpreadTree:
    """Return the tree with more links, each to a peer that it does not reach yet."""
    if tree is None:
        return SpreadTree(links)
    reached = {b for _, b in tree.links}
    return SpreadTree((*tree.links, *(link for link in links if link[1] not in reached)))
