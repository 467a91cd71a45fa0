"""Paths for many sources: a row per source in, a row per path out, in this process or spread over Spark.

One source needs the network and nothing of the other sources, so sources are spread and the network goes to the
workers as arrays in one file, named after its content; each worker process reads it once. (A broadcast would need a
SparkContext, which Spark Connect has not.) The folder of that file has the same path on the driver and on all
workers, as the results of a sweep have.

Both ways call `wend.planning.paths.paths_from` for each source, so they give the same paths in the same order.
"""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from wend.model.errors import ConfigError
from wend.model.files import written
from wend.pipeline.places import by_letter
from wend.planning.arrays import Ints
from wend.planning.network import CsrGraph
from wend.planning.paths import CandidatePaths, paths_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Wanted = Mapping[int, Ints]
"""source -> its receivers"""

SCHEMA = pa.schema(
    [
        pa.field("source", pa.int32()),
        pa.field("receiver", pa.int32()),
        pa.field("rank", pa.int32()),
        pa.field("delay_ns", pa.int64()),
        pa.field("peers", pa.list_(pa.int32())),
    ]
)
"""A row per path: `rank` counts from 1, `peers` go from the source to the receiver."""

_WANTED = pa.schema(
    [pa.field("part", pa.int32()), pa.field("source", pa.int32()), pa.field("receivers", pa.list_(pa.int32()))]
)
_MOST_PARTS = 64
"""Enough that the last task is short, few enough that starting tasks costs nothing."""
_SECONDS_PER_PATH = 9e-6
"""Of one core, for a network of a thousand peers; longer as the network grows."""
_WORTH_SPREADING_S = 10.0
"""Spark's own work (moving tables, starting Python) is some seconds."""


def seconds(peers: int, wanted: Wanted, k: int) -> float:
    """Roughly what one process needs."""
    return _SECONDS_PER_PATH * math.sqrt(peers / 1000) * k * sum(map(len, wanted.values()))


def is_large(graph: CsrGraph, wanted: Wanted, k: int) -> bool:
    """Whether Spark is the quicker way, once its session is there."""
    return seconds(len(graph.ptr) - 1, wanted, k) > _WORTH_SPREADING_S


def paths_here(graph: CsrGraph, wanted: Wanted, k: int) -> Iterator[pa.RecordBatch]:
    """In this process: one batch of paths for each source, in order."""
    for source in sorted(wanted):
        yield as_batch(graph, source, paths_from(graph, source, wanted[source], k))


def paths_on_spark(spark: "SparkSession", graph: CsrGraph, wanted: Wanted, k: int, folder: Path) -> "DataFrame":
    """The same rows as a DataFrame, in the order in which tasks end. `folder` is where workers find the network."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    place = graph_file(graph, folder)
    parts = min(len(wanted), _MOST_PARTS)
    rows = [
        {"part": i % parts, "source": source, "receivers": np.asarray(wanted[source], dtype=np.int32)}
        for i, source in enumerate(sorted(wanted))
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=_WANTED)).repartitionById(max(parts, 1), "part")
    return frame.mapInArrow(partial(_search, place=str(place), k=k), from_arrow_schema(SCHEMA))


def write_paths(spark: "SparkSession", graph: CsrGraph, wanted: Wanted, k: int, out: Path, scratch: Path) -> int:
    """The rows as a folder of Parquet files; how many they are. Workers find the network in `scratch`."""
    paths_on_spark(spark, graph, wanted, k, scratch).write.parquet(str(out))
    return int(spark.read.parquet(by_letter(out)).count())


def _search(batches: Iterator[pa.RecordBatch], place: str, k: int) -> Iterator[pa.RecordBatch]:
    graph = _graph_of(place)
    for batch in batches:
        for source, receivers in zip(batch["source"].to_pylist(), batch["receivers"], strict=True):
            wanted = receivers.values.to_numpy(zero_copy_only=False)
            yield as_batch(graph, source, paths_from(graph, source, wanted, k))


def graph_file(graph: CsrGraph, folder: Path) -> Path:
    """Write the network where workers read it; whole or not at all, once per content."""
    digest = blake2b(digest_size=10)
    for array in graph:
        digest.update(np.ascontiguousarray(array).tobytes())
    place = folder.absolute() / f"graph-{digest.hexdigest()}.npz"
    if not place.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write the network to {folder}: {error.strerror}") from None
        with written(place) as draft, draft.open("wb") as out:
            np.savez(out, **graph._asdict())
    return place


@lru_cache(maxsize=4)
def _graph_of(place: str) -> CsrGraph:
    with np.load(place) as arrays:
        return CsrGraph(**{name: arrays[name] for name in CsrGraph._fields})


def as_batch(graph: CsrGraph, source: int, found: CandidatePaths) -> pa.RecordBatch:
    """The paths of one source as rows, without a loop over them."""
    counts = np.diff(found.first)
    lengths = np.diff(found.ptr)
    rank = np.arange(len(lengths)) - np.repeat(found.first[:-1], counts) + 1
    sums = np.concatenate(([0], np.cumsum(graph.delay[found.arcs])))
    # A path of n arcs has n + 1 peers: the source stands before each of them.
    offsets = found.ptr + np.arange(len(found.ptr), dtype=np.int32)
    peers = np.full(offsets[-1], source, dtype=np.int32)
    peers[np.arange(len(found.arcs)) + np.repeat(np.arange(1, len(lengths) + 1), lengths)] = graph.head[found.arcs]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(lengths), source, dtype=np.int32)),
            pa.array(np.repeat(found.receivers, counts).astype(np.int32)),
            pa.array(rank.astype(np.int32)),
            pa.array(sums[found.ptr[1:]] - sums[found.ptr[:-1]]),
            pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(peers)),
        ],
        schema=SCHEMA,
    )
