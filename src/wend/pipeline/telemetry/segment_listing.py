"""The segments of telemetry below a folder, in any layout of folders.

Operators copy segments by any means, so a folder may have copies, files that a copier left half-way, and files of newer
peers. The name of a segment says what it is, and copies are equal, so a job takes one file of each name, the longest.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pyspark.sql import SparkSession

from wend.model.errors import ConfigError
from wend.model.telemetry import Segment, parse_segment_name
from wend.pipeline.storage.job_folders import Target, local_path


class SegmentFile(NamedTuple):
    """A file that is named like a segment."""

    segment: Segment
    path: str
    bytes: int


class Listing(NamedTuple):
    """The files below a folder."""

    files: list[SegmentFile]
    others: int
    """Files with other names."""


def list_segments(spark: SparkSession | None, source: Target) -> Listing:
    """All segments below a path. Local paths need no Spark and become absolute, because workers and later calls may run
    in other folders."""
    place = local_path(source)
    if place is not None and not place.exists():
        raise ConfigError(f"there is no {place}")
    if place is not None:
        return named_files(_walk(place.absolute()))
    assert spark is not None
    return named_files(_asked(spark, str(source)))


def named_files(sizes: Iterable[tuple[str, int]]) -> Listing:
    files, others = [], 0
    for path, size in sizes:
        segment = parse_segment_name(path.rpartition("/")[2])
        if segment is None:
            others += 1
        else:
            files.append(SegmentFile(segment, path, size))
    return Listing(sorted(files), others)


def _walk(place: Path) -> Iterator[tuple[str, int]]:
    if place.is_file():
        yield str(place), place.stat().st_size
    for at, folders, names in os.walk(place):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if not name.startswith((".", "_")):
                try:
                    yield f"{at}/{name}", os.stat(f"{at}/{name}").st_size
                except FileNotFoundError:  # a copier has renamed it
                    continue


def _asked(spark: SparkSession, address: str) -> Iterator[tuple[str, int]]:
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    rows = reader.load(address).select("path", "length").toArrow()
    for path, size in zip(rows["path"].to_pylist(), rows["length"].to_pylist(), strict=True):
        yield unquote(path), size


def one_of_each(files: Iterable[SegmentFile]) -> tuple[list[SegmentFile], list[tuple[SegmentFile, str]]]:
    """One file of each segment, and files that another file of the same name contradicts."""
    best: dict[Segment, SegmentFile] = {}
    contradicting: list[tuple[SegmentFile, str]] = []
    for file in sorted(files, key=lambda file: (file.segment, -file.bytes, file.path)):
        first = best.setdefault(file.segment, file)
        if file.bytes != first.bytes:
            contradicting.append((file, contradiction(first.bytes)))
    return list(best.values()), contradicting


def contradiction(size: int) -> str:
    return f"another file of this name, with {size} bytes, is used: one is half a copy, or two peers have one id"
