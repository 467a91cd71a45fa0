"""Late joiners: peers that become known only after an event was published, and should still get it.

With persistence an event goes to the subscribers that its publisher knows. While the overlay forms, most are unknown.
So a publisher stores its recent events while new peers appear, or while a peer configured at its start has sent
nothing. If the first message of a peer has a subscription that matches a stored event, the peer gets the event. A peer
that was not configured gets only events not older than `HOLD_NS`. Once no configured peer is missing and no new one has
appeared for a while, the publisher stores no more events: a subscription then covers only later events.
"""

from wend.model.events import Event, EventId, PeerId, event_bytes
from wend.model.units import SECOND, Nanos

HOLD_NS: Nanos = 30 * SECOND
"""The greatest age of an event for a peer that was not configured."""
SETTLE_NS: Nanos = 10 * SECOND
"""The overlay has formed if no new peer has appeared for this long."""


class LateJoiners:
    """The recent events of this peer, and the peers that may still need them."""

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._known: set[PeerId] = set()
        self._awaited: set[PeerId] = set()
        self._since: Nanos = 0
        self._recent: dict[EventId, tuple[Event, Nanos]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._recent)

    def begin(self, now: Nanos, known: frozenset[PeerId], told: tuple[PeerId, ...]) -> None:
        """Start with the peers that an earlier incarnation knew, and the configured ones."""
        self._since = now
        self._known.update(known)
        self._awaited.update(peer for peer in told if peer not in self._known)

    def restore(self, event: Event, born: Nanos) -> None:
        """Restore an event that an earlier incarnation stored for late joiners."""
        self._store(event, born)

    def on_published(self, now: Nanos, event: Event) -> bool:
        """Store a published event unless the overlay has formed. Return whether it is stored."""
        if self._is_settled(now):
            return False
        self._store(event, now)
        return True

    def _store(self, event: Event, born: Nanos) -> None:
        if event.id not in self._recent:
            self._bytes += event_bytes(event)
        self._recent[event.id] = (event, born)

    def forget_unneeded(self, now: Nanos) -> list[tuple[EventId, tuple[PeerId, ...]]]:
        """Remove events that no peer needs or that exceed a limit. Return them with the peers still missing."""
        spare, waited_for = len(self._recent) - self._limit, tuple(sorted(self._awaited))
        if spare <= 0 and self._bytes <= self._limit_bytes and waited_for:
            return []
        settled = self._is_settled(now)
        gone: list[EventId] = []
        for number, (id_, (event, born)) in enumerate(self._recent.items()):
            over = number < spare or self._bytes > self._limit_bytes
            if over or settled or (not waited_for and now - born > HOLD_NS):
                self._bytes -= event_bytes(event)
                gone.append(id_)
        for id_ in gone:
            del self._recent[id_]
        return [(id_, waited_for) for id_ in gone]

    def on_interest(self, now: Nanos, peer: PeerId) -> list[tuple[Event, Nanos]]:
        """Handle the interest of a peer. If the peer was unknown, return the events that it may have missed, with their
        times of publication."""
        if peer in self._known:
            return []
        awaited = peer in self._awaited
        self._known.add(peer)
        self._awaited.discard(peer)
        self._since = now
        return [(event, born) for event, born in self._recent.values() if awaited or now - born <= HOLD_NS]

    def _is_settled(self, now: Nanos) -> bool:
        return not self._awaited and bool(self._known) and now - self._since >= SETTLE_NS
