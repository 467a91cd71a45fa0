"""Where commands write: checked before any work is done.

Folders are results: one that holds something is replaced only with `--overwrite`, whole or not at all; studies and
sweeps add to theirs. Files are pictures, maps and workloads, made again in a moment: they are written over.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from wend.model.errors import ConfigError
from wend.model.files import check_out, check_writable, drafted

__all__ = ["Overwrite", "check_file", "check_out", "check_writable", "drafted"]

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in the output folder.")]


def check_goes_on(out: Path, inside: str = "runs") -> None:
    """A folder that runs are added to, in one of its own: what is there is kept."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file, and {inside} are kept in a folder")
    check_writable(out / inside, inside=True)


def check_page(page: Path) -> None:
    """A report, whose figures go into a folder beside it."""
    check_file(page)
    check_writable(page.parent / "figures", inside=True)


def check_file(path: Path, *suffixes: str) -> None:
    """A file that can be written, with one of these ends to its name if there are any."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, and a file is written")
    if suffixes and path.suffix not in suffixes:
        raise ConfigError(f"{path} must end in {' or '.join(suffixes)}")
    if not path.exists():
        check_writable(path)
    elif not os.access(path, os.W_OK):
        raise ConfigError(f"cannot write {path}: Permission denied")


def write_text(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
