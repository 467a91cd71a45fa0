"""An answer is written whole or not at all, also by those who are stopped while tasks still write."""

import subprocess
import sys
from pathlib import Path

import pytest

from wend.model.errors import ConfigError
from wend.pipeline import output
from wend.pipeline.output import drafted

STOPPED = """
import sys
from pathlib import Path
from wend.pipeline.output import drafted

try:
    with drafted(Path(sys.argv[1])) as (draft, scratch):
        raise KeyboardInterrupt
except KeyboardInterrupt:
    draft.mkdir(parents=True)  # a task that has not heard of it
    (draft / "part").write_text("late")
"""


def test_what_late_tasks_write_goes_when_all_is_over(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", STOPPED, str(tmp_path / "out")], check=True)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_moved_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    with pytest.raises(ConfigError, match=r"cannot write to .*out: No such file or directory"), drafted(out):
        pass  # a job that forgot to write
    assert (out / "part").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    monkeypatch.chdir(out)
    with (
        pytest.raises(ConfigError, match=r"to \.: Device or resource busy"),
        drafted(Path()) as (draft, _),
    ):
        draft.mkdir()
    assert Path("part").read_text() == "before"


@pytest.mark.parametrize("puts_back", [True, False])
def test_the_former_answer_outlives_a_move_that_fails(
    puts_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former is out of the way already when the disk fails, or the folder can no longer be written to."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    replace = Path.replace

    def fails(path: Path, target: Path) -> Path:
        if path.name == "draft" or (path.name == "former" and not puts_back):
            raise OSError(5, "Input/output error")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fails)
    monkeypatch.setattr(output, "exchange", lambda *_: False)  # as on systems where folders cannot change places
    with pytest.raises(ConfigError, match="Input/output error") as raised, drafted(out) as (draft, _):
        draft.mkdir()
    kept = list(tmp_path.rglob("part"))
    assert [path.read_text() for path in kept] == ["before"]
    assert kept == [out / "part"] if puts_back else str(kept[0].parent) in str(raised.value)


def test_an_answer_and_the_former_change_places_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    monkeypatch.setattr(Path, "replace", lambda *_: pytest.fail("moved step by step"))
    with drafted(out) as (draft, _):
        draft.mkdir()
        (draft / "whole").write_text("after")
    assert [path.name for path in out.iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    with pytest.raises(RuntimeError), drafted(out) as (draft, _):
        draft.mkdir()
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "part").read_text() == "before"
