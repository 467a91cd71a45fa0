"""The second plan: a join by regions, for subscriptions that outgrow the memory of a task.

Subscriptions are sent to their regions and events to all regions that hold them (`regions.py`). A region with very
many subscriptions is cut into blocks, one with very many events into slices; a group is one block and one slice.
Groups are brought together by Spark's own shuffle and sort, subscriptions before events: so a task compiles the
subscriptions of a group, which are bounded, and streams the events through, which are not.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from pickle import dumps, loads
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from wend.matching.bitmaps import BitmapIndex
from wend.matching.filters import Filter
from wend.pipeline.answers import (
    Ints,
    count_schema,
    event_rows,
    id_type,
    pair_rows,
    pair_schema,
    spark_schema,
    subscription_rows,
)
from wend.pipeline.progress import READ, mark
from wend.pipeline.regions import EVERYWHERE, Place, Plane, Router, answered, home, wanted_values
from wend.pipeline.tables import batch_of, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCK = 50_000
SLICE = 250_000
PART = 1000
_ROWS_OF_A_TASK = 250_000
_FEWEST_TASKS = 4


class Layout(msgspec.Struct, frozen=True):
    """All that a task has to know about where things meet."""

    planes: tuple[Plane, ...]
    places: tuple[Place, ...]

    def owner(self, group: int) -> Place:
        at = np.searchsorted([place.first for place in self.places], group, side="right") - 1
        return self.places[int(at)]


def routed_subscriptions(subscriptions: "DataFrame", planes: Sequence[Plane], folder: Path) -> "DataFrame":
    """`id`, `filter` to `plane`, `region`, `subscription`, `filter`: a row for each region; filters as read."""
    types = [("plane", pa.int32()), ("region", pa.string()), ("subscription", id_type(subscriptions))]
    schema = pa.schema([*types, ("filter", pa.binary())])
    task = partial(_send, planes=tuple(planes), schema=schema, folder=str(folder))
    return subscriptions.mapInArrow(task, spark_schema(schema))


def _send(
    batches: Iterator[pa.RecordBatch], planes: tuple[Plane, ...], schema: pa.Schema, folder: str
) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        ids = batch.column("id")
        rows, numbers, codes, read = [], [], [], []
        for row, wanted in enumerate(parsed(ids, batch.column("filter"))):
            number, regions = home(planes, wanted)
            packed = dumps(wanted, protocol=5)
            rows += [row] * len(regions)
            numbers += [number] * len(regions)
            codes += regions
            read += [packed] * len(regions)
        columns = [pa.array(numbers, pa.int32()), pa.array(codes, pa.string()), ids.take(pa.array(rows, pa.int64()))]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(read, pa.binary())], schema=schema)
        done += batch.num_rows
        mark(folder, done, READ)


def population(routed: "DataFrame") -> "DataFrame":
    """How many subscriptions each region has."""
    from pyspark.sql import functions as F

    return routed.groupBy("plane", "region").agg(F.count("*").alias("subscriptions"))


def event_load(events: "DataFrame", layout: Layout) -> "DataFrame":
    """`place`, `events`: how many events each region gets."""
    from pyspark.sql import functions as F

    counted = events.mapInArrow(partial(_load, layout=layout), "place bigint, events bigint")
    return counted.groupBy("place").agg(F.sum("events").alias("events"))


def _load(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[pa.RecordBatch]:
    router = Router(layout.planes, layout.places)
    found = np.zeros(len(layout.places), np.int64)
    for batch in batches:
        _, places, _ = router.route(batch_of(batch.column("attributes")))
        found += np.bincount(places, minlength=len(found))
    at = np.flatnonzero(found)
    yield pa.RecordBatch.from_arrays([pa.array(at), pa.array(found[at])], ["place", "events"])


def layout_of(planes: Sequence[Plane], rows: Iterable[dict[str, Any]]) -> Layout:
    """From the population: every region in order, in blocks that a task can hold."""
    ordered = sorted(rows, key=lambda row: (row["plane"], row["region"]))
    places = [
        Place(row["plane"], row["region"], row["subscriptions"], -(-row["subscriptions"] // BLOCK)) for row in ordered
    ]
    return Layout(tuple(planes), tuple(places))


def with_slices(layout: Layout, loads_of: Iterable[dict[str, Any]]) -> tuple[Layout, int]:
    """The same with groups, and how many rows of events all groups have together."""
    events = {row["place"]: row["events"] for row in loads_of}
    places, first, rows = [], 0, 0
    for at, place in enumerate(layout.places):
        slices = max(1, -(-events.get(at, 0) // SLICE))
        places.append(place._replace(slices=slices, first=first))
        first += place.blocks * slices
        rows += place.blocks * events.get(at, 0)
    return Layout(layout.planes, tuple(places)), rows


def gathered(routed: "DataFrame", events: "DataFrame", layout: Layout, rows: int) -> "DataFrame":
    """All groups, each whole in one task and with its subscriptions first."""
    from pyspark.sql import functions as F

    places = routed.sparkSession.createDataFrame(_place_table(layout))
    turns = F.explode(F.sequence(F.lit(0).cast("bigint"), F.col("slices") - 1))
    block = F.pmod(F.xxhash64("subscription"), F.col("blocks"))
    sent = (
        routed.join(F.broadcast(places), ["plane", "region"])
        .withColumn("turn", turns)
        .withColumn("group", F.col("first") + block * F.col("slices") + F.col("turn"))
        .select("group", F.lit(False).alias("is_event"), "subscription", "filter")
    )
    routes = events.withColumn("hash", F.xxhash64("id")).mapInArrow(partial(_route, layout=layout), _routes_of(events))
    tasks = max(_FEWEST_TASKS, -(-rows // _ROWS_OF_A_TASK))
    together = sent.unionByName(routes, allowMissingColumns=True)
    return together.repartition(tasks, "group").sortWithinPartitions("group", "is_event")


def _routes_of(events: "DataFrame") -> Any:
    from pyspark.sql.types import BooleanType, LongType, StructField, StructType

    kinds = {
        "group": LongType(),
        "is_event": BooleanType(),
        "wide": BooleanType(),
        "event": events.schema["id"].dataType,
        "attributes": events.schema["attributes"].dataType,
    }
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def _place_table(layout: Layout) -> pa.Table:
    columns = {
        "plane": pa.array([place.plane for place in layout.places], pa.int32()),
        "region": pa.array([place.code for place in layout.places], pa.string()),
    }
    numbers = {name: [getattr(place, name) for place in layout.places] for name in ("first", "blocks", "slices")}
    return pa.table(columns | {name: pa.array(found, pa.int64()) for name, found in numbers.items()})


def _route(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[pa.RecordBatch]:
    router = Router(layout.planes, layout.places)
    first, blocks, slices = (
        np.array([getattr(place, name) for place in layout.places], np.int64) for name in ("first", "blocks", "slices")
    )
    for whole in batches:
        for batch in (whole.slice(start, PART) for start in range(0, whole.num_rows, PART)):
            rows, places, wide = router.route(batch_of(batch.column("attributes")))
            hashes = batch.column("hash").to_numpy()[rows]
            # A region with several blocks gets the event once for each.
            copies = blocks[places]
            turns = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
            rows, places, wide, hashes = (np.repeat(one, copies) for one in (rows, places, wide, hashes))
            group = first[places] + turns * slices[places] + hashes % slices[places]
            taken = pa.array(rows)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(group),
                    pa.array(np.ones(len(rows), bool)),
                    pa.array(wide),
                    batch.column("id").take(taken),
                    batch.column("attributes").take(taken),
                ],
                ["group", "is_event", "wide", "event", "attributes"],
            )


def pairs(
    groups: "DataFrame", events: "DataFrame", subscriptions: "DataFrame", layout: Layout, folder: Path
) -> "DataFrame":
    """`event`, `subscription`: a row for each match."""
    schema = pair_schema(events, subscriptions)
    task = partial(_meet, layout=layout, schema=schema, folder=str(folder), count=False)
    return groups.mapInArrow(task, spark_schema(schema))


def counts(
    groups: "DataFrame", events: "DataFrame", subscriptions: "DataFrame", layout: Layout, folder: Path
) -> "DataFrame":
    """`event`, `subscription`, `matches`: rows that add up to the counts of each event and each subscription."""
    schema = count_schema(events, subscriptions)
    task = partial(_meet, layout=layout, schema=schema, folder=str(folder), count=True)
    return groups.mapInArrow(task, spark_schema(schema))


def _meet(
    batches: Iterator[pa.RecordBatch], layout: Layout, schema: pa.Schema, folder: str, count: bool
) -> Iterator[pa.RecordBatch]:
    group, done = None, 0
    for batch in batches:
        for number, is_event, run in _runs(batch):
            if group is None or group.number != number:
                if group is not None and count:
                    yield group.totals(schema)
                group = Group(number, layout)
            if not is_event:
                group.add(run.column("subscription"), run.column("filter"))
                continue
            done += run.num_rows
            yield from group.counts(schema, run) if count else group.pairs(schema, run)
        mark(folder, done)
    if group is not None and count:
        yield group.totals(schema)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, bool, pa.RecordBatch]]:
    """Pieces of one group and one kind of row."""
    groups = batch.column("group").to_numpy()
    kinds = batch.column("is_event").to_numpy(zero_copy_only=False)
    changes = np.flatnonzero((groups[1:] != groups[:-1]) | (kinds[1:] != kinds[:-1])) + 1
    edges = [0, *changes.tolist(), len(groups)]
    for start, stop in pairwise(edges):
        if stop > start:
            yield int(groups[start]), bool(kinds[start]), batch.slice(start, stop - start)


class Group:
    """The subscriptions of one group, compiled when its first event comes."""

    def __init__(self, number: int, layout: Layout) -> None:
        self.number = number
        self._place = layout.owner(number)
        self._plane = None if self._place.plane == EVERYWHERE else layout.planes[self._place.plane]
        self._ids: list[pa.Array] = []
        self._filters: list[Filter] = []
        self._index: BitmapIndex[int] | None = None
        self._corners: Ints | None = None
        self._matches = np.zeros(0, np.int64)

    def add(self, ids: pa.Array, filters: pa.Array) -> None:
        self._ids.append(ids)
        self._filters += [loads(one) for one in filters.to_pylist()]

    def _compiled(self) -> "tuple[pa.Array, BitmapIndex[int]]":
        if self._index is None:
            self._ids = [pa.concat_arrays(self._ids)]
            self._index = BitmapIndex(enumerate(self._filters))
            self._matches = np.zeros(len(self._filters), np.int64)
        return self._ids[0], self._index

    def pairs(self, schema: pa.Schema, run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for start in range(0, run.num_rows, PART) if self._filters else ():
            part = run.slice(start, PART)
            rows, found = self._pairs(part)
            yield pair_rows(schema, part.column("event"), self._compiled()[0], rows, found)

    def _pairs(self, part: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Rows of events and of subscriptions that match and that are answered for here."""
        _, index = self._compiled()
        batch = batch_of(part.column("attributes"))
        offsets, found = index.match_batch(batch)
        rows = np.repeat(np.arange(part.num_rows), np.diff(offsets))
        wide = part.column("wide").to_numpy(zero_copy_only=False)
        if self._plane is None or not wide.any():
            return rows, found
        lows, _ = self._plane.corners(batch)
        kept = ~wide[rows] | answered(self._plane, self._place.code, lows[rows], self._lowest(self._plane)[found])
        return rows[kept], found[kept]

    def _lowest(self, plane: Plane) -> Ints:
        if self._corners is None:
            boxes = (plane.box(wanted_values(one)) for one in self._filters)
            self._corners = np.array([[low for low, _ in box.sides] for box in boxes])
        return self._corners

    def counts(self, schema: pa.Schema, run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not self._filters:
            return
        _, index = self._compiled()
        if run.column("wide").to_numpy(zero_copy_only=False).any():
            matches = np.zeros(run.num_rows, np.int64)
            for start in range(0, run.num_rows, PART):
                rows, found = self._pairs(run.slice(start, PART))
                matches += np.bincount(start + rows, minlength=run.num_rows)
                self._matches += np.bincount(found, minlength=len(self._filters))
        else:
            matches, of_subscriptions = index.count_batch(batch_of(run.column("attributes")))
            self._matches += of_subscriptions
        some = np.flatnonzero(matches)
        yield event_rows(schema, run.column("event").take(pa.array(some)), matches[some])

    def totals(self, schema: pa.Schema) -> pa.RecordBatch:
        some = np.flatnonzero(self._matches)
        ids = self._ids[0].take(pa.array(some)) if len(some) else pa.nulls(0, schema.field(1).type)
        return subscription_rows(schema, ids, self._matches[some])
