"""Files of one table may have other columns; files with columns of other types are refused by name."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark import needs_java
from wend.model.errors import ConfigError
from wend.pipeline.match.match_input import read_events
from wend.pipeline.match.match_job import MatchJob
from wend.pipeline.storage.parquet_tables import read_parquet
from wend.pipeline.underlay_inference import read_records

pytestmark = [needs_java, pytest.mark.spark]


def table(folder: Path, **files: dict[str, Any]) -> str:
    folder.mkdir()
    for name, columns in files.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return str(folder)


def test_columns_that_only_some_files_have_are_matched(spark: Any, tmp_path: Path) -> None:
    events = table(tmp_path / "e", a={"id": [1, 2], "x": [1, 2]}, b={"id": [3, 4], "x": [1, 2], "y": [7, 8]})
    subscriptions = table(
        tmp_path / "s", a={"id": [1], "filter": ["y exists"]}, b={"id": [2], "filter": ["x = 1"], "peer": ["a"]}
    )
    job = MatchJob(spark, subscriptions, events)
    job.run(job.plan(), tmp_path / "out")
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["event"], row["subscription"]) for row in rows) == [(1, 2), (3, 1), (3, 2), (4, 1)]


@pytest.mark.parametrize("odd", [0, 3, 4])
def test_a_file_with_other_types_is_refused_by_its_name(spark: Any, tmp_path: Path, odd: int) -> None:
    files = {f"f{n}": {"id": [n], "x": pa.array([1], pa.float64() if n == odd else pa.int64())} for n in range(5)}
    path = table(tmp_path / "e", **files)
    with pytest.raises(ConfigError, match=r"the column x holds (double|bigint), but (double|bigint) in other") as told:
        read_events(spark, path)
    # If the first file differs from all others, the second is the first that differs from those before it.
    assert f"{path}/f{odd or 1}.parquet: " in str(told.value)


def test_a_damaged_file_among_others_is_refused_by_its_name(spark: Any, tmp_path: Path) -> None:
    columns = {"source": [1], "target": [2], "time_ns": [3], "hops": [["a"]], "reached": [True]}
    path = table(tmp_path / "r", a=columns, b=columns)
    whole = (tmp_path / "r" / "b.parquet").read_bytes()
    (tmp_path / "r" / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match=r"b\.parquet as Parquet: the file is damaged"):
        read_records(spark, path)


def test_partitions_of_a_table_are_columns(spark: Any, tmp_path: Path) -> None:
    for day in ("1", "2"):
        (tmp_path / "e" / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [int(day)]}), tmp_path / "e" / f"day={day}" / "a.parquet")
    rows = read_parquet(spark, str(tmp_path / "e")).toArrow().to_pylist()
    assert sorted((row["id"], row["day"]) for row in rows) == [(1, 1), (2, 2)]
