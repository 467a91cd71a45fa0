"""Buckets for batches: the rows of all values of a column at once, with NumPy."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wend.matching.buckets import FALSE, FIRST_NUMBER, MISSING, NOTHING, AttributeBuckets, Cell, is_double
from wend.matching.values import WHOLE
from wend.model.events import Range

Doubles = NDArray[np.float64]


class BatchBuckets(AttributeBuckets):
    """The rows of one attribute, for single events and for batches."""

    _doubles: tuple[Doubles, Doubles] | None = None
    """Borders and limits."""

    def _forget(self) -> None:
        super()._forget()
        self._doubles = None

    def column(self, column: Any, length: int) -> tuple[NDArray[np.int64], NDArray[np.bool_], Doubles] | None:
        """The cells of a column: rows, whether each is inexact, and values. None if the column has a range."""
        if column is None:
            return np.full(length, MISSING), np.zeros(length, dtype=bool), np.zeros(length)
        if isinstance(column, np.ndarray):
            if column.dtype == np.bool_:
                return FALSE + column.astype(np.int64), np.zeros(length, dtype=bool), np.zeros(length)
            if column.dtype == np.float64 or not length or np.abs(column).max() <= WHOLE:
                found = self._numbers(column.astype(np.float64, copy=False))
                if found is not None:
                    return found
            column = column.tolist()
        kinds = set(map(type, column))
        if kinds <= {float} or (kinds == {int} and max(map(abs, column)) <= WHOLE):
            found = self._numbers(np.array(column, dtype=np.float64))
            if found is not None:
                return found
        if Range in kinds:
            return None
        cells = self._texts(column) if kinds <= {str, type(None)} else [self.cell(value) for value in column]
        return (
            np.array([cell[0] for cell in cells], dtype=np.int64),
            np.array([not cell[1] for cell in cells], dtype=bool),
            np.array([cell[2] for cell in cells], dtype=np.float64),
        )

    def _texts(self, column: list[Any]) -> list[Cell]:
        """The cells of texts. Texts repeat, so each is looked up once."""
        known = {value: self._cell(value) for value in dict.fromkeys(column)}
        return [known[value] for value in column]

    def _numbers(self, column: Doubles) -> tuple[NDArray[np.int64], NDArray[np.bool_], Doubles] | None:
        """The cells of doubles; None if a border is not a double."""
        if self._doubles is None:
            if not all(is_double(border) for border in self.numbers.borders):
                return None
            limits = [math.inf if limit is None else _below(limit) for limit in self.numbers.limits]
            self._doubles = np.array(self.numbers.borders, dtype=np.float64), np.array(limits)
        borders, limits_at = self._doubles
        at = np.searchsorted(borders, column, side="right")
        limit = limits_at[at]
        nan = np.isnan(column)
        inexact = ~((column < limit) | (limit == math.inf) | nan)
        return np.where(nan, NOTHING, FIRST_NUMBER + at), inexact, column


def _below(limit: Any) -> float:
    """The limit as a double, or one below it."""
    return float(limit) if is_double(limit) else -math.inf
