"""Jobs read and write any file system that Spark knows; a plain path is local whatever Hadoop's default is."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark import invented, needs_java
from wend.console.app import main
from wend.drivers.scenarios import Scenario
from wend.model.errors import ConfigError
from wend.pipeline.match.match_job import MatchJob
from wend.pipeline.spark import session
from wend.pipeline.storage.job_folders import JobFolders, literal_path, local_path, new_output, spark_path
from wend.pipeline.sweeps.simulations import Simulations
from wend.pipeline.sweeps.sweep import run_sweep
from wend.pipeline.workload_generator import make_workload, write_workload

spark_test = pytest.mark.spark


def test_a_path_is_local_or_an_address() -> None:
    assert local_path("file:///a/b") == local_path("file:/a/b") == Path("/a/b")
    assert local_path("a/b") == Path("a/b") and local_path("c:x") == Path("c:x")
    assert local_path("s3a://bucket/x") is None and local_path("hdfs:/x") is None
    assert literal_path("s3a://bucket/of[12]") == spark_path("s3a://bucket/of[12]") == "s3a://bucket/of[12]"
    assert literal_path("/of[12]") == "file:///of\\[12\\]" and spark_path("/of[12]") == "file:///of[12]"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("data", "sweep", "--scenarios", "s.toml", "--out", "s3a://bucket/x"), "writes to a local path"),
        (("data", "paths", "--topology", "regular", "--out", "s3a://bucket/x"), "writes to a local path"),
        (("data", "topology", "--synthetic", "9", "--out", "s3a://b/x"), "generated records need a local folder"),
        (("data", "topology", "--records", "s3a://b/x/y", "--out", "s3a://b/x"), "which the output would replace"),
        (("topology", "make", "brite", "--out", "s3a://bucket/x.gml"), "writes to a local path"),
    ],
)
def test_what_a_command_cannot_write_to_is_refused(
    words: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text("[base]\npeers = 8\n")
    monkeypatch.setattr(sys, "argv", ["wend", *words])
    monkeypatch.setattr(session, "_check_java", lambda: pytest.fail("Spark was started"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and sentence in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


@pytest.fixture
def hadoop(spark: Any) -> Iterator[Any]:
    """Hadoop's settings; all that a test changes is changed back."""
    settings, changed = spark._jsc.hadoopConfiguration(), {}  # noqa: SLF001

    class Changing:
        def set(self, name: str, value: str) -> None:
            changed.setdefault(name, settings.get(name))
            settings.set(name, value)

    yield Changing()
    for name, value in changed.items():
        settings.unset(name) if value is None else settings.set(name, value)


@pytest.fixture
def store(hadoop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that Spark reaches as `viewfs://store/data`, through Hadoop's FileSystem alone."""
    folder = tmp_path_factory.mktemp("store")
    # Hadoop keeps file systems by address, so each test has a mount of its own.
    hadoop.set(f"fs.viewfs.mounttable.{folder.name}.link./data", folder.as_uri())
    return folder


def at(store: Path, name: str) -> str:
    return f"viewfs://{store.name}/data/{name}"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@needs_java
@spark_test
@pytest.mark.parametrize("plan", ["broadcast", "partitioned"])
def test_a_job_reads_and_writes_another_file_system(spark: Any, store: Path, plan: str) -> None:
    write_workload(spark, make_workload("narrow"), at(store, "w"), events_count=50, subscriptions_count=40)
    assert names(store) == ["w"] and names(store / "w") == ["events", "subscriptions"]
    job = MatchJob(spark, at(store, "w/subscriptions"), at(store, "w/events"))
    done = job.run(job.plan(plan), at(store, "out"))
    assert done.matches == pq.read_table(store / "out").num_rows
    local = MatchJob(spark, str(store / "w" / "subscriptions"), f"file://{store}/w/events")
    assert local.run(local.plan(plan), f"file://{store}/local").matches == done.matches
    assert names(store) == ["local", "out", "w"]


@needs_java
@spark_test
def test_a_folder_of_another_file_system_is_replaced_only_when_told_and_by_something_whole(
    spark: Any, store: Path
) -> None:
    (store / "out").mkdir()
    (store / "out" / "precious").write_text("kept")
    with pytest.raises(ConfigError, match="is not empty; --overwrite"), new_output(spark, at(store, "out")):
        pass
    with pytest.raises(RuntimeError), new_output(spark, at(store, "out"), overwrite=True) as draft:
        spark.range(3).write.parquet(draft.result)
        raise RuntimeError
    assert names(store / "out") == ["precious"] and names(store) == ["out"]
    with new_output(spark, at(store, "out"), overwrite=True) as draft:
        spark.range(3).write.parquet(draft.result)
    assert pq.read_table(store / "out").num_rows == 3 and names(store) == ["out"]
    (store / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"), new_output(spark, at(store, "file")):
        pass


@needs_java
@spark_test
def test_a_file_system_that_spark_does_not_know_is_one_sentence(spark: Any) -> None:
    for address in ("moon://crater/x", "s3a://bucket/x"):
        with pytest.raises(ConfigError, match=r"cannot reach .*spark\.jars") as told, new_output(spark, address):
            pass
        assert "\n" not in str(told.value)


@needs_java
@spark_test
def test_plain_paths_are_local_whatever_the_default_file_system_is(spark: Any, hadoop: Any, tmp_path: Path) -> None:
    hadoop.set("fs.defaultFS", "viewfs://nowhere/")
    pq.write_table(pa.table({"id": [1, 2], "x": [1, 2]}), tmp_path / "e.parquet")
    (tmp_path / "s.jsonl").write_text('{"id": 1, "filter": "x = 1"}\n')
    job = MatchJob(spark, str(tmp_path / "s.jsonl"), str(tmp_path / "e.parquet"))
    assert job.run(job.plan("partitioned"), tmp_path / "out", count=True).matches == 1
    swept = run_sweep(spark, Simulations(invented), [Scenario()], "t", tmp_path / "runs", code="c", quiet=True)
    assert swept.results.count() == 1


def test_an_index_needs_a_folder_that_workers_share() -> None:
    with pytest.raises(ConfigError, match="give --scratch DIR"):
        JobFolders("s3a://b/x", "s3a://b/y", None).shared_folder()
