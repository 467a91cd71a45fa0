"""Batches: many events as columns, the input of the compiled index.

A column is a NumPy array of integers, doubles or truth values with a value for every event, or a list of any values
with None for events that lack the attribute. A row of a batch is the attributes of one event.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from wend.model.errors import ConfigError
from wend.model.events import Attributes, Value

Column = NDArray[Any] | list[Value | None]


class Batch(msgspec.Struct, frozen=True):
    """Events as columns. `of` and `of_columns` make one."""

    length: int
    columns: dict[str, Column]

    @classmethod
    def of(cls, events: Sequence[Attributes]) -> "Batch":
        names = dict.fromkeys(name for event in events for name in event)
        return cls(len(events), {name: [event.get(name) for event in events] for name in sorted(names)})

    @classmethod
    def of_columns(cls, length: int, columns: Mapping[str, NDArray[Any] | Sequence[Value | None]]) -> "Batch":
        """Raises ConfigError if a column has another length, or a type that events cannot have."""
        return cls(length, {name: _make_column(name, length, columns[name]) for name in sorted(columns)})

    def __len__(self) -> int:
        return self.length

    def row(self, at: int) -> Attributes:
        """One event of the batch."""
        attributes: Attributes = {}
        for name, column in self.columns.items():
            value = column[at] if isinstance(column, list) else column[at].item()
            if value is not None:
                attributes[name] = value
        return attributes

    def part(self, start: int, stop: int) -> "Batch":
        """The events from `start` to before `stop`."""
        stop = min(stop, self.length)
        return Batch(stop - start, {name: column[start:stop] for name, column in self.columns.items()})


def _make_column(name: str, length: int, column: NDArray[Any] | Sequence[Value | None]) -> Column:
    if len(column) != length:
        raise ConfigError(f"column {name} has {len(column)} values for {length} events")
    if not isinstance(column, np.ndarray):
        return column if isinstance(column, list) else list(column)
    if column.ndim != 1:
        raise ConfigError(f"column {name} must have one dimension, got {column.ndim}")
    match column.dtype.kind:
        case "b":
            return column
        case "f" if column.dtype.itemsize <= 8:
            return column.astype(np.float64, copy=False)
        case "i":
            return column.astype(np.int64, copy=False)
        case "u" if column.dtype.itemsize < 8:
            return column.astype(np.int64)
        case "u" | "U" | "O":
            return column.tolist()  # type: ignore[no-any-return]
    raise ConfigError(f"column {name} holds {column.dtype}; events have truth values, numbers, texts and ranges")
