"""Rows are shared among tasks by their number and by the cores, whatever the files look like."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark import needs_java
from wend.pipeline.match.match_job import MatchJob
from wend.pipeline.spark import partitions
from wend.pipeline.spark.partitions import task_count


@pytest.mark.parametrize(
    ("rows", "at_once", "tasks"),
    [(0, 8, 1), (1000, 8, 1), (100_000, 8, 5), (10**6, 2, 4), (10**6, 64, 50), (10**8, 2, 400)],
)
def test_tasks_by_size_and_cores(rows: int, at_once: int, tasks: int) -> None:
    assert task_count(rows, at_once) == tasks


@needs_java
@pytest.mark.spark
def test_events_in_one_row_group_are_several_tasks(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MIN_ROWS", 100)
    pq.write_table(pa.table({"id": list(range(1000)), "x": list(range(1000))}), tmp_path / "e.parquet")
    pq.write_table(pa.table({"id": [1], "filter": ["x < 300"]}), tmp_path / "s.parquet")
    job = MatchJob(spark, str(tmp_path / "s.parquet"), str(tmp_path / "e.parquet"))
    rows = job.events.selectExpr("spark_partition_id() AS part").groupBy("part").count().toArrow().to_pylist()
    assert len(rows) == 4 and max(row["count"] for row in rows) < 500
    assert job.run(job.plan("broadcast"), tmp_path / "out").matches == 300
