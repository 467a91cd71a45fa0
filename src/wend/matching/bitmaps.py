"""Which of very many filters match, for one event or for a batch."""

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from wend.matching.batch import Batch
from wend.matching.filters import Filter
from wend.model.events import Attributes

K = TypeVar("K")
Ints = NDArray[np.int64]


class BitmapIndex(Generic[K]):
    """Dynamic and exact. Keys are ordered, and results come in their order; batches need integers as keys."""

    def __init__(self, filters: Iterable[tuple[K, Filter]] = ()) -> None:
        self._filters: dict[K, Filter] = dict(filters)

    def __len__(self) -> int:
        return len(self._filters)

    def keys(self) -> list[K]:
        """All keys, sorted: the order of the counts of `count_batch`."""
        return sorted(self._filters)  # type: ignore[type-var]

    def add(self, key: K, wanted: Filter) -> None:
        self._filters[key] = wanted

    def discard(self, key: K) -> None:
        self._filters.pop(key, None)

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        found = (key for key, wanted in self._filters.items() if wanted.matches(attributes))
        return tuple(sorted(found))  # type: ignore[type-var]

    def match_array(self, attributes: Attributes) -> Ints:
        """The same for integer keys, as an array."""
        return np.array(self.match(attributes), dtype=np.int64)

    def match_batch(self, batch: Batch) -> tuple[Ints, Ints]:
        """Offsets and keys: event i is wanted by keys[offsets[i]:offsets[i + 1]], sorted."""
        found = [self.match(batch.row(at)) for at in range(len(batch))]
        offsets = np.cumsum([0, *(len(one) for one in found)], dtype=np.int64)
        return offsets, np.array([key for one in found for key in one], dtype=np.int64)

    def count_batch(self, batch: Batch) -> tuple[Ints, Ints]:
        """How many want each event, and how many events each of `keys()` wants."""
        offsets, ids = self.match_batch(batch)
        positions = {key: at for at, key in enumerate(self.keys())}
        counts = np.zeros(len(self), dtype=np.int64)
        np.add.at(counts, [positions[int(key)] for key in ids], 1)  # type: ignore[index]
        return np.diff(offsets), counts
