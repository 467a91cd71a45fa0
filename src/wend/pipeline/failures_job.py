"""Routes after the failure of each link: a row per failure in, its routes out, on Spark.

The analysis of a failure takes about as long as the plan itself, and a map has as many failures as links. The
network and the plan in use go to the workers in one file, named after its content; each worker process maps it. As with
paths, the folder of that file must have the same path on the driver and on all workers.

A first job analyses all failures. A second one moves all flows after those failures for which moving the flows across
the failed link is not enough. Both call the functions of `wend.planning.failure_routes`, so the rows are those that one
process finds.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from pickle import dumps
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from wend.model.errors import ConfigError
from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.spark.task_errors import translate_errors
from wend.pipeline.storage.job_folders import spark_path
from wend.pipeline.storage.mapped_pickle import dump_mapped, load_mapped
from wend.planning.delivery_graphs import DeliveryGraphs
from wend.planning.failure_routes import (
    FailureAnalysis,
    Link,
    RoutesAfterFailure,
    RoutesInUse,
    analyse_failure,
    combine_failures,
    move_all_flows,
)

Row = dict[str, Any]

_LINKS = pa.schema([("place", pa.int32()), ("a", pa.int32()), ("b", pa.int32())])
ROUTES = pa.schema(
    [
        *_LINKS,
        ("flows", pa.list_(pa.int64())),
        ("of_flow", pa.list_(pa.int64())),
        ("ptr", pa.list_(pa.int64())),
        ("arcs", pa.list_(pa.int32())),
        ("level", pa.list_(pa.int32())),
        ("shares", pa.list_(pa.float64())),
        ("highest", pa.float64()),
        ("cut", pa.int32()),
    ]
)
"""The routes after one failure: the flows that move, their delivery graphs as arrays, and the shares of these."""
_ANALYSES = pa.schema([*ROUTES, ("least", pa.float64()), ("local_least", pa.float64()), ("error", pa.string())])
_MAX_TASKS = 1000
"""Up to this many failures, each has a task of its own."""


def plan_failures_on_spark(spark: SparkSession, in_use: RoutesInUse, folder: Path) -> list[RoutesAfterFailure]:
    """The routes after each failure, by link. Workers read the plan in use from `folder`, and write their rows there.
    Raises `ConfigError` for the first failure after which the workload does not fit."""
    file = write_routes(in_use, folder)

    def move_all(links: Sequence[Link]) -> Iterator[RoutesAfterFailure]:
        if links:
            yield from map(routes_from_row, _run_tasks(spark, _routes_row, links, ROUTES, file))

    return combine_failures(
        map(_analysis_from_row, _run_tasks(spark, _analysis_row, in_use.links, _ANALYSES, file)), move_all
    )


def _run_tasks(
    spark: SparkSession, task: Callable[[RoutesInUse, Link], Row], links: Sequence[Link], schema: pa.Schema, file: Path
) -> Iterator[Row]:
    """Execute a task for each failure; return its rows in the order of the links."""
    planned = partial(_plan_batches, file=str(file), task=task, schema=schema)
    rows = failure_rows(spark, links).mapInArrow(planned, spark_schema(schema))
    # Through files: the rows of a large map exceed what Spark sends to its driver.
    out = file.with_suffix(f".{task.__name__}")
    with translate_errors():
        rows.write.mode("overwrite").parquet(spark_path(out))
    yield from read_table_rows(parquet.read_table(out, schema=schema).sort_by("place"))


def read_table_rows(table: pa.Table) -> Iterator[Row]:
    """The rows of a table, with lists as arrays."""
    for at in range(table.num_rows):
        yield {name: _cell_value(table[name][at]) for name in table.column_names}


def _cell_value(cell: pa.Scalar) -> Any:
    return (
        cell.values.to_numpy(zero_copy_only=False)
        if isinstance(cell, pa.ListScalar) and cell.is_valid
        else cell.as_py()
    )


def failure_rows(spark: SparkSession, links: Sequence[Link]) -> DataFrame:
    """A row per failure, spread over tasks."""
    rows = [{"place": place, "a": a, "b": b} for place, (a, b) in enumerate(links)]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=_LINKS))
    return frame.repartitionById(max(1, min(len(links), _MAX_TASKS)), "place")


def write_routes(in_use: RoutesInUse, folder: Path) -> Path:
    """Write the plan in use to a file for the workers, atomically, once per content."""
    digest = blake2b(dumps(in_use, protocol=5), digest_size=10).hexdigest()
    file = folder.absolute() / f"routes-{digest}.pickle"
    if not file.exists():
        dump_mapped(in_use, file)
    return file


@lru_cache(maxsize=2)
def _read_routes(file: str) -> RoutesInUse:
    in_use: RoutesInUse = load_mapped(Path(file))
    return in_use


def _plan_batches(
    batches: Iterator[pa.RecordBatch], file: str, task: Callable[[RoutesInUse, Link], Row], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    in_use = _read_routes(file)
    for batch in batches:
        for row in batch.to_pylist():
            found = {"place": row["place"], **task(in_use, (row["a"], row["b"]))}
            yield pa.RecordBatch.from_pylist([found], schema=schema)


def _analysis_row(in_use: RoutesInUse, link: Link) -> Row:
    try:
        analysis = analyse_failure(in_use, link)
    except ConfigError as error:
        return {"a": link[0], "b": link[1], "error": str(error)}
    return {**routes_to_row(analysis.local), "least": analysis.least, "local_least": analysis.local_least}


def _routes_row(in_use: RoutesInUse, link: Link) -> Row:
    return routes_to_row(move_all_flows(in_use, link))


def routes_to_row(routes: RoutesAfterFailure) -> Row:
    fields = routes._asdict()
    return {**fields.pop("graphs")._asdict(), **fields}


def _analysis_from_row(row: Row) -> FailureAnalysis:
    if row["error"] is not None:
        raise ConfigError(row["error"])
    return FailureAnalysis(row["least"], row["local_least"], routes_from_row(row))


def routes_from_row(row: Row) -> RoutesAfterFailure:
    graphs = DeliveryGraphs(*(row[name] for name in DeliveryGraphs._fields))
    return RoutesAfterFailure(row["a"], row["b"], row["flows"], graphs, row["shares"], row["highest"], row["cut"])
