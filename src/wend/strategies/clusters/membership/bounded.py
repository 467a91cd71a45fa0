"""Dictionaries of limited size: the oldest entry makes room for a new one."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def put(entries: dict[K, V], key: K, value: V, most: int) -> None:
    """Make an entry the newest, and drop the oldest if there are more than `most`."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > most:
        del entries[next(iter(entries))]
