"""Read a Parquet table whose files were written at different times, by different writers.

By default Spark takes the columns of one file for those of all, and silently loses a column that this file lacks. This
module merges the columns of all files; a column that a file lacks is null in its rows. Columns of one name and two
types cannot be merged, and nothing is cast; the error names the file and the column.
"""

from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from wend.model.errors import ConfigError
from wend.pipeline.storage.job_folders import literal_path

NUMBER_TYPES = {"tinyint", "smallint", "int", "bigint", "float", "double"}
"""Spark's types of numbers."""


def read_parquet(spark: SparkSession, path: str) -> DataFrame:
    """Read all Parquet files of a path as one table with the columns of all of them."""
    try:
        return _read_merged(spark, [literal_path(path)])
    except Exception as error:
        _check_schemas(spark, path)
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"cannot read {path} as Parquet: {first}", code="unreadable") from None


def require_columns(frame: DataFrame, path: str, *names: str) -> None:
    for name in names:
        if name not in frame.columns:
            raise ConfigError(f"{path} has no column {name}; it has {', '.join(frame.columns)}")


def _read_merged(spark: SparkSession, paths: list[str]) -> DataFrame:
    frame = spark.read.option("mergeSchema", "true").parquet(*paths)
    frame.schema  # noqa: B018  over Connect, reading the schema finds a file that cannot be read
    return frame


def _check_schemas(spark: SparkSession, path: str) -> None:
    """Find the first file that cannot be read, or whose columns differ in type from those of the files before it."""
    try:
        files = [
            _spark_path(file) for file in sorted(spark.read.format("binaryFile").load(literal_path(path)).inputFiles())
        ]
    except Exception:
        return
    good, bad = 0, len(files)  # the first `good` files go together, the first `bad` do not
    while bad - good > 1:
        middle = (good + bad) // 2
        if _can_merge(spark, files[:middle]):
            good = middle
        else:
            bad = middle
    if not files or _can_merge(spark, files):
        return
    misfit = files[bad - 1]
    if not _can_merge(spark, [misfit]):
        raise ConfigError(f"cannot read {misfit} as Parquet: the file is damaged or no Parquet file", code="unreadable")
    before = _column_types(_read_merged(spark, [literal_path(file) for file in files[:good]]))
    for name, kind in _column_types(_read_merged(spark, [literal_path(misfit)])).items():
        if before.get(name, kind) != kind:
            raise ConfigError(
                f"{misfit}: the column {name} holds {kind}, but {before[name]} in other files of {path}: "
                "a table needs one type for each column"
            )
    raise ConfigError(f"{misfit}: its columns cannot be merged with those of other files of {path}")


def _can_merge(spark: SparkSession, files: list[str]) -> bool:
    try:
        _read_merged(spark, [literal_path(file) for file in files])
    except Exception:
        return False
    return True


def _column_types(frame: DataFrame) -> dict[str, Any]:
    return {field.name: field.dataType.simpleString() for field in frame.schema}


def _spark_path(address: str) -> str:
    """A file as Spark lists it (`file:/data/a%20b`) as a path or an address that Spark reads."""
    if address.startswith("file:"):
        return "/" + unquote(address.removeprefix("file:").lstrip("/"))
    return unquote(address)
