"""Synthetic traceroute records of a known underlay, and a score for the topology inferred from them.

A record is one trace between two peers. Like real records, they are incomplete and contradict each other: hops do not
answer (`loss`), some routers never answer (`anonymous`), traces end early (`cut`). If a path changes during a trace
(`flap`), the trace begins on one path, ends on another, and shows a link that does not exist.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import parquet

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.model.units import HOUR
from wend.topology.placement import Placement
from wend.topology.routing import UnderlayPaths
from wend.topology.traceroute import draw_anonymous, router_address
from wend.topology.traceroute_counts import RECORDS
from wend.topology.underlay import Ints

Bools = NDArray[np.bool_]

_CHUNK = 100_000


class Flaws(msgspec.Struct, frozen=True):
    """The shares of hops, routers and traces that have each flaw."""

    loss: float = 0.1
    anonymous: float = 0.0
    cut: float = 0.02
    flap: float = 0.001


class Truth(NamedTuple):
    """The links and routers that the records were made from."""

    links: frozenset[tuple[str, str]]
    """The links that the traces crossed, the lower address first."""
    silent: frozenset[str]
    """Routers that never answer."""
    hops: int


class Score(NamedTuple):
    recovered: float
    """The share of the crossed links that were inferred."""
    false: float
    """The share of the inferred links that do not exist or are duplicates."""


def score_links(truth: Truth, links: Iterable[tuple[str, str]]) -> Score:
    """Score inferred links between routers. An unknown router counts as the silent router with most of its
    neighbours."""
    inferred = sorted({(min(a, b), max(a, b)) for a, b in links})
    recovered = {link for link in inferred if link in truth.links}
    near: dict[str, set[str]] = {}
    for pair in inferred:
        for one, other in (pair, pair[::-1]):
            if one.startswith("unknown:"):
                near.setdefault(one, set()).add(other)
    around: dict[str, set[str]] = {router: set() for router in sorted(truth.silent)}
    for a, b in truth.links:
        for one, other in ((a, b), (b, a)):
            if one in around:
                around[one].add(other)
    for _, neighbours in sorted(near.items(), key=lambda item: (-len(item[1]), item[0])):
        best = max(around, key=lambda router: len(around[router] & neighbours), default=None)
        if best is not None:
            recovered |= {(min(best, other), max(best, other)) for other in around[best] & neighbours}
    return Score(len(recovered) / len(truth.links), 1 - len(recovered) / len(inferred) if inferred else 0.0)


def write_records(
    folder: Path, placement: Placement, pairs: tuple[Ints, Ints], count: int, *, seed: int, flaws: Flaws | None = None
) -> Truth:
    """Write `count` traces as Parquet files. Each is between a random one of the pairs, in either direction."""
    flaws = flaws or Flaws()
    for what in Flaws.__struct_fields__:
        if not 0 <= getattr(flaws, what) < 1:
            raise ConfigError(f"records: {what} must be a share from 0 to below 1, got {getattr(flaws, what):g}")
    if len(pairs[0]) == 0 or count < 1:
        raise ConfigError(f"records: need at least one pair and one trace, got {len(pairs[0])} and {count}")
    low, high = (np.asarray(end) for end in pairs)
    ends = np.concatenate([low, high]), np.concatenate([high, low])
    paths = placement.paths(*ends)
    under = placement.underlay
    silent = draw_anonymous(under.routers, flaws.anonymous, seed)
    names = pa.array([router_address(router) for router in range(under.routers)], pa.string())
    used = np.zeros(len(paths), dtype=bool)
    hops = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, begin in enumerate(range(0, count, _CHUNK)):
            rng = stream(seed, "records", "chunk", number)
            rows = min(_CHUNK, count - begin)
            table, chosen = _make_chunk(paths, ends, rows, silent, names, flaws, rng)
            used[chosen] = True
            hops += pc.sum(table.column("hops").combine_chunks().value_lengths()).as_py()
            parquet.write_table(table, folder / f"part-{number:05}.parquet")
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror or error}", code="unwritable") from None
    return Truth(
        _find_crossed_links(placement, paths, used), frozenset(names.filter(pa.array(silent)).to_pylist()), hops
    )


def _make_chunk(
    paths: UnderlayPaths,
    ends: tuple[Ints, Ints],
    rows: int,
    silent: Bools,
    names: pa.Array,
    flaws: Flaws,
    rng: np.random.Generator,
) -> tuple[pa.Table, Ints]:
    """Some rows of records. A trace is the beginning of one path and, if it flapped, the end of another."""
    chosen = rng.integers(len(paths), size=rows)
    lengths = paths.lengths()
    size = lengths[chosen].copy()
    cut = rng.random(rows) < flaws.cut
    size[cut] = (rng.random(int(cut.sum())) * size[cut]).astype(np.int64)
    flapped = (rng.random(rows) < flaws.flap) & ~cut
    size[flapped] = (1 + rng.random(int(flapped.sum())) * (size[flapped] - 1)).astype(np.int64)
    other = rng.integers(len(paths), size=rows)
    tail = np.where(flapped, (rng.random(rows) * lengths[other]).astype(np.int64), 0)
    heads = _expand_ranges(paths.starts[chosen], size)
    tails = _expand_ranges(paths.starts[other] + 2 * (lengths[other] - tail), tail)
    row = np.concatenate([np.repeat(np.arange(rows), size), np.repeat(np.arange(rows), tail)])
    order = np.argsort(row, kind="stable")
    routers = paths.components[np.concatenate([heads, tails])[order]].astype(np.int64)
    gone = silent[routers] | (rng.random(len(routers)) < flaws.loss)
    offsets = np.concatenate([[0], np.cumsum(size + tail)]).astype(np.int32)
    hops = pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(routers, mask=gone)))
    columns = [
        pa.array(ends[0][chosen]),
        pa.array(ends[1][chosen]),
        pa.array(np.sort(rng.integers(24 * HOUR, size=rows))),
        hops,
        pa.array(~cut),
    ]
    return pa.table(columns, schema=RECORDS), chosen


def _expand_ranges(starts: Ints, sizes: Ints) -> Ints:
    """The indices start, start + 2, ... of each range, concatenated: every second component of a path is a router."""
    before = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    indices: Ints = 2 * (np.arange(int(sizes.sum())) - np.repeat(before, sizes)) + np.repeat(starts, sizes)
    return indices


def _find_crossed_links(placement: Placement, paths: UnderlayPaths, used: Bools) -> frozenset[tuple[str, str]]:
    crossed = set()
    for link in np.unique(np.concatenate([paths[i][1::2] for i in np.flatnonzero(used).tolist()])).tolist():
        a, b = (router_address(int(router)) for router in placement.underlay.ends[link - placement.first_link])
        crossed.add((min(a, b), max(a, b)))
    return frozenset(crossed)
