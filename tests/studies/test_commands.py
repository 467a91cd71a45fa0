"""`wend study` and `wend data sweep` as a person calls them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import needs_java

WEND = Path(sys.executable).parent / "wend"


def wend(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(folder / "scratch")}
    return subprocess.run(
        [str(WEND), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@needs_java
@pytest.mark.spark
@pytest.mark.slow
def test_a_smoke_study_from_end_to_end(tmp_path: Path) -> None:
    arguments = ("study", "dcrd", "--smoke", "--only", "7", "--strategies", "dcrd", "--master", "local[2]", "--json")
    done = wend(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["runs"], said["ran"], said["failures"]) == (8, 8, [])
    late = {claim["id"]: claim for claim in said["claims"]}["dcrd.late.deg8"]
    assert late["verdict"] == "doubtful"
    assert all(0.0 <= part["ours"] <= 1.0 for part in late["parts"])
    out = tmp_path / "out" / "studies" / "dcrd-smoke"
    assert Path(said["report"]) == Path("out/studies/dcrd-smoke/report.html")
    assert {path.name for path in out.iterdir()} == {"figures", "report.html", "report.json", "report.md", "runs"}
    # Spark leaves nothing where it was started.
    assert {path.name for path in tmp_path.iterdir()} == {"out", "scratch"}
    assert list((tmp_path / "scratch").glob("wend-spark-*")) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("study", "nothing"), "there is no study 'nothing'"),
        (("study", "dcrd", "--smoke", "--full"), "exclude each other"),
        (("study", "dcrd", "--smoke", "--master", "nowhere"), "master 'nowhere' is none of"),
        (("data", "sweep", "--scenarios", "none.toml", "--out", "o"), "cannot read none.toml"),
        (("data", "sweep", "--scenarios", "bad.toml", "--out", "o"), "there is no strategy 'guess'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    (tmp_path / "bad.toml").write_text('[sweep]\nstrategy = ["guess"]\n')
    done = wend(tmp_path, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
