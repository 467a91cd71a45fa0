"""Flows from matches: turn the output of `wend data match` into the workload of a plan.

The job groups matches by event into the set of peers that want the event. Events with the same publisher and the same
set form one flow (thesis, definition 3.1). Spark does all of the grouping: there may be a hundred million matches, and
only flows come out.

Each event has a `publisher` and may have `size_bytes`, `weight` and `time_ns`. Each subscription has a `peer`. Peers
are numbers or names, as in a file of flows.
"""

from functools import partial
from math import frexp, inf
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.model.errors import ConfigError
from wend.model.units import SECOND, Nanos
from wend.pipeline.spark.task_errors import translate_errors
from wend.pipeline.storage.input_tables import (
    MAX_BAD,
    InputTable,
    SiftedTable,
    check_max_bad,
    parquet_table,
    sift_table,
    survey_rows,
    write_quarantine,
)
from wend.pipeline.storage.job_folders import Target, literal_path, local_path, new_output
from wend.pipeline.storage.json_lines import (
    Id,
    decode_line,
    first_object,
    is_json_lines,
    json_table,
    read_lines,
    validate_id,
)
from wend.pipeline.storage.parquet_tables import NUMBER_TYPES, read_parquet, require_columns

MAX_BROADCAST_ROWS = 1_000_000
"""Up to this many subscriptions, every task gets a table with the peer of each."""
INTEGERS = {"tinyint", "smallint", "int", "bigint"}

SUMMED_COLUMNS = ("size_bytes", "weight")
FAR_FACTOR = 10
_HALF_BITS = 40
"""Bits of the coarse half of a sum, and of the fine half."""
EVENT_COLUMNS = {"publisher": "peer", "size_bytes": "double", "weight": "double", "time_ns": "bigint"}
SUBSCRIPTION_COLUMNS = {"peer": "peer"}


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
    quarantined: int = 0
    """Events and subscriptions that could not be used."""


def write_flows(
    spark: SparkSession,
    matches: str,
    subscriptions: str,
    events: str,
    out: Target,
    *,
    span: Nanos | None = None,
    max_bad: float = MAX_BAD,
    overwrite: bool = False,
) -> FlowSummary:
    """Write the flows as Parquet. Rates are per second of `span` or, without it, of the time that the events cover."""
    check_max_bad(max_bad)
    with translate_errors(), new_output(spark, out, overwrite=overwrite) as draft:
        pairs = _read_matches(spark, matches)
        of_peers = _sift_table(_read_table(spark, subscriptions, SUBSCRIPTION_COLUMNS), "subscription", None, max_bad)
        of_events = _sift_table(_read_table(spark, events, EVENT_COLUMNS), "event", span, max_bad)
        published, subscribers, subscribed, seen = of_events.rows, of_peers.rows, of_peers.seen, of_events.seen
        _check_peer_types(published, subscribers, events, subscriptions)
        span = span or observed_span(seen, events)
        pairs = _drop_quarantined(_drop_quarantined(pairs, "event", of_events), "subscription", of_peers)
        gathered = f"{draft.scratch}/gathered"
        most = {name: seen[f"most_{name}"] or 0.0 for name in SUMMED_COLUMNS}
        group_flows(pairs, published, subscribers, most, small=subscribed["rows"] <= MAX_BROADCAST_ROWS).write.parquet(
            gathered
        )
        flows = spark.read.parquet(literal_path(gathered))
        _check_ids(flows, matches, events, subscriptions)
        rate_flows(flows, span).write.parquet(draft.result)
        totals = flows.selectExpr(
            "count(*) AS flows", "coalesce(sum(events), 0) AS wanted",
            "coalesce(sum(events * size(receivers)), 0) AS deliveries",
        ).toArrow().to_pylist()[0]  # fmt: skip
        many = seen["rows"]
        quarantined = write_quarantine(draft.result, of_peers, of_events)
        if not totals["flows"]:
            raise ConfigError(f"{events} has {many} events, and no peer but the publisher wants any of them")
    seconds = span / SECOND
    return FlowSummary(
        totals["flows"], many, many - totals["wanted"], totals["deliveries"] / seconds, seconds, str(out), quarantined
    )


def group_flows(
    pairs: DataFrame, published: DataFrame, subscribers: DataFrame, most: dict[str, float], *, small: bool = True
) -> DataFrame:
    """Group matches into flows: `publisher`, `receivers` (ascending), `events`, and the sums of `size_bytes` and
    `weight`. `most` has the largest value of each. `strange_event` and `strange_subscription` name one id that the
    tables lack."""
    peers = subscribers.select(F.col("id").alias("subscription"), "peer")
    by_peer = pairs.join(F.broadcast(peers) if small else peers, "subscription", "left")
    by_event = by_peer.groupBy("event").agg(
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
            *(_exact_sum(name, most[name]).alias(name) for name in SUMMED_COLUMNS),
            F.max(F.when(F.col("publisher").isNull(), F.col("event"))).alias("strange_event"),
            F.max("strange_subscription").alias("strange_subscription"),
        )
    )


def _exact_sum(name: str, most: float) -> Column:
    """A sum that does not depend on the order of addition. Each double is split into whole numbers of a coarse and of a
    fine unit, 80 bits below `most` in all, and Spark adds these without rounding."""
    coarse = 2.0 ** max(frexp(most)[1] - _HALF_BITS, -900)
    value, unit = F.col(name).cast("double"), F.lit(coarse)
    above = F.floor(value / unit)
    below = F.rint((value - above * unit) / unit * F.lit(2.0**_HALF_BITS))
    first, second = (F.sum(part.cast("bigint").cast("decimal(20,0)")).cast("double") for part in (above, below))
    return first * unit + second * (unit / F.lit(2.0**_HALF_BITS))


def rate_flows(flows: DataFrame, span: Nanos) -> DataFrame:
    """The columns of a file of flows: the rate per second, and the mean size and weight of an event."""
    rate = F.col("events") * F.lit(SECOND / span)
    means = [
        F.coalesce(F.col(name) / F.col("events"), F.lit(default)).alias(name)
        for name, default in (("size_bytes", 0.0), ("weight", 1.0))
    ]
    return flows.select("publisher", "receivers", rate.alias("rate"), *means).orderBy("publisher", "receivers")


def _read_matches(spark: SparkSession, path: str) -> DataFrame:
    place = local_path(path)
    if place is not None and not place.exists():
        raise ConfigError(f"there is no {path}", code="unreadable")
    frame = read_parquet(spark, path)
    if {"event", "subscription"} - set(frame.columns):
        raise ConfigError(
            f"{path} has no columns event and subscription, which `wend data match` writes without --count"
        )
    return frame.select("event", "subscription")


def _read_table(spark: SparkSession, path: str, expected: dict[str, str]) -> InputTable:
    """Read `id` and the wanted columns; a missing value is null."""
    if is_json_lines(path):
        return _read_lines(spark, path, expected)
    frame = read_parquet(spark, path)
    require_columns(frame, path, "id")
    columns = []
    for name, kind in expected.items():
        if name not in frame.columns:
            columns.append(F.lit(None).cast("string" if kind == "peer" else kind).alias(name))
            continue
        actual = frame.schema[name].dataType.simpleString()
        fits = {"peer": {*INTEGERS, "string"}, "double": NUMBER_TYPES, "bigint": INTEGERS}[kind]
        if actual not in fits:
            right = {"peer": "peers, by number or by name", "double": "numbers", "bigint": "whole nanoseconds"}[kind]
            raise ConfigError(f"the column {name} of {path} holds {actual}; it must hold {right}")
        cast = ("bigint" if actual in INTEGERS else "string") if kind == "peer" else kind
        columns.append(F.col(name).cast(cast).alias(name))
    return parquet_table(path, frame, ["id", *columns])


def _read_lines(spark: SparkSession, path: str, expected: dict[str, str]) -> InputTable:
    """Read JSON lines. The first line decides whether ids and peers are numbers or names."""
    what = "events" if "publisher" in expected else "subscriptions"
    lines = read_lines(spark, path)
    seen = first_object(lines, path, what)
    texts = {"id": isinstance(seen["id"], str)}
    for name, kind in expected.items():
        if kind == "peer":
            texts[name] = not isinstance(seen.get(name), int)
    types = {name: (pa.string() if text else pa.int64()) for name, text in texts.items()}
    fields = [pa.field(name, types.get(name) or _ARROW[expected[name]]) for name in ("id", *expected)]
    return json_table(path, lines, partial(_line_values, texts=texts, expected=tuple(expected)), fields)


_line = msgspec.json.Decoder(FlowLine)
_ARROW = {"double": pa.float64(), "bigint": pa.int64()}


def _line_values(line: str, texts: dict[str, bool], expected: tuple[str, ...]) -> tuple[Any, ...]:
    row = decode_line(_line, line)
    for name in expected:
        value = getattr(row, name)
        if name in texts and value is not None and isinstance(value, str) is not texts[name]:
            kind = "a name" if texts[name] else "a number"
            raise ConfigError(f"the first {name} is {kind}, but {value!r} is not")
    return (validate_id(row.id, texts["id"]), *(getattr(row, name) for name in expected))


def _check_peer_types(published: DataFrame, subscribers: DataFrame, events: str, subscriptions: str) -> None:
    """Refuse publishers and peers of different types: a publisher that also subscribes must be one peer."""
    kinds = (published.schema["publisher"].dataType.simpleString(), subscribers.schema["peer"].dataType.simpleString())
    if kinds[0] != kinds[1]:
        said = ["names" if kind == "string" else "numbers" for kind in kinds]
        raise ConfigError(f"publishers in {events} are {said[0]}, but peers in {subscriptions} are {said[1]}")


def _sift_table(table: InputTable, what: str, span: Nanos | None, max_bad: float) -> SiftedTable:
    """The usable rows. A usable row has a peer and, if others have them, a sensible size, weight and time."""
    is_event = what == "event"
    names, peer = (EVENT_COLUMNS, "publisher") if is_event else (SUBSCRIPTION_COLUMNS, "peer")
    seen = survey_rows(table.judged, names, "time_ns" if is_event else None)
    if seen["rows"] and not seen[f"known_{peer}"]:
        belongs = "publishes it" if is_event else "it belongs to"
        raise ConfigError(f"{table.path} has no column {peer}: each {what} needs the peer that {belongs}")
    reasons = missing_values(seen, what, [peer])
    if is_event:
        timed = [] if span is not None or not seen["known_time_ns"] else ["time_ns"]
        reasons += missing_values(seen, what, [name for name in (*SUMMED_COLUMNS, *timed) if seen[f"known_{name}"]])
        reasons += invalid_values(seen)
        reasons += distant_times(seen) if timed else []
    if not reasons:
        return sift_table(table, names, max_bad=max_bad, seen=seen)
    first = F.coalesce(*(F.when(F.expr(wrong), F.format_string(text, *shown)) for wrong, text, *shown in reasons))
    return sift_table(table.add_reason(first), names, max_bad=max_bad)


Reasons = list[tuple[str, ...]]
"""A condition that a bad row meets, the reason, and the columns that fill it in."""


def missing_values(seen: dict[str, Any], what: str, names: list[str]) -> Reasons:
    """Rows that lack a value which others have."""
    lacking = [name for name in names if seen[f"known_{name}"] < seen["rows"]]
    return [(f"{name} IS NULL", f"{what} %s has no {name}, but others have one", "id") for name in lacking]


def invalid_values(seen: dict[str, Any]) -> Reasons:
    """Sizes and weights that are negative or not finite."""
    reasons: Reasons = []
    for name in SUMMED_COLUMNS:
        if seen[f"known_{name}"] and not (seen[f"least_{name}"] >= 0 and seen[f"most_{name}"] < inf):
            wrong = f"NOT ({name} >= 0 AND {name} < double('inf'))"
            reasons.append((wrong, f"event %s has a {name} of %s: it must be finite and not negative", "id", name))
    return reasons


def distant_times(seen: dict[str, Any]) -> Reasons:
    """Times that do not belong to this record, for example of clocks that were not set. They are farther from the
    middle 90 % of all events than ten times the length of that middle. A single one would stretch the span, and make
    every rate wrong."""
    low, high = seen["middle_time_ns"]
    margin = FAR_FACTOR * (high - low)
    if not margin or (low - margin <= seen["least_time_ns"] and seen["most_time_ns"] <= high + margin):
        return []
    wrong = f"time_ns < {low - margin}BD OR time_ns > {high + margin}BD"
    return [(wrong, "the time_ns of event %s, %s, is far from that of all others", "id", "time_ns")]


def _drop_quarantined(pairs: DataFrame, side: str, sifted: SiftedTable) -> DataFrame:
    """The matches without those of rows in quarantine."""
    if sifted.bad is None:
        return pairs
    condemned = sifted.table.judged.where("reason IS NOT NULL AND id IS NOT NULL").select("id").distinct()
    unusable = condemned.join(sifted.rows.select("id"), "id", "left_anti").select(F.col("id").alias(side))
    return pairs.join(F.broadcast(unusable), side, "left_anti")


def observed_span(seen: dict[str, Any], events: str) -> Nanos:
    """The time that events cover: from the first to the last, plus one mean gap. So n events have n gaps."""
    if not seen["known_time_ns"]:
        raise ConfigError(f"{events} has no column time_ns: give --span, the time in which the events were published")
    rows, covered = int(seen["rows"]), int(seen["most_time_ns"]) - int(seen["least_time_ns"])
    if rows < 2 or not covered:
        raise ConfigError(
            f"all events in {events} have the same time: give --span, the time in which they were published"
        )
    return round(covered * rows / (rows - 1))


def _check_ids(flows: DataFrame, matches: str, events: str, subscriptions: str) -> None:
    """Refuse matches whose event or subscription is not in the tables."""
    seen = flows.selectExpr("max(strange_event) AS event", "max(strange_subscription) AS subscription")
    for what, one in seen.toArrow().to_pylist()[0].items():
        if one is not None:
            where = events if what == "event" else subscriptions
            raise ConfigError(f"{matches} has a match of {what} {one!r}, which is not in {where}")
