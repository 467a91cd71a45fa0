"""Candidate paths from many sources: a row per source in, a row per path out, in this process or on Spark.

The search from one source needs the network and nothing of the other sources, so Spark distributes the sources. The
network goes to the workers as arrays in one file, named after its content; each worker process reads it once. (A
broadcast variable needs a SparkContext, which Spark Connect lacks.) As with sweeps, the folder of that file must have
the same path on the driver and on all workers.

Both functions call `wend.planning.candidate_paths.find_paths` for each source, so they give the same paths in the same
order.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from wend.model.errors import ConfigError
from wend.model.files import write_atomically
from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.spark.task_errors import translate_errors
from wend.pipeline.storage.job_folders import literal_path, spark_path
from wend.planning.arrays import Ints
from wend.planning.candidate_paths import CandidatePaths, find_paths
from wend.planning.flow_network import CsrGraph
from wend.planning.flow_workload import FlowWorkload
from wend.planning.path_ranking import BOTTLENECK_DISJOINT, find_ranking

Targets = Mapping[int, Ints]
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
"""A row per path. `rank` counts from 1; `peers` lists the path from the source to the receiver."""

_TARGETS = pa.schema(
    [pa.field("task", pa.int32()), pa.field("source", pa.int32()), pa.field("receivers", pa.list_(pa.int32()))]
)
_MAX_TASKS = 64
"""Many tasks keep the last one short; few tasks keep the cost of starting them low."""
_SECONDS_PER_PATH = 9e-6
"""On one core, for a network of a thousand peers. Larger networks take longer."""
_WORTH_SPREADING_S = 10.0
"""Spark takes some seconds to move tables and to start Python."""


def estimate_search_seconds(peers: int, targets: Targets, k: int) -> float:
    """Estimate the time that one process needs."""
    return _SECONDS_PER_PATH * math.sqrt(peers / 1000) * k * sum(map(len, targets.values()))


def is_large(graph: CsrGraph, targets: Targets, k: int) -> bool:
    """Whether Spark would be faster, once its session has started."""
    return estimate_search_seconds(len(graph.ptr) - 1, targets, k) > _WORTH_SPREADING_S


def workload_targets(workload: FlowWorkload) -> Targets:
    """The receivers of each publisher of a workload, ascending."""
    flows = defaultdict(list)
    for flow, publisher in enumerate(workload.publisher.tolist()):
        flows[publisher].append(workload.flow_receivers(flow))
    return {publisher: np.unique(np.concatenate(receivers)) for publisher, receivers in flows.items()}


def find_paths_locally(graph: CsrGraph, targets: Targets, k: int) -> Iterator[pa.RecordBatch]:
    """Find paths in this process: one batch for each source, in order."""
    for source in sorted(targets):
        yield make_path_rows(graph, source, find_paths(graph, source, targets[source], k))


def find_paths_on_spark(
    spark: SparkSession,
    graph: CsrGraph,
    targets: Targets,
    k: int,
    folder: Path,
    by: str = BOTTLENECK_DISJOINT,
) -> DataFrame:
    """Find paths on Spark: the same rows, in the order in which tasks end. Workers read the network from `folder`.
    `by` is the ranking of paths."""
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    file = write_graph(graph, folder)
    tasks = min(len(targets), _MAX_TASKS)
    rows = [
        {"task": i % tasks, "source": source, "receivers": np.asarray(targets[source], dtype=np.int32)}
        for i, source in enumerate(sorted(targets))
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=_TARGETS)).repartitionById(max(tasks, 1), "task")
    return frame.mapInArrow(partial(_search_batches, file=str(file), k=k, by=by), spark_schema(SCHEMA))


def write_paths(spark: SparkSession, graph: CsrGraph, targets: Targets, k: int, out: Path, scratch: Path) -> int:
    """Write the paths as a folder of Parquet files; return their number. Workers read the network from `scratch`."""
    find_paths_on_spark(spark, graph, targets, k, scratch).write.parquet(spark_path(out))
    return int(spark.read.parquet(literal_path(out)).count())


def _search_batches(batches: Iterator[pa.RecordBatch], file: str, k: int, by: str) -> Iterator[pa.RecordBatch]:
    graph, find = _read_graph(file), find_ranking(by)
    for batch in batches:
        for source, receivers in zip(batch["source"].to_pylist(), batch["receivers"], strict=True):
            targets = receivers.values.to_numpy(zero_copy_only=False)
            yield make_path_rows(graph, source, find(graph, source, targets, k))


def write_graph(graph: CsrGraph, folder: Path) -> Path:
    """Write the network to a file for the workers, atomically, once per content."""
    digest = blake2b(digest_size=10)
    for array in graph:
        digest.update(np.ascontiguousarray(array).tobytes())
    file = folder.absolute() / f"graph-{digest.hexdigest()}.npz"
    if not file.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write the network to {folder}: {error.strerror}", code="unwritable") from None
        with write_atomically(file) as draft, draft.open("wb") as out:
            np.savez(out, **graph._asdict())
    return file


@lru_cache(maxsize=4)
def _read_graph(file: str) -> CsrGraph:
    with np.load(file) as arrays:
        return CsrGraph(**{name: arrays[name] for name in CsrGraph._fields})


def make_path_rows(graph: CsrGraph, source: int, paths: CandidatePaths) -> pa.RecordBatch:
    """Convert the paths of one source to rows, without a Python loop over paths."""
    counts = np.diff(paths.first)
    lengths = np.diff(paths.ptr)
    rank = np.arange(len(lengths)) - np.repeat(paths.first[:-1], counts) + 1
    sums = np.concatenate(([0], np.cumsum(graph.delay[paths.arcs])))
    # A path of n arcs has n + 1 peers: the source comes first.
    offsets = paths.ptr + np.arange(len(paths.ptr), dtype=np.int32)
    peers = np.full(offsets[-1], source, dtype=np.int32)
    peers[np.arange(len(paths.arcs)) + np.repeat(np.arange(1, len(lengths) + 1), lengths)] = graph.head[paths.arcs]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(lengths), source, dtype=np.int32)),
            pa.array(np.repeat(paths.receivers, counts).astype(np.int32)),
            pa.array(rank.astype(np.int32)),
            pa.array(sums[paths.ptr[1:]] - sums[paths.ptr[:-1]]),
            pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(peers)),
        ],
        schema=SCHEMA,
    )


def read_path_rows(rows: pa.Table, graph: CsrGraph, targets: Targets) -> dict[int, CandidatePaths]:
    """Convert rows of all sources to their paths, without a Python loop over paths."""
    rows = rows.sort_by([(name, "ascending") for name in ("source", "receiver", "rank")]).combine_chunks()
    sources, receivers = rows["source"].to_numpy(), rows["receiver"].to_numpy()
    lists = rows["peers"].chunk(0) if rows.num_rows else pa.array([], SCHEMA.field("peers").type)
    peers, lengths = lists.flatten().to_numpy(), np.diff(lists.offsets.to_numpy()) - 1
    is_last = np.zeros(len(peers), bool)
    is_last[np.cumsum(lengths + 1) - 1] = True
    tails, heads = peers[~is_last].astype(np.int64), peers[1:][~is_last[:-1]]
    size = len(graph.ptr) - 1
    arcs = np.searchsorted(graph.tail.astype(np.int64) * size + graph.head, tails * size + heads).astype(np.int32)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    paths: dict[int, CandidatePaths] = {}
    for source in targets:
        begin, end = np.searchsorted(sources, [source, source + 1])
        wanted = np.asarray(targets[source], dtype=np.int32)
        first = np.append(np.searchsorted(receivers[begin:end], wanted), end - begin).astype(np.int32)
        ptr = (ends[begin : end + 1] - ends[begin]).astype(np.int32)
        paths[source] = CandidatePaths(wanted, first, ptr, arcs[ends[begin] : ends[end]])
    return paths


class SparkPathSearch:
    """The search for the paths of all publishers of a plan: one job for each k."""

    def __init__(self, spark: SparkSession, targets: Targets, by: str, folder: Path) -> None:
        self._spark, self._targets, self._by, self._folder = spark, targets, by, folder
        self._k = 0
        self._paths: dict[int, CandidatePaths] = {}

    def __call__(self, graph: CsrGraph, source: int, receivers: Ints, k: int) -> CandidatePaths:
        if k != self._k:
            out = self._folder / f"paths-{k}"
            with translate_errors():
                rows = find_paths_on_spark(self._spark, graph, self._targets, k, self._folder, self._by)
                rows.write.parquet(spark_path(out))
            self._paths, self._k = read_path_rows(parquet.read_table(out), graph, self._targets), k
        return self._paths[source]
