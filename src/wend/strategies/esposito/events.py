"""The way of an event (section 3.2, Figure 4): to the root of each tree, down the tree, and into each cluster.

Nobody acknowledges it. A coordinator that has it from a tree multicasts it in its cluster and passes it on to its
children in that tree; it takes part in no other tree.
"""

from collections.abc import Iterable, Iterator

from wend.model.events import Event, EventId, PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.plugins import DeliverHere, Drop, Notice, PluginEffect, SendTo
from wend.strategies.esposito.cluster import ClusterNodes
from wend.strategies.esposito.groups import MemberGroups
from wend.strategies.esposito.messages import (
    PUBLISHED_HERE,
    EventDown,
    EventToRoot,
    FetchEvent,
    MulticastEvent,
    OfferEvent,
    Rejoin,
)
from wend.strategies.esposito.places import Places
from wend.strategies.esposito.recovery import MAX_EVENTS, ExpectedEvents
from wend.strategies.ring.bounded import RecentItems, put_newest
from wend.strategies.ring.groups import find_groups
from wend.strategies.ring.key_based import MAX_HOPS, OwnSubscriptions


class TreeEvents:
    """Passes events on, delivers them, and recovers those that a parent missed."""

    def __init__(
        self,
        cluster: ClusterNodes,
        places: Places,
        groups: MemberGroups,
        subscriptions: OwnSubscriptions,
        late: ExpectedEvents,
    ) -> None:
        self._cluster = cluster
        self._places = places
        self._groups = groups
        self._subscriptions = subscriptions
        self._late = late
        self._delivered = RecentItems()
        self._forwarded = RecentItems()
        """By tree, group and event."""
        self._fetched = RecentItems()
        """By tree and event: those that a parent fetched from here."""
        self._events: dict[EventId, tuple[Event, Nanos, bool]] = {}
        """The latest events, each with its time of birth, and whether it was published in this cluster."""

    # ---------------------------------------------------------------- publications

    def publish(self, now: Nanos, event: Event, born_ns: Nanos) -> Iterator[PluginEffect]:
        if not self._cluster.membership.has_joined:
            yield Notice("published-early", self._cluster.me)
            yield Drop(event.id, (self._cluster.me,), "not-joined")
            return
        yield from self._cluster.multicast(MulticastEvent(event, now - born_ns))
        yield from self._send_to_roots(now, event, born_ns)

    def on_multicast(self, now: Nanos, sender: PeerId, message: MulticastEvent) -> Iterator[PluginEffect]:
        """Deliver an event that came by the multicast of this cluster."""
        event, born_ns = message.event, self._born_ns(now, sender, message.age_ns)
        yield from self._deliver(event, born_ns)
        if message.tree == PUBLISHED_HERE:
            yield from self._send_to_roots(now, event, born_ns)
        elif self._cluster.my_trees:
            yield from self._expect_on_other_trees(now, message.group, event, born_ns)

    def _send_to_roots(self, now: Nanos, event: Event, born_ns: Nanos) -> Iterator[PluginEffect]:
        """Pass an event of this cluster on to the roots of this coordinator's trees."""
        if self._cluster.my_trees:
            put_newest(self._events, event.id, (event, born_ns, True), MAX_EVENTS)
        for tree in self._cluster.my_trees:
            for group in find_groups(event):
                yield from self._send_towards_root(now, EventToRoot(group, tree, event, 0), born_ns)

    def on_way_to_root(self, now: Nanos, sender: PeerId, message: EventToRoot) -> Iterable[PluginEffect]:
        return self._send_towards_root(now, message, self._born_ns(now, sender, message.age_ns))

    def _send_towards_root(self, now: Nanos, message: EventToRoot, born_ns: Nanos) -> Iterable[PluginEffect]:
        group, tree, event, hops = message.group, message.tree, message.event, message.hops
        hop = self._cluster.next_to_root(group, tree)
        if hop is None:
            return self._distribute(now, group, tree, event, born_ns, hops)
        if hops >= MAX_HOPS:
            return [Drop(event.id, (self._cluster.me,), "routing-loop")]
        return self._cluster.send(hop, tree, EventToRoot(group, tree, event, now - born_ns, hops + 1))

    # ---------------------------------------------------------------- down the trees

    def on_way_down(self, now: Nanos, sender: PeerId, cluster: str, message: EventDown) -> Iterable[PluginEffect]:
        born_ns = self._born_ns(now, sender, message.age_ns)
        return self._distribute(now, message.group, message.tree, message.event, born_ns, message.hops, cluster)

    def _distribute(
        self, now: Nanos, group: str, tree: int, event: Event, born_ns: Nanos, hops: int, cluster: str = ""
    ) -> Iterator[PluginEffect]:
        """Multicast an event that came by a tree, once, and pass it on to the children there."""
        id_, mine = event.id, self._cluster.name
        if not self._forwarded.add((tree, group, id_)):
            yield Notice("duplicate", self._cluster.me)
            return
        self._late.record_arrival(now, (group, tree), id_, (tree, id_) in self._fetched)
        yield from self._expect_on_other_trees(now, group, event, born_ns)
        if group in self._groups.cluster_groups() and not self._events[id_][2]:
            yield from self._cluster.multicast(MulticastEvent(event, now - born_ns, tree, group))
        yield from self._deliver(event, born_ns)
        for child in self._places.get(group, tree).children:
            if child not in (cluster, mine) and hops < MAX_HOPS:
                yield from self._cluster.send(child, tree, EventDown(group, tree, event, now - born_ns, hops + 1))

    def _deliver(self, event: Event, born_ns: Nanos) -> Iterator[PluginEffect]:
        """Deliver an event to this peer's subscribers, once. Its publisher's own subscribers have it already."""
        is_own = event.id.publisher == self._cluster.me
        if not is_own and self._delivered.add(event.id) and self._subscriptions.targets(event):
            yield DeliverHere(event, born_ns)

    def _born_ns(self, now: Nanos, sender: PeerId, age_ns: Nanos) -> Nanos:
        """When an event was published, in this peer's time."""
        return now - min(max(0, age_ns), FOREVER) - self._cluster.round_trip_ns(sender) // 2

    # ---------------------------------------------------------------- recovery

    def _expect_on_other_trees(self, now: Nanos, group: str, event: Event, born_ns: Nanos) -> Iterator[PluginEffect]:
        """Wait for an event on those trees of this coordinator that have not brought it."""
        id_ = event.id
        if id_ not in self._events:
            put_newest(self._events, id_, (event, born_ns, False), MAX_EVENTS)
        self._late.record_first_arrival(now, group, id_)
        for tree in self._cluster.my_trees:
            has_parent = self._places.get(group, tree).parent is not None
            if has_parent and (tree, group, id_) not in self._forwarded:
                yield self._late.expect(now, (group, tree), id_)

    def tell_parents(self, now: Nanos) -> Iterator[PluginEffect]:
        """Tell parents of events that they did not send in time."""
        for (group, tree), id_ in self._late.pop_late(now):
            parent = self._places.get(group, tree).parent
            if parent is not None and tree in self._cluster.my_trees:
                yield from self._cluster.send(parent, tree, OfferEvent(group, tree, id_))

    def on_offer(self, sender: PeerId, message: OfferEvent) -> list[PluginEffect]:
        """Ask a child for an event that this cluster has missed, and join the trees again."""
        if message.id in self._events:
            return []
        rejoin = Rejoin(message.group)
        return [
            SendTo(sender, FetchEvent(message.group, message.tree, message.id)),
            Notice("reroute", sender),
            *self._cluster.send_to_partners(rejoin),
        ]

    def on_fetch(self, now: Nanos, sender: PeerId, message: FetchEvent) -> Iterator[PluginEffect]:
        entry = self._events.get(message.id)
        if entry is not None:
            event, born_ns, _ = entry
            self._fetched.add((message.tree, message.id))
            yield SendTo(sender, EventDown(message.group, message.tree, event, now - born_ns))
