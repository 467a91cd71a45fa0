"""Events at the owners of their regions, until all subscribers' peers have them.

The publisher's peer stores an event until each region has settled it. If nobody stores it, the owner notifies late
subscribers once: those whose entries were in transit when the event came.
"""

from collections.abc import Container, Iterator

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.strategies.rendezvous.regions import RegionId
from wend.strategies.rendezvous.stored_events import FIRST_WAIT_NS, LONGEST_WAIT_NS
from wend.strategies.ring.key_based import Seen

EventKey = tuple[RegionId, EventId]


class SecondLook(msgspec.Struct, gc=False):
    """An event in a region whose owner may not have all entries yet: who has it, and when to match it again."""

    event: Event
    born_ns: Nanos
    hops: int
    notified: set[PeerId]
    time_ns: Nanos


class Unsettled:
    """An event in a region, and the subscribers' peers that have not said that they have it."""

    __slots__ = ("_notified", "born_ns", "event", "hops", "is_complete", "tries", "until_ns", "waiting")

    def __init__(
        self, now: Nanos, event: Event, born_ns: Nanos, hops: int, waiting: list[PeerId], is_complete: bool
    ) -> None:
        self.event = event
        self.born_ns = born_ns
        self.hops = hops
        self.waiting = dict.fromkeys(waiting)
        self.is_complete = is_complete
        """Whether the region had all entries when the event was matched."""
        self._notified = set(waiting)
        self.tries = 0
        self.until_ns = now + FIRST_WAIT_NS

    @property
    def is_done(self) -> bool:
        return self.is_complete and not self.waiting

    def without_notice(self, peers: list[PeerId]) -> list[PeerId]:
        """Those of these peers that were not notified before."""
        return [peer for peer in peers if peer not in self._notified]

    def remove_expired(self, live: Container[PeerId]) -> tuple[PeerId, ...]:
        """Stop waiting for peers whose entries have expired, and return them."""
        expired = tuple([peer for peer in self.waiting if peer not in live])
        for peer in expired:
            del self.waiting[peer]
        return expired

    def add(self, peers: list[PeerId], is_complete: bool) -> None:
        """Wait for these peers, too."""
        self._notified.update(peers)
        self.waiting.update(dict.fromkeys(peers))
        self.is_complete = is_complete

    def due(self, now: Nanos) -> list[PeerId]:
        """The peers to notify again."""
        if self.until_ns > now:
            return []
        self.tries += 1
        self.until_ns = now + min(LONGEST_WAIT_NS, FIRST_WAIT_NS << min(self.tries, 5))
        return list(self.waiting)


class UnsettledEvents:
    """The events in regions of this peer that some subscriber's peer may lack."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.events: dict[EventKey, Unsettled] = {}
        self.settled = Seen()
        self.second_looks: dict[EventKey, SecondLook] = {}

    def __len__(self) -> int:
        return len(self.events)

    def add(self, region: RegionId, unsettled: Unsettled) -> bool:
        """Wait for the peers of an event. Returns False if the oldest event had to make room: its publisher's peer
        still has it, and asks again."""
        has_room = len(self.events) < self._room
        if not has_room:
            del self.events[next(iter(self.events))]
        self.events[region, unsettled.event.id] = unsettled
        return has_room

    def reach(self, region: RegionId, id_: EventId, peer: PeerId) -> bool:
        """A peer has an event. Returns whether the region may settle it now."""
        unsettled = self.events.get((region, id_))
        if unsettled is None:
            return False
        unsettled.waiting.pop(peer, None)
        return unsettled.is_done

    def settle(self, region: RegionId, id_: EventId) -> None:
        self.events.pop((region, id_), None)
        self.settled.add((region, id_))

    def hurry(self, now: Nanos, peer: PeerId) -> None:
        """A peer is back: notify it soon."""
        for unsettled in self.events.values():
            if peer in unsettled.waiting:
                unsettled.until_ns = now

    def due_looks(self, now: Nanos) -> Iterator[tuple[RegionId, SecondLook]]:
        """The events to match again, once."""
        for (region, id_), look in list(self.second_looks.items()):
            if look.time_ns <= now:
                del self.second_looks[region, id_]
                yield region, look
