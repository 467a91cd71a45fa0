"""Events between clusters by trees: they travel along several trees, and neighbours repair losses on one of them.

- Events travel along a tree in all directions, from wherever they enter it. A cluster that only publishes hands its
  events to the root.
- If an event came by another tree, and does not come by this one in time, a coordinator offers it to its neighbours on
  this tree (`HaveEvent`): they may lack it. Neighbours also compare digests.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.plugins import Notice, PluginEffect, Refuse, Timer
from wend.strategies.clusters.interest.cluster import NOT_A_COORDINATOR, ClusterView
from wend.strategies.clusters.interest.event_log import LogEntry, Stream
from wend.strategies.clusters.interest.groups import FollowedGroups
from wend.strategies.clusters.interest.messages import (
    AddChild,
    AskParents,
    ClusterEvent,
    FetchEvents,
    GroupDigest,
    HaveEvent,
    RemoveChild,
    TreeEvent,
)
from wend.strategies.clusters.interest.parent_search import TreeId
from wend.strategies.clusters.interest.places import TreePlaces
from wend.strategies.clusters.interest.repair import Repair
from wend.strategies.ring.bounded import RecentItems

FIRST_GAP_NS: Nanos = 200 * MS
LONGEST_GAP_NS: Nanos = 5 * SECOND
"""Limits of the time after which a second tree should bring an event. Between them the longest time so far counts."""
MAX_HOPS = 64
FORWARDED = 1 << 14
"""The number of recently forwarded events that are remembered."""
LATE = "late"


class LateEvents:
    """The events that arrived by one tree and are expected by another one."""

    def __init__(self) -> None:
        self._due_ns: dict[tuple[TreeId, Stream, int], Nanos] = {}
        self._first_ns: dict[tuple[Stream, int], Nanos] = {}
        """When each event first arrived."""
        self._gaps: dict[TreeId, Nanos] = {}
        """The longest time after which a tree brought an event."""

    def expect(self, now: Nanos, tree_id: TreeId, entry: LogEntry) -> Timer:
        due_ns = now + min(LONGEST_GAP_NS, self._gaps.get(tree_id, FIRST_GAP_NS) * 3 // 2)
        self._due_ns[tree_id, entry.stream, entry.number] = due_ns
        self._first_ns.setdefault((entry.stream, entry.number), now)
        return Timer(due_ns, LATE)

    def on_event(self, now: Nanos, tree_id: TreeId, entry: LogEntry) -> None:
        if self._due_ns.pop((tree_id, entry.stream, entry.number), None) is not None:
            gap_ns = now - self._first_ns.get((entry.stream, entry.number), now)
            self._gaps[tree_id] = max(self._gaps.get(tree_id, FIRST_GAP_NS), min(LONGEST_GAP_NS, gap_ns))

    def pop_late(self, now: Nanos) -> list[tuple[TreeId, Stream, int]]:
        """Remove and return the events that did not arrive in time."""
        late = [key for key, due_ns in self._due_ns.items() if due_ns <= now]
        for key in late:
            del self._due_ns[key]
        if len(self._first_ns) > 4 * len(self._due_ns) + 64:
            expected = {(stream, number) for _, stream, number in self._due_ns}
            self._first_ns = {key: time_ns for key, time_ns in self._first_ns.items() if key in expected}
        return late


class Trees:
    """How coordinators bring events to other clusters by trees."""

    def __init__(self, cluster: ClusterView, groups: FollowedGroups, repair: Repair, places: TreePlaces) -> None:
        self._cluster = cluster
        self._groups = groups
        self._repair = repair
        self._places = places
        self._forwarded = RecentItems(FORWARDED)
        self._late = LateEvents()

    def on_event(self, now: Nanos, entry: LogEntry, tree: int, hops: int) -> Iterator[PluginEffect]:
        """Send a coordinator's new event to the trees, and to all members if it came by a tree."""
        group, logged = entry.group, entry.logged
        is_home = logged.home == self._cluster.name
        if tree >= 0 and self._groups.cluster_since(group) is not None:
            numbers = ((group, entry.number),)
            message = ClusterEvent(logged.home, numbers, logged.event, now - logged.born_ns, hops)
            yield from self._cluster.multicast(message)
        for mine in self._cluster.my_trees:
            if is_home:
                yield from self._forward(now, entry, mine, "", hops)
            elif mine != tree and (group, mine) in self._places and not self._was_forwarded(entry, mine):
                yield self._late.expect(now, (group, mine), entry)

    def pass_on(self, now: Nanos, entry: LogEntry, tree: int, sender: str, hops: int) -> Iterable[PluginEffect]:
        """Forward a copy that came by a tree to the other neighbours there."""
        self._late.on_event(now, (entry.group, tree), entry)
        return self._forward(now, entry, tree, sender, hops) if tree in self._cluster.my_trees else []

    def _forward(self, now: Nanos, entry: LogEntry, tree: int, sender: str, hops: int) -> Iterator[PluginEffect]:
        """Send an event to the neighbours on a tree, once."""
        if hops >= MAX_HOPS or not self._forwarded.add((tree, entry.stream, entry.number)):
            return
        for neighbour in self.neighbours(entry.group, tree):
            if neighbour != sender:
                copy = self._repair.make_tree_event(now, entry, neighbour, tree, hops + 1)
                yield from self._cluster.send_to_cluster(copy)

    def _was_forwarded(self, entry: LogEntry, tree: int) -> bool:
        return (tree, entry.stream, entry.number) in self._forwarded

    def neighbours(self, group: str, tree: int) -> list[str]:
        """The neighbours on a tree. The root stands in for a parent."""
        place = self._places.get(group, tree)
        neighbours = [] if place is None else place.neighbours
        root = self._cluster.root(group, tree)
        has_parent = place is not None and place.parent is not None
        is_there = has_parent or root == self._cluster.name or root in neighbours
        return neighbours if is_there else [*neighbours, root]

    def offer_late(self, now: Nanos) -> Iterator[PluginEffect]:
        """Offer events to the trees that did not bring them in time."""
        for (group, tree), stream, number in self._late.pop_late(now):
            if tree in self._cluster.my_trees:
                for neighbour in self.neighbours(group, tree):
                    yield from self._cluster.send_to_cluster(HaveEvent(neighbour, tree, *stream, number))

    def on_offer(self, now: Nanos, sender: PeerId, offer: HaveEvent) -> Iterator[PluginEffect]:
        """Fetch an event that a neighbour offers if this peer lacks it. Then its parent may be cut off."""
        if not self._cluster.is_addressed(offer):
            return
        neighbour = self._cluster.holder_cluster(sender)
        if neighbour is None:
            yield Refuse(sender, NOT_A_COORDINATOR)
            return
        group, tree, number = offer.group, offer.tree, offer.number
        stream = (offer.publisher, offer.incarnation, group)
        if self._repair.log.open_stream(now, stream).has(number):
            return
        request = FetchEvents(*stream, ((number, number),), 1 << 62, neighbour, tree)
        yield self._cluster.send(sender, request)
        place = self._places.get(group, tree)
        if place is not None and place.parent not in (None, neighbour) and tree in self._cluster.my_trees:
            yield Notice("reroute", sender)
            yield from self._places.join(now, group, tree, place.parent or "")

    def on_groups_changed(self, now: Nanos) -> Iterable[PluginEffect]:
        return self._places.on_groups_changed(now)

    def on_cluster_changed(self, now: Nanos) -> Iterable[PluginEffect]:
        return self._places.on_cluster_changed(now)

    def renew(self, now: Nanos) -> Iterator[PluginEffect]:
        """Renew the places. A cluster that only publishes has none, and sends digests to roots that may lack events."""
        yield from self._places.renew(now)
        groups = dict.fromkeys(stream[2] for stream, log in self._repair.log.streams.items() if log.events)
        for group in groups:
            for tree in self._cluster.my_trees:
                if (group, tree) not in self._places:
                    for neighbour in self.neighbours(group, tree):
                        yield from self._repair.send_digests(group, tree, neighbour)

    def on_undelivered(self, now: Nanos, peer: PeerId, message: Any) -> Iterable[PluginEffect]:
        """Try the next backup of a cluster that does not answer; if there is none, look for another parent."""
        match message:
            case AskParents() | RemoveChild() | HaveEvent():
                return self._cluster.send_to_cluster(message, peer)
            case GroupDigest(to=to) | FetchEvents(to=to) if to:
                return self._cluster.send_to_cluster(message, peer)
            case TreeEvent(to, tree, _, group):
                effects = self._cluster.send_to_cluster(message, peer)
                if effects or tree not in self._cluster.my_trees or (group, tree) in self._places:
                    return effects
                return self._places.join(now, group, tree, to)  # the root is out of reach, but others may not be
            case AddChild(to, tree, group):
                effects = self._cluster.send_to_cluster(message, peer)
                place = self._places.get(group, tree)
                if effects or place is None or place.parent != to:
                    return effects
                return self._places.join(now, group, tree, to)
        return []
