"""What a peer of a cluster follows, and how it repairs what it missed.

- A member tells coordinators and backups which groups it follows. What any member follows, the cluster follows.
- Coordinators and backups hold events for a while. Coordinators tell all members by digests what they have; who lacks
  something that it follows fetches it.
"""

from typing import Annotated, Any, ClassVar

from wend.matching.filters import parse
from wend.model.events import PeerId
from wend.model.keys import key_of
from wend.model.settings import Settings, setting
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.plugins import (
    DeliverySettings,
    Interest,
    Multicast,
    PeerConfig,
    PluginEffect,
    Refuse,
    Remember,
    SendTo,
    Timer,
    View,
)
from wend.strategies.clusters.interest.event_log import EventLog, Logged, Numbers, Stream, StreamLog
from wend.strategies.clusters.interest.messages import (
    ClusterEvent,
    EventsGone,
    FetchEvents,
    FollowedSince,
    GroupDigest,
    MemberWants,
    StreamDigest,
)
from wend.strategies.clusters.membership.slots import holders_of
from wend.strategies.ring.groups import group_of
from wend.strategies.subscriptions.table import SubscriptionTable

REPAIR_NS: Nanos = SECOND
"""How often digests are told while there is news, and missing events are fetched."""
SOON_NS: Nanos = 20 * MS
"""An event that is missing may be in transit for so long."""
TOLD = 2
"""How often a digest is told after the last news."""
BATCH = 32
"""Groups in one message."""
RANGES = 16
"""Ranges of numbers in one message."""
STREAMS = 64
"""Streams in one digest."""
IDLE = 10
"""After so many times the time for which events are held, a stream that did not grow is forgotten."""
TRIES = 2
"""How often a message is sent to a peer that another can stand in for."""
LONGEST_NS: Nanos = 8 * SECOND
"""The longest wait between two attempts to fetch an event, or to hand one to a coordinator."""
FETCH = "fetch"
REPAIR = "repair"


class ClusterEventSettings(Settings, frozen=True, kw_only=True):
    """The repair of events, and the upkeep of trees between clusters."""

    title: ClassVar[str] = "Clusters"

    cluster_beacon_ns: Annotated[
        Nanos,
        setting("How often members and trees between clusters renew their subscriptions.", unit="s", low=0.1, high=1e6),
    ] = 10 * SECOND
    diverse_parents: Annotated[
        bool,
        setting("Whether the trees between clusters choose parents whose paths share few routers."),
    ] = True
    cluster_hold_ns: ClassVar[Nanos] = 120 * SECOND
    """How long coordinators hold events for peers that lack them; with persistency until there is no room."""


class FollowedGroups(Interest):
    """The groups of a member, its log, and the groups of its cluster at coordinators and backups."""

    table: SubscriptionTable

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config, SubscriptionTable(config.peer, asks_publishers=False))
        self._me = config.peer
        delivery = config.of(DeliverySettings)
        self._shared = config.of(ClusterEventSettings)
        self._persistency = delivery.persistency
        self._incarnation = config.incarnation
        self._log = EventLog(delivery.retry_limit)
        self._since: dict[str, Nanos] = {}
        """The groups that this peer's subscriptions follow, each with the time since when."""
        self._stored_since: dict[str, Nanos] = {}
        """The same, as a former incarnation stored it."""
        self._wants: dict[PeerId, dict[str, tuple[Nanos, Nanos]]] = {}
        """At coordinators and backups: the groups that members follow, since when, and when they last said so."""
        self._asked: dict[Stream, tuple[Nanos, int]] = {}
        """When to ask for missing events of a stream again, and how often this peer did."""
        self._sources: dict[Stream, PeerId] = {}
        """Who is known to have more of a stream than this peer."""
        self._news: dict[str, int] = {}
        """How often to tell the digest of each group."""
        self._repairing = False
        self._stopping = False
        self._out: list[PluginEffect] = []
        self._members: Any

    # ---------------------------------------------------------------- for the subclass

    def _follows_more(self, now: Nanos) -> None:
        """A coordinator or backup: the cluster follows other groups than before."""

    def _knows(self, sender: PeerId) -> bool:
        """Whether a peer is a member, or speaks for another cluster."""
        return self._is_member(sender)

    def _ask_abroad(self, now: Nanos, stream: Stream, numbers: tuple[Numbers, ...], age_ns: Nanos, tries: int) -> None:
        """Fetch events from a neighbour on a tree."""

    # ---------------------------------------------------------------- roles

    @property
    def _holds(self) -> bool:
        """Whether this peer is a coordinator or a backup."""
        return bool(self._members.my_trees or self._members.my_backups)

    @property
    def _holders(self) -> list[PeerId]:
        """The coordinators and backups of this cluster, but for this peer."""
        return [peer for peer in holders_of(self._members.slots) if peer != self._me]

    def _follows(self, group: str) -> bool:
        return group in self._since or (self._holds and self._cluster_since(group) is not None)

    def _cluster_since(self, group: str) -> Nanos | None:
        """Since when the cluster follows a group, as a coordinator or backup knows."""
        times = [groups[group][0] for groups in self._wants.values() if group in groups]
        if group in self._since:
            times.append(self._since[group])
        return min(times, default=None)

    # ---------------------------------------------------------------- what members want

    def _subscriptions_changed(self, now: Nanos, view: View) -> None:
        self.table.announced(view)
        groups = dict.fromkeys(group_of(parse(subscription.filter)) for subscription in self.table.own)
        before, self._since = self._since, {}
        for group in groups:
            since = before.get(group)
            if since is None:
                since = self._stored_since.get(group, now)
                self._out.append(Remember(key_of(group) >> 80, FollowedSince(group, since)))
            self._since[group] = since
        if groups.keys() != before.keys():
            self._forget_streams()
            self._tell_wants(now, tuple(group for group in before if group not in groups))
            if self._holds:
                self._follows_more(now)

    def _forget_streams(self) -> None:
        """Forget the streams of groups that nobody here follows any more. Own streams stay: others may lack them."""
        for stream in list(self._log.streams):
            if stream[0] != self._me and not self._follows(stream[2]) and not self._holds:
                self._log.drop(stream)
                self._asked.pop(stream, None)

    def _tell_wants(self, now: Nanos, gone: tuple[str, ...] = ()) -> None:
        groups = [(group, now - since) for group, since in self._since.items()]
        parts = [tuple(groups[at : at + BATCH]) for at in range(0, len(groups), BATCH)] or [()]
        if not groups and not gone:
            return
        for peer in self._holders:
            for part in parts:
                self._send(peer, MemberWants(part, gone))

    def _hear_wants(self, now: Nanos, sender: PeerId, told: MemberWants) -> None:
        if not self._is_member(sender):
            return
        wants = self._wants.setdefault(sender, {})
        more = any(group not in wants for group, _ in told.groups) or any(group in wants for group in told.gone)
        for group in told.gone:
            wants.pop(group, None)
        for group, age in told.groups:
            wants[group] = (now - max(0, age), now)
        if more:
            self._follows_more(now)
        if self._is_first:
            for group, _ in told.groups:
                for digest in self._digests(group):
                    self._send(sender, digest)

    def _is_member(self, sender: PeerId) -> bool:
        if sender in self._members.members:
            return True
        self._refuse(sender, "a message of a peer that is no member of the cluster")
        return False

    @property
    def _is_first(self) -> bool:
        """Whether this peer speaks for the cluster's coordinators."""
        slots = self._members.slots
        return bool(slots) and slots[0].active == self._me

    def _expire_wants(self, now: Nanos) -> None:
        old = now - 4 * self._shared.cluster_beacon_ns
        for peer, wants in list(self._wants.items()):
            for group in [group for group, (_, heard) in wants.items() if heard < old]:
                del wants[group]
            if not wants:
                del self._wants[peer]

    # ---------------------------------------------------------------- repair

    def _missing(self, now: Nanos, stream: Stream) -> None:
        """Fetch what this peer lacks, soon."""
        if stream not in self._asked:
            self._asked[stream] = (now + SOON_NS, 0)
            self._out.append(Timer(now + SOON_NS, FETCH))

    def _fetch(self, now: Nanos) -> None:
        for stream, (until, tries) in list(self._asked.items()):
            found = self._log.streams.get(stream)
            if found is None or not found.lacks:
                del self._asked[stream]
                continue
            if until > now:
                continue
            self._asked[stream] = (now + min(LONGEST_NS, REPAIR_NS << min(tries, 5)), tries + 1)
            self._ask(now, stream, tuple(found.missing(RANGES)), tries)
            self._repair_soon(now)

    def _ask(self, now: Nanos, stream: Stream, numbers: tuple[Numbers, ...], tries: int) -> None:
        since = self._since_of(stream)
        age = max(0, now - since)
        source = self._sources.get(stream)
        holders = self._holders
        if source is None or tries % 2:  # whoever said so may be gone
            others = [peer for peer in (*holders, stream[0]) if peer != self._me and peer in self._members.members]
            source = others[(tries // 2) % len(others)] if others else None
        if source is not None and source in self._members.members:
            self._send(source, FetchEvents(*stream, numbers, age))
        if self._members.my_trees and (tries % 2 or source is None):
            self._ask_abroad(now, stream, numbers, age, tries)

    def _since_of(self, stream: Stream) -> Nanos:
        """Events that were published before this time are not wanted."""
        times = [self._since[stream[2]]] if stream[2] in self._since else []
        if self._holds:
            cluster = self._cluster_since(stream[2])
            times += [cluster] if cluster is not None else [-(1 << 62)]  # a coordinator passes on what others want
        return min(times, default=0)

    def _give(self, now: Nanos, sender: PeerId, told: FetchEvents) -> None:
        """Answer a peer that lacks events."""
        stream = (told.publisher, told.incarnation, told.group)
        for numbers in told.numbers[:RANGES]:
            given, gone = self._log.give(stream, numbers, now - told.age_ns)
            for number, logged in given:
                self._send(sender, self._copy(now, stream, number, logged, told))
            if gone:
                self._send(sender, EventsGone(*stream, tuple(gone[:RANGES])))

    def _copy(self, now: Nanos, stream: Stream, number: int, logged: Logged, told: FetchEvents) -> Any:
        """A copy of an event for a member."""
        return ClusterEvent(
            logged.home or self._members.cluster, ((stream[2], number),), logged.event, now - logged.born_ns
        )

    def _gone(self, now: Nanos, sender: PeerId, told: EventsGone) -> None:
        """Another peer cannot give events any more; this one does without."""
        stream = (told.publisher, told.incarnation, told.group)
        found = self._log.streams.get(stream)
        if found is None or not self._knows(sender):
            return
        for numbers in told.numbers:
            if 0 < numbers[0] <= numbers[1] <= found.last:
                found.skip(numbers)

    def _digests(self, group: str, to: str = "", tree: int = -1, asks: bool = False) -> list[GroupDigest]:
        streams = [
            StreamDigest(stream[0], stream[1], found.last if stream[0] == self._me else _has_until(found))
            for stream, found in self._log.of_group(group)
            if found.events
        ]
        streams = [one for one in streams if one.last]
        if not streams and not asks:
            return []
        parts = [tuple(streams[at : at + STREAMS]) for at in range(0, len(streams), STREAMS)] or [()]
        return [GroupDigest(group, part, to, tree, asks) for part in parts]

    def _hear_digest(self, now: Nanos, sender: PeerId, told: GroupDigest) -> None:
        """Another peer has these events; fetch those that this one lacks."""
        if not self._is_member(sender) or not self._follows(told.group):
            return
        for one in told.streams:
            stream = (one.publisher, one.incarnation, told.group)
            if one.publisher == self._me and one.incarnation == self._incarnation:
                continue
            found = self._log.stream(now, stream)
            found.last = max(found.last, one.last)
            if found.lacks:
                self._sources[stream] = sender
                self._missing(now, stream)

    def _repair_soon(self, now: Nanos) -> None:
        if not self._repairing:
            self._repairing = True
            self._out.append(Timer(now + REPAIR_NS, REPAIR))

    # ---------------------------------------------------------------- sending

    def _cast(self, now: Nanos, message: Any) -> None:
        """Send a message to all members of the cluster."""
        if self._members.multicast_works:
            self._out.append(Multicast(f"cluster {self._members.cluster}", message))
            return
        for peer in self._members.members:
            if peer != self._me:
                self._send(peer, message)

    def _send(self, peer: PeerId, message: Any, tries: int = TRIES) -> None:
        if tries == 1:
            self._out.append(SendTo(peer, message))
        else:
            wait = self._members.round_trip_ns(peer) * 3 // 2 + 20 * MS
            self._out.append(SendTo(peer, message, True, wait, tries))

    def _refuse(self, sender: PeerId, reason: Any) -> None:
        self._out.append(Refuse(sender, reason))


def _has_until(found: StreamLog) -> int:
    """The highest number up to which digests promise events: what others may fetch here."""
    return found.complete if found.lacks else found.last
