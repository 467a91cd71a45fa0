"""Checks of output paths, before a command starts its work.

A folder holds results: a command replaces a folder that is not empty only with `--overwrite`, completely or not at
all. Studies, sweeps and benches add to their folders. A command overwrites a file: pictures, maps and workloads are
quick to make again.

A command makes the folders above its output that are missing, and says so before it starts: the path may be a typing
error.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from wend.model import files
from wend.model.errors import ConfigError
from wend.model.files import check_writable, new_folder

__all__ = ["Overwrite", "check_file", "check_output_folder", "check_writable", "new_folder"]

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the content of the output folder.")]


def check_output_folder(out: Path, overwrite: bool, *inputs: str) -> None:
    """Check that a folder can be written to `out` without destroying an input or the current folder."""
    files.check_output_folder(out, overwrite, *inputs)
    announce_folder(out.parent)


def check_job_output(out: str, overwrite: bool, *inputs: str) -> None:
    """Check the output of a Spark job, as far as that is possible before Spark starts: it may be an address."""
    from wend.pipeline.storage.job_folders import local_path

    inside = [str(local_path(path) or path) for path in inputs]
    place = local_path(out)
    if place is not None:
        return check_output_folder(place, overwrite, *inside)
    for path in inside:
        if f"{path}/".startswith(f"{out.rstrip('/')}/"):
            raise ConfigError(f"{path} is in {out}, which the output would replace")


def announce_folder(folder: Path) -> None:
    """Say that a command makes this folder, if it is missing."""
    if not folder.exists():
        print(f"wend: the folder {folder} does not exist; this command makes it", file=sys.stderr)


def check_resumable(out: Path, inside: str = "runs") -> None:
    """Check a folder to which the command adds results, in the subfolder `inside`."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; {inside} need a folder", code="unwritable")
    check_writable(out / inside, inside=True)
    announce_folder(out.parent)


def check_page(page: Path, figures: Path | None = None, *, say: bool = True) -> None:
    """Check the path of a report and the folder of its figures, which is beside it unless it is given."""
    check_file(page, say=say)
    check_writable(figures or page.parent / "figures", inside=True)


def check_file(path: Path, *suffixes: str, say: bool = True) -> None:
    """Check that a file can be written and, if `suffixes` are given, that its name ends in one of them. With `say`, it
    prints that the command makes the folder, if that is missing."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, not a file", code="unwritable")
    if suffixes and path.suffix not in suffixes:
        raise ConfigError(f"{path} must end in {' or '.join(suffixes)}")
    if not path.exists():
        check_writable(path)
        if say:
            announce_folder(path.parent)
    elif not os.access(path, os.W_OK):
        raise ConfigError(f"cannot write {path}: Permission denied", code="unwritable")


def write_text(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from None
