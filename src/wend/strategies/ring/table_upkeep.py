"""The upkeep of the routing table: which entries a peer probes, and which nearer peers replace them.

The table prefers near peers. Of two peers for one cell it takes the one with the shorter measured round trip. What
others say of a peer fills only an empty cell, and is not passed on before the peer itself has sent a message.
"""

from wend.model.events import PeerId
from wend.model.keys import COLUMNS
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, SendTo
from wend.strategies.ring.leaf_set import LeafSet
from wend.strategies.ring.messages import RowRequest, TableRow
from wend.strategies.ring.probes import Probes
from wend.strategies.ring.round_trips import RoundTrips
from wend.strategies.ring.routing_table import RoutingTable

MEASURED_AT_ONCE = 2
"""Candidates for the table that a peer measures per period, at most."""
MOST_CANDIDATES = 32


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
        """Others have the peer in their tables."""
        if self._table.suggest(peer) and len(self._candidates) < MOST_CANDIDATES:
            self._candidates[peer] = None

    def measure(self, peer: PeerId, trip_ns: Nanos) -> None:
        """A peer answered after this time. If it is nearer than the entry in its cell, it replaces that one."""
        entry, trips = self._table.entry(peer), self._trips
        trips.count(trip_ns)
        if peer == entry or peer in self._leaf_set:
            trips.smooth(peer, trip_ns)
        if entry is not None and entry != peer and trip_ns < trips.measured.get(entry, 0):
            self._table.put(peer)
            trips.measured[peer] = trip_ns
            if entry not in self._leaf_set:
                trips.measured.pop(entry, None)

    def vacate(self, peer: PeerId) -> list[PluginEffect]:
        """Empty the cell of a peer, and ask another of the row for one that fits."""
        if not self._table.remove(peer):
            return []
        row = self._table.row_of(peer)
        return [SendTo(other, RowRequest(row)) for other in self._table.row(row)[:1]]

    def remove(self, peer: PeerId) -> list[PluginEffect]:
        """Forget a peer that is dead."""
        self._candidates.pop(peer, None)
        self._trips.measured.pop(peer, None)
        return self.vacate(peer)

    def tell_row(self, receiver: PeerId, number: int) -> list[PluginEffect]:
        row = self._table.confirmed_row(number, receiver)
        return [SendTo(receiver, TableRow(number, row))] if row else []

    def tend(self, now: Nanos, period: int) -> list[PluginEffect]:
        """Measure some candidates, and probe the entries that are due."""
        effects: list[PluginEffect] = []
        for peer in list(self._candidates)[:MEASURED_AT_ONCE]:
            del self._candidates[peer]
            entry = self._table.entry(peer)
            if entry is not None and entry not in self._trips.measured:
                effects += self._probes.ping(now, entry)
            effects += self._probes.ping(now, peer)
        entries = self._table.entries
        if entries and self._next_ns == 0:
            self._next_ns = now + self._turn_ns // entries
        while entries and now >= self._next_ns:
            self._next_ns += self._turn_ns // entries
            effects += self._probe_next(now, period)
        return effects

    def _probe_next(self, now: Nanos, period: int) -> list[PluginEffect]:
        """Probe the next entry. At the first of a row, ask one of the row for its own: it may know nearer ones."""
        effects: list[PluginEffect] = []
        cell = self._table.after(self._cell)
        assert cell is not None
        row, column = divmod(cell, COLUMNS)
        if row != self._cell // COLUMNS:
            peers = self._table.row(row)
            effects.append(SendTo(peers[period % len(peers)], RowRequest(row)))
        self._cell = cell
        entry = self._table.rows[row][column]
        assert entry is not None
        return effects + self._probes.ping(now, entry)
