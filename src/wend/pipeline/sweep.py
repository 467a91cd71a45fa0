"""A sweep: one row per run, each run executed inside its task, each result on disk the moment it exists.

How a finished run survives. Spark commits the output of a job, or at best of a task, when the whole of it
is done, so a driver that dies half-way would lose hours of finished runs; running in batches would
lose a batch and would idle at the end of each. So the task itself writes its run as one small Parquet file
under a temporary name and renames it, which is atomic on a POSIX file system. What is lost with the
driver, a worker or the power is what was in flight. Retried and speculative tasks find the file and
return it instead of running again, and rename over each other with equal content. The files form an
ordinary Parquet data set, `runs/study=NAME/code=HASH/RUN.parquet`, that Spark reads back as one DataFrame.
The price is one assumption: **the output folder has the same path on the driver and on all workers** (one
machine, or a shared file system).

A run is known by the hash of its scenario, in a folder named after the hash of the code that made it
(`wend.pipeline.code`): nothing is run twice by the same code, and changed code runs everything anew.

A scenario that raises becomes a row with its error, in `RUN.error.parquet`; the sweep goes on, says so at
the end, and tries it again the next time.
"""

import os
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from wend.model.errors import ConfigError, WendError
from wend.model.scenario import Scenario
from wend.model.summary import Summary
from wend.pipeline.code import code_hash
from wend.pipeline.progress import watching
from wend.pipeline.rows import (
    RESULT_SCHEMA,
    RUN_SCHEMA,
    error_row,
    result_row,
    run_row,
    scenario_key,
    scenario_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Runner = Callable[[Scenario], Summary]

_MOST_PARTITIONS = 10_000
"""One run per task up to here; beyond, tasks take several runs, since a driver keeps books on every task."""


@dataclass(frozen=True)
class Store:
    """The folder of one study's runs, as one version of the code made them."""

    out: Path
    study: str
    code: str

    @property
    def folder(self) -> Path:
        return self.out / "runs" / f"study={self.study}" / f"code={self.code}"

    def make(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the output folder {self.folder}: {error.strerror}") from None

    def finished(self) -> set[str]:
        """The keys of the runs that are done and well; a listing, so it is cheap to ask often."""
        with os.scandir(self.folder) as entries:
            names = [entry.name for entry in entries]
        return {name.removesuffix(".parquet") for name in names if _is_result(name)}

    def read(self, spark: "SparkSession") -> "DataFrame":
        """All runs of this store, the failed ones with their error."""
        from pyspark.sql.pandas.types import from_arrow_schema

        # Without a schema, Spark would guess: a hash of digits alone would become a number.
        keys = [pa.field("study", pa.string()), pa.field("code", pa.string())]
        schema = from_arrow_schema(pa.schema([*RESULT_SCHEMA, *keys]))
        base = str(self.out.absolute() / "runs")
        return spark.read.schema(schema).option("basePath", base).parquet(str(self.folder.absolute()))


@dataclass(frozen=True)
class Swept:
    """What a sweep leaves: the results as a DataFrame, and what a person wants to be told."""

    results: "DataFrame"
    store: Store
    runs: int
    ran: int
    failures: list[dict[str, Any]]


def sweep(
    spark: "SparkSession",
    scenarios: Iterable[Scenario],
    study: str,
    out: Path,
    *,
    run: Runner | None = None,
    code: str | None = None,
    cost: Callable[[Scenario], float] | None = None,
    quiet: bool = False,
) -> Swept:
    """Run what has not been run, slowest first, and hand back the results of all of `scenarios`."""
    code = code_hash() if code is None else code
    wanted = {scenario_key(scenario): scenario for scenario in scenarios}
    if not wanted:
        raise ConfigError("there is nothing to run: the sweep has no scenario")
    store = Store(out.absolute(), study, code)
    store.make()
    finished = store.finished()
    weights = {key: (cost or run_cost)(scenario) for key, scenario in wanted.items() if key not in finished}
    queue = sorted(weights, key=lambda key: (-weights[key], key))
    if queue:
        frame = run_frame(spark, [wanted[key] for key in queue])
        results = execute(frame, store.folder, run or partial(simulate_same_code, code=code), len(queue))
        with watching(store.finished, weights, total=len(wanted), quiet=quiet):
            _drive(results, store, queue)
    return _gather(spark, store, list(wanted), len(queue))


def run_frame(spark: "SparkSession", scenarios: Sequence[Scenario]) -> "DataFrame":
    """Scenarios as typed rows, numbered in the order in which they should start."""
    rows = [run_row(scenario, place) for place, scenario in enumerate(scenarios)]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=RUN_SCHEMA))


def execute(runs: "DataFrame", folder: Path, run: Runner, count: int) -> "DataFrame":
    """Rows of runs in, rows of results out; every result is also a file in `folder` before it is a row."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # Partitions are scheduled in order of their number, so `place` is also the order of the queue.
    spread = runs.repartitionById(min(count, _MOST_PARTITIONS), "place")
    return spread.mapInArrow(partial(_run_batches, folder=str(folder), run=run), from_arrow_schema(RESULT_SCHEMA))


_HEAVINESS = {"oracle": 0.2, "multipath": 1.5, "dcrd": 1.5, "adaptive": 6.0}


def run_cost(scenario: Scenario) -> float:
    """Roughly the seconds of a run on one core, to put the slow runs first and to guess the time left."""
    packets = 0.5 * scenario.duration_s * scenario.rate_hz * scenario.topics * scenario.peers
    finding_routes = 0.15 * (scenario.peers / 20) ** 2
    return _HEAVINESS.get(scenario.strategy, 1.0) * (packets / 60_000 + finding_routes)


def simulate_same_code(scenario: Scenario, code: str) -> Summary:
    """One simulated run, by the code that the driver asked for and no other."""
    if code_hash() != code:
        raise ConfigError(
            f"this worker has Wend's code {code_hash()}, the driver has {code}: start again if the code was "
            "changed meanwhile, use --ship if the worker has another version"
        )
    from wend.drivers.sim import simulate

    return simulate(scenario).summary


def _run_batches(batches: Iterator[pa.RecordBatch], folder: str, run: Runner) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            result = _run_row(row, Path(folder), run)
            yield pa.RecordBatch.from_pylist([result], schema=RESULT_SCHEMA)


def _run_row(row: dict[str, Any], folder: Path, run: Runner) -> dict[str, Any]:
    place = folder / f"{row['run']}.parquet"
    failed = folder / f"{row['run']}.error.parquet"
    if place.exists():
        found: dict[str, Any] = pq.ParquetFile(place).read().to_pylist()[0]
        return found
    try:
        result = result_row(row, run(scenario_of(row)))
    except Exception as error:
        result = error_row(row, error, traceback.format_exc())
        _write(result, failed)
    else:
        _write(result, place)
        failed.unlink(missing_ok=True)
    return result


def _write(result: dict[str, Any], place: Path) -> None:
    """Whole or not at all. Spark does not see names that begin with a dot."""
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    pq.write_table(pa.Table.from_pylist([result], schema=RESULT_SCHEMA), draft)
    draft.replace(place)


def _is_result(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(".") and not name.endswith(".error.parquet")


def _drive(results: "DataFrame", store: Store, queue: list[str]) -> None:
    """Ask Spark for every row and keep none: they are on disk already."""
    try:
        results.write.format("noop").mode("overwrite").save()
    except Exception as error:
        done = len(store.finished() & set(queue))
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WendError(
            f"Spark gave up after {done} of {len(queue)} runs, which are kept; start again to go on ({first})"
        ) from error


def _gather(spark: "SparkSession", store: Store, wanted: list[str], ran: int) -> Swept:
    keys = spark.createDataFrame(pa.table({"run": pa.array(wanted, pa.string())}))
    results = store.read(spark).join(keys, "run", "left_semi")
    failed = results.where("error IS NOT NULL").select("run", "strategy", "seed", "error", "traceback")
    failures = [] if set(wanted) <= store.finished() else failed.orderBy("run").toArrow().to_pylist()
    return Swept(results, store, len(wanted), ran, failures)
