"""The merge of a split region: its owner takes the entries back from both halves, and the halves are removed.

Each half that is not split reports its load with every beacon. If both have had little for a whole expiry, the owner of
the region asks them for their entries. They send them all, then each change, and do not split meanwhile. With all
entries the region is whole again, and the halves are removed. Until then they match events, so that no event meets a
region that lacks an entry.

Messages may come late, out of order or never, and owners change. If anything is missing, the region stays split and
tries again later. The owner of a half that has gone passes later messages about its entries on to the whole region.
"""

from collections.abc import Container, Iterator

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.strategies.rendezvous.messages import HalfEntries, HalfReport, MergeHalf
from wend.strategies.rendezvous.regions import RegionId, halves
from wend.strategies.rendezvous.settings import RendezvousSettings
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.key_based import Entry, EntryId

MAX_EARLY = 4096
"""How many messages of a half may wait for an earlier one."""
Absences = tuple[tuple[PeerId, Nanos], ...]


# ---------------------------------------------------------------- at the owner of the whole region


class HalfStream:
    """The entries of a half, from messages that it has numbered."""

    __slots__ = ("_early", "_next", "_total", "entries", "owner")

    def __init__(self, owner: PeerId) -> None:
        self.owner = owner
        self.entries: dict[EntryId, Entry] = {}
        self._early: dict[int, HalfEntries] = {}
        self._next = 0
        self._total = 0

    def accept(self, message: HalfEntries) -> Iterator[HalfEntries]:
        """Yield the messages that are next, each before it changes the entries."""
        self._total = message.total
        if message.turn >= self._next and len(self._early) < MAX_EARLY:
            self._early[message.turn] = message
        while self._next in self._early:
            following = self._early.pop(self._next)
            self._next += 1
            yield following
            for id_ in following.removed:
                self.entries.pop(id_, None)
            self.entries.update({entry.id: entry for entry in following.added})

    @property
    def is_complete(self) -> bool:
        return 0 < self._total <= self._next


class HalvesMerge:
    """A merge that is under way, or that the halves may not know of yet."""

    __slots__ = ("away", "done_ns", "number", "streams")

    def __init__(self, number: int, owners: dict[str, PeerId]) -> None:
        self.number = number
        self.streams = {half: HalfStream(owner) for half, owner in owners.items()}
        self.away: dict[PeerId, Nanos] = {}
        """The stopped peers, and how long their entries live."""
        self.done_ns: Nanos | None = None

    @property
    def is_complete(self) -> bool:
        return all(stream.is_complete for stream in self.streams.values())


class SplitRegions:
    """The split regions of this peer: what their halves report, and the merges."""

    def __init__(self, settings: RendezvousSettings) -> None:
        self._settings = settings
        self._reports: dict[RegionId, dict[str, tuple[HalfReport, Nanos]]] = {}
        self._merges: dict[RegionId, HalvesMerge] = {}

    def report(self, now: Nanos, region: RegionId, report: HalfReport | None) -> HalvesMerge | None:
        """Record the load of a half. Without a report some half is split or new. Returns the merge that begins."""
        if report is None:
            self._reports.pop(region, None)
        elif report.half in halves(region[1]):
            self._reports.setdefault(region, {})[report.half] = (report, now)
            if region not in self._merges and self._is_calm(now, region):
                owners = {half: other.owner for half, (other, _) in self._reports[region].items()}
                merge = self._merges[region] = HalvesMerge(now, owners)
                return merge
        return None

    def find(self, region: RegionId) -> HalvesMerge | None:
        return self._merges.get(region)

    def forget(self, region: RegionId) -> None:
        self._reports.pop(region, None)
        self._merges.pop(region, None)

    def end_beacon(self, now: Nanos, regions: Container[RegionId]) -> None:
        """Forget merges that took too long or are over, and regions that are not split any longer."""
        self._reports = {region: reports for region, reports in self._reports.items() if region in regions}
        for region, merge in list(self._merges.items()):
            if now - (merge.number if merge.done_ns is None else merge.done_ns) >= self._settings.beacon_ns:
                del self._merges[region]

    def _is_calm(self, now: Nanos, region: RegionId) -> bool:
        """Whether both halves have been calm for an expiry, and together have little load."""
        settings = self._settings
        reports = self._reports.get(region, {}).values()
        recent = [report for report, at_ns in reports if now - at_ns < settings.beacon_ns * 3 // 2]
        return (
            len(recent) == 2
            and min(report.calm_ns for report in recent) >= settings.expiry_ns
            and 2 * sum(report.entries for report in recent) <= settings.split_entries
            and 2 * sum((report.rate_hz for report in recent), 0.0) <= settings.split_rate_hz
        )


# ---------------------------------------------------------------- at the owner of a half


class _Mirror:
    """How many messages a half has sent to the whole region."""

    __slots__ = ("number", "total", "turn", "until_ns", "whole_owner")

    def __init__(self, number: int, whole_owner: PeerId, total: int, until_ns: Nanos) -> None:
        self.number = number
        self.whole_owner = whole_owner
        self.total = total
        self.turn = 0
        self.until_ns = until_ns


class MergingHalves:
    """The halves of this peer that merge, and those that have gone."""

    def __init__(self, settings: RendezvousSettings) -> None:
        self._settings = settings
        self._mirrors: dict[RegionId, _Mirror] = {}
        self._gone: dict[RegionId, Nanos] = {}
        """The halves that have gone, each with the time until which this peer passes messages on."""
        self._events: dict[RegionId, int] = {}
        """The events of each region since the last beacon."""
        self._calm_ns: dict[RegionId, Nanos] = {}
        """Since when each half has had little load."""
        self._beacon_ns: Nanos = 0

    def count_event(self, region: RegionId) -> None:
        self._events[region] = self._events.get(region, 0) + 1

    def report(self, now: Nanos, owner: PeerId, region: RegionId, entries: int) -> HalfReport:
        """The load of a half that is not split, at a beacon."""
        settings = self._settings
        rate_hz = self._events.get(region, 0) * SECOND / max(1, now - self._beacon_ns)
        if 2 * entries > settings.split_entries or 2 * rate_hz > settings.split_rate_hz:
            self._calm_ns[region] = now
        calm_ns = now - self._calm_ns.setdefault(region, now)
        return HalfReport(region[1], owner, entries, rate_hz, calm_ns, self.number(region))

    def number(self, region: RegionId) -> int:
        """The merge that a half takes part in, or 0."""
        mirror = self._mirrors.get(region)
        return 0 if mirror is None else mirror.number

    def begin(
        self, now: Nanos, owner: PeerId, message: MergeHalf, entries: list[Entry], away: Absences
    ) -> Iterator[tuple[PeerId, HalfEntries]]:
        """Send all entries of a half to the owner of the whole region."""
        parts = split_into_batches(entries) or [()]
        mirror = _Mirror(message.number, owner, len(parts), now + 2 * self._settings.beacon_ns)
        self._mirrors[message.region] = mirror
        for part in parts:
            yield from self.mirror(message.region, part, (), away)
            away = ()

    def mirror(
        self,
        region: RegionId,
        added: tuple[Entry, ...] = (),
        removed: tuple[EntryId, ...] = (),
        away: Absences = (),
    ) -> Iterator[tuple[PeerId, HalfEntries]]:
        """Send a change of the entries to the owner of the whole region, if the half merges."""
        mirror = self._mirrors.get(region)
        if mirror is not None:
            turn, mirror.turn = mirror.turn, mirror.turn + 1
            message = HalfEntries(*region, mirror.number, turn, mirror.total, added, removed, away)
            yield mirror.whole_owner, message

    def stop(self, region: RegionId) -> None:
        """Cancel the merge of a half, because it splits or the whole region has split again."""
        for table in (self._mirrors, self._gone, self._calm_ns):
            table.pop(region, None)

    def record_whole(self, now: Nanos, region: RegionId) -> None:
        """Record that a region is whole again, calm for an expiry. The region may itself be a half."""
        self._calm_ns[region] = now - self._settings.expiry_ns

    def drop(self, now: Nanos, region: RegionId) -> None:
        """Record that a half was removed."""
        self.stop(region)
        self._gone[region] = now + self._settings.expiry_ns

    def has_gone(self, region: RegionId) -> bool:
        return region in self._gone

    def end_beacon(self, now: Nanos, regions: Container[RegionId]) -> None:
        """Forget what is over. These are the regions of this peer."""
        self._events.clear()
        self._beacon_ns = now
        self._calm_ns = {region: since_ns for region, since_ns in self._calm_ns.items() if region in regions}
        for region in [region for region, mirror in self._mirrors.items() if mirror.until_ns <= now]:
            del self._mirrors[region]
        for region in [region for region, until_ns in self._gone.items() if until_ns <= now]:
            del self._gone[region]
