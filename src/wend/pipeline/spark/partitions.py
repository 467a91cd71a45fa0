"""How many tasks share the rows of a table, by its size and by the cores of the cluster.

Spark makes tasks of the row groups of Parquet files, so a million events in one row group would be one task. Shuffles
are left to Spark, which merges small partitions by itself (adaptive query execution).
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

MIN_ROWS = 20_000
"""Fewer rows are not worth a task of their own."""
MAX_ROWS = 250_000
"""With more rows, a task that fails or is late costs much."""


def count_cores(spark: SparkSession) -> int:
    """The number of tasks that the cluster executes at once, as far as Spark knows."""
    if hasattr(spark, "_jsc"):
        return int(spark.sparkContext.defaultParallelism)
    # Over Connect there is no context to ask, but a range has that many partitions.
    parts = spark.range(10_000).select(F.spark_partition_id().alias("part")).distinct()
    return max(1, parts.count())


def task_count(rows: int, at_once: int) -> int:
    return max(1, min(-(-rows // MIN_ROWS), max(2 * at_once, -(-rows // MAX_ROWS))))


def spread_rows(frame: DataFrame, rows: int, tasks: int, at_once: int) -> DataFrame:
    """Spread rows over more tasks, if `tasks` of them would leave cores idle."""
    count = task_count(rows, at_once)
    return frame if tasks >= min(count, at_once) else frame.repartition(count)
