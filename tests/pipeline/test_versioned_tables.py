"""Folders of tables: commits, readers, growing schemas, compaction."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spark import needs_java
from wend.model.errors import ConfigError, TryAgain
from wend.model.units import SECOND
from wend.pipeline.storage.compact_tables import compact_tables
from wend.pipeline.storage.hadoop_folder import HadoopFolder
from wend.pipeline.storage.versioned_tables import (
    DataFile,
    FolderVersion,
    TableChange,
    TableFolder,
    frame_columns,
    read_table,
)

X = (("x", "bigint"),)


def files(folder: Path, *values: int, at: str = "") -> tuple[DataFile, ...]:
    """A data file with these values, as a writer leaves it."""
    path = folder / "data" / f"f{at or '-'.join(map(str, values))}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": values}), path)
    return (DataFile(path.relative_to(folder).as_posix(), path.stat().st_size),)


def add(folder: Path, base: FolderVersion | None, *values: int, **how: Any) -> FolderVersion:
    return TableFolder(None, folder).commit(base, {"t": TableChange(X, files(folder, *values))}, **how)


def rows(folder: Path) -> list[int]:
    found: list[int] = read_table(None, folder, "t")["x"].to_pylist()
    return found


def test_a_reader_sees_commits_and_nothing_else(tmp_path: Path) -> None:
    first = add(tmp_path, None, 1, 2)
    files(tmp_path, 99)  # a writer that was killed before its commit
    assert rows(tmp_path) == [1, 2]
    second = add(tmp_path, first, 3)
    assert rows(tmp_path) == [1, 2, 3]
    replaced = TableChange(X, files(tmp_path, 4), frozenset({first.tables["t"].files[0].path}))
    TableFolder(None, tmp_path).commit(second, {"t": replaced})
    assert rows(tmp_path) == [3, 4]


def test_of_two_writers_the_second_starts_again(tmp_path: Path) -> None:
    base = add(tmp_path, None, 1)
    add(tmp_path, base, 2)
    with pytest.raises(TryAgain, match="another command has changed"):
        add(tmp_path, base, 3)
    add(tmp_path, base, 4, alone=False)
    assert rows(tmp_path) == [1, 2, 4]


def test_what_another_writer_has_removed_cannot_be_removed_again(tmp_path: Path) -> None:
    base = add(tmp_path, None, 1)
    gone = frozenset({base.tables["t"].files[0].path})
    TableFolder(None, tmp_path).commit(base, {"t": TableChange(X, (), gone)})
    with pytest.raises(TryAgain):
        TableFolder(None, tmp_path).commit(base, {"t": TableChange(X, (), gone)}, alone=False)


def test_a_version_of_a_newer_layout_is_refused(tmp_path: Path) -> None:
    add(tmp_path, None, 1)
    file = tmp_path / "versions" / "00000001.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"layout": 2, "number": 2}))
    with pytest.raises(ConfigError, match=r"written by a newer Wend \(layout 2, and this one knows 1\)"):
        rows(tmp_path)


def test_a_version_that_is_not_complete_is_not_there_yet(tmp_path: Path) -> None:
    add(tmp_path, None, 1)
    (tmp_path / "versions" / "00000002.json").write_text('{"layout": 1, "number"')
    assert rows(tmp_path) == [1]


def test_a_folder_without_tables_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no tables of Wend's"):
        rows(tmp_path)
    add(tmp_path, None, 1)
    with pytest.raises(ConfigError, match="has no table none: it has t"):
        read_table(None, tmp_path, "none")


def test_old_versions_stay_for_their_time(tmp_path: Path) -> None:
    now = [0]
    folder = TableFolder(None, tmp_path, clock=lambda: now[0])
    begin = 4 * 10**18  # after the times of all files
    now[0] = begin
    base = folder.commit(None, {"t": TableChange(X, files(tmp_path, 1))})
    now[0] = begin + 10 * SECOND
    gone = frozenset({base.tables["t"].files[0].path})
    folder.commit(base, {"t": TableChange(X, files(tmp_path, 2), gone)})
    now[0] = begin + 15 * SECOND
    assert folder.remove_old_versions(10 * SECOND) == (0, 0)
    assert (tmp_path / "data" / "f1.parquet").exists()
    now[0] = begin + 25 * SECOND
    files(tmp_path, 3)
    assert folder.remove_old_versions(10 * SECOND) == (1, 2)
    assert rows(tmp_path) == [2]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from("arkw"), st.integers(0, 9)), max_size=12), seed=st.integers(0))
def test_rows_are_those_of_the_commits(steps: list[tuple[str, int]], seed: int, tmp_path: Path) -> None:
    """Adding, replacing, removing old versions and writers that die: a reader sees what a list would hold."""
    folder = tmp_path / f"{seed}-{abs(hash(tuple(steps)))}"
    tables, version = TableFolder(None, folder, clock=lambda: 4 * 10**18), None
    expected: dict[str, int] = {}
    for number, (kind, value) in enumerate(steps):
        match kind:
            case "a" | "r":
                new = files(folder, value, at=str(number))
                old = frozenset(list(expected)[:1]) if kind == "r" else frozenset[str]()
                version = tables.commit(version, {"t": TableChange(X, new, old)})
                expected = {path: each for path, each in expected.items() if path not in old} | {new[0].path: value}
            case "k":
                files(folder, value, at=str(number))
            case _:
                tables.remove_old_versions(0)
        if version is not None:
            assert sorted(rows(folder)) == sorted(expected.values())


@needs_java
@pytest.mark.spark
def test_spark_reads_columns_that_came_later_as_null(spark: Any, tmp_path: Path) -> None:
    folder = TableFolder(spark, tmp_path)
    one = spark.createDataFrame([(1, 7)], "x bigint, bucket bigint")
    two = spark.createDataFrame([(2, "b", 8)], "x bigint, y string, bucket bigint")
    first = folder.commit(
        None,
        {"t": TableChange(frame_columns(one, "bucket"), folder.write(one, "t", by="bucket"))},
        transaction=("app", 3),
    )
    both = folder.commit(
        first, {"t": TableChange(frame_columns(two, "bucket"), folder.write(two, "t", by="bucket"))}, facts={"a": 1}
    )
    assert [file.bucket for file in both.tables["t"].files] == [7, 8]
    found = folder.read_frame(both, "t").toArrow().to_pylist()
    assert sorted(found, key=str) == [{"x": 1, "y": None}, {"x": 2, "y": "b"}]
    assert folder.read_frame(both, "t", buckets=[8]).toArrow().to_pylist() == [{"x": 2, "y": "b"}]
    assert (both.transactions, both.facts) == ({"app": 3}, {"a": 1})
    third = spark.createDataFrame([("a",)], "x string")
    with pytest.raises(ConfigError, match="column x of the table t holds bigint, and cannot hold string"):
        folder.commit(both, {"t": TableChange(frame_columns(third), ())})


@needs_java
@pytest.mark.spark
def test_compaction_merges_small_files_of_a_bucket(spark: Any, tmp_path: Path) -> None:
    folder, version = TableFolder(spark, tmp_path), None
    for x in range(4):
        frame = spark.createDataFrame([(x, x % 2)], "x bigint, bucket bigint")
        version = folder.commit(version, {"t": TableChange(X, folder.write(frame, "t", by="bucket"))})
    made = compact_tables(spark, tmp_path, retain_ns=3600 * SECOND)
    assert (made.files_before, made.files_after, made.files_removed) == (4, 2, 0)
    assert sorted(rows(tmp_path)) == [0, 1, 2, 3]
    newest = folder.require_newest_version()
    assert sorted(folder.read_frame(newest, "t", buckets=[1]).toArrow()["x"].to_pylist()) == [1, 3]
    assert compact_tables(spark, tmp_path, retain_ns=-1).files_removed == 4
    assert sorted(rows(tmp_path)) == [0, 1, 2, 3]


@needs_java
@pytest.mark.spark
def test_versions_through_hadoop(spark: Any, tmp_path: Path) -> None:
    place = tmp_path.parent / "plain"
    stored = HadoopFolder(spark, f"file:{place}")
    assert stored.list_names("versions") == []
    assert stored.read("versions/1.json") is None
    assert stored.create("versions/1.json", b"one")
    assert not stored.create("versions/1.json", b"two")
    assert stored.read("versions/1.json") == b"one"
    assert stored.list_names("versions") == ["1.json"]
    assert list(stored.list_sizes("versions")) == [("versions/1.json", 3)]
    assert all(age > -SECOND for _, age in stored.list_ages("versions", 4 * 10**18))
    stored.remove("versions/1.json")
    assert stored.list_names("versions") == []
