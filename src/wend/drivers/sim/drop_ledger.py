"""The packets that simulated queues drop: counted by reason and destination, with rows in the trace."""

from collections import Counter

from wend.model.events import EventId, PeerId
from wend.model.trace import Trace
from wend.model.units import Nanos
from wend.protocol.messages import Data, Fragment, Message

QUEUE_FULL = "queue-full"
PEER_BUSY = "peer-queue-full"
WAITED = "queue-delay"
"""Dropped by CoDel."""
EXPIRED = "expired"


class DropLedger:
    """Counts the drops of queues like those of peers, and adds them to the trace.

    A destination counts once per event and sending peer, no matter how often queues drop its packets, or whether the
    sender then gives up.
    """

    def __init__(self, drops: Counter[str], notices: Counter[str], trace: Trace) -> None:
        self._drops = drops
        self._notices = notices
        self._trace = trace
        self._counted: set[tuple[PeerId, EventId, PeerId]] = set()
        self._dests: dict[tuple[PeerId, int], tuple[PeerId, ...]] = {}
        self._expiries: dict[tuple[PeerId, int], Nanos] = {}

    def count_fragment(self, now: Nanos, sender: PeerId, part: Fragment) -> None:
        """Remember the destinations and the expiry of a fragmented event. Only its first fragment names them."""
        if part.head is not None:
            self._dests[sender, part.number] = part.head.dests
            if (end := self.expiry_ns(now, sender, part.head)) is not None:
                self._expiries[sender, part.number] = end

    def expiry_ns(self, now: Nanos, sender: PeerId, message: Message) -> Nanos | None:
        """When the event of a message expires, or None if it never does."""
        if type(message) is Data and message.event.ttl_ns is not None:
            return now + message.event.ttl_ns - message.age_ns
        return self._expiries.get((sender, message.number)) if type(message) is Fragment else None

    def record_drop(self, now: Nanos, sender: PeerId, to: PeerId, at: PeerId, message: Message, reason: str) -> None:
        """Count a drop. A copy without named destinations (on a tree) counts as one, for the receiving peer."""
        if isinstance(message, Data):
            id_, dests = message.event.id, message.dests or (to,)
        elif isinstance(message, Fragment):
            id_, dests = message.id, self._dests[sender, message.number] or (to,)
        else:
            self._notices[reason] += 1
            return
        fresh = self.select_uncounted(sender, id_, dests)
        if len(fresh) < len(dests):
            self._notices[f"{reason}-again"] += len(dests) - len(fresh)
        self._counted.update((sender, id_, dest) for dest in fresh)
        self._drops[reason] += len(fresh)
        for dest in fresh:
            self._trace.drops.add(now, at, *id_, dest, reason)

    def select_uncounted(self, sender: PeerId, id_: EventId, dests: tuple[PeerId, ...]) -> tuple[PeerId, ...]:
        """The destinations that no queue has dropped for this sender."""
        if not self._counted:
            return dests
        return tuple(dest for dest in dests if (sender, id_, dest) not in self._counted)
