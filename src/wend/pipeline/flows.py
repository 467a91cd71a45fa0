"""From matches to flows: what `wend data match` answers becomes what a plan is made for.

Matches are gathered by event into the set of peers that want it; events with the same publisher and the same
set are one flow (thesis, definition 3.1). All of that is Spark's to do: there may be a hundred million matches,
and only flows come out.

Events say their `publisher`, and if they like `size_bytes`, `weight` and `time_ns`; subscriptions say their `peer`.
Peers are numbers or names, as in a file of flows.
"""

from functools import partial
from math import frexp, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from wend.model.errors import ConfigError
from wend.model.files import check_out, drafted
from wend.model.units import SECOND, Nanos
from wend.pipeline.match import survey
from wend.pipeline.places import by_letter
from wend.pipeline.refusals import reworded
from wend.pipeline.tables import NUMBERS, Id, decoded, first_line, id_column, is_lines, lines_of, need, parquet_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

SMALL = 1_000_000
"""Up to so many subscriptions every task can know the peer of each."""
INTEGERS = {"tinyint", "smallint", "int", "bigint"}

SUMMED = ("size_bytes", "weight")
_HALF = 40
"""Bits of a sum's coarse part, and of its fine one."""
EVENTS = {"publisher": "peer", "size_bytes": "double", "weight": "double", "time_ns": "bigint"}
SUBSCRIPTIONS = {"peer": "peer"}


class Told(msgspec.Struct):
    """What a line says beside attributes and filter."""

    id: Id
    publisher: Id | None = None
    peer: Id | None = None
    size_bytes: float | None = None
    weight: float | None = None
    time_ns: int | None = None


class Found(msgspec.Struct, frozen=True):
    """What a job left."""

    flows: int
    events: int
    unwanted: int
    """Events that nobody wants but, perhaps, their own publisher."""
    deliveries: float
    """Per second."""
    span_s: float
    out: str


def write_flows(
    spark: "SparkSession",
    matches: str,
    subscriptions: str,
    events: str,
    out: Path,
    *,
    span: Nanos | None = None,
    overwrite: bool = False,
) -> Found:
    """Rates are events per second of `span`, or of the time that the events themselves cover."""
    check_out(out, overwrite)
    with reworded(), drafted(out) as (draft, scratch):
        pairs = _matches(spark, matches)
        told, homes = _told(spark, events, EVENTS), _told(spark, subscriptions, SUBSCRIPTIONS)
        home, seen = survey(homes, subscriptions, SUBSCRIPTIONS), survey(told, events, EVENTS)
        _whole(homes, home, subscriptions, "subscription", "peer", "whose it is")
        _whole(told, seen, events, "event", "publisher", "who publishes it")
        _one_kind(told, homes, events, subscriptions)
        _sane(told, seen, events)
        span = span or _observed(told, seen, events)
        gathered = scratch / "gathered"
        most = {name: seen[f"most_{name}"] or 0.0 for name in SUMMED}
        flows_of(pairs, told, homes, most, small=home["rows"] <= SMALL).write.parquet(str(gathered))
        flows = spark.read.parquet(by_letter(gathered))
        _refuse_strangers(flows, matches, events, subscriptions)
        rated(flows, span).write.parquet(str(draft))
        totals = flows.selectExpr(
            "count(*) AS flows", "coalesce(sum(events), 0) AS wanted",
            "coalesce(sum(events * size(receivers)), 0) AS deliveries",
        ).toArrow().to_pylist()[0]  # fmt: skip
        many = seen["rows"]
        if not totals["flows"]:
            raise ConfigError(f"of the {many} events in {events} none is wanted by another peer than its publisher")
    seconds = span / SECOND
    return Found(totals["flows"], many, many - totals["wanted"], totals["deliveries"] / seconds, seconds, str(out))


def flows_of(
    pairs: "DataFrame", told: "DataFrame", homes: "DataFrame", most: dict[str, float], *, small: bool = True
) -> "DataFrame":
    """`publisher`, `receivers` (ascending), `events`; `size_bytes` and `weight`, summed over the events, of which none
    has more than `most`; and of the ids that a table does not know one."""
    from pyspark.sql import functions as F

    home = homes.select(F.col("id").alias("subscription"), "peer")
    wanted = pairs.join(F.broadcast(home) if small else home, "subscription", "left")
    by_event = wanted.groupBy("event").agg(
        F.sort_array(F.collect_set("peer")).alias("receivers"),
        F.max(F.when(F.col("peer").isNull(), F.col("subscription"))).alias("strange_subscription"),
    )
    facts = told.select(F.col("id").alias("event"), "publisher", "size_bytes", "weight")
    whole = by_event.join(facts, "event", "left")
    others = whole.withColumn(
        "receivers", F.coalesce(F.array_remove("receivers", F.col("publisher")), F.col("receivers"))
    )
    return (
        others.where((F.size("receivers") > 0) | F.col("strange_subscription").isNotNull())
        .groupBy("publisher", "receivers")
        .agg(
            F.count("*").alias("events"),
            *(_summed(name, most[name]).alias(name) for name in SUMMED),
            F.max(F.when(F.col("publisher").isNull(), F.col("event"))).alias("strange_event"),
            F.max("strange_subscription").alias("strange_subscription"),
        )
    )


def _summed(name: str, most: float) -> "Column":
    """The sum, the same in whatever order Spark adds: doubles are split into whole numbers of a coarse and a fine unit,
    with 80 bits below `most`, and these are added without rounding."""
    from pyspark.sql import functions as F

    coarse = 2.0 ** max(frexp(most)[1] - _HALF, -900)
    value, unit = F.col(name).cast("double"), F.lit(coarse)
    above = F.floor(value / unit)
    below = F.rint((value - above * unit) / unit * F.lit(2.0**_HALF))
    first, second = (F.sum(part.cast("bigint").cast("decimal(20,0)")).cast("double") for part in (above, below))
    return first * unit + second * (unit / F.lit(2.0**_HALF))


def rated(flows: "DataFrame", span: Nanos) -> "DataFrame":
    """As a file of flows has them: rate per second, and what an event has on average."""
    from pyspark.sql import functions as F

    rate = F.col("events") * F.lit(SECOND / span)
    means = [
        F.coalesce(F.col(name) / F.col("events"), F.lit(default)).alias(name)
        for name, default in (("size_bytes", 0.0), ("weight", 1.0))
    ]
    return flows.select("publisher", "receivers", rate.alias("rate"), *means).orderBy("publisher", "receivers")


def _matches(spark: "SparkSession", path: str) -> "DataFrame":
    if "://" not in path and not Path(path).exists():
        raise ConfigError(f"there is no {path}")
    frame = parquet_of(spark, path)
    if {"event", "subscription"} - set(frame.columns):
        raise ConfigError(f"{path} is not what `wend data match` writes (without --count): event and subscription")
    return frame.select("event", "subscription")


def _told(spark: "SparkSession", path: str, wanted: dict[str, str]) -> "DataFrame":
    """`id` and the wanted columns, null where nothing is said."""
    from pyspark.sql import functions as F

    if is_lines(path):
        return _told_by_lines(spark, path, wanted)
    frame = parquet_of(spark, path)
    need(frame, path, "id")
    columns = []
    for name, kind in wanted.items():
        if name not in frame.columns:
            columns.append(F.lit(None).cast("string" if kind == "peer" else kind).alias(name))
            continue
        found = frame.schema[name].dataType.simpleString()
        fits = {"peer": {*INTEGERS, "string"}, "double": NUMBERS, "bigint": INTEGERS}[kind]
        if found not in fits:
            right = {"peer": "peers, by number or by name", "double": "numbers", "bigint": "whole nanoseconds"}[kind]
            raise ConfigError(f"the column {name} of {path} holds {found}, and should hold {right}")
        cast = ("bigint" if found in INTEGERS else "string") if kind == "peer" else kind
        columns.append(F.col(name).cast(cast).alias(name))
    return frame.select("id", *columns)


def _told_by_lines(spark: "SparkSession", path: str, wanted: dict[str, str]) -> "DataFrame":
    """The first line decides whether peers are numbers or names, as it does for ids."""
    what = "events" if "publisher" in wanted else "subscriptions"
    lines = lines_of(spark, path)
    seen = first_line(lines, path, what)
    texts = {"id": isinstance(seen["id"], str)}
    for name, kind in wanted.items():
        if kind == "peer":
            texts[name] = not isinstance(seen.get(name), int)
    kinds = {name: "string" if text else "bigint" for name, text in texts.items()}
    schema = ", ".join(f"{name} {kinds.get(name, kind)}" for name, kind in {"id": "", **wanted}.items())
    return lines.mapInArrow(partial(_told_rows, path=path, texts=texts, wanted=tuple(wanted)), schema)


_told_line = msgspec.json.Decoder(Told)


def _told_rows(
    batches: "Iterator[pa.RecordBatch]", path: str, texts: dict[str, bool], wanted: tuple[str, ...]
) -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        rows = [decoded(_told_line, line, path) for line in batch.column(0).to_pylist()]
        columns = [id_column([row.id for row in rows], texts["id"], path)]
        for name in wanted:
            values = [getattr(row, name) for row in rows]
            if name in texts:
                _alike(values, texts[name], name, path)
            kind = (pa.string() if texts[name] else pa.int64()) if name in texts else _ARROW[EVENTS[name]]
            columns.append(pa.array(values, kind))
        yield pa.RecordBatch.from_arrays(columns, ["id", *wanted])


_A = {"event": "an event", "subscription": "a subscription"}
_ARROW = {"double": pa.float64(), "bigint": pa.int64()}


def _alike(values: list[Id | None], text: bool, name: str, path: str) -> None:
    for one in values:
        if one is not None and isinstance(one, str) is not text:
            kind = "a name" if text else "a number"
            raise ConfigError(f"{path}: the {name} {one!r} is not {kind}, as the first one is")


def _one_kind(told: "DataFrame", homes: "DataFrame", events: str, subscriptions: str) -> None:
    """A publisher that also subscribes must be known by it."""
    kinds = (told.schema["publisher"].dataType.simpleString(), homes.schema["peer"].dataType.simpleString())
    if kinds[0] != kinds[1]:
        said = ["names" if kind == "string" else "numbers" for kind in kinds]
        raise ConfigError(f"publishers in {events} are {said[0]}, but peers in {subscriptions} are {said[1]}")


def _sane(told: "DataFrame", seen: dict[str, Any], events: str) -> None:
    for name in SUMMED:
        if not seen[f"told_{name}"]:
            continue
        _whole(told, seen, events, "event", name)
        for value in (seen[f"least_{name}"], seen[f"most_{name}"]):
            if not 0 <= value < inf:
                raise ConfigError(f"{events} has an event with a {name} of {value:g}")


def _whole(frame: "DataFrame", seen: dict[str, Any], path: str, what: str, name: str, needed: str = "") -> None:
    """Whether all rows say it; the sentence names one that does not."""
    if seen[f"told_{name}"] == seen["rows"]:
        return
    if not seen[f"told_{name}"]:
        raise ConfigError(f"{path} has no column {name}: nothing says of {_A[what]} {needed}")
    one = frame.where(f"{name} IS NULL").select("id").limit(1).toArrow().to_pylist()[0]["id"]
    raise ConfigError(f"{path}: {what} {one!r} has no {name}, and others have one")


def _observed(told: "DataFrame", seen: dict[str, Any], events: str) -> Nanos:
    """From the first event to the last, and the mean gap after that one: n events have n gaps."""
    _whole(told, seen, events, "event", "time_ns", "when it was, so --span must say how long all of them took")
    rows, covered = int(seen["rows"]), int(seen["most_time_ns"]) - int(seen["least_time_ns"])
    if rows < 2 or not covered:
        raise ConfigError(f"the events in {events} are all of one instant: --span must say how long they took")
    return round(covered * rows / (rows - 1))


def _refuse_strangers(flows: "DataFrame", matches: str, events: str, subscriptions: str) -> None:
    """Matches of other tables than these."""
    seen = flows.selectExpr("max(strange_event) AS event", "max(strange_subscription) AS subscription")
    for what, one in seen.toArrow().to_pylist()[0].items():
        if one is not None:
            where = events if what == "event" else subscriptions
            raise ConfigError(f"{matches} has matches of {what} {one!r}, which is not in {where}")
