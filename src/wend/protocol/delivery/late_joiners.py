"""Who is heard of only after an event was published, and would have got it a moment later.

With persistency an event is for those who are known to want it. On an overlay that peers are still finding, most are
not known yet. So while new peers turn up, or one that this peer was told of at its start has never been heard, what was
published is remembered: one whose first word says that it wants it gets it too. A peer that nobody spoke of gets what
is not older than `HOLD_NS`. Where nobody is waited for and nobody new has been heard of for a while, nothing is
remembered, and a subscription is for what comes after it.
"""

from wend.model.events import Event, EventId, PeerId
from wend.model.units import SECOND, Nanos

HOLD_NS: Nanos = 30 * SECOND
"""How old an event may be for a peer that nobody spoke of."""
SETTLE_NS: Nanos = 10 * SECOND
"""When no new peer has appeared for this long, the overlay has formed."""


class LateJoiners:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[PeerId] = set()
        self._awaited: set[PeerId] = set()
        self._since: Nanos = 0
        self._recent: dict[EventId, tuple[Event, Nanos]] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def begin(self, now: Nanos, known: frozenset[PeerId], told: tuple[PeerId, ...]) -> None:
        """With those of whom a former life heard, and those whom the driver speaks of."""
        self._since = now
        self._known.update(known)
        self._awaited.update(peer for peer in told if peer not in self._known)

    def recall(self, event: Event, born: Nanos) -> None:
        """A former life remembered it."""
        self._recent[event.id] = (event, born)

    def published(self, now: Nanos, event: Event) -> bool:
        """Whether it is remembered."""
        if self._settled(now):
            return False
        self._recent[event.id] = (event, now)
        return True

    def forgotten(self, now: Nanos) -> list[tuple[EventId, tuple[PeerId, ...]]]:
        """What need not be remembered any longer, or has to make room, and then those who are waited for."""
        spare, waited_for = len(self._recent) - self._limit, tuple(sorted(self._awaited))
        if spare <= 0 and waited_for:
            return []
        settled = self._settled(now)
        gone = [
            id_
            for number, (id_, (_, born)) in enumerate(self._recent.items())
            if number < spare or settled or (not waited_for and now - born > HOLD_NS)
        ]
        for id_ in gone:
            del self._recent[id_]
        return [(id_, waited_for) for id_ in gone]

    def heard(self, now: Nanos, peer: PeerId) -> list[tuple[Event, Nanos]]:
        """What a peer that was not known may have missed, and when it was published."""
        if peer in self._known:
            return []
        awaited = peer in self._awaited
        self._known.add(peer)
        self._awaited.discard(peer)
        self._since = now
        return [(event, born) for event, born in self._recent.values() if awaited or now - born <= HOLD_NS]

    def _settled(self, now: Nanos) -> bool:
        return not self._awaited and bool(self._known) and now - self._since >= SETTLE_NS
