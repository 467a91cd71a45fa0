"""Events between clusters: they travel along several trees, and neighbours repair what one tree lacks.

- Events travel along a tree in all directions, from wherever they enter it. A cluster that only publishes hands its
  events to the root.
- An event that came by another tree, and does not come by this one in time, is offered to the neighbours on this one
  (`HaveEvent`): they may lack it. Neighbours compare digests besides.
"""

from typing import Any

from wend.model.events import PeerId
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.plugins import Notice, PeerConfig, Timer
from wend.strategies.clusters.interest.event_log import Logged, Numbers, Stream
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
from wend.strategies.clusters.interest.parents import TreeParents
from wend.strategies.clusters.interest.places import Place
from wend.strategies.clusters.interest.tree_places import TreePlace
from wend.strategies.ring.key_based import Seen

FIRST_GAP_NS: Nanos = 200 * MS
LONGEST_GAP_NS: Nanos = 5 * SECOND
"""How long after one tree another may bring an event; the longest time seen counts in between."""
MOST_HOPS = 64
LATE = "late"


class TreesBetweenClusters(TreeParents):
    """What coordinators do with events."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._forwarded = Seen(1 << 14)
        self._late: dict[tuple[Place, Stream, int], Nanos] = {}
        """Events that did not come by a tree yet, with the time until which they may."""
        self._came: dict[tuple[Stream, int], Nanos] = {}
        """When an event came first, for those that are expected by other trees."""
        self._gaps: dict[Place, Nanos] = {}

    # ---------------------------------------------------------------- events

    def _received(self, now: Nanos, stream: Stream, number: int, logged: Logged, tree: int, hops: int) -> None:
        group = stream[2]
        at_home = logged.home == self._members.cluster
        if tree >= 0:
            follows = self._cluster_since(group) is not None
            if follows:
                self._cast(now, ClusterEvent(logged.home, ((group, number),), logged.event, now - logged.born_ns, hops))
        for mine in self._members.my_trees:
            if at_home:
                self._forward(now, stream, number, logged, mine, "", hops)
            elif mine != tree and (group, mine) in self._places:
                self._expect(now, (group, mine), stream, number)

    def _forward(
        self, now: Nanos, stream: Stream, number: int, logged: Logged, tree: int, sender: str, hops: int
    ) -> None:
        """Send an event to the neighbours on a tree, once."""
        if hops >= MOST_HOPS or not self._forwarded.add((tree, stream, number)):
            return
        group = stream[2]
        for cluster in self._neighbours(group, tree):
            if cluster != sender:
                self._to_cluster(self._tree_event(now, cluster, tree, stream, number, logged, hops + 1))

    def _neighbours(self, group: str, tree: int) -> list[str]:
        place = self._places.get((group, tree))
        found = [] if place is None else place.neighbours
        root = self._root(group, tree)
        if (place is None or place.parent is None) and root != self._members.cluster and root not in found:
            return [*found, root]
        return found

    def _tree_event(
        self, now: Nanos, to: str, tree: int, stream: Stream, number: int, logged: Logged, hops: int
    ) -> TreeEvent:
        home = logged.home or self._members.cluster
        return TreeEvent(to, tree, home, stream[2], number, logged.event, now - logged.born_ns, hops)

    def _hear_tree_event(self, now: Nanos, sender: PeerId, told: TreeEvent) -> None:
        mine = self._members
        if told.to != mine.cluster or not self._holds:
            self._out.append(Notice("reroute", sender))
            return
        came_from = self._abroad(sender)
        if came_from is None:
            return
        id_ = told.event.id
        stream = (id_.publisher, id_.incarnation, told.group)
        logged = Logged(
            told.event, now - min(max(0, told.age_ns), FOREVER) - mine.round_trip_ns(sender) // 2, told.home
        )
        self._arrived_by(now, (told.group, told.tree), stream, told.number)
        self._keep(now, stream, told.number, logged, told.tree, told.hops, sender)
        if told.tree in mine.my_trees:
            self._forward(now, stream, told.number, logged, told.tree, came_from, told.hops)

    # ---------------------------------------------------------------- events that one tree lacks

    def _expect(self, now: Nanos, place: Place, stream: Stream, number: int) -> None:
        if (place[1], stream, number) in self._forwarded:
            return
        gap = min(LONGEST_GAP_NS, self._gaps.get(place, FIRST_GAP_NS) * 3 // 2)
        self._late[place, stream, number] = now + gap
        self._came.setdefault((stream, number), now)
        self._out.append(Timer(now + gap, LATE))

    def _arrived_by(self, now: Nanos, place: Place, stream: Stream, number: int) -> None:
        if self._late.pop((place, stream, number), None) is not None:
            came = self._came.get((stream, number), now)
            self._gaps[place] = max(self._gaps.get(place, FIRST_GAP_NS), min(LONGEST_GAP_NS, now - came))

    def _look_for_late(self, now: Nanos) -> None:
        for (place, stream, number), until in list(self._late.items()):
            if until > now:
                continue
            del self._late[place, stream, number]
            group, tree = place
            if tree in self._members.my_trees:
                for cluster in self._neighbours(group, tree):
                    self._to_cluster(HaveEvent(cluster, tree, *stream, number))
        if len(self._came) > 4 * len(self._late) + 64:
            waiting = {(stream, number): None for _, stream, number in self._late}
            self._came = {key: time for key, time in self._came.items() if key in waiting}

    def _have_event(self, now: Nanos, sender: PeerId, told: HaveEvent) -> None:
        """A neighbour has an event that this peer may lack. If it lacks it, its parent may be cut off."""
        cluster = self._abroad(sender) if told.to == self._members.cluster and self._holds else None
        if cluster is None:
            return
        stream = (told.publisher, told.incarnation, told.group)
        if self._log.stream(now, stream).has(told.number):
            return
        self._send(sender, FetchEvents(*stream, ((told.number, told.number),), 1 << 62, cluster, told.tree))
        place = self._places.get((told.group, told.tree))
        if place is not None and place.parent not in (None, cluster) and told.tree in self._members.my_trees:
            self._out.append(Notice("reroute", sender))
            self._join(now, told.group, told.tree, place.parent or "")

    # ---------------------------------------------------------------- repair

    def _tell_neighbour(self, group: str, tree: int, cluster: str, asks: bool = False) -> None:
        for digest in self._digests(group, cluster, tree, asks):
            self._to_cluster(digest)

    def _repair_trees(self, now: Nanos) -> None:
        for group in self._news:
            for tree in self._members.my_trees:
                for cluster in self._neighbours(group, tree):
                    self._tell_neighbour(group, tree, cluster)

    def _renew_trees(self, now: Nanos) -> None:
        """A cluster that only publishes has no place in a tree, and its root may not have been there for its events."""
        super()._renew_trees(now)
        for group in dict.fromkeys(stream[2] for stream, found in self._log.streams.items() if found.events):
            for tree in self._members.my_trees:
                if (group, tree) not in self._places:
                    for cluster in self._neighbours(group, tree):
                        self._tell_neighbour(group, tree, cluster)

    def _hear_tree_digest(self, now: Nanos, sender: PeerId, told: GroupDigest) -> None:
        cluster = self._abroad(sender) if told.to == self._members.cluster and self._holds else None
        if cluster is None:
            return
        for one in told.streams:
            stream = (one.publisher, one.incarnation, told.group)
            found = self._log.stream(now, stream)
            found.last = max(found.last, one.last)
            missing = found.missing(4)
            if missing and told.tree in self._members.my_trees:
                since = self._since_of(stream)
                numbers = tuple(n for n in missing if n[0] <= one.last)
                if numbers:
                    self._send(sender, FetchEvents(*stream, numbers, now - since, cluster, told.tree))
        if told.asks:
            self._tell_neighbour(told.group, told.tree, cluster)

    def _copy(self, now: Nanos, stream: Stream, number: int, logged: Logged, told: FetchEvents) -> Any:
        if told.tree < 0:
            return super()._copy(now, stream, number, logged, told)
        return self._tree_event(now, told.to, told.tree, stream, number, logged, 1)

    def _give(self, now: Nanos, sender: PeerId, told: FetchEvents) -> None:
        if told.tree < 0:
            if self._is_member(sender):
                super()._give(now, sender, told)
            return
        cluster = self._abroad(sender) if told.to == self._members.cluster and self._holds else None
        if cluster is not None:
            stream = (told.publisher, told.incarnation, told.group)
            super()._give(now, sender, FetchEvents(*stream, told.numbers, told.age_ns, cluster, told.tree))

    def _ask_abroad(self, now: Nanos, stream: Stream, numbers: tuple[Numbers, ...], age_ns: Nanos, tries: int) -> None:
        asks = [(cluster, tree) for tree in self._members.my_trees for cluster in self._neighbours(stream[2], tree)]
        if asks:
            cluster, tree = asks[tries % len(asks)]
            self._to_cluster(FetchEvents(*stream, numbers, age_ns, cluster, tree))

    def _undelivered(self, now: Nanos, peer: PeerId, message: Any) -> None:
        """Try the next backup of a cluster that does not answer; if there is none, look for another parent."""
        match message:
            case TreeEvent(to, tree, _, group):
                handed = self._to_cluster(message, peer)
                if not handed and tree in self._members.my_trees and (group, tree) not in self._places:
                    self._places[group, tree] = TreePlace()  # the root is out of reach, but others may not be
                    self._join(now, group, tree, to)
            case AskParents() | RemoveChild() | HaveEvent():
                self._to_cluster(message, peer)
            case AddChild(to, tree, group):
                place = self._places.get((group, tree))
                if not self._to_cluster(message, peer) and place is not None and place.parent == to:
                    self._join(now, group, tree, to)
            case GroupDigest(to=to) | FetchEvents(to=to) if to:
                self._to_cluster(message, peer)
