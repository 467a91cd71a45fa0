"""Updates of the tables of a job on telemetry: an update reads new segments and brings the tables up to date.

A batch is one update with all segments; `--follow` is an update for each batch of arrivals (`follow.py`). Both give the
same rows, because an update does not add to results. It reduces new segments to rows of partial tables, whose names
begin with `_`, and rebuilds each bucket of the results that they touch from all its partial rows. One commit has all of
this, with the number of the stream's batch. So a segment may come late, twice, or again after a crash.

Every update first compares the clocks of peers (`clocks.py`). If the offset of a clock changes, the update reads the
segments of that incarnation again and ignores its earlier partial rows.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import combinations
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.model.errors import ConfigError
from wend.model.telemetry import Segment
from wend.model.units import SECOND
from wend.pipeline.spark.task_errors import translate_errors
from wend.pipeline.storage.input_tables import MAX_BAD
from wend.pipeline.storage.versioned_tables import LAYOUT, Columns, FolderVersion, TableFolder
from wend.pipeline.telemetry import clocks
from wend.pipeline.telemetry.clocks import Node
from wend.pipeline.telemetry.segment_listing import SegmentFile, contradiction_text, drop_copies
from wend.pipeline.telemetry.segment_reduction import BAD, ROW, SEGMENT, reduce_segments, segment_columns
from wend.pipeline.telemetry.table_update import VERSION_COLUMN, TableUpdate, TelemetryJob

_KEYS: Columns = (("table", "string"), ("peer", "bigint"), ("incarnation", "bigint"), ("number", "bigint"))
SEGMENTS: Columns = (
    *_KEYS, ("file", "string"), ("bytes", "bigint"), ("rows", "bigint"), ("first_ns", "bigint"), ("last_ns", "bigint"),
)  # fmt: skip
"""The segments that the tables have."""
QUARANTINE: Columns = (*_KEYS, ("file", "string"), ("line", "bigint"), ("reason", "string"), ("rows", "bigint"))
_QUARANTINE = pa.schema([(name, pa.string() if kind == "string" else pa.int64()) for name, kind in QUARANTINE])
CLOCK_UNIT_NS = 5_000_000
"""Offsets of clocks are rounded to this, so that small changes do not change results."""
FORMAT_SETTING = "format"
"""The setting of a job that says which partial rows it can merge."""
_SPANS, _RESULTS = "spans", "results"
MAX_SIGHTINGS = 2_000_000
"""The most that are compared, because one process holds them all in memory."""
_NUMBERS_PER_BUCKET = 256
"""Numbers of segments that are in one bucket of the table of segments: a few hours of a peer."""
_OVERLAP_NS = 2 * SECOND
_BATCH_ROWS_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"


class UpdateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an update."""

    segments: int = 0
    """New segments."""
    rows: int = 0
    """The rows of these segments."""
    copies: int
    """Files that were copies of segments, or that earlier updates used."""
    quarantined: int = 0
    """Rows and segments that could not be used."""
    unreadable: int = 0
    """Segments that could not be used."""
    peers: int
    unaligned: list[int]
    """Peers with an incarnation whose clock could not be compared with the others."""
    remarks: list[str] = []
    buckets: int = 0
    """Rebuilt buckets."""
    version: int
    out: str
    results: dict[str, int] = {}
    """Rows of the result tables."""
    seconds: float = 0.0


def run_update(
    spark: SparkSession,
    folder: str,
    job: TelemetryJob,
    files: list[SegmentFile],
    *,
    max_bad: float = MAX_BAD,
    transaction: tuple[str, int] | None = None,
    rebuild: bool = False,
) -> UpdateSummary | None:
    """Bring the tables of a folder up to date; None if the batch of the transaction is in them already."""
    began = time.perf_counter()
    tables = TableFolder(spark, folder)
    with translate_errors():
        base = _base_version(tables, job, rebuild)
        if transaction is not None and base.transactions.get(transaction[0], -1) >= transaction[1]:
            return None
        used = _select_tables(files, (*job.tables, *clocks.TABLES))
        chosen, contradicted = drop_copies(used)
        new, contradicting = _find_new_segments(spark, tables, base, chosen)
        update = TableUpdate(spark, tables, base)
        if not new and not contradicting and base.tables:
            return _unchanged_summary(update, job, folder, len(used))
        with closing(update):
            records = _reduce_all(update, job, new)
            quarantined, unreadable, rows = _record_segments(update, [*contradicted, *contradicting], records, max_bad)
            remarks = _observe_incarnations(update)
            job.merge(update)
            update.facts[_RESULTS] = {name: update.count_rows(name) for name in job.results}
            version = _commit(update, job, transaction)
    return UpdateSummary(
        segments=len(new) - unreadable,
        rows=rows,
        copies=len(used) - len(new),
        quarantined=quarantined,
        unreadable=unreadable,
        peers=len({peer for peer, _ in update.clocks.offsets}),
        unaligned=sorted({peer for peer, _ in update.clocks.unaligned}),
        remarks=remarks,
        buckets=len(update.touched),
        version=version.number,
        out=folder,
        results=version.facts[_RESULTS],
        seconds=round(time.perf_counter() - began, 3),
    )


def _unchanged_summary(update: TableUpdate, job: TelemetryJob, folder: str, copies: int) -> UpdateSummary:
    facts = update.base.facts
    return UpdateSummary(
        copies=copies,
        peers=len({peer for peer, *_ in facts.get("clocks", [])}),
        unaligned=sorted({peer for peer, _ in facts.get("unaligned", [])}),
        version=update.base.number,
        out=folder,
        results={name: update.count_rows(name) for name in job.results},
    )


def _base_version(tables: TableFolder, job: TelemetryJob, rebuild: bool) -> FolderVersion:
    """The version that the update continues, of the same job with the same settings."""
    base = tables.newest_version()
    if base is None:
        return FolderVersion(LAYOUT, 0, 0)
    if rebuild:
        return FolderVersion(LAYOUT, base.number, base.time_ns)
    if base.settings.get("job") != job.name:
        raise ConfigError(
            f"{tables.address} has tables of `wend data {base.settings.get('job')}`; --rebuild replaces them"
        )
    if base.settings.get(FORMAT_SETTING) != job.settings.get(FORMAT_SETTING):
        raise ConfigError(f"{tables.address} was made by another version of Wend; --rebuild makes it anew")
    for name, value in job.settings.items():
        if base.settings.get(name) != value:
            raise ConfigError(
                f"{tables.address} was made with {name} {base.settings.get(name)}, and now it is {value}; --rebuild "
                "makes it anew"
            )
    return base


def _find_new_segments(
    spark: SparkSession, tables: TableFolder, base: FolderVersion, chosen: list[SegmentFile]
) -> tuple[list[SegmentFile], list[tuple[SegmentFile, str]]]:
    """The segments that no update has used yet, and files that contradict one that was used."""
    if "_segments" not in base.tables or not chosen:
        return chosen, []
    keys = [name for name, _ in _KEYS]
    buckets = {None, *(file.segment.number // _NUMBERS_PER_BUCKET for file in chosen)}
    asked = pa.Table.from_pylist([{**segment_columns(file.segment), "at": at} for at, file in enumerate(chosen)])
    segments = tables.read_frame(base, "_segments", buckets).select(*keys, "bytes")
    used = segments.join(F.broadcast(spark.createDataFrame(asked)), keys).select("at", "bytes").toArrow().to_pylist()
    sizes = {row["at"]: row["bytes"] for row in used}
    disputed = [
        (chosen[at], contradiction_text(size)) for at, size in sorted(sizes.items()) if chosen[at].bytes != size
    ]
    return [file for at, file in enumerate(chosen) if at not in sizes], disputed


def _reduce_all(update: TableUpdate, job: TelemetryJob, new: list[SegmentFile]) -> list[DataFrame]:
    """Reduce the new segments to partial rows; return the records about segments and bad rows."""
    records = [_compare_clocks(update, new)]
    unit = job.offset_unit_ns
    offsets = update.clocks.round_offsets(unit)
    before = clocks.Clocks(clocks.numbers_by_node(update.base.facts.get("clocks", [])), []).round_offsets(unit)
    moved = {node for node, offset in before.items() if offsets[node] != offset}
    update.since = clocks.numbers_by_node(update.base.facts.get("since", [])) | dict.fromkeys(moved, update.number)
    again = _used_segments(update, moved, job)
    for part in job.partial_tables(offsets):
        frame = reduce_segments(update.spark, _select_tables(new, part.tables), part.reduction, part.schema)
        if part.timed and _select_tables(again, part.tables):
            repeated = reduce_segments(update.spark, _select_tables(again, part.tables), part.reduction, part.schema)
            frame = frame.unionByName(repeated.where(f"kind = '{ROW}'"))
        if part.timed:
            frame = frame.withColumn(VERSION_COLUMN, F.lit(update.number).cast("bigint"))
        with _small_batches(update.spark):
            touched, of_segments = update.append_reduced(part.name, part.schema, frame)
        update.touched |= touched
        if not set(part.tables) <= set(clocks.TABLES):
            records.append(of_segments)
        if moved and "bucket" in part.schema.names:
            update.touched |= {file.bucket for file in update.base.table_files(part.name) if file.bucket is not None}
    return records


def _compare_clocks(update: TableUpdate, new: list[SegmentFile]) -> DataFrame:
    files = _select_tables(new, clocks.TABLES)
    frame = reduce_segments(update.spark, files, clocks.segment_sightings, clocks.SIGHTINGS)
    with _small_batches(update.spark):
        _, records = update.append_reduced("_sightings", clocks.SIGHTINGS, frame)
    nodes = {(file.segment.peer, file.segment.incarnation) for file in new}
    nodes |= clocks.numbers_by_node(update.base.facts.get("clocks", [])).keys()
    update.clocks = clocks.solve_clocks(_sample_sightings(update).toArrow(), nodes)
    return records


def _sample_sightings(update: TableUpdate) -> DataFrame:
    """The sightings by which clocks are compared: all or, of a long history, outages and the events with a low hash."""
    seen = update.partial_rows("_sightings")
    if update.table_bytes("_sightings") < MAX_SIGHTINGS:  # a row has more bytes than one
        return seen
    share = -(-seen.count() // MAX_SIGHTINGS)
    hashed = F.pmod(F.xxhash64("publisher", "publisher_incarnation", "sequence"), F.lit(share))
    return seen.where((F.col("own") == clocks.OUTAGE) | (hashed == 0))


def _select_tables(files: list[SegmentFile], tables: tuple[str, ...]) -> list[SegmentFile]:
    return [file for file in files if file.segment.table in tables]


@contextmanager
def _small_batches(spark: SparkSession) -> Iterator[None]:
    """Hand a task few records at once, because a record may be a whole segment."""
    before = spark.conf.get(_BATCH_ROWS_CONF)
    spark.conf.set(_BATCH_ROWS_CONF, "4")
    try:
        yield
    finally:
        spark.conf.set(_BATCH_ROWS_CONF, before or "10000")


def _used_segments(update: TableUpdate, nodes: set[Node], job: TelemetryJob) -> list[SegmentFile]:
    """The segments of these incarnations that earlier updates have reduced."""
    if not nodes or "_segments" not in update.base.tables:
        return []
    frame = update.tables.read_frame(update.base, "_segments")
    rows = frame.where(frame["table"].isin(list(job.tables))).toArrow().to_pylist()
    return [
        SegmentFile(Segment(row["table"], 1, row["peer"], row["incarnation"], row["number"]), row["file"], row["bytes"])
        for row in rows
        if (row["peer"], row["incarnation"]) in nodes
    ]


def _record_segments(
    update: TableUpdate, contradicting: list[tuple[SegmentFile, str]], records: list[DataFrame], max_bad: float
) -> tuple[int, int, int]:
    """Record the segments that were used, and the quarantine. Return the rows in quarantine, the unreadable segments
    among them, and the rows of all segments."""
    every = records[0].select(*(name for name, _ in SEGMENTS), "kind", "line", "reason")
    for frame in records[1:]:
        every = every.unionByName(frame.select(*every.columns))
    of_segments = every.where(f"kind IN ('{SEGMENT}', '{BAD}')").toArrow()
    good = of_segments.filter(compute.equal(of_segments["kind"], SEGMENT)).select([name for name, _ in SEGMENTS])
    bad = of_segments.filter(compute.equal(of_segments["kind"], BAD)).select(_QUARANTINE.names).to_pylist()
    rows = compute.sum(good["rows"]).as_py() or 0
    unreadable = [row for row in bad if row["line"] is None]
    _check_share([row for row in bad if row["line"] is not None], rows, max_bad)
    bad += [
        {**segment_columns(file.segment), "file": file.path, "reason": reason, "rows": 1}
        for file, reason in contradicting
    ]
    spark = update.spark
    _add_spans(update, good)
    by_number = spark.createDataFrame(good).repartition(1) if good.num_rows else None
    update.append_rows("_segments", SEGMENTS, by_number, F.floor(F.col("number") / F.lit(_NUMBERS_PER_BUCKET)))
    listed = pa.Table.from_pylist(bad, schema=_QUARANTINE)
    update.append_rows("_quarantine", QUARANTINE, spark.createDataFrame(listed).coalesce(1) if bad else None)
    return sum(row["rows"] for row in bad), len(unreadable), rows


def _check_share(bad: list[dict[str, Any]], rows: int, max_bad: float) -> None:
    wrong = sum(row["rows"] for row in bad)
    if wrong > max_bad * rows:
        one = min(bad, key=lambda row: (row["file"], row["line"]))
        name = one["file"].rpartition("/")[2]
        raise ConfigError(
            f"{wrong} of {rows} rows cannot be used, more than --max-bad {max_bad:g}; the first is in {name}, row "
            f"{one['line']}: {one['reason']}"
        )


def _add_spans(update: TableUpdate, segments: pa.Table) -> None:
    """Record the time span in which each incarnation was observed, by its own clock."""
    spans = {(peer, start): (first, last) for peer, start, first, last in update.base.facts.get(_SPANS, [])}
    for row in segments.select(["peer", "incarnation", "first_ns", "last_ns"]).to_pylist():
        if row["first_ns"] is not None:
            node = row["peer"], row["incarnation"]
            first, last = spans.get(node, (row["first_ns"], row["last_ns"]))
            spans[node] = min(first, row["first_ns"]), max(last, row["last_ns"])
    update.facts[_SPANS] = [[*node, *span] for node, span in sorted(spans.items())]


def _observe_incarnations(update: TableUpdate) -> list[str]:
    """Find when each incarnation was observed, by the clock of the reference; return remarks on odd ones."""
    offsets, remarks = update.clocks.round_offsets(CLOCK_UNIT_NS), []
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for peer, incarnation, *ends in update.facts[_SPANS]:
        node = peer, incarnation
        first, last = (end - offsets.get(node, 0) for end in ends)
        update.spans.setdefault(peer, []).append((incarnation, first, last))
        if node not in update.clocks.unaligned:
            spans.setdefault(peer, []).append((first, last, incarnation))
    for peer, each in spans.items():
        for (first, last, one), (other_first, other_last, other) in combinations(sorted(each), 2):
            both = min(last, other_last) - max(first, other_first)
            if both > _OVERLAP_NS:
                remarks.append(
                    f"peer {peer} ran twice at once for {both / SECOND:.0f} s (incarnations {one} and {other}): two "
                    "hosts have its id"
                )
    return remarks


def _commit(update: TableUpdate, job: TelemetryJob, transaction: tuple[str, int] | None) -> FolderVersion:
    facts = {
        **update.facts,
        "clocks": [[*node, offset] for node, offset in update.clocks.offsets.items()],
        "unaligned": [list(node) for node in update.clocks.unaligned],
        "since": [[*node, number] for node, number in sorted(update.since.items())],
    }
    settings = {**job.settings, "job": job.name}
    return update.tables.commit(update.base, update.changes, transaction=transaction, settings=settings, facts=facts)
