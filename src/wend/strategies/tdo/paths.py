"""Underlay paths: prefixes, and the paths inferred from them.

An anonymous router equals no other, so a path that contains one is no prefix of another path. Peers then match fewer
paths, but none wrongly.
"""

from wend.model.paths import Path

LONGEST = 255
"""The most hops of a path: an IP packet travels no further."""


def is_valid(path: Path) -> bool:
    return 0 < len(path) <= LONGEST


def leads_through(path: Path, other: Path) -> bool:
    """Whether `path` is a strict prefix of `other`. It is strict so that peers of one router are equal."""
    return len(path) < len(other) and None not in path and other[: len(path)] == path


def same(path: Path, other: Path) -> bool:
    return None not in path and path == other


def rest(path: Path, begin: Path) -> Path:
    """The path from the end of `begin` to the end of `path`, given that `begin` is a prefix of `path`."""
    return path[len(begin) - 1 :]


def back(path: Path) -> Path:
    return path[::-1]
