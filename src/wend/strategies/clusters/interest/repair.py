"""Repair of missed events, inside a cluster and between clusters.

Coordinators and backups hold events for a while. Coordinators send digests of the events that they have to all
members, and to their neighbours in other clusters. A peer that lacks events of a group that it follows fetches them.
"""

from collections.abc import Callable, Iterator

from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.plugins import Notice, PluginEffect, Timer
from wend.strategies.clusters.interest.cluster import ClusterView
from wend.strategies.clusters.interest.event_log import EventLog, LogEntry, Numbers, Stream
from wend.strategies.clusters.interest.groups import FollowedGroups
from wend.strategies.clusters.interest.messages import (
    ClusterEvent,
    EventsGone,
    FetchEvents,
    GroupDigest,
    StreamDigest,
    TreeEvent,
)
from wend.strategies.ring.bounded import split_into_batches

REPAIR_NS: Nanos = SECOND
"""The interval at which digests of new events are sent, and missing events are fetched."""
SOON_NS: Nanos = 20 * MS
"""How long a missing event may be in transit."""
LONGEST_NS: Nanos = 8 * SECOND
"""The longest wait between two attempts to fetch an event, or to hand one to a coordinator."""
DIGEST_REPEATS = 2
"""How often a digest is repeated after the last new event."""
RANGES = 16
"""Ranges of numbers in one message."""
RANGES_BETWEEN = 4
"""The same in an answer to the digest of another cluster."""
STREAMS = 64
FETCH = "fetch"
REPAIR = "repair"

Neighbours = Callable[[str, int], list[str]]
"""The neighbours of this cluster for a group and a tree."""


def backoff_ns(attempts: int) -> Nanos:
    """How long to wait after this number of attempts."""
    return min(LONGEST_NS, REPAIR_NS << min(attempts, 5))


class Repair:
    """The events that this peer lacks and whom it asks for them, and the digests of those that it has."""

    def __init__(self, cluster: ClusterView, groups: FollowedGroups, log: EventLog, incarnation: int) -> None:
        self._cluster = cluster
        self._groups = groups
        self.log = log
        self._incarnation = incarnation
        self._retries: dict[Stream, tuple[Nanos, int]] = {}
        """When to ask for missing events of a stream again, and how often this peer has asked."""
        self._sources: dict[Stream, PeerId] = {}
        """A peer that has more of a stream than this one."""
        self._news: dict[str, int] = {}
        """How often to send the digest of each group again."""
        self.is_scheduled = False
        """Whether the timer for the next repair runs."""

    @property
    def is_busy(self) -> bool:
        return bool(self._retries or self._news)

    def schedule(self, now: Nanos) -> list[PluginEffect]:
        """Start the timer for the next repair, unless it runs."""
        if self.is_scheduled:
            return []
        self.is_scheduled = True
        return [Timer(now + REPAIR_NS, REPAIR)]

    def hold(self, now: Nanos, entry: LogEntry) -> Iterator[PluginEffect]:
        """Hold an event for others."""
        if self.log.hold(now, entry.stream, entry.number, entry.logged):
            yield Notice("queued", self._cluster.me)
        self._news[entry.group] = DIGEST_REPEATS
        yield from self.schedule(now)

    def announce_all(self, now: Nanos) -> list[PluginEffect]:
        """Send the digests of all groups again."""
        self._news.update({group: DIGEST_REPEATS for _, _, group in self.log.streams})
        return self.schedule(now)

    def announce_new_events(self, neighbours: Neighbours) -> Iterator[PluginEffect]:
        """Send members and neighbours a coordinator's digests of the groups with new events."""
        cluster = self._cluster
        for group in self._news:
            for digest in self.make_digests(group):
                yield from cluster.multicast(digest)
        for group in self._news:
            for tree in cluster.my_trees:
                for neighbour in neighbours(group, tree):
                    yield from self.send_digests(group, tree, neighbour)

    def count_down_repeats(self) -> None:
        self._news = {group: left - 1 for group, left in self._news.items() if left > 1}

    def send_digests(self, group: str, tree: int, cluster: str, asks: bool = False) -> Iterator[PluginEffect]:
        """Send a neighbour the digests of a group."""
        for digest in self.make_digests(group, cluster, tree, asks):
            yield from self._cluster.send_to_cluster(digest)

    def make_digests(self, group: str, to: str = "", tree: int = -1, asks: bool = False) -> list[GroupDigest]:
        me = self._cluster.me
        streams = [
            StreamDigest(publisher, incarnation, log.last if publisher == me else log.last_available)
            for (publisher, incarnation, _), log in self.log.streams_in(group)
            if log.events
        ]
        streams = [digest for digest in streams if digest.last]
        if not streams and not asks:
            return []
        return [GroupDigest(group, batch, to, tree, asks) for batch in split_into_batches(streams, STREAMS) or [()]]

    def answer(self, now: Nanos, sender: PeerId, request: FetchEvents, asker: str = "") -> Iterator[PluginEffect]:
        """Answer a member that lacks events, or another cluster."""
        stream = request.stream
        for numbers in request.numbers[:RANGES]:
            events, losses = self.log.select(stream, numbers, now - request.age_ns)
            for number, logged in events:
                message: ClusterEvent | TreeEvent
                if request.tree < 0:
                    home = logged.home or self._cluster.name
                    message = ClusterEvent(home, ((request.group, number),), logged.event, now - logged.born_ns)
                else:
                    message = self.make_tree_event(now, LogEntry(stream, number, logged), asker, request.tree, 1)
                yield self._cluster.send(sender, message)
            if losses:
                yield self._cluster.send(sender, EventsGone(*stream, tuple(losses[:RANGES])))

    def make_tree_event(self, now: Nanos, entry: LogEntry, to: str, tree: int, hops: int) -> TreeEvent:
        """A copy of an event for another cluster."""
        logged = entry.logged
        home = logged.home or self._cluster.name
        return TreeEvent(to, tree, home, entry.group, entry.number, logged.event, now - logged.born_ns, hops)

    def fetch_soon(self, now: Nanos, stream: Stream, source: PeerId) -> list[PluginEffect]:
        """Fetch soon what this peer lacks of a stream."""
        self._sources[stream] = source
        if stream in self._retries:
            return []
        self._retries[stream] = (now + SOON_NS, 0)
        return [Timer(now + SOON_NS, FETCH)]

    def fetch(self, now: Nanos, neighbours: Neighbours) -> Iterator[PluginEffect]:
        """Ask for the events that this peer lacks, from a member or from neighbours."""
        for stream, (due_ns, attempts) in list(self._retries.items()):
            log = self.log.streams.get(stream)
            if log is None or not log.has_gaps:
                del self._retries[stream]
            elif due_ns <= now:
                self._retries[stream] = (now + backoff_ns(attempts), attempts + 1)
                yield from self._request_events(now, stream, tuple(log.missing(RANGES)), attempts, neighbours)
                yield from self.schedule(now)

    def _request_events(
        self, now: Nanos, stream: Stream, numbers: tuple[Numbers, ...], attempts: int, neighbours: Neighbours
    ) -> Iterator[PluginEffect]:
        cluster = self._cluster
        age_ns = max(0, now - self._groups.oldest_ns(stream[2]))
        source = self._sources.get(stream)
        if source is None or attempts % 2:  # the peer that had more may be down
            others = [
                peer for peer in (*cluster.other_holders, stream[0]) if peer != cluster.me and peer in cluster.members
            ]
            source = others[(attempts // 2) % len(others)] if others else None
        if source is not None and source in cluster.members:
            yield cluster.send(source, FetchEvents(*stream, numbers, age_ns))
        if cluster.my_trees and (attempts % 2 or source is None):
            options = [(other, tree) for tree in cluster.my_trees for other in neighbours(stream[2], tree)]
            if options:
                request = FetchEvents(*stream, numbers, age_ns, *options[attempts % len(options)])
                yield from cluster.send_to_cluster(request)

    def on_digest(self, now: Nanos, sender: PeerId, digest: GroupDigest) -> Iterator[PluginEffect]:
        """Fetch the events that a member has and this peer lacks."""
        if not self._groups.follows(digest.group):
            return
        for each in digest.streams:
            if (each.publisher, each.incarnation) == (self._cluster.me, self._incarnation):
                continue
            stream = (each.publisher, each.incarnation, digest.group)
            log = self.log.open_stream(now, stream)
            log.last = max(log.last, each.last)
            if log.has_gaps:
                yield from self.fetch_soon(now, stream, sender)

    def on_cluster_digest(
        self, now: Nanos, sender: PeerId, cluster: str, digest: GroupDigest
    ) -> Iterator[PluginEffect]:
        """Fetch the events that another cluster has and this one lacks."""
        for each in digest.streams:
            stream = (each.publisher, each.incarnation, digest.group)
            log = self.log.open_stream(now, stream)
            log.last = max(log.last, each.last)
            if digest.tree in self._cluster.my_trees:
                numbers = tuple(gap for gap in log.missing(RANGES_BETWEEN) if gap[0] <= each.last)
                if numbers:
                    age_ns = now - self._groups.oldest_ns(digest.group)
                    request = FetchEvents(*stream, numbers, age_ns, cluster, digest.tree)
                    yield self._cluster.send(sender, request)
        if digest.asks:
            yield from self.send_digests(digest.group, digest.tree, cluster)

    def skip_lost(self, answer: EventsGone) -> None:
        """Do without events that another peer no longer has."""
        log = self.log.streams[answer.stream]
        for numbers in answer.numbers:
            if 0 < numbers[0] <= numbers[1] <= log.last:
                log.skip(numbers)

    def forget_streams(self) -> None:
        """Forget the streams of groups that this peer does not follow. Its own stay: others may lack their events."""
        if self._cluster.is_holder:
            return
        for stream in list(self.log.streams):
            if stream[0] != self._cluster.me and not self._groups.follows(stream[2]):
                self.log.drop(stream)
                self._retries.pop(stream, None)
