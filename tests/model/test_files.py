"""Files and folders are written completely or not at all, even if a writer is stopped while tasks still write."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wend.model import files
from wend.model.errors import ConfigError
from wend.model.files import new_folder, write_atomically

STOPPED = """
import sys
from pathlib import Path
from wend.model.files import new_folder

try:
    with new_folder(Path(sys.argv[1])) as (draft, scratch):
        raise KeyboardInterrupt
except KeyboardInterrupt:
    draft.mkdir(parents=True)  # a task that still runs
    (draft / "part").write_text("late")
"""


def test_output_of_late_tasks_is_removed_at_exit(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", STOPPED, str(tmp_path / "out")], check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_move_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    with pytest.raises(ConfigError, match=r"cannot write to .*out: No such file or directory"), new_folder(out):
        pass  # a job that forgot to write
    assert (out / "part").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    monkeypatch.chdir(out)
    with (
        pytest.raises(ConfigError, match=r"to \.: Device or resource busy"),
        new_folder(Path()) as (draft, _),
    ):
        draft.mkdir()
    assert Path("part").read_text() == "before"


@pytest.mark.parametrize("puts_back", [True, False])
def test_the_old_folder_survives_a_move_that_fails(
    puts_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old folder has been moved already when the disk fails, or when the parent folder becomes read-only."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    replace = Path.replace

    def fails(path: Path, target: Path) -> Path:
        if path.name == "draft" or (path.name == "former" and not puts_back):
            raise OSError(5, "Input/output error")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fails)
    monkeypatch.setattr(files, "swap_folders", lambda *_: False)  # as on systems that cannot swap folders
    with pytest.raises(ConfigError, match="Input/output error") as raised, new_folder(out) as (draft, _):
        draft.mkdir()
    left = list(tmp_path.rglob("part"))
    assert [path.read_text() for path in left] == ["before"]
    assert left == [out / "part"] if puts_back else str(left[0].parent) in str(raised.value)


def test_the_new_and_the_old_folder_are_swapped_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    monkeypatch.setattr(Path, "replace", lambda *_: pytest.fail("moved step by step"))
    with new_folder(out) as (draft, _):
        draft.mkdir()
        (draft / "whole").write_text("after")
    assert [path.name for path in out.iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failed_writer_leaves_the_old_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part").write_text("before")
    with pytest.raises(RuntimeError), new_folder(out) as (draft, _):
        draft.mkdir()
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "part").read_text() == "before"


# ---------------------------------------------------------------- single files

KILLED = """
import os, signal, sys
from pathlib import Path
from wend.model.files import write_atomically

with write_atomically(Path(sys.argv[1])) as draft:
    draft.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("before", [None, "before"])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_file_appears_when_it_is_complete(before: str | None, lasting: bool, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    if before is not None:
        path.write_text(before)
    with write_atomically(path, lasting=lasting) as draft:
        draft.write_text("after")
        assert draft.name.startswith(".") and draft.parent == tmp_path
        assert (path.read_text() if path.exists() else None) == before
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_writer_leaves_the_old_file_and_nothing_else(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("before")
    with pytest.raises(error), write_atomically(path) as draft:
        draft.write_text("half")
        raise error
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_file_and_no_visible_rest(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("before")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.glob("*.json")) == [path]


def test_the_error_about_a_file_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone" / "file.json"
    sentence = r"^cannot write .*gone/file\.json: No such file or directory$"
    with pytest.raises(ConfigError, match=sentence), write_atomically(gone) as draft:
        draft.write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"/folder: Is a directory$"), write_atomically(tmp_path / "folder") as draft:
        draft.write_text("x")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(ConfigError, match="No space left on device"),
        write_atomically(tmp_path / "f", lasting=True) as draft,
    ):
        draft.write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_of_two_writers_of_one_file_the_last_wins_completely(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with write_atomically(path) as one:
        one.write_text("one")
        with write_atomically(path) as other:
            other.write_text("other")
        assert path.read_text() == "other"
    assert path.read_text() == "one"


def test_a_lasting_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, steps, sync = tmp_path / "file", [], os.fsync

    def noted(number: int) -> None:
        steps.append((os.readlink(f"/proc/self/fd/{number}"), path.exists()))
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    with write_atomically(path, lasting=True) as draft:
        draft.write_text("x")
    assert steps == [(str(draft), False), (str(tmp_path), True)]


def test_a_signal_while_the_folders_are_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def interrupted(path: Path, *how: Any, **more: Any) -> None:
        mkdir(path, *how, **more)
        if path.name == "scratch":
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "result"):
        pass
    assert list(tmp_path.iterdir()) == []
