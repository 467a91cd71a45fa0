"""Reverse paths: subscriptions leave a trail on their way to a place, and events follow it back.

At each hop a table remembers, for every entry, the peer that it came from. A hop passes on only entries that no other
entry covers: events for the covered entry come for the covering one, and the table sends them both ways.

While a path changes, an entry may come from two peers. The table remembers both, as two branches, until one of the
peers withdraws the entry or stops renewing it: the earlier path may be the only one for entries that it covers there.

A peer has a table for each place, and most tables are small. A small table compares its entries one by one; only a
large one has indexes.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from wend.matching.boxes import compact_filter, compact_matches
from wend.matching.covering import CoveringIndex
from wend.matching.filters import Filter, parse
from wend.matching.index import Index
from wend.model.errors import FilterError
from wend.model.events import Attributes, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Refuse
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.key_based import Entry, EntryId

P = TypeVar("P")

Branch = tuple[EntryId, PeerId]
"""An entry, and the peer that it came from: this peer's own id for its own."""
FEW = 16
"""With more entries than this a table has indexes."""


class _Record:
    """The record of a branch in a table."""

    __slots__ = ("compact", "coverer", "entry", "expires", "filter")

    def __init__(self, entry: Entry, filter_: Filter, expires: Nanos) -> None:
        self.entry = entry
        self.filter = filter_
        self.compact = compact_filter(filter_)
        self.expires = expires
        self.coverer: Branch | None = None
        """A branch that covers this one, while the table is small."""


class ReversePaths:
    """The entries on their way through this peer to one place, or that have arrived there.

    Without `covering` every entry counts as uncovered."""

    __slots__ = ("_branches", "_covering", "_covers", "_index", "_previous", "next_hop")

    def __init__(self, covering: bool = True) -> None:
        self._branches: dict[Branch, _Record] = {}
        self._previous: Counter[PeerId] = Counter()
        """How many branches there are to each peer."""
        self._covers = covering
        self._index: Index[Branch] | None = None
        self._covering: CoveringIndex[Branch] | None = None
        self.next_hop: PeerId | None = None
        """The peer that received the uncovered entries; None if this peer owns the place or has sent them to no
        peer."""

    def __len__(self) -> int:
        return len(self._branches)

    def __contains__(self, branch: Branch) -> bool:
        return branch in self._branches

    # ---------------------------------------------------------------- changes

    def add(self, entry: Entry, filter_: Filter | None, previous: PeerId, expires: Nanos) -> list[Branch]:
        """Add or renew an entry. Returns the branches to pass on. Raises FilterError.

        It ignores entries from the next hop: while hops do not agree on the owner, an entry may come back."""
        if previous == self.next_hop:
            return []
        branch = (entry.id, previous)
        earlier = self._branches.get(branch)
        if earlier is not None and earlier.entry == entry:
            earlier.expires = expires
            return []
        record = _Record(entry, parse(entry.filter) if filter_ is None else filter_, expires)
        onward = [] if earlier is None else self.remove(branch)[1]
        self._branches[branch] = record
        self._previous[previous] += 1
        if self._index is not None:
            self._index.add(branch, record.filter)
        elif len(self._branches) > FEW:
            onward += self._make_indexes(branch)
            return [each for each in onward if self.is_passed_on(each)]
        return [*onward, branch] if self._find_cover(branch, record) else onward

    def _find_cover(self, branch: Branch, record: _Record) -> bool:
        """Look for a branch that covers this one. Returns whether there is none."""
        if not self._covers:
            return True
        if self._covering is not None:
            return branch in self._covering.add(branch, record.filter)
        record.coverer = None
        conjunctions = record.filter.conjunctions
        if len(conjunctions) == 1:
            (one,) = conjunctions
            for other, theirs in self._branches.items():
                if theirs is record or theirs.coverer is not None:
                    continue
                if any(wide.covers(one) for wide in theirs.filter.conjunctions):
                    record.coverer = other
                    return False
        return True

    def _make_indexes(self, added: Branch) -> list[Branch]:
        """Index all branches. Returns those that have to be passed on because of the index."""
        branches = self._branches
        self._index = Index()
        for branch, record in branches.items():
            self._index.add(branch, record.filter)
        if not self._covers:
            return [added]
        covering = self._covering = CoveringIndex()
        uncovered = [branch for branch, record in branches.items() if record.coverer is None and branch != added]
        rest = [branch for branch, record in branches.items() if record.coverer is not None]
        for branch in (*uncovered, *rest, added):
            covering.add(branch, branches[branch].filter)
            branches[branch].coverer = None
        return [branch for branch in (*rest, added) if covering.is_uncovered(branch)]

    def move(self, hop: PeerId | None) -> None:
        """Change the next hop. Forget the entries that came from it: they do not go back there."""
        self.next_hop = hop
        if hop is not None and hop in self._previous:
            self.remove_all(self.branches_from(hop))

    def renew(self, id_: EntryId, previous: PeerId, expires: Nanos) -> bool:
        """Renew an entry. Returns whether it is known with this previous peer."""
        record = self._branches.get((id_, previous))
        if record is None:
            return False
        record.expires = expires
        return True

    def remove(self, branch: Branch) -> tuple[bool, list[Branch]]:
        """Forget a branch. Returns whether it was passed on, and the branches to pass on now."""
        if branch not in self._branches:
            return False, []
        was_passed_on = self.is_passed_on(branch)
        del self._branches[branch]
        self._previous[branch[1]] -= 1
        if not self._previous[branch[1]]:
            del self._previous[branch[1]]
        if self._index is not None:
            self._index.discard(branch)
        if self._covering is not None:
            return was_passed_on, self._covering.discard(branch)
        orphans = [other for other, record in self._branches.items() if record.coverer == branch]
        for other in orphans:
            self._branches[other].coverer = None
        return was_passed_on, [other for other in orphans if self._find_cover(other, self._branches[other])]

    def remove_all(self, branches: Iterable[Branch]) -> tuple[list[Entry], list[Branch]]:
        """Forget branches. Returns the entries that are no longer passed on, and the branches to pass on now."""
        removals: dict[EntryId, Entry] = {}
        onward: list[Branch] = []
        for branch in dict.fromkeys(branches):
            entry = self.entry(branch)
            was_passed_on, uncovered = self.remove(branch)
            onward += uncovered
            if was_passed_on:
                removals[entry.id] = entry
        return (
            [entry for id_, entry in removals.items() if not self._has_entry(id_)],
            [branch for branch in onward if self.is_passed_on(branch)],
        )

    def _has_entry(self, id_: EntryId) -> bool:
        return any((id_, previous) in self._branches for previous in self._previous)

    # ---------------------------------------------------------------- questions

    def entry(self, branch: Branch) -> Entry:
        return self._branches[branch].entry

    def get_filter(self, branch: Branch) -> Filter:
        return self._branches[branch].filter

    def has(self, entry: Entry, previous: PeerId) -> bool:
        """Whether this very entry came from the peer, and not another with its id."""
        record = self._branches.get((entry.id, previous))
        return record is not None and record.entry == entry

    @property
    def branches(self) -> list[Branch]:
        return list(self._branches)

    @property
    def previous_peers(self) -> list[PeerId]:
        return sorted(self._previous)

    def branches_from(self, previous: PeerId) -> list[Branch]:
        return [branch for branch in self._branches if branch[1] == previous]

    def find_branches(self, ids: Iterable[EntryId]) -> list[Branch]:
        """The branches of these entries that are passed on."""
        branches = [(id_, previous) for id_ in ids for previous in self._previous]
        return [branch for branch in branches if self.is_passed_on(branch)]

    def find_expired(self, now: Nanos) -> list[Branch]:
        return [branch for branch, record in self._branches.items() if record.expires <= now]

    def is_passed_on(self, branch: Branch) -> bool:
        """Whether no other branch covers it."""
        if self._covering is not None:
            return self._covering.is_uncovered(branch)
        record = self._branches.get(branch)
        return record is not None and record.coverer is None

    @property
    def onward(self) -> list[Branch]:
        """The branches that are passed on: those that no other one covers."""
        if self._covering is not None:
            return self._covering.uncovered_keys
        return [branch for branch, record in self._branches.items() if record.coverer is None]

    @property
    def onward_ids(self) -> list[EntryId]:
        return list(dict.fromkeys([id_ for id_, _ in self.onward]))

    def matching(self, attributes: Attributes) -> Iterable[Branch]:
        """The branches that match an event."""
        if self._index is not None:
            return self._index.match(attributes)
        return [branch for branch, record in self._branches.items() if compact_matches(record.compact, attributes)]

    def matching_peers(self, attributes: Attributes) -> list[PeerId]:
        """The previous peers of the entries that match the event, each once."""
        return list(dict.fromkeys([previous for _, previous in self.matching(attributes)]))


class Outgoing(NamedTuple):
    """A message for a peer, which may be this one."""

    peer: PeerId
    message: Any


def add_entries(
    table: ReversePaths, entries: Iterable[Entry], previous: PeerId, expires: Nanos
) -> tuple[list[Branch], list[Refuse]]:
    """Add entries of a peer to a table. Returns the branches to pass on, and refusals of invalid filters."""
    onward: dict[Branch, None] = {}
    refusals: list[Refuse] = []
    for entry in entries:
        try:
            onward.update(dict.fromkeys(table.add(entry, None, previous, expires)))
        except FilterError:
            refusals.append(Refuse(previous, "filter-syntax"))
    return list(onward), refusals


class PlacePaths(Generic[P]):
    """The reverse paths to many places, as soft state: each hop renews its entries at the next one, or they expire.

    A next hop of None means that this peer owns the place. A subclass has the messages.
    """

    def __init__(self, me: PeerId, expiry_ns: Nanos) -> None:
        self.me = me
        self.expiry_ns = expiry_ns
        self.tables: dict[P, ReversePaths] = {}

    def make_announcement(self, place: P, hop: PeerId | None, entries: tuple[Entry, ...]) -> Outgoing | None:
        """The message that passes entries on."""
        raise NotImplementedError

    def make_withdrawals(self, place: P, hop: PeerId | None, entries: list[Entry]) -> list[Outgoing]:
        """The messages that take entries back."""
        raise NotImplementedError

    def make_renewal(self, place: P, ids: tuple[EntryId, ...]) -> Any:
        """The message that renews entries at the next hop."""
        raise NotImplementedError

    # ---------------------------------------------------------------- entries of a previous hop

    def add(
        self, now: Nanos, place: P, hop: PeerId | None, previous: PeerId, entries: Iterable[Entry], joined: bool = True
    ) -> list[Outgoing | Refuse]:
        """Add entries, and pass them on. Before this peer has joined the ring, it passes on none."""
        table = self.tables.setdefault(place, ReversePaths())
        onward, refusals = add_entries(table, entries, previous, now + self.expiry_ns)
        outgoing: list[Outgoing] = []
        if hop != table.next_hop:
            outgoing = self.move(place, hop)
        elif joined:
            outgoing = self._make_announcement(place, table, onward)
        self._drop_empty(place)
        return [*refusals, *outgoing]

    def remove(self, place: P, previous: PeerId, ids: Iterable[EntryId]) -> list[Outgoing]:
        table = self.tables.get(place)
        branches = [] if table is None else [(id_, previous) for id_ in ids if (id_, previous) in table]
        return self._remove_branches(place, branches)

    def remove_peer(self, place: P, previous: PeerId) -> list[Outgoing]:
        """Remove all entries that came from a peer."""
        return self._remove_branches(place, self.tables[place].branches_from(previous)) if place in self.tables else []

    def renew(self, now: Nanos, place: P, previous: PeerId, ids: Iterable[EntryId]) -> list[EntryId]:
        """Renew entries. Returns those that are unknown."""
        table = self.tables.get(place)
        expires = now + self.expiry_ns
        return [id_ for id_ in ids if table is None or not table.renew(id_, previous, expires)]

    def expire(self, now: Nanos, place: P) -> list[Outgoing]:
        """Renew this peer's own entries, and remove entries that were not renewed."""
        table = self.tables.get(place)
        if table is None:
            return []
        for id_, _ in table.branches_from(self.me):
            table.renew(id_, self.me, now + self.expiry_ns + 1)
        return self._remove_branches(place, table.find_expired(now))

    def _remove_branches(self, place: P, branches: list[Branch]) -> list[Outgoing]:
        """Remove branches, and send the next hop their removal and the entries that they covered."""
        table = self.tables.get(place)
        if table is None:
            return []
        removals, onward = table.remove_all(branches)
        outgoing = self._make_announcement(place, table, onward) + self.make_withdrawals(
            place, table.next_hop, removals
        )
        self._drop_empty(place)
        return outgoing

    def _drop_empty(self, place: P) -> None:
        if place in self.tables and not len(self.tables[place]):
            del self.tables[place]

    # ---------------------------------------------------------------- the next hop

    def move(self, place: P, hop: PeerId | None) -> list[Outgoing]:
        """Pass all entries on to a new next hop. The former one forgets them when they expire."""
        table = self.tables[place]
        table.move(hop)
        return self._make_announcement(place, table, table.onward)

    def reroute(self, place: P, dead: PeerId, hop: PeerId | None) -> list[Outgoing]:
        """Move to another next hop if the present one does not answer."""
        table = self.tables.get(place)
        if table is None or table.next_hop != dead:
            return []
        table.next_hop = None
        return self.move(place, hop)

    def repeat(self, place: P, ids: Iterable[EntryId] | None = None) -> list[Outgoing]:
        """Pass entries on again; all of them without `ids`."""
        table = self.tables[place]
        return self._make_announcement(place, table, table.onward if ids is None else table.find_branches(ids))

    def on_unknown(self, place: P, hop: PeerId, ids: Iterable[EntryId]) -> list[Outgoing]:
        """Send entries again that the next hop does not know."""
        table = self.tables.get(place)
        return [] if table is None or table.next_hop != hop else self.repeat(place, ids)

    def renewals(self, place: P) -> list[Outgoing]:
        """Renew the entries at the next hop."""
        table = self.tables[place]
        if table.next_hop is None:
            return []
        return [Outgoing(table.next_hop, self.make_renewal(place, ids)) for ids in split_into_batches(table.onward_ids)]

    def _make_announcement(self, place: P, table: ReversePaths, onward: list[Branch]) -> list[Outgoing]:
        messages = [
            self.make_announcement(place, table.next_hop, tuple([table.entry(branch) for branch in batch]))
            for batch in split_into_batches(onward)
        ]
        return [message for message in messages if message is not None]
