"""Buckets for batches: the rows of all values of a column at once, with NumPy."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wend.matching.buckets import FALSE, FIRST_NUMBER, MISSING, NOTHING, AttributeBuckets, is_double
from wend.matching.values import WHOLE
from wend.model.events import Range

Doubles = NDArray[np.float64]
ColumnCells = tuple[NDArray[np.int64], NDArray[np.bool_], Doubles]
"""The cells of a column: rows, whether each is inexact, and values."""


class BatchBuckets:
    """Finds the cells of whole columns in the buckets of one attribute."""

    def __init__(self, buckets: AttributeBuckets) -> None:
        self._buckets = buckets
        self._doubles: tuple[Doubles, Doubles] | None = None
        """Borders and limits of the numbers. They are valid until the number of changes differs."""
        self._changes = -1

    def cells(self, column: Any, length: int) -> ColumnCells | None:
        """The cells of a column; None if the column has a range."""
        if column is None:
            return _exact(np.full(length, MISSING))
        if isinstance(column, np.ndarray):
            cells = self._of_array(column)
            if cells is not None:
                return cells
            column = column.tolist()
        return self._of_list(column)

    def _of_array(self, column: NDArray[Any]) -> ColumnCells | None:
        """The cells of an array; None if doubles cannot represent its values."""
        if column.dtype == np.bool_:
            return _exact(FALSE + column.astype(np.int64))
        if column.dtype == np.float64 or not len(column) or np.abs(column).max() <= WHOLE:
            return self._of_doubles(column.astype(np.float64, copy=False))
        return None

    def _of_list(self, column: list[Any]) -> ColumnCells | None:
        kinds = set(map(type, column))
        if kinds <= {float} or (kinds == {int} and max(map(abs, column)) <= WHOLE):
            cells = self._of_doubles(np.array(column, dtype=np.float64))
            if cells is not None:
                return cells
        if Range in kinds:
            return None
        if kinds <= {str, type(None)}:  # texts repeat, so each is looked up once
            by_text = {value: self._buckets.find(value) for value in dict.fromkeys(column)}
            rows = [by_text[value] for value in column]
        else:
            rows = [self._buckets.cell(value) for value in column]
        return (
            np.array([row for row, _, _ in rows], dtype=np.int64),
            np.array([not exact for _, exact, _ in rows], dtype=bool),
            np.array([value for _, _, value in rows], dtype=np.float64),
        )

    def _of_doubles(self, column: Doubles) -> ColumnCells | None:
        """The cells of doubles; None if a border is not a double."""
        numbers = self._buckets.numbers
        if self._doubles is None or self._changes != numbers.changes:
            if not all(is_double(border) for border in numbers.borders):
                return None
            limits = [math.inf if limit is None else _below(limit) for limit in numbers.limits]
            self._doubles = np.array(numbers.borders, dtype=np.float64), np.array(limits)
            self._changes = numbers.changes
        borders, limits_at = self._doubles
        at = np.searchsorted(borders, column, side="right")
        limit = limits_at[at]
        nan = np.isnan(column)
        inexact = ~((column < limit) | (limit == math.inf) | nan)
        return np.where(nan, NOTHING, FIRST_NUMBER + at), inexact, column


def _exact(rows: NDArray[np.int64]) -> ColumnCells:
    return rows, np.zeros(len(rows), dtype=bool), np.zeros(len(rows))


def _below(limit: Any) -> float:
    """The limit as a double, or one below it."""
    return float(limit) if is_double(limit) else -math.inf
