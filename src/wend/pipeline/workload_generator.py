"""Generated events and subscriptions, of any number, from a seed: dmm's section VI and quist's rectangles.

Rows are drawn in blocks of a fixed size, and each block has a random stream of its own. So a row depends on the seed,
the workload and its number. It does not depend on the number of rows or of tasks.

The kinds draw different filters. Each number that a paper varies is a parameter.

    uniform     ranges between two uniform values, on 1 to 5 of 10 attributes in [1, 256]
    zipf        the same, but names and values follow Zipf's law with s = 1: a0 and small values are popular
    narrow      ranges of at most `width` of the domain
    fixed       a fixed number of predicates; only the first excludes anything, so all numbers match equally often
    rectangles  quist: a rectangle in the plane [0, 1000] x [0, 1000], with a uniform centre and size
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.pipeline.spark.arrow_schema import spark_schema
from wend.pipeline.spark.task_errors import translate_errors
from wend.pipeline.spark.task_progress import report_rows, row_progress, sum_reported_rows
from wend.pipeline.storage.job_folders import Target, new_output

WorkloadKind = Literal["uniform", "zipf", "narrow", "fixed", "rectangles"]
KINDS: tuple[WorkloadKind, ...] = ("uniform", "zipf", "narrow", "fixed", "rectangles")
Ints = npt.NDArray[np.int64]

BLOCK = 8192
_DEFAULT_WIDTH = {"narrow": 0.1}
_MAX_ATTRIBUTES = 1000

SUBSCRIPTIONS = pa.schema([pa.field("id", pa.int64(), False), pa.field("filter", pa.string(), False)])
RANGE = pa.struct([pa.field("low", pa.int64()), pa.field("high", pa.int64())])


class WorkloadSpec(msgspec.Struct, frozen=True):
    """The parameters of a workload. `predicates` and `present` are the least and the most attributes of a filter and of
    an event."""

    kind: WorkloadKind
    seed: int
    attributes: int
    low: int
    high: int
    predicates: tuple[int, int]
    present: tuple[int, int]
    width: float = 1.0
    ranges: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.attributes <= _MAX_ATTRIBUTES:
            raise ConfigError(f"a workload has 1 to {_MAX_ATTRIBUTES} attributes, got {self.attributes}")
        for what, (fewest, most) in (("filters", self.predicates), ("events", self.present)):
            if not 1 <= fewest <= most <= self.attributes:
                raise ConfigError(
                    f"{what} must have 1 to {self.attributes} of the {self.attributes} attributes, "
                    f"got {fewest} to {most}"
                )
        if not 0 < self.width <= 1 or not 0 <= self.ranges <= 1:
            raise ConfigError(f"width and ranges are shares of 1, got {self.width:g} and {self.ranges:g}")

    @property
    def names(self) -> list[str]:
        return ["x", "y"] if self.kind == "rectangles" else [f"a{i}" for i in range(self.attributes)]

    @property
    def events_schema(self) -> pa.Schema:
        """A column per attribute. If events carry ranges, every value is one; a single value is a range to itself."""
        value = RANGE if self.ranges else pa.int64()
        return pa.schema([pa.field("id", pa.int64(), False), *(pa.field(name, value) for name in self.names)])


def make_workload(
    kind: str,
    seed: int = 1,
    *,
    attributes: int | None = None,
    predicates: tuple[int, int] | None = None,
    present: tuple[int, int] | None = None,
    width: float | None = None,
    ranges: float = 0.0,
) -> WorkloadSpec:
    """Make a workload. The defaults are those of its paper."""
    if kind not in KINDS:
        raise ConfigError(f"there is no workload {kind!r}; the workloads are {', '.join(KINDS)}")
    if width is not None and kind != "narrow":
        raise ConfigError(f"width applies to the workload narrow only, not to {kind}")
    if kind == "rectangles":
        if (attributes or 2, predicates or (2, 2), present or (2, 2)) != (2, (2, 2), (2, 2)):
            raise ConfigError("rectangles have two attributes, x and y, in every filter and every event")
        return WorkloadSpec(kind, seed, 2, 0, 1000, (2, 2), (2, 2), ranges=ranges)
    count = 10 if attributes is None else attributes
    width = _DEFAULT_WIDTH.get(kind, 1.0) if width is None else width
    predicates = predicates or _default_predicates(kind, count)
    if kind == "fixed" and predicates[0] != predicates[1]:
        raise ConfigError(f"the workload fixed takes one number of predicates, got {predicates[0]} to {predicates[1]}")
    return WorkloadSpec(kind, seed, count, 1, 256, predicates, present or _default_present(kind, count), width, ranges)


def _default_predicates(kind: WorkloadKind, attributes: int) -> tuple[int, int]:
    return (3, 3) if kind == "fixed" else (1, min(5, attributes))


def _default_present(kind: WorkloadKind, attributes: int) -> tuple[int, int]:
    """Events of narrow and of fixed have all attributes, so that every filter can match."""
    return (1, attributes) if kind in ("uniform", "zipf") else (attributes, attributes)


def draw_events(spark: SparkSession, workload: WorkloadSpec, count: int, progress: Path | None = None) -> DataFrame:
    """Draw events: `id` and a column per attribute, null if an event lacks it."""
    return _draw_table(spark, workload, count, draw_event_block, workload.events_schema, progress)


def draw_subscriptions(
    spark: SparkSession, workload: WorkloadSpec, count: int, progress: Path | None = None
) -> DataFrame:
    """Draw subscriptions: `id` and `filter`, as text."""
    return _draw_table(spark, workload, count, draw_subscription_block, SUBSCRIPTIONS, progress)


Draw = Callable[[WorkloadSpec, int], pa.RecordBatch]


def _draw_table(
    spark: SparkSession, workload: WorkloadSpec, count: int, draw: Draw, schema: pa.Schema, progress: Path | None
) -> DataFrame:
    if count < 0:
        raise ConfigError(f"the number of rows must not be negative, got {count}")
    task = partial(
        _draw_blocks, workload=workload, count=count, draw=draw, progress=None if progress is None else str(progress)
    )
    return spark.range(math.ceil(count / BLOCK)).mapInArrow(task, spark_schema(schema))


def _draw_blocks(
    batches: Iterator[pa.RecordBatch], workload: WorkloadSpec, count: int, draw: Draw, progress: str | None
) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        for block in batch.column(0).to_pylist():
            drawn = draw(workload, block).slice(0, count - block * BLOCK)
            yield drawn
            done += drawn.num_rows
            if progress is not None:
                report_rows(progress, done)


def draw_event_block(workload: WorkloadSpec, block: int) -> pa.RecordBatch:
    """Draw all events of one block."""
    rng = stream(workload.seed, "workload", workload.kind, "events", block)
    drawn, carried = _choose_attributes(rng, workload, workload.present)
    values = _draw_values(rng, workload, (BLOCK, workload.attributes))
    missing = np.empty(values.shape, dtype=bool)
    np.put_along_axis(missing, drawn, ~carried, axis=1)
    columns: list[pa.Array] = [_block_ids(block)]
    if not workload.ranges:
        columns += [pa.array(values[:, at], mask=missing[:, at]) for at in range(workload.attributes)]
        return pa.RecordBatch.from_arrays(columns, schema=workload.events_schema)
    ends = _draw_values(rng, workload, values.shape)
    single = rng.random(values.shape) >= workload.ranges
    lows, highs = np.minimum(values, ends), np.maximum(values, ends)
    lows, highs = np.where(single, values, lows), np.where(single, values, highs)
    for at in range(workload.attributes):
        sides = [pa.array(lows[:, at]), pa.array(highs[:, at])]
        columns.append(pa.StructArray.from_arrays(sides, fields=list(RANGE), mask=pa.array(missing[:, at])))
    return pa.RecordBatch.from_arrays(columns, schema=workload.events_schema)


def draw_subscription_block(workload: WorkloadSpec, block: int) -> pa.RecordBatch:
    rng = stream(workload.seed, "workload", workload.kind, "subscriptions", block)
    drawn, asked = _choose_attributes(rng, workload, workload.predicates)
    lows, highs = _draw_ranges(rng, workload, drawn.shape)
    rows = zip(drawn.tolist(), lows.tolist(), highs.tolist(), asked.sum(axis=1).tolist(), strict=True)
    names = workload.names
    texts = [_filter_text(names, *row) for row in rows]
    return pa.RecordBatch.from_arrays([_block_ids(block), pa.array(texts, pa.string())], schema=SUBSCRIPTIONS)


def _filter_text(names: list[str], drawn: list[int], lows: list[int], highs: list[int], size: int) -> str:
    sides = sorted(zip(drawn[:size], lows, highs, strict=False))
    return " and ".join(f"{names[at]} in [{low}, {high}]" for at, low, high in sides)


def _block_ids(block: int) -> pa.Array:
    return pa.array(np.arange(block * BLOCK, (block + 1) * BLOCK))


def _choose_attributes(
    rng: np.random.Generator, workload: WorkloadSpec, bounds: tuple[int, int]
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """For each row, the attributes in weighted random order, and a mask of those chosen: the first ones, a random
    number of them."""
    weights = np.ones(workload.attributes)
    if workload.kind == "zipf":
        weights /= np.arange(1, workload.attributes + 1)
    # The largest log-weights plus Gumbel noise are a weighted draw without replacement.
    noise = rng.gumbel(size=(BLOCK, workload.attributes))
    drawn = np.argsort(-(np.log(weights) + noise), axis=1, kind="stable")
    sizes = rng.integers(bounds[0], bounds[1] + 1, BLOCK)
    return drawn, np.arange(workload.attributes) < sizes[:, None]


def _draw_values(rng: np.random.Generator, workload: WorkloadSpec, shape: tuple[int, ...]) -> Ints:
    if workload.kind != "zipf":
        return rng.integers(workload.low, workload.high + 1, shape)
    shares = np.cumsum(1.0 / np.arange(1, workload.high - workload.low + 2))
    return np.asarray(workload.low + np.searchsorted(shares, rng.random(shape) * shares[-1], side="right"))


def _draw_ranges(rng: np.random.Generator, workload: WorkloadSpec, shape: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Draw the lowest and the highest value of each predicate."""
    low, high = workload.low, workload.high
    if workload.kind == "rectangles":
        middle, half = rng.integers(low, high + 1, shape), rng.integers(0, (high - low) // 2 + 1, shape)
        return np.maximum(middle - half, low), np.minimum(middle + half, high)
    if workload.kind == "narrow":
        widest = max(1, int(workload.width * (high - low + 1)))
        size = rng.integers(1, widest + 1, shape)
        first = rng.integers(low, high - size + 2)
        return first, first + size - 1
    ends = _draw_values(rng, workload, (2, *shape))
    lows, highs = ends.min(axis=0), ends.max(axis=0)
    if workload.kind == "fixed":
        lows[:, 1:], highs[:, 1:] = low, high
    return lows, highs


def write_workload(
    spark: SparkSession,
    workload: WorkloadSpec,
    out: Target,
    *,
    events_count: int,
    subscriptions_count: int,
    overwrite: bool = False,
    quiet: bool = True,
) -> None:
    """Write `out/events` and `out/subscriptions`, both or none."""
    tables = {"events": (draw_events, events_count), "subscriptions": (draw_subscriptions, subscriptions_count)}
    with translate_errors(), new_output(spark, out, overwrite=overwrite) as draft:
        for name, (make, count) in tables.items():
            progress = None if draft.folder is None else draft.folder / name
            if progress is not None:
                progress.mkdir()
            with row_progress(partial(sum_reported_rows, progress), name, total=count, quiet=quiet):
                make(spark, workload, count, progress).write.parquet(f"{draft.result}/{name}")
