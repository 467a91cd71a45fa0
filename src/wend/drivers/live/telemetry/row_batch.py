"""Rows of one table in memory, until a thread writes them.

The event loop adds rows, so that has to be cheap: all cells of a batch are in one array of 64-bit integers, row by row.
The cell of a float has its bits, the cell of a string its number among the strings of the batch.
"""

from array import array
from struct import Struct

from wend.model.telemetry import TABLES
from wend.model.units import Nanos

_CELL_BYTES = 8
_FLOAT, _INTEGER = Struct("d"), Struct("q")


def float_bits(value: float) -> int:
    """The integer that has the bits of a float."""
    bits: int = _INTEGER.unpack(_FLOAT.pack(value))[0]
    return bits


class RowBatch:
    """Rows of one table, which become a segment."""

    __slots__ = ("_text_bytes", "begun_ns", "cells", "columns", "table", "texts")

    def __init__(self, table: str, begun_ns: Nanos) -> None:
        self.table = table
        self.columns = TABLES[table]
        self.begun_ns = begun_ns
        self.cells = array("q")
        self.texts: dict[str, int] = {}
        self._text_bytes = 0

    def add(self, cells: tuple[int, ...]) -> None:
        """Add a row. Raises `OverflowError` and adds nothing if a number has more than 64 bits."""
        try:
            self.cells.extend(cells)
        except OverflowError:
            del self.cells[self.rows * len(self.columns) :]
            raise

    def encode_text(self, text: str) -> int:
        """The cell of a string."""
        number = self.texts.get(text)
        if number is None:
            number = self.texts[text] = len(self.texts)
            self._text_bytes += len(text)
        return number

    @property
    def rows(self) -> int:
        return len(self.cells) // len(self.columns)

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, approximately."""
        return _CELL_BYTES * len(self.cells) + self._text_bytes
