"""Sweeps: one row per run. The task of a run executes it and writes its result to disk at once.

How finished runs survive a crash. Spark commits the output of a task or job only when all of it is done, so a driver
that dies half-way would lose hours of finished runs. Running in batches would lose a batch, and would idle at the end
of each. So each task writes its run as one small Parquet file under a temporary name, flushes it to disk, and renames
it, which is atomic on a POSIX file system. If the driver, a worker or the power fails, only the runs in flight are
lost. A retried or speculative task finds the file and returns it; two that run at once write equal content. The files
form an ordinary Parquet data set, `runs/study=NAME/code=HASH/RUN.parquet`, which Spark reads back as one DataFrame.
This needs one assumption: **the output folder has the same path on the driver and on all workers** (one machine, or a
shared file system).

The hash of its fields names a run, and the hash of the code names its folder (`wend.pipeline.code_hash`). So the same
code never repeats a run, and changed code runs everything again.

If a run raises, its error becomes a row in `RUN.error.parquet`. The sweep goes on, reports the error at the end, and
tries the run again the next time. Each run has a process of its own (`run_process.py`): one that kills its process
several times, or exceeds the time limit, becomes a row in `RUN.quarantine.parquet`, and is not tried again.

A sweep that ends with many such files gathers the results into one, `compacted-HASH.parquet`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from wend.model.errors import ConfigError
from wend.model.files import write_atomically
from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.spark.task_errors import translate_error
from wend.pipeline.spark.task_progress import run_progress
from wend.pipeline.storage.job_folders import literal_path, spark_path
from wend.pipeline.sweeps.run_kind import RunKind, error_row, fill_columns
from wend.pipeline.sweeps.run_process import RunDied, RunFailed, RunTimeout, call_in_child

R = TypeVar("R")

MAX_TRIES = 3
"""How often a run may kill its process."""
MAX_FILES = 500
"""A folder with more results is compacted when a sweep ends."""
LIMIT_S = 6 * 3600.0
"""The longest that a run may take."""

_MAX_PARTITIONS = 10_000
"""Up to this many runs, each has its own task. Beyond it tasks take several runs: the driver tracks every task."""


@dataclass(frozen=True)
class RunStore:
    """The folder with the runs of one study, made by one version of the code."""

    out: Path
    study: str
    code: str

    @property
    def folder(self) -> Path:
        return self.out / "runs" / f"study={self.study}" / f"code={self.code}"

    def make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot make the output folder {self.folder}: {error.strerror}", code="unwritable"
            ) from None

    def list_finished(self) -> set[str]:
        """The keys of the runs that finished without an error. It only lists the folder, so it is cheap."""
        names = self._list_names()
        inside = (_runs_in(self.folder / name) for name in names if name.startswith(_COMPACTED))
        return {name.removesuffix(".parquet") for name in names if _is_result(name)}.union(*inside)

    def compact(self, schema: pa.Schema, most: int = MAX_FILES) -> None:
        """Gather results that have a file each into one file, if they are many. A crash in between leaves runs in both
        places; the next call removes the single files."""
        names = self._list_names()
        there = frozenset().union(*(_runs_in(self.folder / name) for name in names if name.startswith(_COMPACTED)))
        single = sorted(name for name in names if _is_result(name))
        rest = [name for name in single if name.removesuffix(".parquet") not in there]
        if len(rest) > most:
            tables = [pq.ParquetFile(self.folder / name).read().to_pylist() for name in rest]
            rows = [row for table in tables for row in table]
            key = blake2b("".join(rest).encode(), digest_size=10).hexdigest()
            with write_atomically(self.folder / f"{_COMPACTED}{key}.parquet", lasting=True) as draft:
                pq.write_table(pa.Table.from_pylist([fill_columns(row, schema) for row in rows], schema=schema), draft)
            rest = []
        for name in set(single) - set(rest):
            (self.folder / name).unlink(missing_ok=True)

    def list_quarantined(self) -> set[str]:
        """The keys of the runs that are not tried again."""
        return {name.removesuffix(_QUARANTINE) for name in self._list_names() if name.endswith(_QUARANTINE)}

    def _list_names(self) -> list[str]:
        with os.scandir(self.folder) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".")]

    def read(self, spark: SparkSession, result_schema: pa.Schema) -> DataFrame:
        """Read all runs of this store; failed runs have their error."""
        # Without a schema, Spark would infer types: a hash that has only digits would become a number.
        keys = [pa.field("study", pa.string()), pa.field("code", pa.string())]
        schema = spark_schema(pa.schema([*result_schema, *keys]))
        base = spark_path(self.out / "runs")
        return spark.read.schema(schema).option("basePath", base).parquet(literal_path(self.folder))


@dataclass(frozen=True)
class SweepResult:
    """The outcome of a sweep: the results as a DataFrame, the numbers of runs, and the failures."""

    results: DataFrame
    store: RunStore
    runs: int
    ran: int
    failures: list[dict[str, Any]]


def run_sweep(
    spark: SparkSession,
    kind: RunKind[R],
    runs: Iterable[R],
    study: str,
    out: Path,
    *,
    code: str | None = None,
    cost: Callable[[R], float] | None = None,
    limit_s: float = LIMIT_S,
    quiet: bool = False,
) -> SweepResult:
    """Execute the runs that have no result, slowest first; return the results of all of `runs`. No run may take longer
    than `limit_s`."""
    code = kind.code() if code is None else code
    by_key = {kind.key(run): run for run in runs}
    if not by_key:
        raise ConfigError("there is nothing to run: the sweep has no runs")
    store = RunStore(out.absolute(), study, code)
    store.make_folder()
    store.compact(kind.result_schema)
    finished = store.list_finished() | store.list_quarantined()
    weights = {key: (cost or kind.cost)(run) for key, run in by_key.items() if key not in finished}
    queue = sorted(weights, key=lambda key: (-weights[key], key))
    if queue:
        frame = run_frame(spark, kind, [by_key[key] for key in queue])
        results = execute_runs(frame, store.folder, kind, code, len(queue), limit_s)
        with run_progress(store.list_finished, weights, total=len(by_key), quiet=quiet):
            _execute_job(results, store, queue)
        store.compact(kind.result_schema)
    return _collect_results(spark, store, kind.result_schema, list(by_key), len(queue))


def run_frame(spark: SparkSession, kind: RunKind[R], runs: Sequence[R]) -> DataFrame:
    """Convert runs to typed rows. `place` numbers them in the order in which they should start."""
    rows = [kind.row(run, place) for place, run in enumerate(runs)]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=kind.run_schema))


def execute_runs(
    runs: DataFrame, folder: Path, kind: RunKind[R], code: str, count: int, limit_s: float = LIMIT_S
) -> DataFrame:
    """Execute rows of runs; return rows of results. Each result is a file in `folder` before it is a row."""
    # Spark schedules partitions in order of their number, so `place` is the order of the queue.
    spread = runs.repartitionById(min(count, _MAX_PARTITIONS), "place")
    task = partial(_run_batches, folder=str(folder), kind=kind, code=code, limit_s=limit_s)
    return spread.mapInArrow(task, spark_schema(kind.result_schema))


def _run_batches(
    batches: Iterator[pa.RecordBatch], folder: str, kind: RunKind[Any], code: str, limit_s: float
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            result = _run_row(row, Path(folder), kind, code, limit_s)
            yield pa.RecordBatch.from_pylist([result], schema=kind.result_schema)


def _run_row(row: dict[str, Any], folder: Path, kind: RunKind[Any], code: str, limit_s: float) -> dict[str, Any]:
    place = folder / f"{row['run']}.parquet"
    failed = folder / f"{row['run']}.error.parquet"
    schema = kind.result_schema
    if place.exists():
        return dict(pq.ParquetFile(place).read().to_pylist()[0])
    try:
        result = {**fill_columns(row, schema), **_run_with_retries(partial(kind.run_metrics, row, code), limit_s)}
    except RunFailed as error:
        result = error_row(row, schema, str(error), error.trace)
        _write_row(result, schema, failed)
    except (RunDied, RunTimeout) as error:
        apart = folder / f"{row['run']}{_QUARANTINE}"
        sentence = f"{type(error).__name__}: {error}; it is not tried again unless you remove {apart}"
        result = error_row(row, schema, sentence, "")
        _write_row(result, schema, apart)
        failed.unlink(missing_ok=True)
    else:
        _write_row(result, schema, place)
        failed.unlink(missing_ok=True)
    return result


def _run_with_retries(task: Callable[[], dict[str, Any]], limit_s: float) -> dict[str, Any]:
    """Execute a run, again if it kills its process: that may be another program's fault."""
    for _ in range(MAX_TRIES - 1):
        with suppress(RunDied):
            return dict(call_in_child(task, limit_s))
    try:
        return dict(call_in_child(task, limit_s))
    except RunDied as error:
        raise RunDied(f"{error}, {MAX_TRIES} times") from None


def _write_row(result: dict[str, Any], schema: pa.Schema, place: Path) -> None:
    with write_atomically(place, lasting=True) as draft:
        pq.write_table(pa.Table.from_pylist([result], schema=schema), draft)


_QUARANTINE = ".quarantine.parquet"
_COMPACTED = "compacted-"


@cache
def _runs_in(place: Path) -> frozenset[str]:
    """The runs of a compacted file, which never changes."""
    return frozenset(pq.read_table(place, columns=["run"], partitioning=None)["run"].to_pylist())


def _is_result(name: str) -> bool:
    return name.endswith(".parquet") and not (
        name.startswith(_COMPACTED) or name.endswith((".error.parquet", _QUARANTINE))
    )


def _execute_job(results: DataFrame, store: RunStore, queue: list[str]) -> None:
    """Make Spark compute every row. The rows are discarded, because tasks write the results."""
    try:
        results.write.format("noop").mode("overwrite").save()
    except Exception as error:
        done = len(store.list_finished() & set(queue))
        opening = f"the Spark job failed after {done} of {len(queue)} runs (start again to go on from there)"
        raise translate_error(error, opening) from error


def _collect_results(
    spark: SparkSession, store: RunStore, schema: pa.Schema, run_keys: list[str], ran: int
) -> SweepResult:
    keys = spark.createDataFrame(pa.table({"run": pa.array(run_keys, pa.string())}))
    results = store.read(spark, schema).join(keys, "run", "left_semi")
    failed = results.where("error IS NOT NULL").select("run", "strategy", "seed", "error", "traceback")
    failures = [] if set(run_keys) <= store.list_finished() else failed.orderBy("run").toArrow().to_pylist()
    return SweepResult(results, store, len(run_keys), ran, failures)
