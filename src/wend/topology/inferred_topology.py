"""The network that `wend data topology` inferred, and what it says about hops that did not answer a traceroute.

A path between two peers may have holes: routers that never answer, or whose answers were lost. The inferred links
around a hole show which routers can be there. The rule:

1. A hole of up to three hops between u and v is filled by routers x, y, ... such that u-x, x-y, ..., -v are inferred
   links. In the records, each of these links has to be in a hole, too: a router that always answered there would have
   answered now. A router that the path already has does not fit.
2. If several fit, those fit best whose rarest link was in most holes of the records; in a tie, those whose rarest link
   was seen most often; then those with the lower names.
3. All other hops stay as they are.

The job numbers routers that never answer, and its next output has other numbers. Peers compare paths, and may have read
different outputs. So such a router is named after its two lowest neighbours.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2s
from pathlib import Path as File
from typing import NamedTuple

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.paths import Path, Router
from wend.topology.inference import LONGEST

LINKS = "links"
"""The table of the job's output that holds the links."""
_PEER, _UNKNOWN = "peer:", "unknown:"
_NAME_BYTES = 6


class InferredLink(NamedTuple):
    """A link of the job's output, with what this module uses of it."""

    a: str
    b: str
    seen: int
    """How many traces showed it."""
    filled: int
    """How many of them had a hole there."""


class InferredTopology:
    """Completes paths by inferred links."""

    def __init__(self, links: Iterable[InferredLink]) -> None:
        filled = [link for link in links if link.filled]
        names = _name_unknown_routers(filled)
        self._near: dict[str, dict[str, tuple[int, int]]] = {}
        """By node and neighbour: how often the link was in a hole, and how often it was seen."""
        for link in filled:
            a, b = names.get(link.a, link.a), names.get(link.b, link.b)
            self._near.setdefault(a, {})[b] = self._near.setdefault(b, {})[a] = (link.filled, link.seen)

    def complete(self, source: PeerId, target: PeerId, path: Path) -> Path:
        """The path with its holes filled where inferred links fit. A path and its reverse get the same routers."""
        if None not in path:
            return path
        if source > target:
            return self._complete(f"{_PEER}{target}", f"{_PEER}{source}", path[::-1])[::-1]
        return self._complete(f"{_PEER}{source}", f"{_PEER}{target}", path)

    def _complete(self, source: str, target: str, path: Path) -> Path:
        hops: list[Router | None] = list(path)
        taken = {str(hop) for hop in path if hop is not None}
        begin = 0
        while begin < len(hops):
            end = begin
            while end < len(hops) and hops[end] is None:
                end += 1
            if end > begin:
                before = str(hops[begin - 1]) if begin else source
                after = str(hops[end]) if end < len(hops) else target
                routers = self._fill(before, after, end - begin, taken)
                hops[begin:end] = routers or hops[begin:end]
                taken.update(routers)
            begin = end + 1
        return tuple(hops)

    def _fill(self, before: str, after: str, count: int, taken: set[str]) -> tuple[str, ...]:
        """The routers that fit best between two nodes, as many as `count`; none if none fit."""
        if count > LONGEST or before not in self._near or after not in self._near:
            return ()
        fitting = self._find_fitting((before,), after, count, taken)
        return min(fitting, key=lambda routers: (*self._rank((before, *routers, after)), routers), default=())

    def _find_fitting(
        self, path: tuple[str, ...], after: str, count: int, taken: set[str]
    ) -> Iterator[tuple[str, ...]]:
        """The routers that can follow this path, as many as `count`, before `after`; without the node it begins at."""
        here = self._near[path[-1]]
        candidates = here.keys() & self._near[after].keys() if count == 1 else here.keys()
        for router in candidates:
            if router in taken or router in path or router.startswith(_PEER):
                continue
            if count == 1:
                yield (*path[1:], router)
            else:
                yield from self._find_fitting((*path, router), after, count - 1, taken)

    def _rank(self, path: tuple[str, ...]) -> tuple[int, int]:
        """The rank of a path by its links; the lowest is best."""
        links = [self._near[path[i]][path[i + 1]] for i in range(len(path) - 1)]
        return -min(filled for filled, _ in links), -min(seen for _, seen in links)


def _name_unknown_routers(links: list[InferredLink]) -> dict[str, str]:
    """Names for the numbered routers that depend on their neighbours, not on the numbers of other routers."""
    near: dict[str, set[str]] = {}
    for link in links:
        for router, other in ((link.a, link.b), (link.b, link.a)):
            if router.startswith(_UNKNOWN):
                near.setdefault(router, set()).add(other)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for router in sorted(near):
        lowest = "\n".join(sorted(near[router])[:2])
        name = _UNKNOWN + blake2s(lowest.encode(), digest_size=_NAME_BYTES).hexdigest()
        if name in taken:
            name += router.removeprefix(_UNKNOWN)
        taken.add(name)
        names[router] = name
    return names


def read_topology(folder: File) -> InferredTopology:
    """Read the output of `wend data topology`. Raises ConfigError, and MissingExtra without PyArrow."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = pa.schema([("a", pa.string()), ("b", pa.string()), ("seen", pa.int64()), ("filled", pa.int64())])
    place = folder / LINKS
    if not place.is_dir():
        raise ConfigError(
            f"{folder} is not an output of `wend data topology`: it has no folder {LINKS}", code="unreadable"
        )
    try:
        table = parquet.read_table(place)
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"cannot read the inferred topology in {folder}: {reason}", code="unreadable") from None
    for column in columns:
        if column.name not in table.column_names:
            raise ConfigError(f"the links in {place} have no column {column.name}", code="unreadable")
        if table.schema.field(column.name).type != column.type or table.column(column.name).null_count:
            raise ConfigError(
                f"the column {column.name} of the links in {place} must be {column.type}, without nulls",
                code="unreadable",
            )
    rows = table.select(columns.names).to_pydict()
    return InferredTopology(map(InferredLink, *(rows[name] for name in columns.names)))
