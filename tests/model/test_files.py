"""Files and folders are written whole or not at all, also by those who are stopped while tasks still write."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wend.model import folders
from wend.model.errors import ConfigError
from wend.model.files import drafted, written

STOPPED = """
import sys
from pathlib import Path
from wend.model.files import drafted

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
    monkeypatch.setattr(folders, "exchange", lambda *_: False)  # as on systems where folders cannot change places
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


# ---------------------------------------------------------------- single files

KILLED = """
import os, signal, sys
from pathlib import Path
from wend.model.files import written

with written(Path(sys.argv[1])) as draft:
    draft.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("before", [None, "before"])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_file_is_there_when_it_is_whole(before: str | None, lasting: bool, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    if before is not None:
        path.write_text(before)
    with written(path, lasting=lasting) as draft:
        draft.write_text("after")
        assert draft.name.startswith(".") and draft.parent == tmp_path
        assert (path.read_text() if path.exists() else None) == before
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_file_that_fails_leaves_what_was_there_and_nothing_else(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("before")
    with pytest.raises(error), written(path) as draft:
        draft.write_text("half")
        raise error
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_what_was_there_and_no_listing_sees_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("before")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.glob("*.json")) == [path]


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone" / "file.json"
    sentence = r"^cannot write .*gone/file\.json: No such file or directory$"
    with pytest.raises(ConfigError, match=sentence), written(gone) as draft:
        draft.write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"/folder: Is a directory$"), written(tmp_path / "folder") as draft:
        draft.write_text("x")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"), written(tmp_path / "f", lasting=True) as draft:
        draft.write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_two_may_write_one_file_and_the_last_one_wins_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with written(path) as one:
        one.write_text("one")
        with written(path) as other:
            other.write_text("other")
        assert path.read_text() == "other"
    assert path.read_text() == "one"


def test_what_shall_last_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, steps, sync = tmp_path / "file", [], os.fsync

    def noted(number: int) -> None:
        steps.append((os.readlink(f"/proc/self/fd/{number}"), path.exists()))
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    with written(path, lasting=True) as draft:
        draft.write_text("x")
    assert steps == [(str(draft), False), (str(tmp_path), True)]
