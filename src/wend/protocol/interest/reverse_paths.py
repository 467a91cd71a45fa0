"""Reverse paths: subscriptions leave a trail on their way to a place, and events follow it back.

At each hop a table remembers, for every entry, the peer that it came from. A hop passes on only entries that no other
one covers: events that the covered one wants come for the covering one, and the table sends them both ways.

A peer has a table for each place, and most of them are small. A small table compares its entries one by one; only a
large one has indexes.
"""

from collections.abc import Iterable, Iterator

from wend.matching.covering import CoveringIndex
from wend.matching.filters import Filter, parse
from wend.matching.index import Index
from wend.model.events import Attributes, PeerId
from wend.model.units import Nanos
from wend.protocol.interest.key_based import Entry, EntryId

FEW = 16
"""With more entries than this a table has indexes."""


class _Branch:
    __slots__ = ("coverer", "entry", "expires", "previous", "wanted")

    def __init__(self, entry: Entry, wanted: Filter) -> None:
        self.entry = entry
        self.wanted = wanted
        self.previous: PeerId = -1
        self.expires: Nanos = 0
        self.coverer: EntryId | None = None
        """An entry that covers this one, while the table is small."""


class ReversePaths:
    """The entries on their way through this peer to one place, or that have arrived there.

    Without `covering` every entry counts as uncovered."""

    __slots__ = ("_branches", "_covering", "_covers", "_index", "next_hop")

    def __init__(self, covering: bool = True) -> None:
        self._branches: dict[EntryId, _Branch] = {}
        self._covers = covering
        self._index: Index[EntryId] | None = None
        self._covering: CoveringIndex[EntryId] | None = None
        self.next_hop: PeerId | None = None
        """The peer that was told the uncovered entries; None where this peer owns the place, or told nobody."""

    def __len__(self) -> int:
        return len(self._branches)

    def __contains__(self, id_: EntryId) -> bool:
        return id_ in self._branches

    def __iter__(self) -> Iterator[EntryId]:
        return iter(self._branches)

    # ---------------------------------------------------------------- changes

    def add(self, entry: Entry, wanted: Filter | None, previous: PeerId, expires: Nanos) -> list[EntryId]:
        """Add or renew an entry. Returns the entries to pass on. Raises FilterError.

        What the subscriber's own peer said is not changed by others, nor is anything by the next hop: while hops do not
        agree on the owner, an entry may come back."""
        id_ = entry.id
        known = self._branches.get(id_)
        if (
            known is not None
            and known.previous != previous
            and (known.previous == id_.peer or previous == self.next_hop)
        ):
            return []
        if known is not None and known.entry == entry:
            known.previous, known.expires = previous, expires
            return []
        branch = _Branch(entry, parse(entry.filter) if wanted is None else wanted)
        branch.previous, branch.expires = previous, expires
        onward = [] if known is None else self.remove(id_)[1]
        self._branches[id_] = branch
        if self._index is not None:
            self._index.add(id_, branch.wanted)
        elif len(self._branches) > FEW:
            onward += self._make_indexes(id_)
            return [id_ for id_ in onward if self.passed_on(id_)]
        return [*onward, id_] if self._place(id_, branch) else onward

    def _place(self, id_: EntryId, branch: _Branch) -> bool:
        """Find an entry that covers this one; True if there is none."""
        if not self._covers:
            return True
        if self._covering is not None:
            return id_ in self._covering.add(id_, branch.wanted)
        branch.coverer = None
        conjunctions = branch.wanted.conjunctions
        if len(conjunctions) == 1:
            (one,) = conjunctions
            for other, theirs in self._branches.items():
                if theirs is branch or theirs.coverer is not None:
                    continue
                if any(wide.covers(one) for wide in theirs.wanted.conjunctions):
                    branch.coverer = other
                    return False
        return True

    def _make_indexes(self, added: EntryId) -> list[EntryId]:
        """Index all entries. Returns those that have to be passed on because of it."""
        branches = self._branches
        self._index = Index()
        for id_, branch in branches.items():
            self._index.add(id_, branch.wanted)
        if not self._covers:
            return [added]
        covering = self._covering = CoveringIndex()
        passed = [id_ for id_, branch in branches.items() if branch.coverer is None and id_ != added]
        rest = [id_ for id_, branch in branches.items() if branch.coverer is not None]
        for id_ in (*passed, *rest, added):
            covering.add(id_, branches[id_].wanted)
            branches[id_].coverer = None
        return [id_ for id_ in (*rest, added) if covering.uncovered(id_)]

    def renew(self, id_: EntryId, previous: PeerId, expires: Nanos) -> bool:
        """Whether the entry is known as coming from this peer."""
        branch = self._branches.get(id_)
        if branch is None or branch.previous != previous:
            return False
        branch.expires = expires
        return True

    def remove(self, id_: EntryId) -> tuple[bool, list[EntryId]]:
        """Forget an entry. Returns whether it had been passed on, and the entries that are to be passed on now."""
        if id_ not in self._branches:
            return False, []
        passed = self.passed_on(id_)
        del self._branches[id_]
        if self._index is not None:
            self._index.discard(id_)
        if self._covering is not None:
            return passed, self._covering.discard(id_)
        orphans = [other for other, branch in self._branches.items() if branch.coverer == id_]
        for other in orphans:
            self._branches[other].coverer = None
        return passed, [other for other in orphans if self._place(other, self._branches[other])]

    # ---------------------------------------------------------------- questions

    def knows(self, id_: EntryId, previous: PeerId) -> bool:
        """Whether the entry is known as coming from this peer."""
        branch = self._branches.get(id_)
        return branch is not None and branch.previous == previous

    def entry(self, id_: EntryId) -> Entry:
        return self._branches[id_].entry

    def wanted(self, id_: EntryId) -> Filter:
        return self._branches[id_].wanted

    def previous(self, id_: EntryId) -> PeerId:
        """The peer that an entry came from; this peer's own id for its own."""
        return self._branches[id_].previous

    def previous_peers(self) -> set[PeerId]:
        return {branch.previous for branch in self._branches.values()}

    def came_from(self, previous: PeerId) -> list[EntryId]:
        return [id_ for id_, branch in self._branches.items() if branch.previous == previous]

    def expired(self, now: Nanos) -> list[EntryId]:
        return [id_ for id_, branch in self._branches.items() if branch.expires <= now]

    def passed_on(self, id_: EntryId) -> bool:
        """Whether no other entry covers it."""
        if self._covering is not None:
            return self._covering.uncovered(id_)
        branch = self._branches.get(id_)
        return branch is not None and branch.coverer is None

    @property
    def onward(self) -> list[EntryId]:
        """The entries that are passed on: those that no other one covers."""
        if self._covering is not None:
            return self._covering.all_uncovered
        return [id_ for id_, branch in self._branches.items() if branch.coverer is None]

    def matching(self, attributes: Attributes) -> Iterable[EntryId]:
        """The entries that match an event."""
        if self._index is not None:
            return self._index.match(attributes)
        return [id_ for id_, branch in self._branches.items() if branch.wanted.matches(attributes)]

    def towards(self, attributes: Attributes) -> list[PeerId]:
        """The peers that entries that match the event came from, each once."""
        branches = self._branches
        if self._index is None:
            found = [each.previous for each in branches.values() if each.wanted.matches(attributes)]
        else:
            found = [branches[id_].previous for id_ in self._index.match(attributes)]
        return list(dict.fromkeys(found))
