"""The regions that this peer owns: their entries, their load, and how they split and merge.

A method yields its outputs one by one. A region's halves may be this peer's, too, so an output may change other regions
of this peer before the next one.
"""

from collections.abc import Iterator
from itertools import starmap

from msgspec.structs import replace

from wend.matching.order_cells import Interval
from wend.model.events import Event, PeerId
from wend.model.units import FOREVER, SECOND, Nanos
from wend.protocol.plugins import Refuse, Timer
from wend.strategies.rendezvous.entry_table import EntryTable
from wend.strategies.rendezvous.merging import Absences, HalvesMerge, MergingHalves, SplitRegions
from wend.strategies.rendezvous.messages import (
    UNKNOWN_OWNER,
    ActiveHalf,
    CopyEntries,
    HalfEntries,
    MergeHalf,
    Output,
    OwnerMessage,
    PeerReturned,
    PlaceEntries,
    RegionOwners,
    RemoveEntries,
    RenewCopy,
    RenewEntries,
    RequestEntries,
    ToPeer,
)
from wend.strategies.rendezvous.regions import RegionId, can_split, event_cells, halves, key_text
from wend.strategies.rendezvous.settings import RendezvousSettings
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.key_based import LAST_TRIES, Entry, EntryId

TRANSIT_NS: Nanos = 2 * SECOND
"""After its neighbours on the ring change, entries may be in transit to a peer for this time plus two round trips."""
LOAD_CHECK_NS: Nanos = 5 * SECOND
LOAD_CHECK = "look"
"""The timer at which the owner of regions checks their load."""


class Load:
    """The load of a region: the events since the last check, and the first and the last cell of their values."""

    __slots__ = ("cells", "events", "publishers", "since_ns")

    def __init__(self, now: Nanos) -> None:
        self.since_ns = now
        self.events = 0
        self.cells: Interval | None = None
        self.publishers: dict[PeerId, None] = {}
        """The publishers' peers that know this region."""

    def count(self, cells: Interval, publisher: PeerId) -> None:
        self.events += 1
        low, high = self.cells or cells
        self.cells = (min(low, cells[0]), max(high, cells[1]))
        self.publishers[publisher] = None

    @property
    def is_divisible(self) -> bool:
        """Whether some split divides the events."""
        return self.cells is not None and self.cells[0] < self.cells[1]


class OwnedRegions:
    """Adds, renews and expires entries, splits a region that has too many entries or events, and merges its halves."""

    def __init__(self, peer: PeerId, settings: RendezvousSettings) -> None:
        self._peer = peer
        self._settings = settings
        self.tables: dict[RegionId, EntryTable] = {}
        self._loads: dict[RegionId, Load] = {}
        self._split_regions = SplitRegions(settings)
        self._merging = MergingHalves(settings)
        self._transit_ns = TRANSIT_NS
        self.transit_until_ns: Nanos = 0
        """Until when entries may be in transit from the former owners."""
        self._complete_ns: Nanos = 0
        """When every subscriber's peer has renewed its entries here. Until then some may be missing, because the former
        owner and its replicas may have crashed together."""
        self.splits = 0
        self.merges = 0
        self.takeovers = 0

    def sizes(self) -> dict[str, int]:
        tables, loads = sorted(self.tables.items()), sorted(self._loads.items())
        entries = {f"entries/{key_text(region)}": len(table) for region, table in tables if len(table)}
        return {**entries, **{f"events/{key_text(region)}": load.events for region, load in loads if load.events}}

    def expect_entries(self, now: Nanos, round_trip_ns: Nanos) -> None:
        """Expect entries from former owners, because this peer may own other regions now."""
        self._transit_ns = TRANSIT_NS + 2 * round_trip_ns
        self.transit_until_ns = now + self._transit_ns
        self._complete_ns = self.transit_until_ns + self._settings.beacon_ns

    def is_complete(self, now: Nanos, region: RegionId) -> bool:
        """Whether a region of this peer has the entries of all live peers."""
        table = self.tables.get(region)
        return now >= self._complete_ns and (table is None or now >= table.complete_ns)

    # ---------------------------------------------------------------- messages for the owner

    def handle(self, now: Nanos, sender: PeerId, message: OwnerMessage) -> Iterator[Output]:
        """Handle a message at the owner of its region."""
        region = message.region
        if self._merging.has_gone(region):
            if not isinstance(message, ActiveHalf) and not message.from_whole:
                yield self._readdress_to_whole(message)
                return
            self._merging.stop(region)
        match message:
            case RemoveEntries():
                yield from self._remove_entries(message)
            case ActiveHalf():
                yield from self._create_region(now, region)
                yield from self._on_active_half(now, message)
            case PlaceEntries():
                yield from self._create_region(now, region)
                if message.from_whole:
                    self._merging.stop(region)
                yield from self._add_entries(now, sender, message)
            case RenewEntries():
                yield from self._create_region(now, region)
                yield from self._mark_away(now, message) if message.away_ns > 0 else self._renew_entries(now, message)

    def _readdress_to_whole(self, message: PlaceEntries | RemoveEntries | RenewEntries) -> OwnerMessage:
        """A message for a half that has gone, as one for the whole region."""
        code, hops = message.code[:-1], message.hops + 1
        if isinstance(message, RenewEntries) and message.away_ns <= 0:
            return PlaceEntries(message.name, code, (), message.peer, hops)
        return replace(message, code=code, hops=hops)

    def _create_region(self, now: Nanos, region: RegionId) -> Iterator[Output]:
        """Create a region if it is new here. If it is a half of another region, inform that region's owner, which may
        be new, too."""
        if region not in self.tables:
            table = self.tables[region] = EntryTable()
            name, code = region
            if code:
                table.complete_ns = now + TRANSIT_NS + self._settings.beacon_ns
                table.transit_until_ns = now + self._transit_ns
                yield ActiveHalf(name, code[:-1])

    def _add_entries(self, now: Nanos, sender: PeerId, message: PlaceEntries) -> Iterator[Output]:
        region = message.region
        table = self.tables[region]
        if table.is_split:
            yield from self._place_in_halves(sender, region, message.entries)
        else:
            added, refusals = table.add_all(sender, message.entries, now + self._settings.expiry_ns)
            yield from refusals
            if added:
                yield from self._share_change(region, added)
            yield from self._end_absence(table, message.asker)
        if message.hops != 1 or table.is_split:  # it did not come straight here: its sender does not know the owner
            yield from self.send_current_regions(message.asker, region)

    def _share_change(
        self, region: RegionId, added: tuple[Entry, ...], removed: tuple[EntryId, ...] = ()
    ) -> Iterator[Output]:
        """Share a change of the entries with the replicas, and with the whole region if this half merges."""
        yield CopyEntries(*region, added, removed)
        yield from starmap(ToPeer, self._merging.mirror(region, added, removed))

    def _place_in_halves(self, sender: PeerId, region: RegionId, entries: tuple[Entry, ...]) -> Iterator[Output]:
        """Place the entries of a split region in its halves."""
        name, code = region
        table = EntryTable()
        _, refusals = table.add_all(sender, entries, 0)
        yield from refusals
        for half in halves(code):
            for batch in split_into_batches(table.in_region(half)):
                yield PlaceEntries(name, half, batch, self._peer, 0, True)

    def _remove_entries(self, message: RemoveEntries) -> Iterator[Output]:
        name, code = message.region
        table = self.tables.get((name, code))
        if table is None:
            return
        if table.is_split:
            for half in halves(code):
                yield RemoveEntries(name, half, message.entries, 0, True)
            return
        removed = tuple([entry.id for entry in message.entries if table.entries.get(entry.id) == entry])
        for id_ in removed:
            table.remove(id_)
        if removed:
            yield from self._share_change((name, code), (), removed)

    def _renew_entries(self, now: Nanos, message: RenewEntries) -> Iterator[Output]:
        region, peer = message.region, message.peer
        yield from self.send_current_regions(peer, region)
        table = self.tables[region]
        if table.is_split:
            return
        yield from self._end_absence(table, peer)
        if table.make_digest(peer) == message.digest:
            table.expires[peer] = now + self._settings.expiry_ns
        else:
            yield ToPeer(peer, RequestEntries(*region), LAST_TRIES)

    def _mark_away(self, now: Nanos, message: RenewEntries) -> Iterator[Output]:
        """Let the entries of a peer that has stopped live until it is back."""
        name, code, peer, away_ns = message.name, message.code, message.peer, message.away_ns
        table = self.tables[name, code]
        if table.is_split:
            for half in halves(code):
                yield RenewEntries(name, half, peer, 0, 1, away_ns, True)
            return
        table.away[peer] = min(now + away_ns, FOREVER)
        yield self._make_renewal(now, (name, code))
        yield from starmap(ToPeer, self._merging.mirror((name, code), (), (), ((peer, away_ns),)))

    def _end_absence(self, table: EntryTable, peer: PeerId) -> Iterator[Output]:
        """Record that a peer is back, because it has placed or renewed entries."""
        if table.away.pop(peer, None) is not None:
            yield PeerReturned(peer)

    def send_current_regions(self, peer: PeerId, region: RegionId) -> Iterator[Output]:
        """Send a peer the regions that exist in place of this one."""
        if peer == UNKNOWN_OWNER:
            return
        name, code = region
        table = self.tables.get(region)
        regions: tuple[tuple[str, PeerId], ...] = ((code, self._peer),)
        if table is not None and table.is_split:
            regions = tuple((half, UNKNOWN_OWNER) for half in halves(code))
        yield ToPeer(peer, RegionOwners(name, code, regions))

    # ---------------------------------------------------------------- splitting

    def count_event(self, now: Nanos, region: RegionId, event: Event) -> tuple[Timer, ...]:
        """Count an event for the load of its region. Returns the timer of the next check if none runs."""
        is_first = not self._loads
        load = self._loads.get(region)
        if load is None:
            load = self._loads[region] = Load(now)
        self._merging.count_event(region)
        cells = event_cells(region[0], event)
        if cells is not None:
            load.count(cells, event.id.publisher)
        return (Timer(now + LOAD_CHECK_NS, LOAD_CHECK),) if is_first else ()

    def check_loads(self, now: Nanos) -> Iterator[Output]:
        """Split the regions that are too hot or too full."""
        for region, load in list(self._loads.items()):
            table = self.tables.get(region)
            if table is None:
                del self._loads[region]
                continue
            is_free = not table.is_split and not self._merging.number(region)
            if can_split(region) and is_free and self._is_overloaded(now, table, load):
                yield from self._split_region(region)
                for publisher in load.publishers:
                    yield from self.send_current_regions(publisher, region)
            if load.events and not table.is_split:
                self._loads[region] = Load(now)
            else:
                del self._loads[region]
        if self._loads:
            yield Timer(now + LOAD_CHECK_NS, LOAD_CHECK)

    def _is_overloaded(self, now: Nanos, table: EntryTable, load: Load) -> bool:
        rate_hz = load.events * SECOND / max(1, now - load.since_ns)
        is_hot = rate_hz > self._settings.split_rate_hz and load.is_divisible
        return is_hot or (len(table) > self._settings.split_entries and table.is_divisible)

    def _split_region(self, region: RegionId) -> Iterator[Output]:
        if not can_split(region):
            return
        self.splits += 1
        self._merging.stop(region)
        self._split_regions.forget(region)
        name, code = region
        table = self.tables[region]
        table.is_split = True
        entries = table.clear()
        yield CopyEntries(name, code, (), tuple(entry.id for entry in entries), True)
        for half in halves(code):
            yield PlaceEntries(name, half, (), self._peer, 0, True)
        for batch in split_into_batches(entries):
            yield from self._place_in_halves(self._peer, region, batch)

    # ---------------------------------------------------------------- merging

    def _on_active_half(self, now: Nanos, message: ActiveHalf) -> Iterator[Output]:
        """Record the load of a half, and ask both for their entries if the region should merge. If the region is not
        split, split it, unless the half has yet to go."""
        region, report = message.region, message.report
        if self.tables[region].is_split:
            begun = self._split_regions.report(now, region, report)
            for half, stream in begun.streams.items() if begun else ():
                yield ToPeer(stream.owner, MergeHalf(region[0], half, now), LAST_TRIES)
            return
        merge = self._split_regions.find(region)
        if merge is not None and report is not None and report.merge == merge.number:
            yield ToPeer(report.owner, MergeHalf(region[0], report.half, merge.number, True), LAST_TRIES)
        else:
            yield from self._split_region(region)

    def on_merge_half(self, now: Nanos, sender: PeerId, message: MergeHalf) -> Iterator[Output]:
        """Send the entries of a half to the owner of the whole region, or forget the half."""
        region = message.region
        table = self.tables.get(region)
        if table is None or table.is_split or not self.is_complete(now, region):
            return
        if not message.drops:
            entries = list(table.entries.values())
            yield from starmap(ToPeer, self._merging.begin(now, sender, message, entries, table.absences(now)))
        elif message.number == self._merging.number(region):
            del self.tables[region]
            self._merging.drop(now, region)
            yield CopyEntries(*region, (), tuple(table.entries))

    def on_half_entries(self, now: Nanos, sender: PeerId, message: HalfEntries) -> Iterator[Output]:
        """Collect the entries of a half. If none is missing, the region is whole again."""
        region = (message.name, message.code[:-1])
        table, merge = self.tables.get(region), self._split_regions.find(region)
        if (
            table is None
            or merge is None
            or merge.number != message.number
            or table.is_split != (merge.done_ns is None)
        ):
            return
        stream = merge.streams.get(message.code)
        if stream is None or stream.owner != sender:
            return
        for change in stream.accept(message):
            away = tuple([(peer, min(max(0, left_ns), FOREVER)) for peer, left_ns in change.away])
            merge.away.update(away)
            if merge.done_ns is not None:
                yield from self._follow_half(now, region, merge, stream.entries, change, away)
        if merge.is_complete and merge.done_ns is None:
            yield from self._make_whole(now, region, merge)

    def _follow_half(
        self,
        now: Nanos,
        region: RegionId,
        merge: HalvesMerge,
        before: dict[EntryId, Entry],
        change: HalfEntries,
        away: Absences,
    ) -> Iterator[Output]:
        """Change the entries of a whole region as a half does that has yet to go."""
        table = self.tables[region]
        gone = [before[id_] for id_ in change.removed if id_ in before]
        if gone:
            yield from self._remove_entries(RemoveEntries(*region, tuple(gone)))
        added, refusals = table.add_all(self._peer, change.added, now + self._settings.expiry_ns)
        yield from refusals
        if added:
            yield from self._share_change(region, added)
        table.away.update({peer: now + left_ns for peer, left_ns in away})

    def _make_whole(self, now: Nanos, region: RegionId, merge: HalvesMerge) -> Iterator[Output]:
        """Use the entries of both halves, and tell their owners to drop the halves."""
        self.merges += 1
        merge.done_ns = now
        table = self.tables[region]
        table.is_split = False
        self._merging.record_whole(now, region)
        table.transit_until_ns = table.complete_ns = now + self._transit_ns
        for stream in merge.streams.values():
            yield from table.add_all(stream.owner, stream.entries.values(), now + self._settings.expiry_ns)[1]
        table.away.update({peer: min(now + left_ns, FOREVER) for peer, left_ns in merge.away.items()})
        yield self._make_renewal(now, region)
        yield from self.send_current_regions(self._peer, region)
        for half, stream in merge.streams.items():
            yield ToPeer(stream.owner, MergeHalf(region[0], half, merge.number, True), LAST_TRIES)

    # ---------------------------------------------------------------- copies, and owners that change

    def beacon(self, now: Nanos) -> Iterator[Output]:
        """Expire entries that were not renewed, and inform owners that their regions are split."""
        for region, table in list(self.tables.items()):
            if self.tables.get(region) is not table:
                continue  # it has gone meanwhile
            expired = table.expire(now)
            if expired:
                yield from self._share_change(region, (), expired)
            name, code = region
            if code:
                report = None if table.is_split else self._merging.report(now, self._peer, region, len(table))
                yield ActiveHalf(name, code[:-1], 0, report)
            elif not table.entries and not table.is_split:
                del self.tables[region]
        self._merging.end_beacon(now, self.tables)
        self._split_regions.end_beacon(now, {region for region, table in self.tables.items() if table.is_split})

    def renew_copies(self, now: Nanos) -> Iterator[Output]:
        for region in self.tables:
            yield self._make_renewal(now, region)

    def _make_renewal(self, now: Nanos, region: RegionId) -> RenewCopy:
        table = self.tables[region]
        return RenewCopy(*region, table.digest, table.is_split, table.absences(now))

    def copy_to(self, peer: PeerId, region: RegionId) -> Iterator[ToPeer]:
        """Send a replica all entries of a region."""
        table = self.tables.get(region)
        if table is not None:
            for batch in split_into_batches(list(table.entries.values())) or [()]:
                yield ToPeer(peer, CopyEntries(*region, batch, (), table.is_split))

    def merge(self, now: Nanos, sender: PeerId, message: CopyEntries) -> list[Refuse]:
        """Add the entries that a former owner copies. This peer knows better which ones were removed."""
        table = self.tables[message.name, message.code]
        return table.add_all(sender, message.added, now + 2 * self._settings.expiry_ns)[1]

    def take_over(self, now: Nanos, region: RegionId, copy: EntryTable) -> None:
        """Take over a region of which this peer was a replica."""
        self.takeovers += 1
        self._merging.stop(region)
        table = self.tables.setdefault(region, copy)
        if table is not copy:
            table.is_split = table.is_split or copy.is_split
            for entry in copy.entries.values():
                table.add(entry, now)
            table.away.update({peer: until for peer, until in copy.away.items() if peer not in table.away})
        table.renew(now + self._settings.expiry_ns)
