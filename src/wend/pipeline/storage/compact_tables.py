"""Compaction of a folder of tables: it merges small files, and removes files that no retained version names.

A job that follows arriving segments adds a few small files in every batch. Readers of an earlier version can still read
its files, which stay as long as versions are retained.
"""

from collections import defaultdict

import msgspec
from pyspark.sql import SparkSession

from wend.pipeline.spark.task_errors import translate_errors
from wend.pipeline.storage.job_folders import Target
from wend.pipeline.storage.versioned_tables import DataFile, FolderVersion, TableChange, TableFolder

MAX_SMALL_BYTES = 32 * 2**20
"""Smaller files are merged if a bucket has several."""
MERGED_BYTES = 128 * 2**20
"""About the size of a merged file."""


class CompactionSummary(msgspec.Struct, frozen=True):
    """The result of a compaction."""

    files_before: int
    files_after: int
    versions_removed: int
    files_removed: int
    version: int
    out: str


def compact_tables(spark: SparkSession, folder: Target, *, retain_ns: int) -> CompactionSummary:
    """Merge the small files of all tables, and remove old versions."""
    tables = TableFolder(spark, folder)
    with translate_errors():
        base = version = tables.require_newest_version()
        changes = {name: _merge_small_files(tables, base, name) for name in sorted(base.tables)}
        changes = {name: change for name, change in changes.items() if change.removed}
        if changes:
            version = tables.commit(base, changes, alone=False)
        versions, files = tables.remove_old_versions(retain_ns)
    return CompactionSummary(len(base.files()), len(version.files()), versions, files, version.number, str(folder))


def _merge_small_files(tables: TableFolder, base: FolderVersion, name: str) -> TableChange:
    table = base.tables[name]
    small: dict[int | None, list[DataFile]] = defaultdict(list)
    for file in table.files:
        if file.bytes < MAX_SMALL_BYTES:
            small[file.bucket].append(file)
    added: list[DataFile] = []
    removed: set[str] = set()
    for bucket in sorted(small, key=lambda bucket: -1 if bucket is None else bucket):
        files = small[bucket]
        if len(files) < 2:
            continue
        size = sum(file.bytes for file in files)
        merged = tables.read_files(table.columns, files).coalesce(max(1, round(size / MERGED_BYTES)))
        added += [msgspec.structs.replace(file, bucket=bucket) for file in tables.write(merged, name)]
        removed |= {file.path for file in files}
    return TableChange(table.columns, tuple(added), frozenset(removed))
