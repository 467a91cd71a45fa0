"""Events of this peer's publishers, until every coordinator of the cluster has accepted them.

A publisher's peer numbers its events in each of their groups and sends them to all members. It sends an event again to
a coordinator that has not accepted it. With persistence it stores the event until all have.
"""

from collections.abc import Iterable, Iterator

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Drop, Notice, PluginEffect, Remember
from wend.strategies.clusters.interest.cluster import ClusterView
from wend.strategies.clusters.interest.event_log import EventLog, Logged
from wend.strategies.clusters.interest.messages import ClusterEvent, EventAccepted, GroupNumbers, PublishedEvent
from wend.strategies.clusters.interest.repair import REPAIR_NS, backoff_ns
from wend.strategies.ring.bounded import StoreSlots
from wend.strategies.ring.groups import find_groups


class _Publication(msgspec.Struct, eq=False):
    """An event that some coordinators have not accepted."""

    numbers: GroupNumbers
    slot: int | None
    """Its place in the store."""
    retry_ns: Nanos
    trees: dict[int, None] = {}
    """The trees whose coordinators have accepted it."""
    attempts: int = 0


class OwnPublications:
    """The events that this peer's publishers hand to the cluster."""

    def __init__(self, cluster: ClusterView, log: EventLog, persistence: bool) -> None:
        self._cluster = cluster
        self._log = log
        self._persistence = persistence
        self._last: dict[str, int] = {}
        """The last number in each group."""
        self._pending: dict[EventId, _Publication] = {}
        self._slots = StoreSlots()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, now: Nanos, event: Event, born_ns: Nanos) -> tuple[GroupNumbers, list[PluginEffect]]:
        """Number an event and send it to all members. No numbers: the peer has not joined, and the event is lost."""
        groups = find_groups(event)
        for group in groups:
            self._last[group] = self._last.get(group, 0) + 1
        numbers = tuple((group, self._last[group]) for group in groups)
        effects: list[PluginEffect] = []
        slot = None
        has_joined = self._cluster.membership.has_joined
        if self._persistence:
            slot = self._slots.allocate()
            effects.append(Remember(slot, PublishedEvent(slot, numbers, event, born_ns)))
        elif not has_joined:
            me = self._cluster.me
            return (), [Notice("published-early", me), Drop(event.id, (me,), "not-joined")]
        self._pending[event.id] = _Publication(numbers, slot, now + REPAIR_NS)
        if has_joined:
            effects += self._cluster.multicast(ClusterEvent(self._cluster.name, numbers, event, now - born_ns))
        return numbers, effects

    def accept(self, event: EventId, trees: Iterable[int]) -> list[PluginEffect]:
        """Record that the coordinators of these trees have accepted an event. Forget the event if all have."""
        publication = self._pending[event]
        publication.trees.update(dict.fromkeys(trees))
        slots = self._cluster.slots
        if not slots or any(tree not in publication.trees for tree in range(len(slots))):
            return []
        del self._pending[event]
        if publication.slot is None:
            return []
        self._slots.free(publication.slot)
        return [Remember(publication.slot, PublishedEvent(publication.slot))]

    def is_pending(self, event: EventId) -> bool:
        return event in self._pending

    def on_accepted(self, sender: PeerId, answer: EventAccepted) -> list[PluginEffect]:
        slots = self._cluster.slots
        return self.accept(
            answer.id, [tree for tree in answer.trees if 0 <= tree < len(slots) and slots[tree].active == sender]
        )

    def retry_now(self, now: Nanos) -> Iterable[PluginEffect]:
        """Send new coordinators the events that they have not accepted."""
        for publication in self._pending.values():
            publication.retry_ns = now
        return self.retry(now)

    def retry(self, now: Nanos) -> Iterator[PluginEffect]:
        """Send events again to coordinators that have not accepted them in time."""
        cluster = self._cluster
        if not cluster.membership.has_joined:
            return
        for id_, publication in list(self._pending.items()):
            if publication.retry_ns > now:
                continue
            publication.attempts += 1
            publication.retry_ns = now + backoff_ns(publication.attempts)
            yield from self.accept(id_, cluster.my_trees)  # digests inform its neighbours in other clusters
            if id_ not in self._pending:
                continue
            group, number = publication.numbers[0]
            logged = self._log.open_stream(now, (id_.publisher, id_.incarnation, group)).events.get(number)
            if logged is None:  # it was dropped to make room
                del self._pending[id_]
                continue
            message = ClusterEvent(cluster.name, publication.numbers, logged.event, now - logged.born_ns)
            missing = [slot.active for tree, slot in enumerate(cluster.slots) if tree not in publication.trees]
            yield from [cluster.send(peer, message) for peer in dict.fromkeys(missing)]

    def restore(self, now: Nanos, record: PublishedEvent) -> None:
        """Restore a record of an earlier incarnation: an event, or a free place."""
        slot, event = record.slot, record.event
        self._slots.recall(slot, event is not None)
        for id_ in [id_ for id_, publication in self._pending.items() if publication.slot == slot]:
            del self._pending[id_]
        if event is None:
            return
        self._pending[event.id] = _Publication(record.numbers, slot, now)
        logged = Logged(event, record.born_ns, "")
        for group, number in record.numbers:
            stream = (event.id.publisher, event.id.incarnation, group)
            self._log.open_stream(now, stream).add(number)
            self._log.hold(now, stream, number, logged)
