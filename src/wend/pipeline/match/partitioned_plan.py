"""The partitioned plan of matching: a join by regions, for subscriptions that do not fit into the memory of a task.

Each subscription goes to its regions, and each event to all regions that hold it (`attribute_regions.py`). A region
with very many subscriptions is divided into blocks, and one with very many events into slices. A group is one block and
one slice. Spark's shuffle and sort bring each group together, subscriptions before events. A task compiles the
subscriptions of a group, whose number is bounded, and streams the events through, whose number is not.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from pickle import dumps, loads
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from wend.matching.batch_index import BatchIndex
from wend.matching.filters import Filter
from wend.pipeline.match.attribute_regions import (
    EVERYWHERE,
    AttributePlane,
    Region,
    RegionRouter,
    choose_regions,
    is_reported_here,
    required_values,
)
from wend.pipeline.match.match_input import attribute_batch, parse_filters
from wend.pipeline.match.match_output import (
    MAX_BATCH_EVENTS,
    Ints,
    MatchBatchSize,
    id_pair_batches,
    id_type,
    make_count_rows,
    output_schema,
)
from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.spark.task_progress import READ, report_rows

BLOCK_ROWS = 50_000
SLICE_ROWS = 250_000
UNREADABLE = -2
"""The plane of filters that cannot be read."""


class RegionLayout(msgspec.Struct, frozen=True):
    """The planes and regions of a job, as its tasks need them."""

    planes: tuple[AttributePlane, ...]
    regions: tuple[Region, ...]

    def find_region(self, group: int) -> Region:
        at = np.searchsorted([region.first for region in self.regions], group, side="right") - 1
        return self.regions[int(at)]


def route_subscriptions(subscriptions: DataFrame, planes: Sequence[AttributePlane], folder: Path | None) -> DataFrame:
    """Send `id`, `filter` to regions: `plane`, `region`, `subscription`, `filter` (parsed), a row for each region. A
    filter that cannot be read goes to the plane `UNREADABLE`, with the reason in place of the region."""
    types = [("plane", pa.int32()), ("region", pa.string()), ("subscription", id_type(subscriptions))]
    schema = pa.schema([*types, ("filter", pa.binary())])
    task = partial(
        route_subscription_batches, planes=tuple(planes), schema=schema, folder=None if folder is None else str(folder)
    )
    return subscriptions.mapInArrow(task, spark_schema(schema))


def route_subscription_batches(
    batches: Iterator[pa.RecordBatch], planes: tuple[AttributePlane, ...], schema: pa.Schema, folder: str | None
) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        ids = batch.column("id")
        rows, numbers, codes, read = [], [], [], []
        good, filters, reasons = parse_filters(ids, batch.column("filter"))
        for row, reason in reasons.items():
            rows.append(row)
            numbers.append(UNREADABLE)
            codes.append(reason)
            read.append(b"")
        for row, wanted in zip(good, filters, strict=True):
            number, regions = choose_regions(planes, wanted)
            packed = dumps(wanted, protocol=5)
            rows += [row] * len(regions)
            numbers += [number] * len(regions)
            codes += regions
            read += [packed] * len(regions)
        columns = [pa.array(numbers, pa.int32()), pa.array(codes, pa.string()), ids.take(pa.array(rows, pa.int64()))]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(read, pa.binary())], schema=schema)
        done += batch.num_rows
        report_rows(folder, done, READ)


def unreadable_filters(routed: DataFrame) -> DataFrame:
    """The filters that cannot be read: `subscription`, `reason`."""
    return routed.where(F.col("plane") == UNREADABLE).select("subscription", F.col("region").alias("reason"))


def count_subscriptions(routed: DataFrame) -> DataFrame:
    """Count the subscriptions of each region."""
    return (
        routed.where(F.col("plane") != UNREADABLE).groupBy("plane", "region").agg(F.count("*").alias("subscriptions"))
    )


def count_events(events: DataFrame, layout: RegionLayout) -> DataFrame:
    """Count the events in each region. Columns: `number`, the position of the region, and `events`."""
    counted = events.mapInArrow(partial(count_event_batches, layout=layout), "number bigint, events bigint")
    return counted.groupBy("number").agg(F.sum("events").alias("events"))


def count_event_batches(batches: Iterator[pa.RecordBatch], layout: RegionLayout) -> Iterator[pa.RecordBatch]:
    router = RegionRouter(layout.planes, layout.regions)
    counts = np.zeros(len(layout.regions), np.int64)
    for batch in batches:
        _, regions, _ = router.find_regions(attribute_batch(batch.column("attributes")))
        counts += np.bincount(regions, minlength=len(counts))
    at = np.flatnonzero(counts)
    yield pa.RecordBatch.from_arrays([pa.array(at), pa.array(counts[at])], ["number", "events"])


def make_layout(planes: Sequence[AttributePlane], rows: Iterable[dict[str, Any]]) -> RegionLayout:
    """Order the populated regions, and cut them into blocks that a task can hold."""
    ordered = sorted(rows, key=lambda row: (row["plane"], row["region"]))
    regions = [
        Region(row["plane"], row["region"], row["subscriptions"], -(-row["subscriptions"] // BLOCK_ROWS))
        for row in ordered
    ]
    return RegionLayout(tuple(planes), tuple(regions))


def add_slices(layout: RegionLayout, loads_of: Iterable[dict[str, Any]]) -> tuple[RegionLayout, int]:
    """Add slices and group numbers to a layout; also return the number of event rows over all groups."""
    events = {row["number"]: row["events"] for row in loads_of}
    regions, first, rows = [], 0, 0
    for at, region in enumerate(layout.regions):
        slices = max(1, -(-events.get(at, 0) // SLICE_ROWS))
        regions.append(region._replace(slices=slices, first=first))
        first += region.blocks * slices
        rows += region.blocks * events.get(at, 0)
    return RegionLayout(layout.planes, tuple(regions)), rows


def gather_groups(routed: DataFrame, events: DataFrame, layout: RegionLayout, tasks: int) -> DataFrame:
    """Bring each group into one of the tasks, with its subscriptions before its events."""
    regions = routed.sparkSession.createDataFrame(_region_table(layout))
    slices = F.explode(F.sequence(F.lit(0).cast("bigint"), F.col("slices") - 1))
    block = F.pmod(F.xxhash64("subscription"), F.col("blocks"))
    sent = (
        routed.join(F.broadcast(regions), ["plane", "region"])
        .withColumn("slice", slices)
        .withColumn("group", F.col("first") + block * F.col("slices") + F.col("slice"))
        .select("group", F.lit(False).alias("is_event"), "subscription", "filter")
    )
    types = StructType().add("group", "long").add("is_event", "boolean").add("wide", "boolean")
    types = types.add("event", events.schema["id"].dataType).add("attributes", events.schema["attributes"].dataType)
    routes = events.withColumn("hash", F.xxhash64("id")).mapInArrow(partial(route_event_batches, layout=layout), types)
    together = sent.unionByName(routes, allowMissingColumns=True)
    return together.repartition(tasks, "group").sortWithinPartitions("group", "is_event")


def _region_table(layout: RegionLayout) -> pa.Table:
    columns = {
        "plane": pa.array([region.plane for region in layout.regions], pa.int32()),
        "region": pa.array([region.code for region in layout.regions], pa.string()),
    }
    numbers = {name: [getattr(region, name) for region in layout.regions] for name in ("first", "blocks", "slices")}
    return pa.table(columns | {name: pa.array(found, pa.int64()) for name, found in numbers.items()})


def route_event_batches(batches: Iterator[pa.RecordBatch], layout: RegionLayout) -> Iterator[pa.RecordBatch]:
    router = RegionRouter(layout.planes, layout.regions)
    first, blocks, slices = (
        np.array([getattr(region, name) for region in layout.regions], np.int64)
        for name in ("first", "blocks", "slices")
    )
    for arrived in batches:
        for batch in (arrived.slice(start, MAX_BATCH_EVENTS) for start in range(0, arrived.num_rows, MAX_BATCH_EVENTS)):
            rows, regions, wide = router.find_regions(attribute_batch(batch.column("attributes")))
            hashes = batch.column("hash").to_numpy()[rows]
            # A region with several blocks gets a copy of the event for each block.
            copies = blocks[regions]
            block = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
            rows, regions, wide, hashes = (np.repeat(one, copies) for one in (rows, regions, wide, hashes))
            group = first[regions] + block * slices[regions] + hashes % slices[regions]
            chosen = pa.array(rows)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(group),
                    pa.array(np.ones(len(rows), bool)),
                    pa.array(wide),
                    batch.column("id").take(chosen),
                    batch.column("attributes").take(chosen),
                ],
                ["group", "is_event", "wide", "event", "attributes"],
            )


def match_groups(
    groups: DataFrame,
    events: DataFrame,
    subscriptions: DataFrame,
    layout: RegionLayout,
    folder: Path | None,
    *,
    count: bool,
) -> DataFrame:
    """Match: `event`, `subscription`, a row for each match. With `count` also `matches`: the count of an event or
    subscription is the sum over its rows."""
    schema = output_schema(events, subscriptions, count=count)
    reports = None if folder is None else str(folder)
    task = partial(match_group_batches, layout=layout, schema=schema, folder=reports, count=count)
    return groups.mapInArrow(task, spark_schema(schema))


def match_group_batches(
    batches: Iterator[pa.RecordBatch], layout: RegionLayout, schema: pa.Schema, folder: str | None, count: bool
) -> Iterator[pa.RecordBatch]:
    group, done = None, 0
    for batch in batches:
        for number, is_event, run in _split_runs(batch):
            if group is None or group.number != number:
                if group is not None and count:
                    yield group.subscription_totals(schema)
                group = RegionGroup(number, layout)
            if not is_event:
                group.add(run.column("subscription"), run.column("filter"))
                continue
            done += run.num_rows
            yield from group.count_matches(schema, run) if count else group.match_pairs(schema, run)
        report_rows(folder, done)
    if group is not None and count:
        yield group.subscription_totals(schema)


def _split_runs(batch: pa.RecordBatch) -> Iterator[tuple[int, bool, pa.RecordBatch]]:
    """Cut a batch into runs of one group and one kind of row."""
    groups = batch.column("group").to_numpy()
    kinds = batch.column("is_event").to_numpy(zero_copy_only=False)
    changes = np.flatnonzero((groups[1:] != groups[:-1]) | (kinds[1:] != kinds[:-1])) + 1
    edges = [0, *changes.tolist(), len(groups)]
    for start, stop in pairwise(edges):
        if stop > start:
            yield int(groups[start]), bool(kinds[start]), batch.slice(start, stop - start)


class RegionGroup:
    """The subscriptions of one group. The first event compiles them."""

    def __init__(self, number: int, layout: RegionLayout) -> None:
        self.number = number
        self._region = layout.find_region(number)
        self._plane = None if self._region.plane == EVERYWHERE else layout.planes[self._region.plane]
        self._ids: list[pa.Array] = []
        self._filters: list[Filter] = []
        self._index: BatchIndex | None = None
        self._corners: Ints | None = None
        self._matches = np.zeros(0, np.int64)
        self._size: MatchBatchSize | None = None

    def add(self, ids: pa.Array, filters: pa.Array) -> None:
        self._ids.append(ids)
        self._filters += [loads(one) for one in filters.to_pylist()]

    def _compile_index(self) -> tuple[pa.Array, BatchIndex]:
        if self._index is None:
            self._ids = [pa.concat_arrays(self._ids)]
            self._index = BatchIndex(self._filters)
            self._matches = np.zeros(len(self._filters), np.int64)
        return self._ids[0], self._index

    def match_pairs(self, schema: pa.Schema, run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for part, rows, matches in self._cut_events(run) if self._filters else ():
            yield from id_pair_batches(schema, part.column("event"), self._compile_index()[0], rows, matches)

    def _cut_events(self, run: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Ints, Ints]]:
        """Cut events into parts whose pairs fit into memory."""
        self._size = self._size or MatchBatchSize(len(self._filters))
        start = 0
        while start < run.num_rows:
            part = run.slice(start, self._size.events)
            start += part.num_rows
            rows, matches = self._find_pairs(part)
            self._size.adapt(part.num_rows, len(matches))
            yield part, rows, matches

    def _find_pairs(self, part: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Positions of the events and subscriptions whose match this group reports."""
        _, index = self._compile_index()
        batch = attribute_batch(part.column("attributes"))
        offsets, matches = index.match_batch(batch)
        rows = np.repeat(np.arange(part.num_rows), np.diff(offsets))
        wide = part.column("wide").to_numpy(zero_copy_only=False)
        if self._plane is None or not wide.any():
            return rows, matches
        lows, _ = self._plane.corners(batch)
        reported = ~wide[rows] | is_reported_here(
            self._plane, self._region.code, lows[rows], self._lowest_corners(self._plane)[matches]
        )
        return rows[reported], matches[reported]

    def _lowest_corners(self, plane: AttributePlane) -> Ints:
        if self._corners is None:
            boxes = (plane.box(required_values(one)) for one in self._filters)
            self._corners = np.array([[low for low, _ in box.sides] for box in boxes])
        return self._corners

    def count_matches(self, schema: pa.Schema, run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not self._filters:
            return
        _, index = self._compile_index()
        if run.column("wide").to_numpy(zero_copy_only=False).any():
            matches = np.zeros(run.num_rows, np.int64)
            start = 0
            for part, rows, found in self._cut_events(run):
                matches += np.bincount(start + rows, minlength=run.num_rows)
                self._matches += np.bincount(found, minlength=len(self._filters))
                start += part.num_rows
        else:
            matches, of_subscriptions = index.count_batch(attribute_batch(run.column("attributes")))
            self._matches += of_subscriptions
        some = np.flatnonzero(matches)
        yield make_count_rows(schema, "event", run.column("event").take(pa.array(some)), matches[some])

    def subscription_totals(self, schema: pa.Schema) -> pa.RecordBatch:
        some = np.flatnonzero(self._matches)
        ids = self._ids[0].take(pa.array(some)) if len(some) else pa.nulls(0, schema.field(1).type)
        return make_count_rows(schema, "subscription", ids, self._matches[some])
