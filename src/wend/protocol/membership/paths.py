"""Paths through the underlay: which leads through the end of which, and what can be inferred.

A router that did not give its name is unlike every other, so a path that holds one is no prefix of anything: less is
matched then, and nothing wrongly. A path that was not measured at all is such a router alone.
"""

from wend.model.paths import Path

UNKNOWN: Path = (None,)


def leads_through(path: Path, other: Path) -> bool:
    """Whether `other` passes the end of `path` on its way: a strict prefix, so that peers of one router are equals."""
    return len(path) < len(other) and None not in path and other[: len(path)] == path


def same(path: Path, other: Path) -> bool:
    return None not in path and path == other


def rest(path: Path, begin: Path) -> Path:
    """From the end of `begin` to the end of `path`, which leads through it."""
    return path[len(begin) - 1 :]


def back(path: Path) -> Path:
    return path[::-1]
