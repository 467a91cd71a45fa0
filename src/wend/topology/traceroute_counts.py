"""Counts of traceroute records: the stage of topology inference that reads every hop, on Arrow columns.

A record is `source, target, time_ns, hops, reached`. Hops are addresses, null if no router answered. The counts have
few rows, no matter how many records there are:

    link     a and b answered one after the other
    hole     between a and b `gap` hops did not answer
    stretch  between a and b `gap` hops answered, and were `middle`
    pair     traces between peers a and b
    member   traces between peers a and b in which `middle` (one router) answered
    missing  traces between peers a and b with a hole of one hop; `middle` holds its two ends
    looped   traces that passed a router twice, which are left out
    unusable records without a source, a target or a time, which are left out, too

A middle of several routers is one text with a line for each, because lists cannot be keys.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Codes = NDArray[np.int64]

RECORDS = pa.schema(
    [("source", pa.int64()), ("target", pa.int64()), ("time_ns", pa.int64()), ("hops", pa.list_(pa.string())),
     ("reached", pa.bool_())]
)  # fmt: skip
COUNTS = pa.schema(
    [("kind", pa.string()), ("a", pa.string()), ("b", pa.string()), ("gap", pa.int32()), ("middle", pa.string()),
     ("seen", pa.int64()), ("first_ns", pa.int64()), ("last_ns", pa.int64())]
)  # fmt: skip
_AT_ONCE = 100_000
"""The number of records that are counted together. More records give fewer rows."""


def peer_name(peer: int) -> str:
    return f"peer:{peer}"


def count(batches: Iterable[pa.RecordBatch], longest: int) -> Iterator[pa.RecordBatch]:
    """The counts of many batches. Several rows may have the same key; the caller sums them."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= _AT_ONCE:
            yield from _count_batches(held, longest)
            held = []
    if held:
        yield from _count_batches(held, longest)


def _count_batches(batches: list[pa.RecordBatch], longest: int) -> Iterator[pa.RecordBatch]:
    whole = pa.Table.from_batches(batches).combine_chunks()
    for batch in whole.to_batches():
        usable, bad = _drop_unusable(batch)
        yield from _make_endless_count("unusable", bad).to_batches()
        if usable.num_rows:
            for table in _count_by_kind(usable, longest):
                yield from table.to_batches()


def _drop_unusable(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    good = pc.and_(pc.is_valid(batch.column("source")), pc.is_valid(batch.column("target")))
    usable = batch.filter(pc.and_(good, pc.is_valid(batch.column("time_ns"))))
    return usable, batch.num_rows - usable.num_rows


def _make_endless_count(kind: str, seen: int) -> pa.Table:
    """A count without ends, of traces or records that are left out."""
    row = {"kind": kind, "a": None, "b": None, "gap": 0, "middle": "", "seen": seen, "first_ns": 0, "last_ns": 0}
    return pa.Table.from_pylist([row] if seen else [], schema=COUNTS)


class _Paths:
    """The paths of a batch, concatenated: the node at each position, -1 if no router answered, and its trace."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        hops = batch.column("hops")
        sizes = np.asarray(hops.value_lengths().fill_null(0), dtype=np.int64)
        values = hops.flatten().dictionary_encode()
        rank = np.argsort(np.argsort(np.array(values.dictionary.to_pylist(), dtype=object)))
        source, target = (np.asarray(batch.column(end), dtype=np.int64) for end in ("source", "target"))
        reached = np.asarray(batch.column("reached").fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
        peers = np.unique(np.concatenate([source, target]))
        self.peers = len(peers)
        # Codes have the order of `inference.Node`: peers by number, then routers by address.
        names = np.array(values.dictionary.to_pylist(), dtype=object)[np.argsort(rank)]
        self.names = pa.array([*(peer_name(p) for p in peers.tolist()), *names.tolist()], pa.string())
        lengths = sizes + 1 + reached
        starts = np.concatenate([[0], np.cumsum(lengths)])
        self.node = np.full(starts[-1], -1, dtype=np.int64)
        self.trace = np.repeat(np.arange(len(sizes)), lengths)
        self.node[starts[:-1]] = np.searchsorted(peers, source)
        self.node[starts[1:][reached] - 1] = np.searchsorted(peers, target[reached])
        inner = np.ones(len(self.node), dtype=bool)
        inner[starts[:-1]] = False
        inner[starts[1:][reached] - 1] = False
        codes = np.asarray(values.indices.fill_null(-1), dtype=np.int64)
        self.node[inner] = np.where(codes < 0, -1, self.peers + rank[codes] if len(rank) else -1)
        self.time = np.asarray(batch.column("time_ns"), dtype=np.int64)
        low, high = np.minimum(source, target), np.maximum(source, target)
        self.low, self.high = np.searchsorted(peers, low), np.searchsorted(peers, high)
        self.looped = self._find_loops()
        keep = ~self.looped[self.trace]
        self.node, self.trace = self.node[keep], self.trace[keep]

    def _find_loops(self) -> NDArray[np.bool_]:
        """Whether each trace passed a router twice."""
        known = self.node >= self.peers
        keys = np.sort(self.trace[known] * len(self.names) + self.node[known])
        twice = keys[1:][keys[1:] == keys[:-1]] // len(self.names)
        looped = np.zeros(len(self.time), dtype=bool)
        looped[twice] = True
        return looped


def _count_by_kind(batch: pa.RecordBatch, longest: int) -> Iterator[pa.Table]:
    paths = _Paths(batch)
    node, trace = paths.node, paths.trace
    known = np.flatnonzero(node >= 0)
    here, there = known[:-1], known[1:]
    same = trace[here] == trace[there]
    here, there = here[same], there[same]
    gap = there - here - 1
    step = gap == 0
    yield _make_rows(paths, "link", node[here[step]], node[there[step]], trace[here[step]])
    hole = gap > 0
    yield _make_rows(paths, "hole", node[here[hole]], node[there[hole]], trace[here[hole]], gap=gap[hole])
    for inside in range(1, longest + 1):
        whole = _find_unbroken(node, trace, inside)
        middle = np.stack([node[whole + i] for i in range(1, inside + 1)], axis=1)
        ends = node[whole], node[whole + inside + 1]
        yield _make_rows(paths, "stretch", *ends, trace[whole], gap=np.full(len(whole), inside), middle=middle)
    good = np.flatnonzero(~paths.looped)
    yield _make_rows(paths, "pair", paths.low[good], paths.high[good], good)
    router = np.flatnonzero(node >= paths.peers)
    on = trace[router]
    yield _make_rows(paths, "member", paths.low[on], paths.high[on], on, middle=node[router][:, None])
    one = gap == 1
    on = trace[here[one]]
    around = np.sort(np.stack([node[here[one]], node[there[one]]], axis=1), axis=1)
    yield _make_rows(paths, "missing", paths.low[on], paths.high[on], on, middle=around)
    yield _make_endless_count("looped", int(paths.looped.sum()))


def _find_unbroken(node: Codes, trace: Codes, inside: int) -> Codes:
    """The positions at which `inside` + 2 answers of one trace follow each other."""
    last = len(node) - inside - 1
    if last <= 0:
        return np.zeros(0, dtype=np.int64)
    whole = trace[:last] == trace[inside + 1 :]
    for i in range(inside + 2):
        whole &= node[i : last + i] >= 0
    return np.flatnonzero(whole)


def _make_rows(
    paths: _Paths, kind: str, a: Codes, b: Codes, trace: Codes, *, gap: Codes | None = None, middle: Codes | None = None
) -> pa.Table:
    """Counted rows, the lower end first. If the ends are swapped, the middle is reversed."""
    turned = a > b
    low, high = np.where(turned, b, a), np.where(turned, a, b)
    columns: dict[str, pa.Array] = {"a": pa.array(low), "b": pa.array(high)}
    width = 0 if middle is None else middle.shape[1]
    if middle is not None:
        right_way = np.where(turned[:, None], middle[:, ::-1], middle)
        columns |= {f"m{i}": pa.array(right_way[:, i]) for i in range(width)}
    columns["gap"] = pa.array(np.zeros(len(a), dtype=np.int64) if gap is None else gap)
    keys = list(columns)
    table = pa.table({**columns, "time": pa.array(paths.time[trace])})
    counts = table.group_by(keys, use_threads=False).aggregate([("time", "count"), ("time", "min"), ("time", "max")])
    words = [_look_up_names(paths, counts.column(f"m{i}")) for i in range(width)]
    rows = counts.num_rows
    text = pc.binary_join_element_wise(*words, "\n") if words else pa.array([""] * rows, pa.string())
    return pa.table(
        {
            "kind": pa.array([kind] * rows, pa.string()),
            "a": _look_up_names(paths, counts.column("a")),
            "b": _look_up_names(paths, counts.column("b")),
            "gap": counts.column("gap").cast(pa.int32()),
            "middle": text,
            "seen": counts.column("time_count"),
            "first_ns": counts.column("time_min"),
            "last_ns": counts.column("time_max"),
        }
    ).combine_chunks()


def _look_up_names(paths: _Paths, codes: pa.ChunkedArray) -> pa.Array:
    return paths.names.take(codes.combine_chunks())
