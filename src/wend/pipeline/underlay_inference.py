"""Infer the underlay from traceroute records of many hosts, and find the overlay links that share routers.

An Arrow function (`topology/traceroute_counts.py`) counts every hop once: built-in functions over arrays of arrays are
ten times slower. The counts are small, and Spark's built-in functions do the rest. Paths between two peers are
undirected.
"""

from functools import partial, reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.model.errors import ConfigError
from wend.pipeline.storage.parquet_tables import read_parquet
from wend.topology.inference import LONGEST, merge_holes
from wend.topology.traceroute_counts import RECORDS, count

_HOP_COUNTS = "kind string, a string, b string, gap int, middle string, seen long, first_ns long, last_ns long"
_COLUMNS = dict.fromkeys(("source", "target", "time_ns"), "bigint") | {"hops": "array<string>", "reached": "boolean"}
MIN_SEEN = 3
MAX_LINKS = 2000
"""A router that more overlay links cross is left out of the overlaps: it would make millions of pairs."""
_MIN_ANSWERED = 0.5
"""A router is on the path of an overlay link if it answered in this share of the link's traces."""


class InferredUnderlay(NamedTuple):
    """The result. Routers are named as in the records; peers are `peer:3`, routers that never answer `unknown:5`."""

    links: DataFrame
    """a, b, kind (link, last mile), seen, filled (how often in a hole of a trace), first_ns, last_ns"""
    overlaps: DataFrame
    """a, b, c, d, q: overlay links a-b and c-d share q routers; pairs that share none have no row"""
    counts: DataFrame
    """what, seen: the number of traces, and of those that could not be used, by reason"""


def infer_underlay(records: DataFrame, *, least: int = MIN_SEEN, most_links: int = MAX_LINKS) -> InferredUnderlay:
    """Infer the underlay. The overlaps leave out routers that more than `most_links` overlay links cross."""
    if least < 1:
        raise ConfigError(f"least must be at least 1, got {least}")
    _check_columns(records)
    seen = count_hops(records)
    holes = seen.where("kind = 'hole'").drop("kind", "middle")
    filled = _fill_holes(seen, holes)
    unknown = _find_unknown_routers(holes, filled, least)
    links, rare = _find_links(seen, holes, filled, unknown, least)
    members = _link_routers(seen, unknown)
    crossed = members.groupBy("router").count()
    busy = crossed.where(crossed["count"] > most_links).select("router")
    overlaps = _count_overlaps(members.join(busy, "router", "left_anti"))
    return InferredUnderlay(links, overlaps, _summarize_counts(seen, holes, filled, unknown, rare, busy))


def read_records(spark: SparkSession, path: str) -> DataFrame:
    """Read traceroute records from Parquet, and check their columns."""
    records = read_parquet(spark, path)
    try:
        _check_columns(records)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", code=error.code) from None
    return records


def _check_columns(records: DataFrame) -> None:
    actual = dict(records.dtypes)
    for name, kind in _COLUMNS.items():
        if actual.get(name) != kind:
            raise ConfigError(f"traceroute records need a column {name} of type {kind}, got {actual.get(name, 'none')}")


def count_hops(records: DataFrame) -> DataFrame:
    """Count the hops of all records, and cache the counts: the steps below read them several times."""
    rows = records.select(*RECORDS.names).mapInArrow(partial(count, longest=LONGEST), _HOP_COUNTS)
    return _sum_counts(rows, ["kind", "a", "b", "gap", "middle"]).persist()


def _sum_counts(rows: DataFrame, keys: list[str], *counts: str) -> DataFrame:
    """Group rows by keys: how often each was seen, when first and last, and the sums of further counts."""
    return rows.groupBy(*keys).agg(
        *(F.sum(name).alias(name) for name in ("seen", *counts)),
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
    )


def _fill_holes(seen: DataFrame, holes: DataFrame) -> DataFrame:
    """Find the routers that most often fill each hole (rule 2). Columns: a, b, gap, middle."""
    keys = holes.select("a", "b", "gap")
    best = seen.where("kind = 'stretch'").join(keys, ["a", "b", "gap"], "left_semi")
    order = F.struct((-F.col("seen")).alias("often"), F.col("middle"))
    return best.groupBy("a", "b", "gap").agg(F.min(order)["middle"].alias("middle"))


def _find_unknown_routers(holes: DataFrame, filled: DataFrame, least: int) -> DataFrame:
    """Find the routers in holes that no trace fills (rule 3), in one task. Columns: a, b, unknown."""
    never = holes.where((F.col("gap") == 1) & (F.col("seen") >= least)).join(filled, ["a", "b", "gap"], "left_anti")
    together = never.select("a", "b", F.lit(0).alias("all")).groupBy("all")
    return together.applyInArrow(_merge_routers, "a string, b string, unknown string").persist()


def _merge_routers(table: pa.Table) -> pa.Table:
    def node(name: str) -> tuple[str, int | str]:
        return ("peer", int(name.removeprefix("peer:"))) if name.startswith("peer:") else ("router", name)

    pairs = list(zip(table.column("a").to_pylist(), table.column("b").to_pylist(), strict=True))
    nodes = {(min(node(a), node(b)), max(node(a), node(b))): (a, b) for a, b in pairs}
    rows = [(*nodes[pair], f"unknown:{number}") for pair, (_, number) in merge_holes(set(nodes)).items()]
    names = [pa.array([row[i] for row in rows], pa.string()) for i in range(3)]
    return pa.table(names, names=["a", "b", "unknown"])


def _find_links(
    seen: DataFrame, holes: DataFrame, filled: DataFrame, unknown: DataFrame, least: int
) -> tuple[DataFrame, DataFrame]:
    """Links seen at least `least` times, and links seen less often."""
    sights = ["seen", "first_ns", "last_ns"]
    direct = seen.where("kind = 'link'").select("a", "b", *sights, F.lit(0).cast("long").alias("filled"))
    paths = holes.join(filled, ["a", "b", "gap"]).select(
        F.concat(F.array("a"), F.split("middle", "\n"), F.array("b")).alias("path"), *sights
    )
    through = (
        holes.where("gap = 1").join(unknown, ["a", "b"]).select(F.array("a", "unknown", "b").alias("path"), *sights)
    )
    steps = paths.unionByName(through).select(
        F.explode(F.arrays_zip(F.col("path").alias("one"), F.expr("slice(path, 2, size(path))").alias("two"))).alias(
            "step"
        ),
        *sights,
    )
    within = steps.where("step.two is not null").select(
        F.least("step.one", "step.two").alias("a"),
        F.greatest("step.one", "step.two").alias("b"),
        *sights,
        F.col("seen").alias("filled"),
    )
    ordered = direct.withColumns({"a": F.least("a", "b"), "b": F.greatest("a", "b")})
    both = _sum_counts(ordered.unionByName(within), ["a", "b"], "filled")
    mile = F.col("a").startswith("peer:") | F.col("b").startswith("peer:")
    named = both.withColumn("kind", F.when(mile, "last mile").otherwise("link"))
    shown = named.select("a", "b", "kind", "seen", "filled", "first_ns", "last_ns")
    return shown.where(F.col("seen") >= least), shown.where(F.col("seen") < least)


def _link_routers(seen: DataFrame, unknown: DataFrame) -> DataFrame:
    """List the routers on the path of each overlay link, without end hosts. Columns: link, router."""
    traces = seen.where("kind = 'pair'").select("a", "b", F.col("seen").alias("traces"))
    answered = seen.where("kind = 'member'").select("a", "b", F.col("middle").alias("router"), "seen")
    ends = F.split("middle", "\n")
    missing = (
        seen.where("kind = 'missing'")
        .select("a", "b", ends[0].alias("u"), ends[1].alias("v"), "seen")
        .join(
            unknown.select(F.col("a").alias("u"), F.col("b").alias("v"), F.col("unknown").alias("router")), ["u", "v"]
        )
        .groupBy("a", "b", "router")
        .agg(F.sum("seen").alias("seen"))
    )
    on = answered.unionByName(missing.select("a", "b", "router", "seen")).join(traces, ["a", "b"])
    number = [F.substring_index(end, ":", -1).cast("long").alias(end) for end in ("a", "b")]
    return on.where(F.col("seen") >= _MIN_ANSWERED * F.col("traces")).select(F.struct(*number).alias("link"), "router")


def _count_overlaps(members: DataFrame) -> DataFrame:
    """The number of shared routers, for every two overlay links that share any."""
    other = members.select(F.col("link").alias("other"), "router")
    shared = members.join(other, "router").where("link < other").groupBy("link", "other").agg(F.count("*").alias("q"))
    return shared.select(
        F.col("link.a").alias("a"),
        F.col("link.b").alias("b"),
        F.col("other.a").alias("c"),
        F.col("other.b").alias("d"),
        "q",
    )


def _summarize_counts(
    seen: DataFrame, holes: DataFrame, filled: DataFrame, unknown: DataFrame, rare: DataFrame, busy: DataFrame
) -> DataFrame:
    open_holes = holes.join(filled, ["a", "b", "gap"], "left_anti").join(
        unknown.withColumn("gap", F.lit(1)), ["a", "b", "gap"], "left_anti"
    )
    rows = {
        "traces": seen.where("kind = 'pair'").select("seen"),
        "records without source, target or time": seen.where("kind = 'unusable'").select("seen"),
        "traces that met a router twice": seen.where("kind = 'looped'").select("seen"),
        "holes that nothing fills": open_holes.select("seen"),
        "routers on too many paths for overlaps": busy.select(F.lit(1).cast("long").alias("seen")),
        "links seen too seldom": rare.select(F.lit(1).cast("long").alias("seen")),
    }
    counts = [
        table.agg(F.coalesce(F.sum("seen"), F.lit(0)).alias("seen")).select(F.lit(what).alias("what"), "seen")
        for what, table in rows.items()
    ]
    return reduce(DataFrame.unionByName, counts)
