"""Events in the regions of this peer, from their match until every subscriber's peer has them.

The publisher's peer stores an event until each region has settled it. If no peer stores it, the owner matches the event
a second time for the subscribers whose entries were in transit when it came.
"""

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from wend.model.events import Event, EventId, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import DeliverHere, Drop, Notice, Timer
from wend.strategies.rendezvous.entry_table import EntryTable
from wend.strategies.rendezvous.messages import EventSettled, MatchEvent, NotifyPeer, Output, ToPeer
from wend.strategies.rendezvous.owned_regions import OwnedRegions
from wend.strategies.rendezvous.regions import RegionId, event_cells, halves, meets
from wend.strategies.rendezvous.stored_events import FIRST_WAIT_NS, LONGEST_WAIT_NS
from wend.strategies.ring.bounded import RecentItems
from wend.strategies.ring.key_based import LAST_TRIES

RETRY_NS: Nanos = 2 * SECOND
"""How often the peer checks events that are not settled."""
RETRY = "retry"


class RegionEvent(NamedTuple):
    """An event in a region."""

    region: RegionId
    event: Event
    born_ns: Nanos
    hops: int

    @property
    def key(self) -> tuple[RegionId, EventId]:
        return self.region, self.event.id

    def notification(self, now: Nanos) -> NotifyPeer:
        """The message to a subscriber's peer that acknowledges the event."""
        return NotifyPeer(self.event, now - self.born_ns, self.hops + 1, (), self.region)


class SecondMatch(NamedTuple):
    """The next match of an event whose region may not have all entries yet."""

    region_event: RegionEvent
    notified: list[PeerId]
    time_ns: Nanos


class UnsettledEvent:
    """An event in a region, and the subscribers' peers that have not acknowledged it."""

    __slots__ = ("_notified", "is_complete", "region_event", "tries", "until_ns", "waiting")

    def __init__(self, now: Nanos, region_event: RegionEvent, waiting: list[PeerId], is_complete: bool) -> None:
        self.region_event = region_event
        self.waiting = dict.fromkeys(waiting)
        self.is_complete = is_complete
        """Whether the region had all entries when the event was matched."""
        self._notified = set(waiting)
        self.tries = 0
        self.until_ns = now + FIRST_WAIT_NS

    @property
    def is_settled(self) -> bool:
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

    def take_due(self, now: Nanos) -> list[PeerId]:
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
        self._matched = RecentItems()
        self._settled = RecentItems()
        self._unsettled: dict[tuple[RegionId, EventId], UnsettledEvent] = {}
        """Stored events that some subscriber's peer may lack."""
        self._second_matches: dict[tuple[RegionId, EventId], SecondMatch] = {}

    def __len__(self) -> int:
        """The number of events that are not settled."""
        return len(self._unsettled)

    @property
    def is_busy(self) -> bool:
        """Whether some events need another try."""
        return bool(self._unsettled or self._second_matches)

    # ---------------------------------------------------------------- matching

    def match(
        self, now: Nanos, sender: PeerId, table: EntryTable | None, message: MatchEvent, born_ns: Nanos
    ) -> Iterator[Output]:
        """Match an event in a region of this peer that is not split. The table is None if the region has no entries."""
        event, region = message.event, message.region
        if message.stored:
            yield from self._match_stored(now, RegionEvent(region, event, born_ns, message.hops), table)
        elif self._matched.add((region, event.id)):
            subscribers: list[PeerId] = []
            if table is not None:
                subscribers = table.find_subscribers(event)
                yield from self._owned.count_event(now, region, event)
                yield from self.notify(now, subscribers, event, born_ns, message.hops)
            transit_until_ns = max(self._owned.transit_until_ns, 0 if table is None else table.transit_until_ns)
            if now < transit_until_ns:
                region_event = RegionEvent(region, event, born_ns, message.hops)
                self._second_matches[region_event.key] = SecondMatch(region_event, subscribers, transit_until_ns)
                yield Timer(now + RETRY_NS, RETRY)
        else:
            yield Notice("duplicate", sender)

    def match_halves(self, now: Nanos, message: MatchEvent, born_ns: Nanos) -> Iterator[Output]:
        """Pass an event on to the halves of a region that is split."""
        name, event = message.name, message.event
        cells = event_cells(name, event)
        for half in halves(message.code):
            if cells is not None and meets(half, [cells]):
                yield MatchEvent(name, half, event, now - born_ns, message.hops, True, message.stored)

    def match_as_replica(
        self, now: Nanos, copy: EntryTable | None, message: MatchEvent, born_ns: Nanos
    ) -> Iterator[Output]:
        """Match an event in place of an owner that does not answer. This peer has at most a copy of the entries, so it
        settles nothing: the publisher's peer asks again."""
        region_event = RegionEvent(message.region, message.event, born_ns, message.hops)
        if copy is None or copy.is_split or not self._matched.add(region_event.key):
            return
        if message.stored:
            yield from self._notify_stored(now, region_event, copy.find_subscribers(region_event.event))
        else:
            yield from self.notify(
                now, copy.find_subscribers(region_event.event), region_event.event, born_ns, region_event.hops
            )

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

    def _match_stored(self, now: Nanos, region_event: RegionEvent, table: EntryTable | None) -> Iterator[Output]:
        """Notify subscribers' peers until each has the event or has expired; then settle it."""
        key, event = region_event.key, region_event.event
        if key in self._unsettled:
            return
        if key in self._settled:
            yield from self._settle(*key)
            return
        if self._matched.add(key) and table is not None:
            yield from self._owned.count_event(now, region_event.region, event)
        subscribers = [] if table is None else table.find_subscribers(event)
        yield from self._notify_stored(now, region_event, subscribers)
        waiting = self._remote_peers(subscribers, event)
        unsettled = UnsettledEvent(now, region_event, waiting, self._owned.is_complete(now, region_event.region))
        if unsettled.is_settled:
            yield from self._settle(*key)
            return
        if len(self._unsettled) >= self._room:  # the publisher's peer still has it, and asks again
            del self._unsettled[next(iter(self._unsettled))]
            yield Notice("queued", self._peer)
        self._unsettled[key] = unsettled
        yield Timer(now + RETRY_NS, RETRY)

    def _remote_peers(self, peers: list[PeerId], event: Event) -> list[PeerId]:
        """The peers that answer when they have a stored event."""
        return [peer for peer in peers if peer not in (event.id.publisher, self._peer)]

    def _notify_stored(self, now: Nanos, region_event: RegionEvent, peers: list[PeerId]) -> Iterator[Output]:
        if self._peer in peers and region_event.event.id.publisher != self._peer:
            yield DeliverHere(region_event.event, region_event.born_ns)
        for peer in self._remote_peers(peers, region_event.event):
            yield ToPeer(peer, region_event.notification(now))

    def on_reached(self, peer: PeerId, region: RegionId, id_: EventId) -> Iterator[Output]:
        """Record that a subscriber's peer has an event. Settle the event if no peer lacks it."""
        unsettled = self._unsettled.get((region, id_))
        if unsettled is not None:
            unsettled.waiting.pop(peer, None)
            if unsettled.is_settled:
                yield from self._settle(region, id_)

    def _settle(self, region: RegionId, id_: EventId) -> Iterator[Output]:
        """Inform the publisher's peer that all subscribers of a region have the event."""
        self._unsettled.pop((region, id_), None)
        self._settled.add((region, id_))
        yield ToPeer(id_.publisher, EventSettled(*region, id_))

    # ---------------------------------------------------------------- retries

    def retry_at_once(self, now: Nanos, peer: PeerId) -> Iterator[Output]:
        """Notify a peer that has returned without delay."""
        for unsettled in self._unsettled.values():
            if peer in unsettled.waiting:
                unsettled.until_ns = now
        if self._unsettled:
            yield Timer(now + RETRY_NS, RETRY)

    def retry(self, now: Nanos, owns: Callable[[RegionId], bool]) -> Iterator[Output]:
        for key, second in list(self._second_matches.items()):
            if second.time_ns <= now:
                del self._second_matches[key]
                yield from self._match_again(now, second)
        for key, unsettled in list(self._unsettled.items()):
            table = self._owned.tables.get(key[0])
            if not owns(key[0]) or (bool(key[0][1]) if table is None else table.is_split):
                del self._unsettled[key]  # the publisher's peer asks the peers that have the entries
            else:
                yield from self._retry_unsettled(now, table, unsettled)

    def _match_again(self, now: Nanos, second: SecondMatch) -> Iterator[Output]:
        """Notify the subscribers' peers whose entries arrived after the event."""
        region, event, born_ns, hops = second.region_event
        table = self._owned.tables.get(region)
        if table is not None and table.is_split:
            yield from self.match_halves(now, MatchEvent(*region, event, 0, hops), born_ns)
        elif table is None and region[1]:  # the half has gone
            yield MatchEvent(*region, event, now - born_ns, hops)
        elif table is not None:
            late = [peer for peer in table.find_subscribers(event) if peer not in second.notified]
            yield from self.notify(now, late, event, born_ns, hops)

    def _retry_unsettled(self, now: Nanos, table: EntryTable | None, unsettled: UnsettledEvent) -> Iterator[Output]:
        """Notify the peers that have not answered, and those whose entries came after the event."""
        region_event = unsettled.region_event
        if not unsettled.is_complete:
            late = [] if table is None else unsettled.without_notice(table.find_subscribers(region_event.event))
            yield from self._notify_stored(now, region_event, late)
            unsettled.add(
                self._remote_peers(late, region_event.event), self._owned.is_complete(now, region_event.region)
            )
        if unsettled.is_complete and self._owned.is_complete(now, region_event.region):
            expired = unsettled.remove_expired(() if table is None else table.expires)
            if expired:
                yield Drop(region_event.event.id, expired, "no-reconnect")
        if unsettled.is_settled:
            yield from self._settle(*region_event.key)
            return
        for peer in unsettled.take_due(now):
            yield ToPeer(peer, region_event.notification(now))
