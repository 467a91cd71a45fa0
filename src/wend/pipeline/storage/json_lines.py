"""JSON lines that users bring, read as input tables. A line that cannot be read gets a reason."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.model.errors import ConfigError
from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.storage.input_tables import PLACE_COLUMNS, InputTable
from wend.pipeline.storage.job_folders import literal_path, local_path

SUFFIXES = (".jsonl", ".ndjson", ".json")
_JUDGED = [pa.field("file", pa.string()), pa.field("block", pa.int64()), pa.field("place", pa.int64())]
_JUDGED += [pa.field("reason", pa.string()), pa.field("text", pa.string())]
_MAX_STORED = 1000
"""Characters of a bad line that the quarantine stores."""
_MAX_SHOWN = 80
_MAX_TRIED = 100
"""How many lines may be bad before the first good one."""

Id = int | str
LineReader = Callable[[str], tuple[Any, ...]]
"""Turns a line into the values of the columns, or raises `ConfigError`."""


def is_json_lines(path: str) -> bool:
    """Whether the path holds JSON lines and not Parquet, by the name of the file, or of the files in the folder."""
    place = local_path(path)
    if place is None:
        return path.rstrip("/").endswith(SUFFIXES)
    if not place.exists():
        raise ConfigError(f"there is no {path}", code="unreadable")
    if place.is_file():
        if place.suffix not in (".parquet", *SUFFIXES):
            raise ConfigError(f"{path} is neither Parquet (.parquet) nor JSON lines ({', '.join(SUFFIXES)})")
        return place.suffix in SUFFIXES
    endings = {file.suffix for file in place.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))}
    formats = sorted(endings & {".parquet", *SUFFIXES})
    if len(formats) != 1:
        content = "both Parquet and JSON lines" if formats else "neither Parquet nor JSON lines"
        raise ConfigError(f"the folder {path} holds {content}")
    return formats[0] in SUFFIXES


def read_lines(spark: SparkSession, path: str) -> DataFrame:
    """The lines of a text, with their places."""
    return spark.read.text(literal_path(path)).select(
        "value",
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        # Spark reads the lines of a block in order and into one partition, so these numbers follow each other.
        F.monotonically_increasing_id().alias("place"),
    )


def json_table(path: str, lines: DataFrame, read: LineReader, columns: list[pa.Field]) -> InputTable:
    """A table of JSON lines."""
    full = lines.where("trim(value) != ''")
    plain, whole = pa.schema(columns), pa.schema([*columns, *_JUDGED])
    rows = full.select("value").mapInArrow(partial(_parse_lines, read=read, schema=plain), spark_schema(plain))
    judged = full.mapInArrow(partial(_judge_lines, read=read, schema=whole), spark_schema(whole))
    return InputTable(path, rows, judged, lines.drop("value"))


def _parse_lines(batches: Iterator[pa.RecordBatch], read: LineReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [read(line) for line in batch.column("value").to_pylist()]
        yield pa.RecordBatch.from_arrays(_make_columns(rows, schema), schema=schema)


def _judge_lines(batches: Iterator[pa.RecordBatch], read: LineReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    own = pa.schema(list(schema)[: -len(_JUDGED)])
    nothing = (None,) * len(own)
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        reasons: list[str | None] = []
        texts: list[str | None] = []
        for line in batch.column("value").to_pylist():
            try:
                rows.append(read(line))
            except ConfigError as error:
                rows.append(nothing)
                reasons.append(str(error))
                texts.append(line[:_MAX_STORED])
            else:
                reasons.append(None)
                texts.append(None)
        columns = [*_make_columns(rows, own), *(batch.column(name) for name in PLACE_COLUMNS)]
        columns += [pa.array(reasons, pa.string()), pa.array(texts, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _make_columns(rows: list[tuple[Any, ...]], schema: pa.Schema) -> list[pa.Array]:
    return [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]


def first_object(lines: DataFrame, path: str, what: str) -> dict[str, Any]:
    """The first line that can be read. It decides the type of ids, and whether attributes are in an object of their
    own."""
    candidates = lines.where("trim(value) != ''").select("value").limit(_MAX_TRIED).toArrow().column(0).to_pylist()
    if not candidates:
        raise ConfigError(f"{path} has no {what}")
    reasons = []
    for line in candidates:
        try:
            seen: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            reasons.append(f"{excerpt(line)} is not a JSON object: {error}")
            continue
        if not isinstance(seen.get("id"), bool) and isinstance(seen.get("id"), int | str):
            return seen
        reasons.append(f"{excerpt(line)} has no id; an id is an integer or a text")
    raise ConfigError(f"{path}: {reasons[0]}")


def decode_line(decoder: Any, line: str) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{excerpt(line)}: {error}") from None


def validate_id(one: Any, text: bool) -> Id:
    if isinstance(one, bool) or not isinstance(one, str if text else int):
        kind = "a text" if text else "an integer"
        raise ConfigError(f"the first id is {kind}, but {one!r} is not")
    if isinstance(one, int) and not -(2**63) <= one < 2**63:
        raise ConfigError(f"the id {one} has more than 64 bits")
    valid: Id = one
    return valid


def excerpt(line: str) -> str:
    return repr(line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}…")
