"""`--follow`: updates of a job on telemetry for segments as they arrive, by Spark's Structured Streaming.

The stream's source lists files; it reads none of them. Each batch of new files is one update (`updates.py`), and its
commit has the number of the batch. Spark's checkpoint says which files belong to which batch. If the process is killed,
the next start repeats the last batch with the same number, and the tables either have that number or do not. If the
checkpoint is lost, all files are new to the stream, but the tables know their segments.
"""

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from wend.model.errors import ConfigError, TryAgain, WendError
from wend.pipeline.spark.task_errors import translate_error, translate_errors
from wend.pipeline.storage.hadoop_folder import HadoopFolder
from wend.pipeline.storage.job_folders import literal_path, local_path, spark_path
from wend.pipeline.storage.local_folder import LocalFolder
from wend.pipeline.telemetry.segment_listing import make_listing
from wend.pipeline.telemetry.table_update import TelemetryJob
from wend.pipeline.telemetry.updates import UpdateSummary, run_update

CHECKPOINT_FORMAT = 1
"""Grows when older checkpoints become unusable."""
_MAX_TRIES = 5
_TRIGGER_INTERVAL = "10 seconds"
_FILE_COLUMNS = "path string, modificationTime timestamp, length bigint, content binary"
"""The columns of Spark's list of files."""
_MAX_AGE = "36500d"
"""Segments may arrive years late."""


class Checkpoint(msgspec.Struct, frozen=True):
    """The file that Wend adds to a checkpoint of Spark's."""

    format: int
    app: str
    """The name of the stream in the transactions of its tables."""
    job: str
    source: str


def follow_segments(
    spark: SparkSession,
    source: str,
    folder: str,
    job: TelemetryJob,
    *,
    checkpoint: str,
    drain: bool = False,
    at_once: int = 2000,
    report: Callable[[UpdateSummary], None] = lambda _: None,
) -> None:
    """Run an update for each batch of arriving segments, for ever or, with `drain`, until it has used all segments that
    are there."""
    if not hasattr(spark, "_jsc"):
        raise ConfigError("--follow needs a Spark session of its own, and this is Spark Connect")
    place = local_path(source)
    if place is not None and not place.is_dir():
        raise ConfigError(f"there is no folder {source}", code="unreadable")
    own = open_checkpoint(spark, checkpoint, job.name, source)
    failed: list[WendError] = []

    def arrived(batch: DataFrame, number: int) -> None:
        try:
            summary = _update(batch, number)
        except WendError as error:
            failed.append(error)
            raise
        if summary is not None:
            report(summary)

    def _update(batch: DataFrame, number: int) -> UpdateSummary | None:
        rows = batch.select("path", "length").toArrow()
        paths = [str(local_path(path) or path) for path in rows["path"].to_pylist()]
        listing = make_listing(zip(paths, rows["length"].to_pylist(), strict=True))
        if not listing.files:
            return None
        transaction = own.app, number
        attempt = partial(run_update, spark, folder, job, listing.files, max_bad=1.0, transaction=transaction)
        for _ in range(_MAX_TRIES - 1):
            with suppress(TryAgain):  # a compaction has changed the tables meanwhile
                return attempt()
        return attempt()

    with translate_errors():
        reader = spark.readStream.format("binaryFile").option("recursiveFileLookup", "true")
        files = (
            reader.schema(_FILE_COLUMNS)
            .option("pathGlobFilter", "*.parquet")
            .option("maxFilesPerTrigger", at_once)
            .option("maxFileAge", _MAX_AGE)
            .load(literal_path(source))
        )
        writer = files.writeStream.foreachBatch(arrived).option("checkpointLocation", spark_path(checkpoint))
        timing: dict[str, Any] = {"availableNow": True} if drain else {"processingTime": _TRIGGER_INTERVAL}
        query = writer.trigger(**timing).start()
    try:
        while not query.awaitTermination(1):  # a wait without an end would not notice Ctrl-C
            pass
    except Exception as error:
        if failed:
            raise failed[0] from None
        raise translate_error(error, "the stream failed") from error
    finally:
        query.stop()


def open_checkpoint(spark: SparkSession, checkpoint: str, job: str, source: str) -> Checkpoint:
    """Read the checkpoint, or create it. Raises `ConfigError` if it belongs to another stream."""
    local = local_path(checkpoint)
    files = LocalFolder(local) if local is not None else HadoopFolder(spark, checkpoint)
    text = files.read("wend/checkpoint.json")
    if text is None:
        if files.list_names("") and any(True for _ in files.list_sizes("offsets")):
            raise ConfigError(f"{checkpoint} is a checkpoint of another program; choose another folder")
        created = Checkpoint(CHECKPOINT_FORMAT, f"{job}-{uuid.uuid4().hex}", job, _absolute_source(source))
        files.create("wend/checkpoint.json", msgspec.json.encode(created))
        return created
    try:
        number = msgspec.json.decode(text, type=dict[str, Any]).get("format")
        if number != CHECKPOINT_FORMAT:
            raise ConfigError(
                f"{checkpoint} is a checkpoint of another version of Wend (format {number}, not "
                f"{CHECKPOINT_FORMAT}): remove it; the tables know what they have, so nothing is lost or doubled"
            )
        stored = msgspec.json.decode(text, type=Checkpoint)
    except msgspec.DecodeError:
        raise ConfigError(
            f"{checkpoint} is damaged: remove it; the tables know what they have", code="unreadable"
        ) from None
    if (stored.job, _absolute_source(stored.source)) != (job, _absolute_source(source)):
        raise ConfigError(
            f"{checkpoint} is the checkpoint of `wend data {stored.job} {stored.source}`; each stream needs its own"
        )
    return stored


def _absolute_source(source: str) -> str:
    """A source by a name that is valid in any folder."""
    local = local_path(source)
    return source if local is None else os.path.abspath(local)
