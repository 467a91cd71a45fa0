"""What a job writes: all of it or nothing.

The answer is written beside its place and moved there when it is whole. What fails leaves nothing, and `--overwrite`
removes what was there only when there is something to put in its place; the two change places at once.
"""

import atexit
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wend.model.errors import ConfigError, WendError
from wend.model.folders import exchange

_OURS = re.compile(r"wend\.model\.errors\.(\w+): (.+)")


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


@contextmanager
def drafted(out: Path) -> Iterator[tuple[Path, Path]]:
    """A folder that becomes `out` if all goes well, and one for what is only needed meanwhile."""
    beside = out.absolute().parent
    try:
        beside.mkdir(parents=True, exist_ok=True)
        room = beside / f".{out.name}.{uuid.uuid4().hex}"
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
        if out.exists() and exchange(draft, out):
            return
        if out.exists():
            out.replace(former)
        try:
            draft.replace(out)
        except BaseException:  # an interruption too
            if former.exists() and not out.exists():
                former.replace(out)
            raise
    except OSError as error:
        where = f"; what was there is in {former}" if former.exists() and not out.exists() else ""
        raise ConfigError(f"cannot write to {out}: {error.strerror}{where}") from None


@contextmanager
def reworded() -> Iterator[None]:
    """What a task refused on purpose comes out of Spark within a stack trace of two languages: find the sentence."""
    try:
        yield
    except WendError:
        raise
    except Exception as error:
        ours = _OURS.search(str(error))
        if ours is not None:
            raise ConfigError(ours[2].strip()) from None
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WendError(f"Spark gave up: {first}") from error
