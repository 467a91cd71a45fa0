"""Who is heard of just after an event was published, and would have got it a moment later.

With persistency an event is for those who are known to want it. On an overlay that peers are still finding, most are
not known yet. So while new peers turn up, what was published lately is remembered: one whose first word says
that it wants it gets it too. Where nobody new has been heard of for a while, nothing is remembered, and a subscription
is for what comes after it.
"""

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.routing.held import HOLD_NS, SETTLE_NS


class Newcomers:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[PeerId] = set()
        self._since: Nanos = 0
        self._recent: dict[EventId, tuple[Event, Nanos]] = {}

    def begin(self, now: Nanos, known: frozenset[PeerId]) -> None:
        """With those of whom a former life heard."""
        self._since = now
        self._known.update(known)

    def published(self, now: Nanos, event: Event) -> bool:
        """Whether it is remembered."""
        if self._known and now - self._since >= SETTLE_NS:
            self._recent.clear()
            return False
        self._recent[event.id] = (event, now)
        if len(self._recent) > self._limit:
            del self._recent[next(iter(self._recent))]
        return True

    def heard(self, now: Nanos, peer: PeerId) -> list[tuple[Event, Nanos]]:
        """What a peer that was not known may have missed, and when it was published."""
        if peer in self._known:
            return []
        self._known.add(peer)
        self._since = now
        self._recent = {id_: one for id_, one in self._recent.items() if now - one[1] <= HOLD_NS}
        return list(self._recent.values())
