"""Attribute values as whole numbers of 24 bits that keep their order, without a declared domain.

The leading bits say the kind: 0 for numbers, 10 for texts, 11 for truth values. Then come the leading bits of the
value: of a number in the order of its double (sign, exponent, mantissa), of a text in the order of its characters. So
a string of bits names a range of values, and its two extensions by one bit halve this range.

Different values may have one cell. Cells place filters and events; they never decide whether these match.
"""

import struct
from typing import Any

from wend.matching.values import Cuts, Values, interval, pieces
from wend.model.events import Range, Value

CELL_BITS = 24
Interval = tuple[int, int]
"""The first and the last cell."""

_NUMBER_BITS = CELL_BITS - 1
_TEXT_BITS = CELL_BITS - 2
_TEXTS = 0b10 << _TEXT_BITS
_BOOLEANS = 0b11 << _TEXT_BITS
_LAST_NUMBER = (1 << _NUMBER_BITS) - 1
_LAST_TEXT = _TEXTS + (1 << _TEXT_BITS) - 1
EVERYTHING: Interval = (0, (1 << CELL_BITS) - 1)


def _number_cell(value: int | float) -> int:
    try:
        as_float = float(value)
    except OverflowError:
        as_float = float("inf") if value > 0 else float("-inf")
    (bits,) = struct.unpack(">Q", struct.pack(">d", as_float + 0.0))
    ordered = bits ^ 0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else bits | (1 << 63)
    return int(ordered >> (64 - _NUMBER_BITS))


def _text_cell(value: str) -> int:
    first = value[:3].encode("utf-8", "surrogatepass")[:3].ljust(3, b"\0")
    return _TEXTS | int.from_bytes(first, "big") >> (24 - _TEXT_BITS)


def cell(value: bool | int | float | str) -> int:
    """The cell of a value. A larger value of the same kind never has a smaller cell."""
    if isinstance(value, bool):
        return _BOOLEANS | value
    return _text_cell(value) if isinstance(value, str) else _number_cell(value)


def find_value_cells(value: Value) -> Interval:
    """The cells of an event's value, which may be a range."""
    if not isinstance(value, Range):
        at = cell(value)
        return at, at
    cuts = interval(value.low, value.high, value.low_open, value.high_open)
    if not cuts:  # between two neighbours: it holds nothing
        cuts = (value.low, value.high)
    return _find_cut_cells(cuts)


def find_values_cells(values: Values) -> list[Interval]:
    """The cells of a set of values, as intervals in order."""
    cells = [_make_interval(low, end) for cuts in (values.numbers, values.strings) for low, end in pieces(cuts)]
    return cells + [(_BOOLEANS | one, _BOOLEANS | one) for one in values.booleans]


def _find_cut_cells(cuts: Cuts) -> Interval:
    return _make_interval(cuts[0], cuts[1] if len(cuts) > 1 else None)


def _make_interval(low: Any, end: Any) -> Interval:
    if end is None:
        return cell(low), _LAST_TEXT if isinstance(low, str) else _LAST_NUMBER
    return cell(low), cell(end)


def region(code: str) -> Interval:
    """The cells of a region: those whose bits begin with the code."""
    low = int(code, 2) << (CELL_BITS - len(code)) if code else 0
    return low, low + (1 << (CELL_BITS - len(code))) - 1


def is_region(code: str) -> bool:
    return len(code) <= CELL_BITS and not code.strip("01")


def bits(at: int) -> str:
    """All bits of a cell: its own region."""
    return f"{at:0{CELL_BITS}b}"


def overlaps_any(one: Interval, others: list[Interval]) -> bool:
    return any(one[0] <= high and low <= one[1] for low, high in others)


def is_covered(interval: Interval, codes: list[str]) -> bool:
    """Whether these regions contain the whole interval."""
    at = interval[0]
    for low, high in sorted(map(region, codes)):
        if low > at:
            return False
        if high >= at:
            at = high + 1
            if at > interval[1]:
                return True
    return False
