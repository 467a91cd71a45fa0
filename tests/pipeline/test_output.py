"""An answer is written whole or not at all, also by those who are stopped while tasks still write."""

import subprocess
import sys
from pathlib import Path

import pytest

from wend.model.errors import ConfigError
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


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    with pytest.raises(RuntimeError), drafted(out) as (draft, _):
        draft.mkdir()
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "part").read_text() == "before"
