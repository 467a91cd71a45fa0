"""Failure schedules: when links and peers are down. A run draws its schedule once, from its seed.

`PerSecond` is the dcrd paper's model: in each second every link is down with probability Pf, in both directions at
once. `Intervals` holds outages of any length, drawn from distributions or given. The table `faults` of a trace holds
the failures of its run, simulated or in the lab, and another run can replay it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from wend.model.error_text import describe_schema_error
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.fault_settings import Outages, Partitions, Spread
from wend.model.randomness import stream
from wend.model.trace import Trace, schema
from wend.model.units import SECOND, Nanos, seconds
from wend.topology.graph import Overlay

Outage = tuple[int, Nanos, Nanos]
"""(component, from, until)"""
ON_LINKS = ("corruption", "reordering", "delay", "congestion", "partition")
"""Kinds of faults in a trace that take no link down, or only links whose outages the trace also has."""


class Faults(Protocol):
    def is_up(self, component: int, now: Nanos) -> bool: ...

    def outages(self) -> Iterator[Outage]:
        """All outages, ordered by start and component."""
        ...

    def calendar(self, component: int, seconds: int) -> bytes | None:
        """One byte per second of the run, not 0 if the component is down in it. None if outages can begin and end
        within a second."""
        ...

    def next_change(self, now: Nanos) -> Nanos:
        """The earliest time at which a component that is down now may be up again."""
        ...


class PerSecond:
    def __init__(self, components: int, pf: float, *, begin: Nanos, end: Nanos, seed: int) -> None:
        """Each component is down with probability `pf` in each whole second within [begin, end), and up outside."""
        self._seconds = end // SECOND
        drawn = stream(seed, "faults", "per-second").random((self._seconds, components)) < pf
        drawn[: -(-begin // SECOND)] = False
        self._drawn = drawn
        self._down = [drawn[:, component].tobytes() for component in range(components)]

    def is_up(self, component: int, now: Nanos) -> bool:
        second = now // SECOND
        return second >= self._seconds or not self._down[component][second]

    def outages(self) -> Iterator[Outage]:
        outages = []
        for component in range(self._drawn.shape[1]):
            padded = np.concatenate(([0], self._drawn[:, component].astype(np.int8), [0]))
            edges = np.flatnonzero(np.diff(padded)) * SECOND
            outages += [(component, int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
        return iter(sorted(outages, key=lambda o: (o[1], o[0])))

    def calendar(self, component: int, seconds: int) -> bytes | None:
        return self._down[component].ljust(seconds, b"\0")

    def next_change(self, now: Nanos) -> Nanos:
        return (now // SECOND + 1) * SECOND


class Intervals:
    def __init__(self, components: int, outages: Sequence[Outage]) -> None:
        self._edges: list[list[Nanos]] = [[] for _ in range(components)]
        for component, start, until in sorted(outages):
            edges = self._edges[component]
            if edges and start <= edges[-1]:
                edges[-1] = max(edges[-1], until)
            elif until > start:
                edges += [start, until]

    def is_up(self, component: int, now: Nanos) -> bool:
        return bisect_right(self._edges[component], now) % 2 == 0

    def outages(self) -> Iterator[Outage]:
        outages = [(p, e[i], e[i + 1]) for p, e in enumerate(self._edges) for i in range(0, len(e), 2)]
        return iter(sorted(outages, key=lambda o: (o[1], o[0])))

    def calendar(self, component: int, seconds: int) -> bytes | None:
        return None

    @cached_property
    def _changes(self) -> list[Nanos]:
        return sorted({edge for edges in self._edges for edge in edges})

    def next_change(self, now: Nanos) -> Nanos:
        later = bisect_right(self._changes, now)
        return self._changes[later] if later < len(self._changes) else now + SECOND


def draw_outages(components: int, outages: Outages, *, begin: Nanos, end: Nanos, seed: int, what: str) -> Intervals:
    """Outages of components that alternate between up and down independently. At `end` all are up."""
    times: list[Outage] = []
    for component in range(components):
        rng = stream(seed, "faults", what, component)
        times += [(component, *time) for time in draw_alternating_outages(outages, rng, begin=begin, end=end)]
    return Intervals(components, times)


def draw_alternating_outages(
    outages: Outages, rng: np.random.Generator, *, begin: Nanos, end: Nanos
) -> Iterator[tuple[Nanos, Nanos]]:
    """The outages of one component: (from, until). It is up at `end`. If it is already down at `begin`, that outage
    starts at `begin`."""
    now = begin - seconds(outages.past_s) + _draw_duration(outages.up, rng)
    while now < end:
        until = now + _draw_duration(outages.down, rng)
        if until > begin:
            yield max(now, begin), min(until, end)
        now = until + _draw_duration(outages.up, rng)


class Partition(NamedTuple):
    """A group of peers that is cut off from all others between two times."""

    start_ns: Nanos
    until_ns: Nanos
    peers: frozenset[PeerId]


def draw_partitions(peers: int, partitions: Partitions, *, begin: Nanos, end: Nanos, seed: int) -> list[Partition]:
    """Partitions, one after the other. Each cuts off a random group of at least one peer, but not all. At `end` all
    peers are connected."""
    rng = stream(seed, "faults", "partitions")
    drawn = []
    for start, until in list(draw_alternating_outages(partitions, rng, begin=begin, end=end)):
        count = min(peers - 1, max(1, round(float(rng.uniform(*partitions.share)) * peers)))
        drawn.append(Partition(start, until, frozenset(rng.permutation(peers)[:count].tolist())))
    return drawn


def add_partitions(overlay: Overlay, faults: Faults, partitions: Sequence[Partition]) -> Faults:
    """These outages of links, and those of all links between a group that is cut off and the other peers."""
    cut = [
        (number, one.start_ns, one.until_ns)
        for one in partitions
        for number, link in enumerate(overlay.links)
        if (link.a in one.peers) != (link.b in one.peers)
    ]
    return Intervals(len(overlay.links), [*faults.outages(), *cut]) if partitions else faults


def drop_partitions(routers: int, ends: Sequence[Sequence[int]], outages: Sequence[Outage]) -> tuple[list[Outage], int]:
    """The outages that leave the network connected, and the number of the others, which do not happen.

    `ends` has the two ends of each link. An earlier outage has precedence (esposito, section 4.1)."""
    neighbours: list[dict[int, Nanos]] = [{} for _ in range(routers)]
    """For each router and neighbour, the time until which the link between them is down."""
    first = min((start for _, start, _ in outages), default=0)
    for a, b in ends:
        neighbours[a][b] = neighbours[b][a] = first
    accepted = []
    for link, start, until in sorted(outages, key=lambda outage: (outage[1], outage[0])):
        a, b = ends[link]
        before = neighbours[a][b]
        neighbours[a][b] = neighbours[b][a] = max(before, until)
        if _is_connected(neighbours, a, b, start):
            accepted.append((link, start, until))
        else:
            neighbours[a][b] = neighbours[b][a] = before
    return accepted, len(outages) - len(accepted)


def _is_connected(neighbours: Sequence[Mapping[int, Nanos]], a: int, b: int, now: Nanos) -> bool:
    reached, waiting = {a}, [a]
    while waiting and b not in reached:
        for router, down_until in neighbours[waiting.pop()].items():
            if down_until <= now and router not in reached:
                reached.add(router)
                waiting.append(router)
    return b in reached


def write_faults(path: Path, overlay: Overlay, outages: Sequence[Outage]) -> None:
    """Write link outages as the table `faults` of a trace."""
    from pyarrow import parquet

    trace = Trace()
    for link, start, until in outages:
        trace.faults.add(start, "link", overlay.links[link].a, overlay.links[link].b, until)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(trace.arrow("faults"), path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from None


def read_faults(path: Path, overlay: Overlay) -> Intervals:
    """Read the link outages of the table `faults` of a trace, for the overlay on which they happened."""
    from pyarrow import ArrowException, parquet

    if not path.is_file():
        raise ConfigError(f"cannot read {path}: there is no such file", code="unreadable")
    why = "it is not Parquet, or it is truncated"
    try:
        why = describe_schema_error(parquet.read_schema(path), schema("faults"))
        rows = parquet.read_table(path, schema=schema("faults")).to_pylist()
    except (ArrowException, OSError):
        raise ConfigError(f"{path} is not a table of faults: {why}", code="unreadable") from None
    outages = []
    for row in rows:
        if None in row.values():
            raise ConfigError(f"{path} is not a table of faults: {why or 'it has missing values'}")
        if row["kind"] in ON_LINKS:
            continue  # another run draws them again, or the trace has the outages of their links
        if row["kind"] != "link":
            raise ConfigError(f"{path} has a failure of a {row['kind']}: only failures of links can be replayed")
        try:
            link = overlay.link(row["a"], row["b"])
        except KeyError:
            raise ConfigError(f"{path} has a failure of {row['a']}-{row['b']}, but there is no such link") from None
        if row["until_ns"] < row["time_ns"]:
            raise ConfigError(f"{path}: the failure of {row['a']}-{row['b']} ends before it begins")
        outages.append((link, row["time_ns"], row["until_ns"]))
    return Intervals(len(overlay.links), outages)


def _draw_duration(spread: Spread, rng: np.random.Generator) -> Nanos:
    match spread.kind:
        case "fixed":
            drawn = spread.mean_s
        case "exponential":
            drawn = rng.exponential(spread.mean_s)
        case "uniform":
            drawn = rng.uniform(spread.low_s, spread.high_s)
    return max(1, seconds(drawn))
