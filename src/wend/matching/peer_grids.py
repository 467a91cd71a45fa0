"""The grids of a peer's index: of very many narrow boxes, those that may contain an event.

A grid divides the values of two attributes into columns and rows. Each cell lists the boxes that meet it. An event is
in one cell, and only the boxes there are tested. That is faster than bitmaps if boxes are narrow in both attributes: a
cell then has few boxes, and a box is in few cells. The borders come from the first boxes, so that most of these meet
two columns and two rows. A box that meets many cells or a crowded one, or lies beyond all borders, belongs elsewhere.
"""

from bisect import bisect_left, bisect_right
from itertools import combinations
from typing import Any

from wend.matching.boxes import Box, compact_matches
from wend.matching.values import NOTHING, Values, is_nan, pieces, values_between
from wend.model.events import Attributes, Range

MAX_CELLS = 16
"""A box that meets more cells is not in the grid."""
CROWDED = 64
"""Boxes in a cell; a box that would be one more is not in the grid."""
FEW = 2
"""Boxes in a cell of a new grid, on average; with more it is not worthwhile."""
MAX_BORDERS = 1024
SAMPLED = 128
"""The number of boxes that are sampled to choose the attributes of a grid."""
_ROW_BITS = 12
_ROW_MASK = (1 << _ROW_BITS) - 1


class _Axis:
    """The borders between the values of one attribute, all numbers or all texts."""

    __slots__ = ("borders", "name", "of_texts")

    def __init__(self, name: str, sides: list[tuple[Any, Any]]) -> None:
        """`sides`: the low and the high end (None if there is none) of the boxes."""
        self.name = name
        self.of_texts = type(sides[0][0]) is str
        cuts = sorted([cut for side in sides for cut in side if cut is not None])
        ends = [len(cuts) if end is None else bisect_left(cuts, end) for _, end in sides]
        widths = sorted([end - bisect_left(cuts, low) for (low, _), end in zip(sides, ends, strict=True)])
        usual = max(1, widths[len(widths) // 2])
        count = min(MAX_BORDERS, max(1, len(cuts) // usual))
        self.borders = sorted({*[cuts[at * len(cuts) // count] for at in range(count)], cuts[-1]})

    def span(self, low: Any, end: Any) -> tuple[int, int]:
        """The first and the last column that an interval meets."""
        borders = self.borders
        return bisect_right(borders, low), len(borders) if end is None else bisect_left(borders, end)

    def is_beyond(self, first: int, last: int) -> bool:
        """Whether these columns are outside of all borders."""
        return last == 0 or first == len(self.borders)

    def columns(self, values: Values) -> set[int]:
        """The columns that a set of values meets."""
        columns: set[int] = set()
        for low, end in pieces(values.strings if self.of_texts else values.numbers):
            first, last = self.span(low, end)
            columns.update(range(first, last + 1))
        return columns


class BoxGrid:
    """Boxes by the cells that they meet."""

    __slots__ = ("_cells", "_x", "_y", "boxes")

    def __init__(self, x: str, y: str, boxes: list[Box]) -> None:
        """The borders come from these boxes, which are not added yet."""
        self._x = _Axis(x, [_box_side(box, x) for box in boxes])
        self._y = _Axis(y, [_box_side(box, y) for box in boxes])
        self._cells: dict[int, list[Any]] = {}
        """By cell: a key, its box, the next key, the next box, …"""
        self.boxes: dict[Any, Box] = {}

    def find_cells(self, box: Box) -> list[int] | None:
        """The cells that a box meets; None if it does not belong here."""
        x, y = self._x, self._y
        if len(box) == 6 and box[0] == x.name and box[3] == y.name:
            low_x, end_x, low_y, end_y = box[1], box[2], box[4], box[5]
        elif x.name in box[::3] and y.name in box[::3]:
            (low_x, end_x), (low_y, end_y) = _box_side(box, x.name), _box_side(box, y.name)
        else:
            return None
        if (type(low_x) is str) is not x.of_texts or (type(low_y) is str) is not y.of_texts:
            return None
        first_x, last_x = x.span(low_x, end_x)
        first_y, last_y = y.span(low_y, end_y)
        if (last_x - first_x + 1) * (last_y - first_y + 1) > MAX_CELLS:
            return None
        if x.is_beyond(first_x, last_x) or y.is_beyond(first_y, last_y):
            return None
        rows = range(first_y, last_y + 1)
        return [(column << _ROW_BITS) + row for column in range(first_x, last_x + 1) for row in rows]

    @property
    def size(self) -> int:
        """The largest possible number of cells."""
        return len(self._x.borders) * len(self._y.borders)

    def add(self, key: Any, box: Box) -> bool:
        """Add a box under a new key. Returns False if it does not belong here."""
        numbers = self.find_cells(box)
        if numbers is None:
            return False
        cells = self._cells
        for number in numbers:
            if len(cells.get(number, ())) >= 2 * CROWDED:
                return False
        for number in numbers:
            cell = cells.get(number)
            if cell is None:
                cells[number] = [key, box]
            else:
                cell.append(key)
                cell.append(box)
        self.boxes[key] = box
        return True

    def discard(self, key: Any) -> None:
        for number in self.find_cells(self.boxes.pop(key)) or ():
            cell = self._cells[number]
            if len(cell) == 2:
                del self._cells[number]
            else:
                at = 2 * cell[::2].index(key)
                del cell[at : at + 2]

    def match(self, attributes: Attributes, keys: list[Any]) -> None:
        """Append the keys of the boxes that an event is in."""
        x, y = self._x, self._y
        a: Any = attributes.get(x.name)
        b: Any = attributes.get(y.name)
        if a is None or b is None:
            return
        if type(a) is Range or type(b) is Range:
            near = self._find_near(x.columns(_as_set(a)), y.columns(_as_set(b)))
            keys += [key for key in near if compact_matches(self.boxes[key], attributes)]
            return
        if isinstance(a, str) is not x.of_texts or isinstance(b, str) is not y.of_texts:
            return
        cell = self._cells.get((bisect_right(x.borders, a) << _ROW_BITS) + bisect_right(y.borders, b))
        if cell is not None:
            keys += [cell[at - 1] for at in range(1, len(cell), 2) if compact_matches(cell[at], attributes)]

    def _find_near(self, columns: set[int], rows: set[int]) -> dict[Any, None]:
        """The keys of the boxes in cells of these columns and rows, each once."""
        numbers = [(column << _ROW_BITS) + row for column in columns for row in rows]
        if len(numbers) > len(self._cells):
            numbers = [at for at in self._cells if at >> _ROW_BITS in columns and at & _ROW_MASK in rows]
        keys: dict[Any, None] = {}
        for number in numbers:
            keys.update(dict.fromkeys(self._cells.get(number, ())[::2]))
        return keys


def make_grid(boxes: list[Box]) -> BoxGrid | None:
    """A grid for most of the boxes that have two common attributes; None if no grid is worthwhile."""
    step = max(1, len(boxes) // SAMPLED)
    names = _most_common_pair(boxes, step)
    if names is None:
        return None
    x, y = names
    both = [box for box in boxes if x in box[::3] and y in box[::3]]
    kinds = type(_box_side(both[0], x)[0]) is str, type(_box_side(both[0], y)[0]) is str
    alike = [box for box in both if (type(_box_side(box, x)[0]) is str, type(_box_side(box, y)[0]) is str) == kinds]
    grid = BoxGrid(x, y, alike)
    sample = [grid.find_cells(box) for box in alike[::step]]
    cells = [len(one) for one in sample if one is not None]
    is_worth_it = 2 * len(cells) > len(sample) and 2 * len(alike) > len(both) and sum(cells) * step <= FEW * grid.size
    return grid if is_worth_it else None


def _most_common_pair(boxes: list[Box], step: int) -> tuple[str, str] | None:
    """Two attributes that at least a quarter of a sample of boxes has; None if there are no such two."""
    counts: dict[tuple[str, str], int] = {}
    for box in boxes[::step]:
        for pair in combinations(box[: 3 * 4 : 3], 2):
            counts[pair] = counts.get(pair, 0) + 1
    if not counts:
        return None
    names, count = max(counts.items(), key=lambda one: (one[1], one[0]))
    return names if 4 * count * step >= len(boxes) else None


def _box_side(box: Box, name: str) -> tuple[Any, Any]:
    at = 3 * box[::3].index(name)
    return box[at + 1], box[at + 2]


def _as_set(value: Any) -> Values:
    """A range or a single value as a set. No box contains a truth value or NaN."""
    if type(value) is Range:
        return values_between(value.low, value.high, value.low_open, value.high_open)
    return NOTHING if isinstance(value, bool) or is_nan(value) else values_between(value, value)
