"""Shipping: copies closed segments to where jobs read them, by the hour in which they arrive.

    TO/raw/links/date=2026-03-01/hour=14/links-v1-3-….parquet
    TO/raw/manifests/manifest-3-….json

A segment appears there completely or not at all. An index beside the segments has a line for each that was copied,
written before the copy begins. So after a crash only the segment of the last line is in doubt. Peers know nothing of
this, and an operator may copy segments by other means.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

from wend.model.errors import ConfigError
from wend.model.extras import needed_by
from wend.model.files import is_url
from wend.model.telemetry import TABLES, parse_segment_name

RAW = "raw"
MANIFESTS = "manifests"
_CHUNK_BYTES = 1024 * 1024


class Destination(Protocol):
    """A folder somewhere. Paths in it are relative, with slashes."""

    def file_size(self, path: str) -> int | None:
        """The size of a file; None if there is none."""
        ...

    def list_names(self, folder: str) -> Iterator[str]:
        """The names of all files in a folder and below it."""
        ...

    def copy_file(self, file: Path, path: str) -> None:
        """Copy a local file, which appears when it is complete. Raises `FileNotFoundError` if it no longer exists."""
        ...


class LocalDestination:
    """A folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file_size(self, path: str) -> int | None:
        try:
            return (self._folder / path).stat().st_size
        except OSError:
            return None

    def list_names(self, folder: str) -> Iterator[str]:
        return (path.name for path in (self._folder / folder).rglob("*") if not path.name.startswith("."))

    def copy_file(self, file: Path, path: str) -> None:
        target = self._folder / path
        partial = target.parent / f".{target.name}.part"
        with file.open("rb") as source:  # first, in case it no longer exists
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with partial.open("wb") as copy:
                    shutil.copyfileobj(source, copy, _CHUNK_BYTES)
                    copy.flush()
                    os.fsync(copy.fileno())
                os.rename(partial, target)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise


class ArrowDestination:
    """A folder at an address, by PyArrow's file systems."""

    def __init__(self, address: str) -> None:
        with needed_by("an address as the destination", "telemetry"):
            from pyarrow import fs
        self._fs = fs
        scheme, _, rest = address.partition("://")
        self._is_store = scheme in ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss")
        try:
            system, folder = fs.FileSystem.from_uri(f"s3://{rest}" if scheme in ("s3a", "s3n") else address)
        except Exception as error:  # Arrow raises what the library below it raises
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise ConfigError(
                f"PyArrow cannot reach {address}: {reason}; copy the files with a tool for it, such as `hadoop fs -put`"
            ) from None
        self._system: Any = system
        self._folder: str = folder.rstrip("/")

    def file_size(self, path: str) -> int | None:
        info = self._system.get_file_info(f"{self._folder}/{path}")
        return int(info.size) if info.is_file else None

    def list_names(self, folder: str) -> Iterator[str]:
        selector = self._fs.FileSelector(f"{self._folder}/{folder}", recursive=True, allow_not_found=True)
        return (one.base_name for one in self._system.get_file_info(selector) if one.is_file)

    def copy_file(self, file: Path, path: str) -> None:
        target = f"{self._folder}/{path}"
        above, _, name = target.rpartition("/")
        # In an object store a file appears when it is closed, and a rename would copy it.
        place = target if self._is_store else f"{above}/.{name}.part"
        with file.open("rb") as source:
            if not self._is_store:
                self._system.create_dir(above, recursive=True)
            with self._system.open_output_stream(place) as copy:
                while chunk := source.read(_CHUNK_BYTES):
                    copy.write(chunk)
        if place != target:
            self._system.move(place, target)


def open_destination(to: str) -> Destination:
    """The destination that a path or an address names. Raises `ConfigError`, and `MissingExtra` without PyArrow."""
    if to.startswith("file:"):
        return LocalDestination(Path(to.removeprefix("file:").replace("//", "", 1)))
    return ArrowDestination(to) if is_url(to) else LocalDestination(Path(to))


class Shipper:
    """Ships the segments of a folder, and of the folders in it, to one destination."""

    def __init__(self, folder: Path, to: str, *, delete: bool = False) -> None:
        if not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}", code="unreadable")
        self._folder = folder
        self._to = open_destination(to)
        self._delete = delete
        self._index = folder / f".shipped-{crc32(to.encode()):08x}"
        self._targets: dict[str, str] = {}
        """By name of a segment: where it was copied to; empty if no index says."""
        self._manifests: dict[Path, float] = {}
        if self._index.exists():
            self._read_index()
        else:
            self._targets = dict.fromkeys(self._destination_names(), "")

    def ship(self) -> Counter[str]:
        """Copy the closed segments that have not been copied yet. Returns counts: `copied`, `bytes`, `there` (already
        copied), `gone` (removed by the peer in the meantime) and `deleted`. Raises `ConfigError` if files cannot be
        read or written."""
        counts: Counter[str] = Counter()
        try:
            for path in sorted(self._folder.rglob("*.parquet")):
                segment = parse_segment_name(path.name)
                if segment is not None:
                    self._ship_segment(path, segment.table, counts)
            self._ship_manifests()
        except OSError as error:
            raise ConfigError(f"cannot ship telemetry: {error}", code="unwritable") from None
        return counts

    def _ship_segment(self, path: Path, table: str, counts: Counter[str]) -> None:
        try:
            if path.name in self._targets:
                counts["there"] += 1
            else:
                size = path.stat().st_size
                target = f"{RAW}/{table}/{time.strftime('date=%Y-%m-%d/hour=%H', time.gmtime())}/{path.name}"
                self._copy_manifest(path.name, target)
                self._to.copy_file(path, target)
                counts["copied"] += 1
                counts["bytes"] += size
            if self._delete:
                path.unlink()
                counts["deleted"] += 1
        except FileNotFoundError:
            if path.exists():
                raise  # the destination is missing
            counts["gone"] += 1

    def _ship_manifests(self) -> None:
        for path in sorted(self._folder.rglob("manifest-*.json")):
            changed = path.stat().st_mtime
            if self._manifests.get(path) != changed:
                self._to.copy_file(path, f"{RAW}/{MANIFESTS}/{path.name}")
                self._manifests[path] = changed

    # ---------------------------------------------------------------- the index

    def _copy_manifest(self, name: str, target: str) -> None:
        with self._index.open("a", encoding="utf-8") as index:
            index.write(f"{name}\t{target}\n")
        self._targets[name] = target

    def _read_index(self) -> None:
        lines = self._index.read_text(encoding="utf-8").splitlines()
        self._targets = dict(line.split("\t") for line in lines if line.count("\t") == 1)
        if not self._targets:
            return
        last, target = next(reversed(self._targets.items()))
        local = next((path for path in self._folder.rglob(last)), None)
        if local is not None and self._to.file_size(target) != local.stat().st_size:
            del self._targets[last]  # a copy that was not completed

    def _destination_names(self) -> Iterator[str]:
        return (name for table in TABLES for name in self._to.list_names(f"{RAW}/{table}"))
