"""Events in the regions of this peer, from their match until all subscribers' peers have them.

The publisher's peer stores an event until each region has settled it. If nobody stores it, the owner notifies late
subscribers once: those whose entries were in transit when the event came.
"""

from collections.abc import Callable, Container, Iterator

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import DeliverHere, Drop, Notice, Timer
from wend.strategies.rendezvous.entry_table import EntryTable
from wend.strategies.rendezvous.messages import EventSettled, MatchEvent, NotifyPeer, Output, ToPeer
from wend.strategies.rendezvous.owned_regions import OwnedRegions
from wend.strategies.rendezvous.regions import RegionId, cells_in, halves, meets
from wend.strategies.rendezvous.stored_events import FIRST_WAIT_NS, LONGEST_WAIT_NS
from wend.strategies.ring.key_based import LAST_TRIES, Seen

RETRY_NS: Nanos = 2 * SECOND
"""How often the peer checks events that are not settled."""
RETRY = "retry"
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


class Notifications:
    """Matches events with the entries of regions, and notifies the subscribers' peers."""

    def __init__(self, peer: PeerId, owned: OwnedRegions, fan_out: int, room: int) -> None:
        self._peer = peer
        self._owned = owned
        self._fan_out = fan_out
        self._room = room
        self._matched = Seen()
        self._settled = Seen()
        self._unsettled: dict[EventKey, Unsettled] = {}
        """Stored events that some subscriber's peer may lack."""
        self._second_looks: dict[EventKey, SecondLook] = {}

    def __len__(self) -> int:
        """The number of events that are not settled."""
        return len(self._unsettled)

    @property
    def is_busy(self) -> bool:
        """Whether some events need another try."""
        return bool(self._unsettled or self._second_looks)

    # ---------------------------------------------------------------- matching

    def match(
        self, now: Nanos, sender: PeerId, table: EntryTable | None, message: MatchEvent, born_ns: Nanos
    ) -> Iterator[Output]:
        """Match an event in a region of this peer that is not split. The table is None if nobody subscribes there."""
        event, hops = message.event, message.hops
        region = (message.name, message.code)
        if message.stored:
            yield from self._match_stored(now, region, table, event, born_ns, hops)
        elif self._matched.add((region, event.id)):
            subscribers: list[PeerId] = []
            if table is not None:
                subscribers = table.subscribers(event)
                yield from self._owned.count_event(now, region, event)
                yield from self.notify(now, subscribers, event, born_ns, hops)
            unsure_until_ns = self._owned.unsure_until_ns
            if now < unsure_until_ns:
                look = SecondLook(event, born_ns, hops, set(subscribers), unsure_until_ns)
                self._second_looks[region, event.id] = look
                yield Timer(now + RETRY_NS, RETRY)
        else:
            yield Notice("duplicate", sender)

    def match_halves(self, now: Nanos, message: MatchEvent, born_ns: Nanos) -> Iterator[Output]:
        """Pass an event on to the halves of a region that is split."""
        name, event = message.name, message.event
        cells = cells_in(name, event)
        for half in halves(message.code):
            if cells is not None and meets(half, [cells]):
                yield MatchEvent(name, half, event, now - born_ns, message.hops, True, message.stored)

    def stand_in(self, now: Nanos, copy: EntryTable | None, message: MatchEvent, born_ns: Nanos) -> Iterator[Output]:
        """The owner does not answer, and this peer is the next. Until it is the owner it has at most a copy of the
        entries, so it settles nothing: the publisher's peer asks again."""
        region, event = (message.name, message.code), message.event
        if copy is None or copy.is_split or not self._matched.add((region, event.id)):
            return
        if message.stored:
            yield from self._notify_stored(now, region, copy.subscribers(event), event, born_ns, message.hops)
        else:
            yield from self.notify(now, copy.subscribers(event), event, born_ns, message.hops)

    def notify(self, now: Nanos, peers: list[PeerId], event: Event, born_ns: Nanos, hops: int) -> Iterator[Output]:
        """Send an event to its subscribers' peers. Above the fan-out limit some of them pass it on to others."""
        publisher = event.id.publisher  # its own subscribers have it already
        peers = [peer for peer in peers if peer != publisher]
        if self._peer in peers:
            yield DeliverHere(event, born_ns)
            peers.remove(self._peer)
        shares = min(self._fan_out, len(peers))
        for at in range(shares):
            first, *others = peers[at::shares]
            yield ToPeer(first, NotifyPeer(event, now - born_ns, hops + 1, tuple(others)), LAST_TRIES)

    # ---------------------------------------------------------------- stored events

    def _match_stored(
        self, now: Nanos, region: RegionId, table: EntryTable | None, event: Event, born_ns: Nanos, hops: int
    ) -> Iterator[Output]:
        """Notify subscribers' peers, again until each has the event or has expired; then settle it."""
        key = (region, event.id)
        if key in self._unsettled:
            return
        if key in self._settled:
            yield from self._settle(region, event.id)
            return
        if self._matched.add(key) and table is not None:
            yield from self._owned.count_event(now, region, event)
        subscribers = [] if table is None else table.subscribers(event)
        yield from self._notify_stored(now, region, subscribers, event, born_ns, hops)
        waiting = self._others(subscribers, event)
        unsettled = Unsettled(now, event, born_ns, hops, waiting, self._owned.is_complete(now, region))
        if unsettled.is_done:
            yield from self._settle(region, event.id)
            return
        if len(self._unsettled) >= self._room:  # the publisher's peer still has it, and asks again
            del self._unsettled[next(iter(self._unsettled))]
            yield Notice("queued", self._peer)
        self._unsettled[key] = unsettled
        yield Timer(now + RETRY_NS, RETRY)

    def _others(self, peers: list[PeerId], event: Event) -> list[PeerId]:
        """The peers that answer when they have a stored event."""
        return [peer for peer in peers if peer not in (event.id.publisher, self._peer)]

    def _notify_stored(
        self, now: Nanos, region: RegionId, peers: list[PeerId], event: Event, born_ns: Nanos, hops: int
    ) -> Iterator[Output]:
        if self._peer in peers and event.id.publisher != self._peer:
            yield DeliverHere(event, born_ns)
        for peer in self._others(peers, event):
            yield ToPeer(peer, NotifyPeer(event, now - born_ns, hops + 1, (), region))

    def reach(self, peer: PeerId, region: RegionId, id_: EventId) -> Iterator[Output]:
        """A subscriber's peer has an event. Settle the event if nobody lacks it."""
        unsettled = self._unsettled.get((region, id_))
        if unsettled is not None:
            unsettled.waiting.pop(peer, None)
            if unsettled.is_done:
                yield from self._settle(region, id_)

    def _settle(self, region: RegionId, id_: EventId) -> Iterator[Output]:
        """All subscribers of a region have an event: tell its publisher's peer."""
        self._unsettled.pop((region, id_), None)
        self._settled.add((region, id_))
        yield ToPeer(id_.publisher, EventSettled(*region, id_))

    # ---------------------------------------------------------------- retries

    def hurry(self, now: Nanos, peer: PeerId) -> Iterator[Output]:
        """A peer is back: notify it soon."""
        for unsettled in self._unsettled.values():
            if peer in unsettled.waiting:
                unsettled.until_ns = now
        if self._unsettled:
            yield Timer(now + RETRY_NS, RETRY)

    def retry(self, now: Nanos, owns: Callable[[RegionId], bool]) -> Iterator[Output]:
        for (region, id_), look in list(self._second_looks.items()):
            if look.time_ns <= now:
                del self._second_looks[region, id_]
                yield from self._look_again(now, region, look)
        for (region, id_), unsettled in list(self._unsettled.items()):
            table = self._owned.tables.get(region)
            if not owns(region) or (table is not None and table.is_split):
                del self._unsettled[region, id_]  # the publisher's peer asks the peers that have the entries
            else:
                yield from self._retry_unsettled(now, region, table, unsettled)

    def _look_again(self, now: Nanos, region: RegionId, look: SecondLook) -> Iterator[Output]:
        """Notify the subscribers' peers whose entries came after the event."""
        table = self._owned.tables.get(region)
        if table is None:
            return
        if table.is_split:
            yield from self.match_halves(now, MatchEvent(*region, look.event, 0, look.hops), look.born_ns)
            return
        late = [peer for peer in table.subscribers(look.event) if peer not in look.notified]
        yield from self.notify(now, late, look.event, look.born_ns, look.hops)

    def _retry_unsettled(
        self, now: Nanos, region: RegionId, table: EntryTable | None, unsettled: Unsettled
    ) -> Iterator[Output]:
        """Notify the peers that have not answered, and those whose entries came after the event."""
        event, born_ns, hops = unsettled.event, unsettled.born_ns, unsettled.hops
        if not unsettled.is_complete:
            late = [] if table is None else unsettled.without_notice(table.subscribers(event))
            yield from self._notify_stored(now, region, late, event, born_ns, hops)
            unsettled.add(self._others(late, event), self._owned.is_complete(now, region))
        if unsettled.is_complete:
            expired = unsettled.remove_expired(() if table is None else table.expires)
            if expired:
                yield Drop(event.id, expired, "no-reconnect")
        if unsettled.is_done:
            yield from self._settle(region, event.id)
            return
        for peer in unsettled.due(now):
            yield ToPeer(peer, NotifyPeer(event, now - born_ns, hops + 1, (), region))
