"""`wend study` and `wend data sweep` on the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import environment, needs_java
from wend.console.app import main
from wend.pipeline.spark import session

WEND = Path(sys.executable).parent / "wend"


def wend(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    own = environment() | {"SPARK_LOCAL_DIRS": str(folder / "scratch")}
    return subprocess.run([str(WEND), *arguments], cwd=folder, env=own, capture_output=True, text=True, check=False)


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
    assert (late["verdict"], [part["within"] for part in late["parts"]]) == ("met", [True] * 3)
    assert all(0.0 <= part["ours"] <= 1.0 for part in late["parts"])
    out = tmp_path / "out" / "studies" / "dcrd-smoke"
    assert Path(said["report"]) == Path("out/studies/dcrd-smoke/report.html")
    assert {path.name for path in out.iterdir()} == {"figures", "report.html", "report.json", "report.md", "runs"}
    # Spark leaves no files in the folder in which it started.
    assert {path.name for path in tmp_path.iterdir()} == {"out", "scratch"}
    assert list((tmp_path / "scratch").glob("wend-spark-*")) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("study", "nothing"), "there is no study 'nothing'"),
        (("study", "dcrd", "--smoke", "--full"), "exclude each other"),
        (("study", "dcrd", "--smoke", "--claims"), "--smoke and --claims exclude each other"),
        (("study", "dcrd", "--smoke", "--master", "nowhere"), "master 'nowhere' is none of"),
        (("study", "dcrd", "--smoke", "--only", "99"), "the study dcrd has no figure '99'; it has 2, "),
        (("study", "dcrd", "--smoke", "--strategies", "dcrd,magic"), "the study dcrd has no strategy 'magic'"),
        (("study", "dcrd", "--smoke", "--out", "bad.toml"), "bad.toml is a file; runs need a folder"),
        (("study", "dcrd", "--smoke", "--out", "/proc/none"), "cannot write /proc/none"),
        (("study", "dcrd", "--smoke", "--out", "blocked"), "blocked/report.md is a folder, not a file"),
        (("data", "sweep", "--scenarios", "good.toml", "--out", "bad.toml"), "bad.toml is a file; runs need a folder"),
        (("data", "sweep", "--scenarios", "none.toml", "--out", "o"), "cannot read none.toml"),
        (("data", "sweep", "--scenarios", "bad.toml", "--out", "o"), "there is no strategy 'guess'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    (tmp_path / "bad.toml").write_text('[sweep]\nstrategy = ["guess"]\n')
    (tmp_path / "good.toml").write_text("[sweep]\nseed = [1]\n")
    (tmp_path / "blocked" / "report.md").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["wend", *arguments])
    monkeypatch.setattr(session, "_check_java", lambda: pytest.fail("Spark was started"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
