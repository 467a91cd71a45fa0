"""Pastry's routing table: a peer for each digit that may follow each prefix of this peer's place on the ring.

Row r holds peers whose places share r digits with this peer's, by the next digit. Most rows are empty, so rows are made
when they are needed. An entry is a peer's id and nothing else.
"""

from collections.abc import Iterator

from wend.model.events import PeerId
from wend.model.keys import COLUMNS, digit, node_id, shared_digits


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
        """The peer has sent a message: put it into its cell if that is empty."""
        self._unconfirmed.discard(peer)
        if self.entry(peer) is None:
            self.put(peer)

    def suggest(self, peer: PeerId) -> bool:
        """Others know the peer: put it into its cell if that is empty. Returns whether it was no entry before."""
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

    def row_of(self, peer: PeerId) -> int:
        return shared_digits(self._mine, node_id(peer))

    def row(self, number: int) -> tuple[PeerId, ...]:
        """The peers of a row, in the order of their digits."""
        if not 0 <= number < len(self.rows):
            return ()
        return tuple([peer for peer in self.rows[number] if peer is not None])

    def confirmed_row(self, number: int, receiver: PeerId) -> tuple[PeerId, ...]:
        """The peers of a row that have sent a message, to tell another peer."""
        return tuple([peer for peer in self.row(number) if peer != receiver and peer not in self._unconfirmed])

    def after(self, cell: int) -> int | None:
        """The next cell that has an entry, beginning anew after the last; cells are numbered row by row."""
        total = COLUMNS * len(self.rows)
        for ahead in range(1, total + 1):
            at = (cell + ahead) % total
            if self.rows[at // COLUMNS][at % COLUMNS] is not None:
                return at
        return None
