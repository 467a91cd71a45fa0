"""Pastry's routing table: a peer for each digit that may follow each prefix of this peer's place on the ring.

Row r holds peers whose places share r digits with this peer's, by the next digit. Most rows are empty, so rows are made
when they are needed. An entry is a peer's id and nothing else.

The table prefers near peers. Of two peers for one cell it takes the one with the shorter measured round trip. If other
peers name a peer, it only fills an empty cell, and this peer does not pass it on until it has sent a message itself.
"""

from collections.abc import Iterator

from wend.model.events import PeerId
from wend.model.keys import COLUMNS, digit, node_id, shared_digits
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, SendTo
from wend.strategies.ring.failure_detector import Probes, RoundTrips
from wend.strategies.ring.leaf_set import LeafSet
from wend.strategies.ring.messages import RowRequest, TableRow


class RoutingTable:
    """The entries, and which of them this peer only knows from others."""

    __slots__ = ("_mine", "_unconfirmed", "entries", "rows")

    def __init__(self, me: PeerId) -> None:
        self._mine = node_id(me)
        self._unconfirmed: set[PeerId] = set()
        """Entries that have sent nothing yet."""
        self.rows: list[list[PeerId | None]] = []
        self.entries = 0

    def __contains__(self, peer: PeerId) -> bool:
        return self.entry(peer) == peer

    def __iter__(self) -> Iterator[PeerId]:
        for row in self.rows:
            for peer in row:
                if peer is not None:
                    yield peer

    def entry(self, peer: PeerId) -> PeerId | None:
        """The peer in the cell that this one belongs to."""
        place = node_id(peer)
        row = shared_digits(self._mine, place)
        return self.rows[row][digit(place, row)] if row < len(self.rows) else None

    def put(self, peer: PeerId) -> None:
        """Put a peer, another than this one, into its cell. It replaces the entry."""
        place = node_id(peer)
        row = shared_digits(self._mine, place)
        while len(self.rows) <= row:
            self.rows.append([None] * COLUMNS)
        column = digit(place, row)
        entry = self.rows[row][column]
        if entry is None:
            self.entries += 1
        else:
            self._unconfirmed.discard(entry)
        self.rows[row][column] = peer

    def confirm(self, peer: PeerId) -> None:
        """Put a peer that has sent a message into its cell if that is empty."""
        self._unconfirmed.discard(peer)
        if self.entry(peer) is None:
            self.put(peer)

    def suggest(self, peer: PeerId) -> bool:
        """Put a peer that others name into its cell if that is empty. Returns whether the peer is new to the table."""
        entry = self.entry(peer)
        if entry is None:
            self.put(peer)
            self._unconfirmed.add(peer)
        return entry != peer

    def remove(self, peer: PeerId) -> bool:
        if self.entry(peer) != peer:
            return False
        place = node_id(peer)
        row = shared_digits(self._mine, place)
        self.rows[row][digit(place, row)] = None
        self.entries -= 1
        self._unconfirmed.discard(peer)
        return True

    def row_number(self, peer: PeerId) -> int:
        return shared_digits(self._mine, node_id(peer))

    def row(self, number: int) -> tuple[PeerId, ...]:
        """The peers of a row, in the order of their digits."""
        if not 0 <= number < len(self.rows):
            return ()
        return tuple([peer for peer in self.rows[number] if peer is not None])

    def confirmed_row(self, number: int, receiver: PeerId) -> tuple[PeerId, ...]:
        """The peers of a row that have sent a message, except the receiver of the row."""
        return tuple([peer for peer in self.row(number) if peer != receiver and peer not in self._unconfirmed])

    def next_entry_after(self, cell: int) -> int | None:
        """The next cell that has an entry; the first one follows the last. Cells are numbered row by row."""
        total = COLUMNS * len(self.rows)
        for ahead in range(1, total + 1):
            at = (cell + ahead) % total
            if self.rows[at // COLUMNS][at % COLUMNS] is not None:
                return at
        return None


MEASURED_AT_ONCE = 2
"""Candidates for the table that a peer measures per period, at most."""
MAX_CANDIDATES = 32


class TableUpkeep:
    """Probes the entries in turn, and measures candidates that may be nearer."""

    def __init__(
        self, table: RoutingTable, leaf_set: LeafSet, trips: RoundTrips, probes: Probes, turn_ns: Nanos
    ) -> None:
        self._table = table
        self._leaf_set = leaf_set
        self._trips = trips
        self._probes = probes
        self._turn_ns = turn_ns
        """In this time it probes every entry once."""
        self._candidates: dict[PeerId, None] = {}
        self._cell = -1
        self._next_ns: Nanos = 0

    def suggest(self, peer: PeerId) -> None:
        """Consider a peer that others have in their tables."""
        if self._table.suggest(peer) and len(self._candidates) < MAX_CANDIDATES:
            self._candidates[peer] = None

    def measure(self, peer: PeerId, trip_ns: Nanos) -> None:
        """Record the measured round trip to a peer. The peer replaces the entry of its cell if it is nearer."""
        entry, trips = self._table.entry(peer), self._trips
        trips.average_ns += (trip_ns - trips.average_ns) // 8
        if peer == entry or peer in self._leaf_set:
            trips.add(peer, trip_ns)
        if entry is not None and entry != peer and trip_ns < trips.measured.get(entry, 0):
            self._table.put(peer)
            trips.measured[peer] = trip_ns
            if entry not in self._leaf_set:
                trips.measured.pop(entry, None)

    def vacate(self, peer: PeerId) -> list[PluginEffect]:
        """Empty the cell of a peer, and ask another of the row for one that fits."""
        if not self._table.remove(peer):
            return []
        row = self._table.row_number(peer)
        return [SendTo(other, RowRequest(row)) for other in self._table.row(row)[:1]]

    def remove(self, peer: PeerId) -> list[PluginEffect]:
        """Forget a peer that is dead."""
        self._candidates.pop(peer, None)
        self._trips.measured.pop(peer, None)
        return self.vacate(peer)

    def send_row(self, receiver: PeerId, number: int) -> list[PluginEffect]:
        row = self._table.confirmed_row(number, receiver)
        return [SendTo(receiver, TableRow(number, row))] if row else []

    def tend(self, now: Nanos, period: int) -> Iterator[PluginEffect]:
        """Measure some candidates, and probe the entries that are due."""
        for peer in list(self._candidates)[:MEASURED_AT_ONCE]:
            del self._candidates[peer]
            entry = self._table.entry(peer)
            if entry is not None and entry not in self._trips.measured:
                yield from self._probes.ping(now, entry)
            yield from self._probes.ping(now, peer)
        entries = self._table.entries
        if entries and self._next_ns == 0:
            self._next_ns = now + self._turn_ns // entries
        while entries and now >= self._next_ns:
            self._next_ns += self._turn_ns // entries
            yield from self._probe_next(now, period)

    def _probe_next(self, now: Nanos, period: int) -> Iterator[PluginEffect]:
        """Probe the next entry. At the first of a row, ask one of the row for its own: it may know nearer ones."""
        cell = self._table.next_entry_after(self._cell)
        assert cell is not None
        row, column = divmod(cell, COLUMNS)
        if row != self._cell // COLUMNS:
            peers = self._table.row(row)
            yield SendTo(peers[period % len(peers)], RowRequest(row))
        self._cell = cell
        entry = self._table.rows[row][column]
        assert entry is not None
        yield from self._probes.ping(now, entry)
