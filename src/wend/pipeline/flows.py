"""Flows from matches: turn the output of `wend data match` into the workload of a plan.

The job groups matches by event into the set of peers that want the event. Events with the same publisher and the same
set form one flow (thesis, definition 3.1). Spark does all of the grouping: there may be a hundred million matches, and
only flows come out.

Each event has a `publisher` and may have `size_bytes`, `weight` and `time_ns`. Each subscription has a `peer`. Peers
are numbers or names, as in a file of flows.
"""

from functools import partial
from math import frexp, inf
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from wend.model.errors import ConfigError
from wend.model.units import SECOND, Nanos
from wend.pipeline.match import survey
from wend.pipeline.match_input import NUMBERS, Id, decoded, first_line, id_column, is_lines, lines_of, need
from wend.pipeline.parquet_tables import parquet_of
from wend.pipeline.storage import Target, drafted, literal_path, local_path
from wend.pipeline.task_errors import plain_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

SMALL = 1_000_000
"""Up to this many subscriptions, every task gets a table of the peer of each."""
INTEGERS = {"tinyint", "smallint", "int", "bigint"}

SUMMED = ("size_bytes", "weight")
_HALF = 40
"""Bits of the coarse half of a sum, and of the fine half."""
EVENTS = {"publisher": "peer", "size_bytes": "double", "weight": "double", "time_ns": "bigint"}
SUBSCRIPTIONS = {"peer": "peer"}


class FlowLine(msgspec.Struct):
    """The fields of a JSON line that flows need, beside attributes and filter."""

    id: Id
    publisher: Id | None = None
    peer: Id | None = None
    size_bytes: float | None = None
    weight: float | None = None
    time_ns: int | None = None


class FlowSummary(msgspec.Struct, frozen=True):
    """The result of a job."""

    flows: int
    events: int
    unwanted: int
    """Events that no peer but the publisher wants."""
    deliveries: float
    """Per second."""
    span_s: float
    out: str


def write_flows(
    spark: "SparkSession",
    matches: str,
    subscriptions: str,
    events: str,
    out: Target,
    *,
    span: Nanos | None = None,
    overwrite: bool = False,
) -> FlowSummary:
    """Write the flows as Parquet. Rates are per second of `span` or, without it, of the time that the events cover."""
    with plain_errors(), drafted(spark, out, overwrite=overwrite) as draft:
        pairs = _matches(spark, matches)
        published = _read(spark, events, EVENTS)
        subscribers = _read(spark, subscriptions, SUBSCRIPTIONS)
        asked, seen = survey(subscribers, subscriptions, SUBSCRIPTIONS), survey(published, events, EVENTS)
        why = "each subscription needs the peer that it belongs to"
        _check_complete(subscribers, asked, subscriptions, "subscription", "peer", why)
        _check_complete(published, seen, events, "event", "publisher", "each event needs the peer that publishes it")
        _check_peer_types(published, subscribers, events, subscriptions)
        check_values(published, seen, events)
        span = span or observed_span(published, seen, events)
        gathered = f"{draft.scratch}/gathered"
        most = {name: seen[f"most_{name}"] or 0.0 for name in SUMMED}
        flows_of(pairs, published, subscribers, most, small=asked["rows"] <= SMALL).write.parquet(gathered)
        flows = spark.read.parquet(literal_path(gathered))
        _check_known(flows, matches, events, subscriptions)
        rated(flows, span).write.parquet(draft.result)
        totals = flows.selectExpr(
            "count(*) AS flows", "coalesce(sum(events), 0) AS wanted",
            "coalesce(sum(events * size(receivers)), 0) AS deliveries",
        ).toArrow().to_pylist()[0]  # fmt: skip
        many = seen["rows"]
        if not totals["flows"]:
            raise ConfigError(f"{events} has {many} events, and no peer but the publisher wants any of them")
    seconds = span / SECOND
    return FlowSummary(
        totals["flows"], many, many - totals["wanted"], totals["deliveries"] / seconds, seconds, str(out)
    )


def flows_of(
    pairs: "DataFrame", published: "DataFrame", subscribers: "DataFrame", most: dict[str, float], *, small: bool = True
) -> "DataFrame":
    """Group matches into flows: `publisher`, `receivers` (ascending), `events`, and the sums of `size_bytes` and
    `weight`. `most` has the largest value of each. `strange_event` and `strange_subscription` name one id that the
    tables lack."""
    from pyspark.sql import functions as F

    peers = subscribers.select(F.col("id").alias("subscription"), "peer")
    wanted = pairs.join(F.broadcast(peers) if small else peers, "subscription", "left")
    by_event = wanted.groupBy("event").agg(
        F.sort_array(F.collect_set("peer")).alias("receivers"),
        F.max(F.when(F.col("peer").isNull(), F.col("subscription"))).alias("strange_subscription"),
    )
    facts = published.select(F.col("id").alias("event"), "publisher", "size_bytes", "weight")
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
    """A sum that does not depend on the order of addition. Each double is split into whole numbers of a coarse and of a
    fine unit, 80 bits below `most` in all, and Spark adds these without rounding."""
    from pyspark.sql import functions as F

    coarse = 2.0 ** max(frexp(most)[1] - _HALF, -900)
    value, unit = F.col(name).cast("double"), F.lit(coarse)
    above = F.floor(value / unit)
    below = F.rint((value - above * unit) / unit * F.lit(2.0**_HALF))
    first, second = (F.sum(part.cast("bigint").cast("decimal(20,0)")).cast("double") for part in (above, below))
    return first * unit + second * (unit / F.lit(2.0**_HALF))


def rated(flows: "DataFrame", span: Nanos) -> "DataFrame":
    """The columns of a file of flows: the rate per second, and the mean size and weight of an event."""
    from pyspark.sql import functions as F

    rate = F.col("events") * F.lit(SECOND / span)
    means = [
        F.coalesce(F.col(name) / F.col("events"), F.lit(default)).alias(name)
        for name, default in (("size_bytes", 0.0), ("weight", 1.0))
    ]
    return flows.select("publisher", "receivers", rate.alias("rate"), *means).orderBy("publisher", "receivers")


def _matches(spark: "SparkSession", path: str) -> "DataFrame":
    place = local_path(path)
    if place is not None and not place.exists():
        raise ConfigError(f"there is no {path}")
    frame = parquet_of(spark, path)
    if {"event", "subscription"} - set(frame.columns):
        raise ConfigError(
            f"{path} has no columns event and subscription, which `wend data match` writes without --count"
        )
    return frame.select("event", "subscription")


def _read(spark: "SparkSession", path: str, wanted: dict[str, str]) -> "DataFrame":
    """Read `id` and the wanted columns; a missing value is null."""
    from pyspark.sql import functions as F

    if is_lines(path):
        return _read_lines(spark, path, wanted)
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
            raise ConfigError(f"the column {name} of {path} holds {found}; it must hold {right}")
        cast = ("bigint" if found in INTEGERS else "string") if kind == "peer" else kind
        columns.append(F.col(name).cast(cast).alias(name))
    return frame.select("id", *columns)


def _read_lines(spark: "SparkSession", path: str, wanted: dict[str, str]) -> "DataFrame":
    """Read JSON lines. The first line decides whether ids and peers are numbers or names."""
    what = "events" if "publisher" in wanted else "subscriptions"
    lines = lines_of(spark, path)
    seen = first_line(lines, path, what)
    texts = {"id": isinstance(seen["id"], str)}
    for name, kind in wanted.items():
        if kind == "peer":
            texts[name] = not isinstance(seen.get(name), int)
    kinds = {name: "string" if text else "bigint" for name, text in texts.items()}
    schema = ", ".join(f"{name} {kinds.get(name, kind)}" for name, kind in {"id": "", **wanted}.items())
    return lines.mapInArrow(partial(_line_rows, path=path, texts=texts, wanted=tuple(wanted)), schema)


_line = msgspec.json.Decoder(FlowLine)


def _line_rows(
    batches: "Iterator[pa.RecordBatch]", path: str, texts: dict[str, bool], wanted: tuple[str, ...]
) -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        rows = [decoded(_line, line, path) for line in batch.column(0).to_pylist()]
        columns = [id_column([row.id for row in rows], texts["id"], path)]
        for name in wanted:
            values = [getattr(row, name) for row in rows]
            if name in texts:
                _check_type(values, texts[name], name, path)
            kind = (pa.string() if texts[name] else pa.int64()) if name in texts else _ARROW[EVENTS[name]]
            columns.append(pa.array(values, kind))
        yield pa.RecordBatch.from_arrays(columns, ["id", *wanted])


_ARROW = {"double": pa.float64(), "bigint": pa.int64()}


def _check_type(values: list[Id | None], text: bool, name: str, path: str) -> None:
    for one in values:
        if one is not None and isinstance(one, str) is not text:
            kind = "a name" if text else "a number"
            raise ConfigError(f"{path}: the first {name} is {kind}, but {one!r} is not")


def _check_peer_types(published: "DataFrame", subscribers: "DataFrame", events: str, subscriptions: str) -> None:
    """Refuse publishers and peers of different types: a publisher that also subscribes must be one peer."""
    kinds = (published.schema["publisher"].dataType.simpleString(), subscribers.schema["peer"].dataType.simpleString())
    if kinds[0] != kinds[1]:
        said = ["names" if kind == "string" else "numbers" for kind in kinds]
        raise ConfigError(f"publishers in {events} are {said[0]}, but peers in {subscriptions} are {said[1]}")


def check_values(published: "DataFrame", seen: dict[str, Any], events: str) -> None:
    for name in SUMMED:
        if not seen[f"known_{name}"]:
            continue
        _check_complete(published, seen, events, "event", name)
        for value in (seen[f"least_{name}"], seen[f"most_{name}"]):
            if not 0 <= value < inf:
                raise ConfigError(
                    f"{events} has an event with a {name} of {value:g}: it must be finite and not negative"
                )


def _check_complete(
    frame: "DataFrame", seen: dict[str, Any], path: str, what: str, name: str, needed: str = ""
) -> None:
    """Refuse a column that some rows lack; the error names one of them."""
    if seen[f"known_{name}"] == seen["rows"]:
        return
    if not seen[f"known_{name}"]:
        raise ConfigError(f"{path} has no column {name}: {needed}")
    one = frame.where(f"{name} IS NULL").select("id").limit(1).toArrow().to_pylist()[0]["id"]
    raise ConfigError(f"{path}: {what} {one!r} has no {name}, but others have one")


def observed_span(published: "DataFrame", seen: dict[str, Any], events: str) -> Nanos:
    """The time that events cover: from the first to the last, plus one mean gap. So n events have n gaps."""
    why = "give --span, the time in which the events were published"
    _check_complete(published, seen, events, "event", "time_ns", why)
    rows, covered = int(seen["rows"]), int(seen["most_time_ns"]) - int(seen["least_time_ns"])
    if rows < 2 or not covered:
        raise ConfigError(
            f"all events in {events} have the same time: give --span, the time in which they were published"
        )
    return round(covered * rows / (rows - 1))


def _check_known(flows: "DataFrame", matches: str, events: str, subscriptions: str) -> None:
    """Refuse matches whose event or subscription is not in the tables."""
    seen = flows.selectExpr("max(strange_event) AS event", "max(strange_subscription) AS subscription")
    for what, one in seen.toArrow().to_pylist()[0].items():
        if one is not None:
            where = events if what == "event" else subscriptions
            raise ConfigError(f"{matches} has a match of {what} {one!r}, which is not in {where}")
