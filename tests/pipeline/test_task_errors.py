"""A failed job says its cause in one sentence, by whose mistake it was, and keeps the log."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark import needs_java
from wend.model.errors import ConfigError, InternalError, TryAgain, WendError
from wend.pipeline.spark.task_errors import translate_error, translate_errors
from wend.pipeline.storage.parquet_tables import read_parquet

pytestmark = [needs_java, pytest.mark.spark]


def mistaken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        raise KeyError("no such column")
        yield batch


def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        os._exit(9)
        yield batch


def refusing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        raise ConfigError("the row 7 is bad")
        yield batch


def told(job: Any) -> WendError:
    with pytest.raises(WendError) as caught, translate_errors():
        job.collect()
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def log_of(error: WendError) -> str:
    found = re.search(r"the log is ([^)]+)\)", str(error))
    assert found is not None
    log = Path(found[1]).read_text()
    Path(found[1]).unlink()
    return log


def test_a_mistake_of_ours_names_its_error_and_keeps_the_traceback(spark: Any) -> None:
    error = told(spark.range(1).mapInArrow(mistaken, "id long"))
    assert isinstance(error, InternalError) and error.exit_code == 70
    assert "KeyError: 'no such column'" in str(error)
    assert "in mistaken" in log_of(error)


def test_a_lost_worker_is_worth_another_try(spark: Any) -> None:
    error = told(spark.range(1).mapInArrow(dying, "id long"))
    assert isinstance(error, TryAgain) and error.exit_code == 75
    assert "Python worker exited unexpectedly" in log_of(error)


def test_what_a_task_refuses_is_the_users_to_mend(spark: Any) -> None:
    error = told(spark.range(1).mapInArrow(refusing, "id long"))
    assert isinstance(error, ConfigError) and (str(error), error.exit_code) == ("the row 7 is bad", 2)


def test_damaged_rows_of_a_file_are_the_users_to_mend(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": list(range(1000))}), place, compression="snappy")
    whole = bytearray(place.read_bytes())
    whole[4:400] = b"\xff" * 396
    place.write_bytes(bytes(whole))
    error = told(read_parquet(spark, str(place)))
    assert isinstance(error, ConfigError), error
    assert "x.parquet" in log_of(error)


@pytest.mark.parametrize(
    ("text", "kind", "cause"),
    [
        ("An error occurred while calling o66.parquet.\n: java.lang.ClassCastException: a is no b\n\tat x",
         InternalError, "ClassCastException: a is no b"),
        ("Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in "
         "stage 1.0 (TID 3) (10.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited caused by one of the running "
         "tasks) Reason: worker lost\nDriver stacktrace:", TryAgain, "ExecutorLostFailure"),
        ("oh\nCaused by: java.io.IOException: outer\nCaused by: java.io.IOException: No space left on device", TryAgain,
         "IOException: No space left on device"),
        ("[PATH_NOT_FOUND] Path does not exist: hdfs://a/b. SQLSTATE: 42K03", ConfigError, "Path does not exist"),
        ("", InternalError, "RuntimeError"),
    ],
)  # fmt: skip
def test_the_cause_is_found_in_what_spark_says(text: str, kind: type[WendError], cause: str) -> None:
    error = translate_error(RuntimeError(text))
    assert type(error) is kind and cause in str(error)
    log_of(error)
