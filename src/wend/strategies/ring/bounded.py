"""Collections and messages of limited size, and places in the store."""

from collections.abc import Sequence
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
SEEN = 4096
"""How many events a peer remembers to recognise duplicates among them."""
BATCH = 16
"""Entries in one message, so that it fits a datagram unless its filters are very long."""


def put_newest(entries: dict[K, V], key: K, value: V, most: int) -> None:
    """Add an entry as the newest, and drop the oldest if there are more than `most`."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > most:
        del entries[next(iter(entries))]


def split_into_batches(items: Sequence[V], size: int = BATCH) -> list[tuple[V, ...]]:
    """Split a sequence into parts that fit one message each."""
    return [tuple(items[at : at + size]) for at in range(0, len(items), size)]


class RecentItems:
    """The most recent items, to recognise repetitions."""

    __slots__ = ("_items", "_room")

    def __init__(self, room: int = SEEN) -> None:
        self._items: dict[Any, None] = {}
        self._room = room

    def __contains__(self, item: Any) -> bool:
        return item in self._items

    def add(self, item: Any) -> bool:
        """Add an item. Returns whether it is new."""
        items = self._items
        if item in items:
            return False
        items[item] = None
        if len(items) > self._room:
            del items[next(iter(items))]
        return True


class StoreSlots:
    """The places of records in the peer's store, by number. Free places are reused."""

    def __init__(self) -> None:
        self._count = 0
        self._free: list[int] = []

    def allocate(self) -> int:
        if self._free:
            return self._free.pop()
        self._count += 1
        return self._count - 1

    def free(self, slot: int) -> None:
        self._free.append(slot)

    def recall(self, slot: int, is_taken: bool) -> None:
        """Restore a place that an earlier incarnation used, and freed unless it is taken."""
        self._free += range(self._count, slot + 1)
        self._count = max(self._count, slot + 1)
        if is_taken and slot in self._free:
            self._free.remove(slot)
        elif not is_taken and slot not in self._free:
            self._free.append(slot)
