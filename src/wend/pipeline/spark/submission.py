"""The files that `spark-submit` needs to run a job on a cluster: a script, and a zip file of Wend and its imports.

The zip file has Wend and its dependencies that are pure Python. A dependency with compiled code does not work from a
zip file, and depends on the machine: it has to be installed on the workers, as pyspark itself is.
"""

import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

import pyspark

from wend.model.errors import ConfigError
from wend.model.files import write_atomically

EXTRA = "spark"
"""The extra of Wend that jobs need."""
PROVIDED = ("pyspark",)
"""Spark brings these, with all that they need."""
_COMPILED = (".so", ".pyd", ".dylib", ".dll")
_SCRIPT = "from wend.console.start import main\n\nmain()\n"


class JobDependencies(NamedTuple):
    """The distributions that jobs import, besides Wend."""

    pure: tuple[metadata.Distribution, ...]
    compiled: tuple[str, ...]
    """Their names with their versions, as `pip install` takes them."""


def job_dependencies() -> JobDependencies:
    """Find the installed distributions that Wend's jobs need."""
    pure: dict[str, metadata.Distribution] = {}
    compiled: dict[str, str] = {}
    todo: list[tuple[str, tuple[str, ...]]] = [("wend", (EXTRA,))]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen or name in PROVIDED:
            continue
        seen.add((name, extras))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # not on this machine, so nothing here needs it
        todo += _requirements(distribution, extras)
        if name == "wend":
            continue
        if any(file.suffix in _COMPILED or ".so." in file.name for file in distribution.files or ()):
            compiled[name] = f"{distribution.name}=={distribution.version}"
        else:
            pure[name] = distribution
    return JobDependencies(
        tuple(pure[name] for name in sorted(pure)), tuple(compiled[name] for name in sorted(compiled))
    )


def _requirements(
    distribution: metadata.Distribution, extras: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    for text in distribution.requires or ():
        needed = Requirement(text)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(needed.name), tuple(sorted(needed.extras))


def write_archive(path: Path, dependencies: JobDependencies) -> int:
    """Write the zip file and return its size in bytes. The same code gives the same bytes."""
    with write_atomically(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as out:
        zip_into(out, files("wend"), "wend")
        for each in dependencies.pure:
            for file in sorted(each.files or (), key=str):
                if ".." in file.parts or "__pycache__" in file.parts or file.suffix == ".pyc":
                    continue
                source = Path(str(file.locate()))
                if source.is_file():
                    out.writestr(_make_entry(file.as_posix()), source.read_bytes())
    return path.stat().st_size


def zip_into(out: zipfile.ZipFile, folder: Traversable, name: str) -> None:
    """Add the Python of a package to a zip file. Compiled code does not work from there, not even Wend's core."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            zip_into(out, entry, f"{name}/{entry.name}")
        elif entry.is_file() and not entry.name.endswith(_COMPILED):
            out.writestr(_make_entry(f"{name}/{entry.name}"), entry.read_bytes())


def _make_entry(name: str) -> zipfile.ZipInfo:
    """With a fixed date, the same code gives the same bytes, which Spark ships once."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def write_script(path: Path) -> None:
    """Write the script that `spark-submit` starts: the `wend` command."""
    with write_atomically(path) as draft:
        draft.write_text(_SCRIPT)


def submit_command(
    archive: Path, script: Path, job: Iterable[str], master: str | None, conf: Iterable[str], more: Iterable[str]
) -> list[str]:
    """Make the `spark-submit` command. It passes on the options of the user, and sets no others."""
    words = [_find_spark_submit()]
    words += [] if master is None else ["--master", master]
    for setting in conf:
        words += ["--conf", setting]
    return [*words, *more, "--py-files", str(archive), str(script), "data", *job]


def _find_spark_submit() -> str:
    """The program of `SPARK_HOME`, else the one in the path, else that of the pip package."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return str(Path(home) / "bin" / "spark-submit")
    return shutil.which("spark-submit") or str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def submit_environment() -> dict[str, str]:
    """Make the environment of `spark-submit`: the driver uses this interpreter, unless the user has chosen another."""
    return {"PYSPARK_DRIVER_PYTHON": sys.executable, **os.environ}


def check_job(job: list[str], known: Iterable[str]) -> None:
    """Refuse an invalid job before anything is written."""
    names = sorted(known)
    if not job:
        raise ConfigError(f"name a job after the options: {', '.join(names)}")
    if job[0] not in names:
        raise ConfigError(f"there is no job {job[0]!r}: choose from {', '.join(names)}")
    for word in job:
        if word.partition("=")[0] in ("--master", "--conf"):
            raise ConfigError(f"give {word.partition('=')[0]} before the job: spark-submit takes it")
