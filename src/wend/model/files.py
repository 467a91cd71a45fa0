"""Atomic output: files and folders that exist completely or not at all.

A writer writes beside the target, under a name that begins with a dot, and moves the result there when it is complete.
A failed writer leaves nothing. `--overwrite` replaces an old folder only when the new one is complete, in one step.
"""

import atexit
import ctypes
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wend.model.errors import ConfigError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_HERE, _EXCHANGE = -100, 2
"""Arguments of renameat2: relative to the current folder; exchange the two."""


def is_url(path: str | Path) -> bool:
    """Whether a path names another file system (`s3a://bucket/x`). A Path has one of the two slashes."""
    return _ADDRESS.match(str(path)) is not None


def _check_local(path: Path) -> None:
    if is_url(path):
        raise ConfigError(f"{path} is an address, but this command writes to a local path")


def check_output_folder(out: Path, overwrite: bool, *inputs: str) -> None:
    """Check that a folder can be written to `out` without destroying an input or the current folder."""
    _check_local(out)
    if out.is_file():
        raise ConfigError(f"{out} is a file, but the output is a folder", code="unwritable")
    if Path.cwd().is_relative_to(out.resolve()):
        raise ConfigError(f"{out} is or contains the current folder, and the output would replace it: choose another")
    for path in inputs:
        if not is_url(path) and Path(path).resolve().is_relative_to(out.resolve()):
            raise ConfigError(f"{path} is in {out}, which the output would replace")
    check_writable(out)
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise ConfigError(f"{out} is not empty; --overwrite replaces it", code="file-exists")


def check_writable(path: Path, *, inside: bool = False) -> None:
    """Check that the path can be written or, with `inside`, that files can be written into it. It tries to write,
    because permission bits do not reveal read-only file systems."""
    _check_local(path)
    try:
        full = path.absolute()
        above = next(folder for folder in (full, *full.parents)[not inside :] if folder.exists())
        probe = above / _hidden_name("wend")
        try:
            probe.mkdir()
        finally:  # it is named before it is made, so that a signal leaves nothing
            with suppress(FileNotFoundError):
                probe.rmdir()
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", code="unwritable") from None


def _hidden_name(name: str) -> str:
    """A unique name, also among machines. Spark and listings of results ignore names that begin with a dot."""
    return f".{name}.{os.urandom(8).hex()}"


@contextmanager
def write_atomically(path: Path, *, lasting: bool = False) -> Iterator[Path]:
    """A temporary path that becomes the file `path` on success, and is removed on failure. If several write one file
    at once, the last one wins, with all of its content.

    With `lasting` the file also survives a crash of the machine: it is on the disk before it gets its name.
    """
    draft = path.with_name(_hidden_name(path.name))
    try:
        yield draft
        if lasting:
            _sync_to_disk(draft)
        draft.replace(path)
        if lasting:
            with suppress(OSError):  # not every file system can synchronise a folder
                _sync_to_disk(path.parent)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _sync_to_disk(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def new_folder(out: Path) -> Iterator[tuple[Path, Path]]:
    """A folder that becomes `out` on success, and a scratch folder for temporary data."""
    beside = out.absolute().parent
    work = beside / _hidden_name(out.name)
    draft, scratch, former = work / "draft", work / "scratch", work / "former"
    try:  # a signal may come between any two of these lines
        try:
            scratch.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"cannot write to {beside}: {error.strerror}", code="unwritable") from None
        yield draft, scratch
        _move_into_place(draft, out, former)
    except BaseException:
        if not former.exists():
            # Spark tasks may write until the session ends: remove the folder again at exit.
            atexit.register(shutil.rmtree, work, ignore_errors=True)
        raise
    finally:
        if out.exists() or not former.exists():  # else `former` is the only copy of the old output
            shutil.rmtree(work, ignore_errors=True)


def _move_into_place(draft: Path, out: Path, former: Path) -> None:
    try:
        replace_folder(draft, out, former)
    except OSError as error:
        where = f"; the old folder is now {former}" if former.exists() and not out.exists() else ""
        raise ConfigError(f"cannot write to {out}: {error.strerror}{where}", code="unwritable") from None


def swap_folders(one: Path, other: Path) -> bool:
    """Swap two folders atomically. False if the system cannot do that; then nothing has changed."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # only Linux has it
        return False
    return bool(renameat2(_HERE, bytes(one), _HERE, bytes(other), _EXCHANGE) == 0)


def replace_folder(draft: Path, folder: Path, former: Path) -> None:
    """Move `draft` to `folder`. An old folder is at `draft` or `former` afterwards. After an OSError nothing has
    changed."""
    if not folder.exists() or not any(folder.iterdir()):
        draft.replace(folder)
    elif not swap_folders(draft, folder):
        folder.replace(former)
        try:
            draft.replace(folder)
        except BaseException:  # also an interrupt, which may come after the last step
            if not folder.exists():
                former.replace(folder)
            raise
