"""`wend data paths` on the command line."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from tests.errors import raises
from tests.spark import needs_java
from wend.console.data.paths_command import data_paths

app = typer.Typer()
app.command()(data_paths)
RING = ("--topology", "regular", "--peers", "10", "--degree", "4", "--seed", "1", "--k", "2")


def call(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def rows(folder: Path) -> list[dict[str, object]]:
    order = [(name, "ascending") for name in ("source", "receiver", "rank")]
    found: list[dict[str, object]] = pq.read_table(folder).sort_by(order).to_pylist()
    return found


def test_small_networks_stay_in_this_process(tmp_path: Path) -> None:
    said = call(*RING, "--out", str(tmp_path / "paths"))
    assert said["on_spark"] is False
    found = rows(tmp_path / "paths")
    assert len(found) == said["paths"]
    assert {(row["source"], row["receiver"]) for row in found} == {
        (a, b) for a in range(10) for b in range(10) if a != b
    }
    assert {row["rank"] for row in found} == {1, 2}


@pytest.mark.parametrize("there", [False, True])
def test_what_fails_half_way_leaves_no_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    from wend.pipeline import paths_job

    def half(*_: object) -> Iterator[pa.RecordBatch]:
        yield next(search(*_))  # type: ignore[arg-type]
        raise OSError(errno.ENOSPC, "No space left on device")

    search = paths_job.find_paths_locally
    monkeypatch.setattr(paths_job, "find_paths_locally", half)
    out = tmp_path / "paths"
    if there:
        out.mkdir()
    with raises("unwritable", match="cannot write the paths: No space left on device"):
        call(*RING, "--out", str(out))
    assert list(tmp_path.rglob("*")) == ([out] if there else [])


@needs_java
@pytest.mark.spark
@pytest.mark.usefixtures("spark_commands")
def test_spark_writes_the_same_rows(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "spark"
    call(*RING, "--out", str(here), "--sources", "1,7")
    said = call(*RING, "--out", str(there), "--sources", "1,7", "--spread", "spark")
    assert said["on_spark"] is True
    assert rows(here) == rows(there)
    assert {path.name for path in tmp_path.iterdir()} == {"here", "spark"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--k", "0"), "k must be at least 1, got 0"),
        (("--sources", "1,x"), "--sources: 'x' is not a peer of the topology"),
        (("--sources", "10"), "--sources: '10' is not a peer"),
        (("--link-capacity", "fast"), "--link-capacity: cannot read 'fast' as a rate"),
        (("--out", "."), "is or contains the current folder"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    with raises("invalid-setting", match=sentence):
        CliRunner().invoke(app, [*RING, "--out", str(tmp_path / "o"), *arguments], catch_exceptions=False)
    assert not (tmp_path / "o").exists()
