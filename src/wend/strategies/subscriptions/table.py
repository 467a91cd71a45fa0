"""The subscription table: the subscriptions and advertisements that this peer knows, and the lookups for events.

A peer has an exact index of its own subscriptions (`local.py`), and announces a summary (`summary.py`). It knows the
summaries of other peers. So an event may reach a peer whose summary matches it, though none of its subscriptions does.
That peer counts it as `false-positive`.
"""

from typing import TypeVar

import msgspec

from wend.matching.filters import parse
from wend.matching.index import Index
from wend.model.errors import FilterError
from wend.model.events import Event, PeerId, Qos, Subscription, SubscriptionId
from wend.model.units import MS, Nanos
from wend.protocol.plugins import (
    GraphView,
    LocalSubscription,
    Notify,
    PluginEffect,
    Timer,
    View,
    choose_subscriptions,
)
from wend.strategies.subscriptions.local import LocalSubscriptions

K = TypeVar("K")
V = TypeVar("V")
MAX_CACHED = 65_536
SMALL_BYTES = 1_200
"""Interest that fits one packet on every link: a peer announces all of it at once."""
PAUSE_NS = 50 * MS
"""The least time between two announcements of a larger interest."""
ANNOUNCE = "announce"
NEVER_NS = -PAUSE_NS
NO_SUBSCRIPTIONS = LocalSubscriptions(-1)
"""Shared by all peers without subscriptions, which are many in large simulations."""

DEFAULT_RELIABILITY = 1.0
"""The reliability that subscriptions need if they state none."""


class PeerInterest(msgspec.Struct, frozen=True, gc=False, tag="i", omit_defaults=True):
    """The subscriptions and advertisements of one peer."""

    origin: PeerId
    version: tuple[int, int]
    subscriptions: tuple[Subscription, ...]
    advertisements: tuple[str, ...]
    durable: bool = False
    """Whether a subscription is durable: after a restart the peer needs the events published in between."""
    away_ns: Nanos = 0
    """If above 0, the peer has stopped and will be back within this time. Until then other peers store events for
    it."""


class SubscriptionTable:
    """The subscriptions and advertisements that this peer knows, with an index of their filters.

    `asks_publishers`: whether some plug-in asks which peers publish an event, so that peers advertise.
    """

    def __init__(self, me: PeerId, asks_publishers: bool = True) -> None:
        self._me = me
        self._asks_publishers = asks_publishers
        self.interests: dict[PeerId, PeerInterest] = {}
        self._index: Index[SubscriptionId] = Index()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._targets: dict[object, tuple[PeerId, ...]] = {}
        self._notify: dict[tuple[object, PeerId], Notify] = {}
        self._deadlines: dict[tuple[object, PeerId, PeerId], Nanos | None] = {}
        self._graph_version = -1
        self._tests_only_topics = True
        self._ordered_count = 0
        self._expiring_count = 0
        self._grouped_count = 0
        """The numbers of subscriptions that are ordered, let events expire, or belong to queue groups."""
        self.own = NO_SUBSCRIPTIONS
        """The subscriptions of this peer."""
        self._advertisements: tuple[str, ...] = ()
        self._advertised_chars = 0
        self._covered_topics: dict[object, bool] | None = None
        """By topic, whether an advertisement covers it; computed on demand."""
        self._durable: set[int] | None = None
        """The numbers of this peer's durable subscriptions and logs; None before the first one."""
        self.away_ns: Nanos = 0
        """If above 0, this peer stops and will be back within this time."""
        self._revision = 0
        self._announced_ns: Nanos = NEVER_NS
        self._timer_ns: Nanos = -1
        """When the timer that announces changes expires."""

    # ---- lookups of the peer

    def targets(self, event: Event) -> tuple[PeerId, ...]:
        """The peers that announced a subscription that matches the event, sorted. A peer whose matching subscriptions
        all belong to queue groups counts only if the event names it."""
        key = self._key(event)
        targets = self._targets.get(key)
        if targets is None:
            me, local, subscriptions = self._me, self.own, self._subscriptions
            keys = self._index.match(event.attributes)
            if self._grouped_count:
                keys = tuple([key for key in keys if not subscriptions[key].qos.group])
            peers = {key.peer for key in keys if key.peer != me}
            numbers = local.match(event.attributes)
            if any(local.is_announced(n) and not local.qos(n).group for n in numbers):
                peers.add(me)
            targets = tuple(sorted(peers))
            _add_to_cache(self._targets, key, targets)
        if event.groups:
            return tuple(sorted({*targets, *[peers[0] for _, peers in event.groups if peers]}))
        return targets

    def members(self, event: Event) -> dict[str, tuple[PeerId, ...]]:
        if not self._grouped_count and not self.own.has_groups:
            return {}
        members: dict[str, set[PeerId]] = {}
        for key in self._index.match(event.attributes):
            group = self._subscriptions[key].qos.group
            if group and key.peer != self._me:
                members.setdefault(group, set()).add(key.peer)
        for number in self.own.match(event.attributes):
            group = self.own.qos(number).group
            if group:
                members.setdefault(group, set()).add(self._me)
        return {group: tuple(sorted(peers)) for group, peers in members.items()}

    def local(self, event: Event, view: View) -> Notify:
        """The local subscriptions that match the event, each with its deadline."""
        graph, me, local = view.graph, self._me, self.own
        if graph.version != self._graph_version:
            self._follow_graph(graph)
        publisher = event.id[0]
        key = (event.attributes.get("topic") if local.has_only_topics else event.id, publisher)
        notify = self._notify.get(key)
        if notify is None:
            wanted = local.match(event.attributes)
            notify = tuple(
                [(SubscriptionId(me, n), effective_deadline(local.qos(n), publisher, me, graph)) for n in wanted]
            )
            _add_to_cache(self._notify, key, notify)
        passed_on = event.origin is not None
        if not passed_on and local.is_plain and not event.direct:
            return notify
        notify = tuple([one for one in notify if local.is_announced(one[0].number) != event.direct])
        if not local.has_groups and not passed_on:
            return notify
        return choose_subscriptions(event, me, notify, lambda number: local.qos(number).group)

    def relative_deadlines(self) -> dict[PeerId, Nanos]:
        """The tightest deadlines of recent events, by publisher, for local subscriptions whose deadline is a multiple
        of the shortest delay."""
        tightest: dict[PeerId, Nanos] = {}
        for (_, publisher), notify in self._notify.items():
            for subscription, deadline in notify:
                if deadline is not None and self.own.qos(subscription.number).factor is not None:
                    tightest[publisher] = min(deadline, tightest.get(publisher, deadline))
        return tightest

    def widened(self, event: Event) -> bool:
        """Whether this peer's summary matches an event that may match none of its subscriptions."""
        return not self.own.summary.is_exact and any(
            key.peer == self._me for key in self._index.match(event.attributes)
        )

    def ordered(self, event: Event) -> tuple[PeerId, ...]:
        if not self._ordered_count:
            return ()
        keys = self._index.match(event.attributes)
        peers = {key.peer for key in keys if self._subscriptions[key].qos.order}
        return tuple([peer for peer in self.targets(event) if peer in peers])

    def stayed_away(self, peer: PeerId, now: Nanos) -> bool:
        return False

    def knows(self, peers: tuple[PeerId, ...]) -> bool:
        return True

    def expiry_ns(self, event: Event, subscriber: PeerId, graph: GraphView) -> Nanos | None:
        if not self._expiring_count:
            return None
        latest: Nanos | None = None
        for key in self._index.match(event.attributes):
            if key.peer == subscriber:
                qos = self._subscriptions[key].qos
                deadline = effective_deadline(qos, event.id.publisher, subscriber, graph) if qos.expire else None
                if deadline is None:
                    return None
                latest = deadline if latest is None else max(latest, deadline)
        return latest

    @property
    def origins(self) -> frozenset[PeerId]:
        """The peers whose interest is known."""
        return frozenset(self.interests)

    @property
    def advertised(self) -> tuple[int, int]:
        return len(self._advertisements), self._advertised_chars

    def advertises(self, event: Event) -> bool:
        """Whether an advertisement of this peer covers the event, or none is needed."""
        if not self._asks_publishers:
            return True
        topic = event.attributes.get("topic")
        topics = self._covered_topics
        if topics is None:
            topics = self._covered_topics = {}
        is_covered = topics.get(topic)
        if is_covered is None:
            offers = [parse(text) for text in self._advertisements]
            is_covered = any(offer.matches(event.attributes) for offer in offers)
            if all(offer.topic is not None for offer in offers):
                _add_to_cache(topics, topic, is_covered)
        return is_covered

    def subscribe(self, wanted: LocalSubscription, me: PeerId) -> None:
        """Add a local subscription. It floods with the next `Changed`. Raises FilterError."""
        if self.own is NO_SUBSCRIPTIONS:
            self.own = LocalSubscriptions(me)
        self.own.add(wanted.number, wanted.filter, wanted.qos, wanted.announced)
        if wanted.durable is not None or wanted.logged:
            self._durable = self._durable or set()
            self._durable.add(wanted.number)
        self._forget_local()

    def unsubscribe(self, number: int) -> None:
        self.own.discard(number)
        if self._durable is not None:
            self._durable.discard(number)
        self._forget_local()

    def advertise(self, text: str) -> None:
        parse(text)
        if text not in self._advertisements:
            self._advertisements = (*self._advertisements, text)
            self._advertised_chars += len(text)
            self._covered_topics = None

    def withdraw(self) -> None:
        if self.own is not NO_SUBSCRIPTIONS:
            self.own.clear()
        self._durable = None
        self._forget_local()
        self._advertisements = ()
        self._advertised_chars = 0
        self._covered_topics = None

    def will_be_back(self, away_ns: Nanos) -> None:
        self.away_ns = away_ns

    # ---- lookups of other plug-ins

    @property
    def filters(self) -> dict[str, float]:
        needs: dict[str, float] = {}
        for text, qos in sorted(self.own.summary.entries().values(), key=lambda entry: entry[0]):
            target = qos.reliability
            needs[text] = max(needs.get(text, 0.0), DEFAULT_RELIABILITY if target is None else target)
        return needs

    def need(self, event: Event) -> float:
        targets = [self._subscriptions[key].qos.reliability for key in self._index.match(event.attributes)]
        return max(
            (DEFAULT_RELIABILITY if target is None else target for target in targets), default=DEFAULT_RELIABILITY
        )

    def pairs(self, graph: GraphView) -> dict[tuple[PeerId, PeerId], Nanos | None]:
        by_filter: dict[str, list[Subscription]] = {}
        for one in self._subscriptions.values():
            by_filter.setdefault(one.filter, []).append(one)
        filters = [(parse(text), subscriptions) for text, subscriptions in by_filter.items()]
        offered: dict[str, list[Subscription]] = {}
        pairs: dict[tuple[PeerId, PeerId], Nanos | None] = {}
        for publisher, interest in sorted(self.interests.items()):
            for text in interest.advertisements:
                if text not in offered:
                    offer = parse(text)
                    offered[text] = [one for wants, some in filters if wants.intersects(offer) for one in some]
                for one in offered[text]:
                    subscriber = one.id.peer
                    if subscriber != publisher:
                        pair = (publisher, subscriber)
                        pairs[pair] = tighter(
                            pairs.get(pair), effective_deadline(one.qos, publisher, subscriber, graph)
                        )
        return pairs

    def deadline_ns(self, event: Event, subscriber: PeerId, graph: GraphView) -> Nanos | None:
        if graph.version != self._graph_version:
            self._follow_graph(graph)
        key = (self._key(event), event.id[0], subscriber)
        if key in self._deadlines:
            return self._deadlines[key]
        tightest: Nanos | None = None
        for wanted in self._index.match(event.attributes):
            if wanted.peer == subscriber:
                qos = self._subscriptions[wanted].qos
                tightest = tighter(tightest, effective_deadline(qos, event.id.publisher, subscriber, graph))
        if (
            subscriber in self.interests and event.id[0] in self.interests
        ):  # a neighbour can invent peers: do not cache those
            _add_to_cache(self._deadlines, key, tightest)
        return tightest

    def _key(self, event: Event) -> object:
        """The cache key of an event. Events with one key match the same subscriptions: the topic is the key while all
        filters test only the topic."""
        return event.attributes.get("topic") if self._tests_only_topics and self.own.has_only_topics else event.id

    def _follow_graph(self, graph: GraphView) -> None:
        """Forget deadlines that may be multiples of delays in an older graph."""
        self._graph_version = graph.version
        self._notify.clear()
        self._deadlines.clear()

    def _forget_local(self) -> None:
        self._targets.clear()
        self._notify.clear()

    @property
    def cached(self) -> int:
        """The number of cached target lists."""
        return len(self._targets)

    # ---- learning

    def next_announcement(self, view: View) -> PeerInterest:
        """Update the table after a local change, and return the new interest to announce: the whole summary."""
        self._revision += 1
        self.own.summary.take_changes()
        entries = self.own.summary.entries()
        mine = tuple([Subscription(SubscriptionId(view.me, n), text, qos) for n, (text, qos) in entries.items()])
        version = (view.incarnation, self._revision)
        interest = PeerInterest(view.me, version, mine, self._advertisements, bool(self._durable), self.away_ns)
        self.replace_interest(interest)
        return interest

    def skip_to_revision(self, revision: int) -> None:
        """Make the next announcement newer than this revision."""
        self._revision = max(self._revision, revision)

    def postpone_announcement(self, now: Nanos) -> list[PluginEffect] | None:
        """The effects that replace an announcement of this peer's interest now; None if it is due.

        A peer announces a small interest at once. It collects the changes of a large interest for a while, and does not
        announce changes that its summary covers."""
        summary, mine = self.own.summary, self.interests.get(self._me)
        size = summary.size + self._advertised_chars
        if (
            mine is not None
            and (size > SMALL_BYTES or not summary.is_exact)
            and not summary.has_changes
            and mine.advertisements == self._advertisements
            and mine.away_ns == self.away_ns
        ):
            return []
        if size <= SMALL_BYTES or self.away_ns or now >= self._announced_ns + PAUSE_NS:
            self._announced_ns = now
            self._timer_ns = -1
            return None
        if self._timer_ns >= now:
            return []
        self._timer_ns = self._announced_ns + PAUSE_NS
        return [Timer(self._timer_ns, ANNOUNCE)]

    def replace_interest(self, interest: PeerInterest) -> bool:
        """Replace a peer's interest. If one of its filters does not parse, change nothing and return False."""
        origin = interest.origin
        known = self.interests.get(origin)
        before = {} if known is None else {s.id: s for s in known.subscriptions if s.id.peer == origin}
        try:
            changed = [
                (s.id, parse(s.filter), s)
                for s in interest.subscriptions
                if s.id.peer == origin and before.pop(s.id, None) != s
            ]
            for offer in interest.advertisements:
                parse(offer)
        except FilterError:
            return False
        for key in before:
            self._index.discard(key)
            self._count_subscription(self._subscriptions.pop(key, None), -1)
        self.interests[origin] = interest
        for key, parsed, subscription in changed:
            self._index.add(key, parsed)
            self._count_subscription(self._subscriptions.get(key), -1)
            self._subscriptions[key] = subscription
            self._count_subscription(subscription, 1)
        self._tests_only_topics = self._index.has_only_topics
        self._targets.clear()
        self._notify.clear()
        self._deadlines.clear()
        return True

    def _count_subscription(self, subscription: Subscription | None, step: int) -> None:
        if subscription is not None:
            qos = subscription.qos
            self._ordered_count += step if qos.order else 0
            self._expiring_count += step if qos.expire else 0
            self._grouped_count += step if qos.group else 0


def _add_to_cache(cache: dict[K, V], key: K, value: V) -> None:
    """Cache a value. New topics may appear for ever, so a full cache starts empty again."""
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = value


def tighter(a: Nanos | None, b: Nanos | None) -> Nanos | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def effective_deadline(qos: Qos, publisher: PeerId, subscriber: PeerId, graph: GraphView) -> Nanos | None:
    """A subscription's deadline: as stated, or a multiple of the shortest delay."""
    if qos.deadline_ns is not None:
        return qos.deadline_ns
    if qos.factor is None:
        return None
    shortest = graph.distances(publisher).get(subscriber)
    return None if shortest is None else round(qos.factor * shortest)
