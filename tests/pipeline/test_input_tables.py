"""Bad rows go to a quarantine table with file, line and reason, and the rest is processed."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark import needs_java
from wend.model.errors import ConfigError
from wend.pipeline.match.match_input import read_events
from wend.pipeline.match.match_job import MatchJob
from wend.pipeline.storage.input_tables import quarantine_rows
from wend.pipeline.storage.json_lines import read_lines

pytestmark = [needs_java, pytest.mark.spark]


def quarantine(out: Path) -> list[tuple[str, int, str | None, str]]:
    rows = pq.read_table(out / "_quarantine").to_pylist()
    named = [(row["file"].rpartition("/")[2], row["line"], row["id"], row["reason"]) for row in rows]
    return sorted(named, key=lambda row: row[:2])


@pytest.mark.parametrize("plan", ["broadcast", "partitioned"])
def test_bad_lines_are_set_apart_and_the_rest_is_matched(spark: Any, tmp_path: Path, plan: str) -> None:
    good = [json.dumps({"id": n, "x": n}) for n in range(10)]
    lines = ["{oh", *good[:5], "", json.dumps({"id": 3, "x": 7}), json.dumps({"id": "a", "x": 1}), *good[5:]]
    (tmp_path / "e.jsonl").write_text("\n".join([*lines, json.dumps({"id": 20, "x": {"low": 3, "high": 1}})]))
    filters = {n: f"x = {n}" for n in range(10)} | {10: "x <", 11: None}
    pq.write_table(pa.table({"id": list(filters), "filter": list(filters.values())}), tmp_path / "s.parquet")
    job = MatchJob(spark, str(tmp_path / "s.parquet"), str(tmp_path / "e.jsonl"), max_bad=0.5)
    done = job.run(job.plan(plan), tmp_path / "out")
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["event"], row["subscription"]) for row in rows) == [(n, n) for n in range(10)]
    found = quarantine(tmp_path / "out")
    assert done.quarantined == len(found) == 6
    assert [row[:3] for row in found] == [
        ("e.jsonl", 1, None), ("e.jsonl", 8, "3"), ("e.jsonl", 9, None), ("e.jsonl", 15, None),
        ("s.parquet", 11, "10"), ("s.parquet", 12, "11"),
    ]  # fmt: skip
    for (*_, reason), part in zip(
        found, ("oh", "has the id 3 2 times", "but 'a' is not", "from 3 to 1", "'x <'", "has no filter"), strict=True
    ):
        assert part in reason
    counted = job.run(job.plan(plan), tmp_path / "counts", count=True)
    assert counted.matches == 10 and pq.read_table(tmp_path / "counts" / "subscriptions").num_rows == 10


def test_too_many_bad_rows_fail_the_job_with_the_first_of_them(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"id": 1, "x": 1}\n{"id": 2, "x": [1]}\n{"id": 3}\n')
    (tmp_path / "s.jsonl").write_text('{"id": 1, "filter": "x = 1"}\n')
    with pytest.raises(ConfigError, match=r"1 of 3 rows .* the first is in e\.jsonl, line 2: "):
        MatchJob(spark, str(tmp_path / "s.jsonl"), str(tmp_path / "e.jsonl"), max_bad=0.3)


def test_lines_are_counted_over_the_blocks_and_files_that_spark_reads(spark: Any, tmp_path: Path) -> None:
    """Small blocks, so that a file has many, and partitions with blocks of several files."""
    (tmp_path / "e").mkdir()
    wrong = {("a.jsonl", 1), ("a.jsonl", 137), ("b.jsonl", 500), ("b.jsonl", 2)}
    for name in ("a.jsonl", "b.jsonl"):
        texts = ["bad" if (name, n) in wrong else json.dumps({"id": f"{name}{n}", "x": n}) for n in range(1, 501)]
        (tmp_path / "e" / name).write_text("\n".join(texts))
    before = {name: spark.conf.get(name) for name in ("spark.sql.files.maxPartitionBytes",)}
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1000")
    spark.conf.set("spark.sql.files.openCostInBytes", "300")
    try:
        assert read_lines(spark, str(tmp_path / "e")).select("block").distinct().count() > 5
        table = read_events(spark, str(tmp_path / "e"))
        found = quarantine_rows(table, table.judged.where("reason IS NOT NULL")).toArrow().to_pylist()
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before["spark.sql.files.maxPartitionBytes"])
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert {(row["file"].rpartition("/")[2], row["line"]) for row in found} == wrong
