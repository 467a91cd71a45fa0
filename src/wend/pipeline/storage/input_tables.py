"""Tables that users bring: rows that a job cannot use go to a quarantine table, and the job processes the rest.

One bad row among millions must not stop a job, and many bad rows must not pass unnoticed. So the task that reads a row
also judges it. A row with a reason goes to the quarantine, with its file, its line and its text. If the share of such
rows exceeds a bound, the job fails with the first reason. If several rows have one id, the job uses the first.

In most tables no row is bad. Then the job reads the table again without judging it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from wend.model.errors import ConfigError

MAX_BAD = 0.01
"""The largest share of bad rows that a job accepts, unless the caller sets another."""
QUARANTINE_FOLDER = "_quarantine"
"""The folder in an output. Spark and Arrow skip names that begin with an underscore."""
PLACE_COLUMNS = ["file", "block", "place"]
"""The columns with the place of a row."""


@dataclass(frozen=True)
class InputTable:
    """A table that a user brought, before its bad rows are removed."""

    path: str
    rows: DataFrame
    """`id` and the other columns that the job needs."""
    judged: DataFrame
    """The same columns; `file`, `block` and `place` of the row; `reason`, null for a good row."""
    lines: DataFrame | None = None
    """All lines with file, block and place, if the table is JSON lines."""

    def add_reason(self, reason: Column) -> "InputTable":
        """The table with a further reason, null for good rows."""
        judged = self.judged.withColumn("reason", F.coalesce("reason", reason))
        return replace(self, judged=judged, rows=judged.where("reason IS NULL").select(*self.rows.columns))


@dataclass(frozen=True)
class SiftedTable:
    """The good rows of a table, the results of a survey, and the bad rows."""

    table: InputTable
    rows: DataFrame
    seen: dict[str, Any]
    bad: DataFrame | None = None
    """file, line, id, reason, text"""
    bad_rows: int = 0


def parquet_table(path: str, frame: DataFrame, columns: list[Column | str]) -> InputTable:
    """A Parquet table; its rows need an id."""
    judged = frame.select(
        *columns,
        F.col("_metadata.file_path").alias("file"),
        F.lit(0).cast("bigint").alias("block"),
        F.col("_metadata.row_index").alias("place"),
        F.when(F.col("id").isNull(), "the row is without an id").alias("reason"),
        F.lit(None).cast("string").alias("text"),
    )
    return InputTable(path, frame.select(*columns), judged)


def check_column(table: InputTable, check: Callable[[pa.Array], list[str | None]]) -> InputTable:
    """A table whose column `attributes` a task checks; `check` gives a reason for each value, None for a good one."""
    return replace(table, judged=table.judged.mapInArrow(partial(_check_batches, check=check), table.judged.schema))


def _check_batches(
    batches: Iterator[pa.RecordBatch], check: Callable[[pa.Array], list[str | None]]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        at = batch.schema.get_field_index("reason")
        both = zip(batch.column(at).to_pylist(), check(batch.column("attributes")), strict=True)
        yield batch.set_column(at, batch.schema.field(at), pa.array([a or b for a, b in both], pa.string()))


def sift_table(
    table: InputTable, names: Iterable[str] = (), *, max_bad: float = MAX_BAD, seen: dict[str, Any] | None = None
) -> SiftedTable:
    """Survey a table and remove its bad rows. `seen` has the number of good `rows` and, for each named column,
    `known_NAME` (how many have a value), `least_NAME` and `most_NAME`. The caller may pass a survey of the same
    table."""
    seen = seen or survey_rows(table.judged, names)
    bad = (seen["bad"] or 0) + (seen["doubled"] or 0)
    if not bad:
        return SiftedTable(table, table.rows, seen)
    condemned, doubles = table.judged.where("reason IS NOT NULL"), None
    if seen["doubled"]:
        doubles = _repeated_ids(table.judged)
        condemned = condemned.unionByName(doubles)
    quarantine = quarantine_rows(table, condemned)
    check_share(table.path, quarantine, bad, seen["rows"] + (seen["bad"] or 0), max_bad)
    good = table.judged.where("reason IS NULL")
    if doubles is not None:
        good = good.join(F.broadcast(doubles.select(*PLACE_COLUMNS)), PLACE_COLUMNS, "left_anti")
        # Repeated rows no longer count as rows.
        seen |= {"rows": seen["rows"] - seen["doubled"]}
        if list(names):
            seen |= survey_rows(good, names)
    return SiftedTable(table, good.select(*table.rows.columns), seen, quarantine, bad)


def survey_rows(judged: DataFrame, names: Iterable[str] = (), middle: str | None = None) -> dict[str, Any]:
    """Count good and bad rows, and those that repeat an id; summarise the named columns of good rows. `middle_NAME` has
    the ends of the middle 90 % of the column `middle`, about."""
    names = list(names)
    kinds = (("known", F.count, F.sum), ("least", F.min, F.min), ("most", F.max, F.max))
    columns = [(f"{kind}_{name}", name, inner, outer) for name in names for kind, inner, outer in kinds]
    is_bad = F.col("reason").isNotNull()
    task = F.expr("shiftleft(1L, spark_partition_id() % 62)")
    each = (
        judged.withColumn("task", task)
        .groupBy("id", is_bad.alias("is_bad"))
        .agg(
            F.count("*").alias("rows"),
            # A bit for each of the first tasks that have a row.
            F.bit_or("task").alias("tasks"),
            *(i(name).alias(out) for out, name, i, _ in columns),
        )
    )
    good, well = F.when(~F.col("is_bad"), F.col("rows")), ~F.col("is_bad")
    totals = each.agg(
        F.coalesce(F.sum(good), F.lit(0)).alias("rows"),
        F.coalesce(F.sum(F.when(F.col("is_bad"), F.col("rows"))), F.lit(0)).alias("bad"),
        F.coalesce(F.sum(good - 1), F.lit(0)).alias("doubled"),
        F.coalesce(F.bit_count(F.bit_or("tasks")), F.lit(0)).alias("tasks"),
        *(o(F.when(well, F.col(out))).alias(out) for out, _, _, o in columns),
        *(
            F.percentile_approx(F.when(well, F.col(f"least_{name}")), [0.05, 0.95]).alias(f"middle_{name}")
            for name in names
            if name == middle
        ),
    )
    return dict(totals.toArrow().to_pylist()[0])


def _repeated_ids(judged: DataFrame) -> DataFrame:
    """The rows whose id an earlier row has, with the reason."""
    good = judged.where("reason IS NULL")
    ids = good.groupBy("id").agg(F.count("*").alias("times")).where("times > 1")
    turn = F.row_number().over(Window.partitionBy("id").orderBy(*PLACE_COLUMNS))
    ranked = good.join(F.broadcast(ids), "id").withColumn("turn", turn).where("turn > 1")
    quote = "'" if dict(judged.dtypes)["id"] == "string" else ""
    reason = F.format_string(
        f"the table has the id {quote}%s{quote} %d times, and its first row is used", "id", "times"
    )
    return ranked.withColumn("reason", reason).select(*judged.columns)


def quarantine_rows(table: InputTable, rows: DataFrame) -> DataFrame:
    """Rows for the quarantine: file, line, id, reason, text. Lines and rows of a file count from 1."""
    line = F.col("place") + 1
    if table.lines is not None:
        blocks = table.lines.groupBy("file", "block").agg(F.min("place").alias("first"), F.count("*").alias("many"))
        earlier = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
        starts = blocks.select(
            "file", "block", "first", F.coalesce(F.sum("many").over(earlier), F.lit(0)).alias("before")
        )
        rows = rows.join(F.broadcast(starts), ["file", "block"])
        line = F.col("place") - F.col("first") + F.col("before") + 1
    return rows.select("file", line.alias("line"), F.col("id").cast("string").alias("id"), "reason", "text")


def check_share(path: str, bad: DataFrame, bad_rows: int, rows: int, max_bad: float) -> None:
    """Refuse a table with too many bad rows; the sentence has the first of them."""
    if bad_rows <= max_bad * rows:
        return
    one = bad.orderBy("file", "line").limit(1).toArrow().to_pylist()[0]
    where = unquote(one["file"].rpartition("/")[2])
    raise ConfigError(
        f"{path}: {bad_rows} of {rows} rows cannot be used, more than --max-bad {max_bad:g}; "
        f"the first is in {where}, line {one['line']}: {one['reason']}"
    )


def write_quarantine(result: str, *sifted: SiftedTable) -> int:
    """Write the bad rows of all tables beside the result; return their number."""
    total = 0
    for each in sifted:
        if each.bad is not None:
            named = each.bad.select(F.lit(each.table.path).alias("table"), "*")
            named.write.mode("append").parquet(f"{result}/{QUARANTINE_FOLDER}")
            total += each.bad_rows
    return total


def check_max_bad(share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"--max-bad is a share of 1, got {share:g}")
