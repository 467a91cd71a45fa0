"""Files and folders that are there whole or not at all.

What is made is written beside its place, under a name that begins with a dot, and moved there when it is whole. What
fails leaves nothing, and `--overwrite` removes what was there only when there is something to put in its place; the
two change places at once.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wend.model.errors import ConfigError
from wend.model.folders import put


def check_out(out: Path, overwrite: bool, *inputs: str) -> None:
    if out.is_file():
        raise ConfigError(f"{out} is a file, and the answer is a folder")
    if Path.cwd().is_relative_to(out.resolve()):
        raise ConfigError(f"{out} is the folder that this runs in, and the answer replaces it: choose another")
    for path in inputs:
        if "://" not in path and Path(path).resolve().is_relative_to(out.resolve()):
            raise ConfigError(f"{path} is in {out}, which the answer replaces")
    check_writable(out)
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise ConfigError(f"{out} is not empty; --overwrite replaces it")


def check_writable(path: Path, *, inside: bool = False) -> None:
    """Whether it can be put in its place or, `inside`, things into it. Tried, not asked: permissions know nothing of
    what cannot be written at all."""
    try:
        full = path.absolute()
        above = next(folder for folder in (full, *full.parents)[not inside :] if folder.exists())
        Path(tempfile.mkdtemp(prefix=".wend.", dir=above)).rmdir()
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _hidden(name: str) -> str:
    """Nobody else's, on this machine or another; neither Spark nor a listing of results looks at names with a dot."""
    return f".{name}.{os.urandom(8).hex()}"


@contextmanager
def written(path: Path, *, lasting: bool = False) -> Iterator[Path]:
    """A place that becomes the file `path` if all goes well, and is gone if not. Of several who write one file at
    once the last one wins, with all of its content.

    A file that is `lasting` also outlives the machine: it has reached the disk before it has its name.
    """
    draft = path.with_name(_hidden(path.name))
    try:
        yield draft
        if lasting:
            _sync(draft)
        draft.replace(path)
        if lasting:
            with suppress(OSError):  # not every file system lets a folder be synchronised
                _sync(path.parent)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def drafted(out: Path) -> Iterator[tuple[Path, Path]]:
    """A folder that becomes `out` if all goes well, and one for what is only needed meanwhile."""
    beside = out.absolute().parent
    try:
        beside.mkdir(parents=True, exist_ok=True)
        room = beside / _hidden(out.name)
        room.mkdir()
    except OSError as error:
        raise ConfigError(f"cannot write to {beside}: {error.strerror}") from None
    draft, scratch, former = room / "draft", room / "scratch", room / "former"
    scratch.mkdir()
    try:
        yield draft, scratch
        _move(draft, out, former)
    except BaseException:
        if not former.exists():
            # tasks may still write, until the session ends; so once more when all is over
            atexit.register(shutil.rmtree, room, ignore_errors=True)
        raise
    finally:
        if out.exists() or not former.exists():  # else it holds the only answer there is
            shutil.rmtree(room, ignore_errors=True)


def _move(draft: Path, out: Path, former: Path) -> None:
    try:
        put(draft, out, former)
    except OSError as error:
        where = f"; what was there is in {former}" if former.exists() and not out.exists() else ""
        raise ConfigError(f"cannot write to {out}: {error.strerror}{where}") from None
