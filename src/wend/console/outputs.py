"""Checks of output paths, before a command starts its work.

A folder holds results: a command replaces a folder that is not empty only with `--overwrite`, completely or not at
all. Studies, sweeps and benches add to their folders. A command overwrites a file: pictures, maps and workloads are
quick to make again.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from wend.model.errors import ConfigError
from wend.model.files import check_out, check_writable, drafted

__all__ = ["Overwrite", "check_file", "check_out", "check_writable", "drafted"]

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the content of the output folder.")]


def check_goes_on(out: Path, inside: str = "runs") -> None:
    """Check a folder to which the command adds results, in the subfolder `inside`."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; {inside} need a folder")
    check_writable(out / inside, inside=True)


def check_page(page: Path, figures: Path | None = None) -> None:
    """Check the path of a report and the folder of its figures, which is beside it unless it is given."""
    check_file(page)
    check_writable(figures or page.parent / "figures", inside=True)


def check_file(path: Path, *suffixes: str) -> None:
    """Check that a file can be written and, if `suffixes` are given, that its name ends in one of them."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, not a file")
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
