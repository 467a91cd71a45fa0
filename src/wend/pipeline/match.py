"""Which subscription wants which event, for tables of both: the plan, the job, and what it leaves.

The first plan (`broadcast.py`) gives every task the whole index; it is taken as long as that fits the memory that a
task may use, which is estimated from a sample. Beyond that the second (`partitioned.py`) brings events and
subscriptions together region by region. Both give the same rows.
"""

import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from wend.matching.bitmaps import BitmapIndex
from wend.matching.filters import Filter
from wend.model.errors import ConfigError
from wend.model.files import check_out, drafted
from wend.pipeline import broadcast, partitioned
from wend.pipeline.answers import of_side, totals
from wend.pipeline.places import by_letter
from wend.pipeline.progress import READ, counting, marked
from wend.pipeline.refusals import reworded
from wend.pipeline.regions import Plane, planes_for
from wend.pipeline.tables import parsed, read_events, read_subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PlanName = Literal["broadcast", "partitioned"]
PLANS = ("auto", "broadcast", "partitioned")
SAMPLE = 4096
TASK_MEMORY_MB = 1024


class Plan(msgspec.Struct, frozen=True):
    """How a job will run, and why."""

    name: PlanName
    why: str
    subscriptions: int
    events: int
    index_bytes: int
    planes: tuple[tuple[str, ...], ...] = ()


class Matched(msgspec.Struct, frozen=True):
    """What a job left. Seconds are of the session's work, its start not counted."""

    plan: Plan
    matches: int
    out: str
    seconds: dict[str, float]
    regions: int = 0


class Job:
    """Both tables, looked over once: readable, every id once."""

    def __init__(self, spark: "SparkSession", subscriptions: str, events: str) -> None:
        self.spark = spark
        self.seconds: dict[str, float] = {}
        with self.timed("survey"):
            self.subscriptions = read_subscriptions(spark, subscriptions)
            self.events = read_events(spark, events)
            self.subscription_count = int(survey(self.subscriptions, subscriptions)["rows"])
            self.event_count = int(survey(self.events, events)["rows"])
            self.sample = _sample(self.subscriptions)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        with reworded():
            yield
        self.seconds[what] = round(time.perf_counter() - start, 3)

    @cached_property
    def planes(self) -> list[Plane]:
        return planes_for(self.sample, self.subscription_count)

    def plan(self, wanted: str = "auto", task_memory_mb: int = TASK_MEMORY_MB) -> Plan:
        check_plan(wanted, task_memory_mb)
        each = len(pickle.dumps(BitmapIndex(enumerate(self.sample)))) / max(1, len(self.sample))
        size = int(each * self.subscription_count)
        fits = size <= task_memory_mb * 10**6
        said = f"an index of about {size / 10**6:,.0f} MB {'fits' if fits else 'does not fit'} {task_memory_mb:,} MB"
        name: PlanName = "broadcast" if wanted == "broadcast" or (wanted == "auto" and fits) else "partitioned"
        why = said if wanted == "auto" else f"asked for; {said}"
        planes = tuple(plane.names for plane in self.planes) if name == "partitioned" else ()
        return Plan(name, why, self.subscription_count, self.event_count, size, planes)

    def run(
        self, plan: Plan, out: Path, *, count: bool = False, overwrite: bool = False, quiet: bool = True
    ) -> Matched:
        check_out(out, overwrite)
        self.seconds = {"survey": self.seconds["survey"]}
        with drafted(out) as (draft, scratch):
            answer = self._broadcast if plan.name == "broadcast" else self._partitioned
            matches, regions = answer(draft, scratch, count, quiet)
        return Matched(plan, matches, str(out), self.seconds, regions)

    def _broadcast(self, draft: Path, scratch: Path, count: bool, quiet: bool) -> tuple[int, int]:
        with self.timed("compile"), self._reading(scratch, quiet):
            made = broadcast.compile_blocks(self.subscriptions, self.subscription_count, scratch)
            files = sorted(made.toArrow()["file"].to_pylist())
        job = broadcast.counts if count else broadcast.pairs
        answer = job(self.events, self.subscriptions, scratch, files)
        return self._written(answer, draft, scratch, count, self.event_count, quiet, whole=True), 0

    def _partitioned(self, draft: Path, scratch: Path, count: bool, quiet: bool) -> tuple[int, int]:
        planes = self.planes
        with self.timed("route"):
            sent = str(scratch / "sent")
            sending = partitioned.routed_subscriptions(self.subscriptions, planes, scratch)
            with self._reading(scratch, quiet):
                sending.write.parquet(sent)
            routed = self.spark.read.schema(sending.schema).parquet(by_letter(sent))
            known = partitioned.population(routed).toArrow().to_pylist()
            layout = partitioned.layout_of(planes, known)
            load = partitioned.event_load(self.events, layout).toArrow().to_pylist()
            layout, rows = partitioned.with_slices(layout, load)
        groups = partitioned.gathered(routed, self.events, layout, rows)
        job = partitioned.counts if count else partitioned.pairs
        answer = job(groups, self.events, self.subscriptions, layout, scratch)
        return self._written(answer, draft, scratch, count, rows, quiet), len(layout.places)

    def _reading(self, scratch: Path, quiet: bool) -> AbstractContextManager[None]:
        return counting(lambda: marked(scratch, READ), "filters read", total=self.subscription_count, quiet=quiet)

    def _written(
        self, answer: "DataFrame", draft: Path, scratch: Path, count: bool, rows: int, quiet: bool, whole: bool = False
    ) -> int:
        """How many matches there are."""
        what = "events" if rows == self.event_count else "events in their regions"
        with self.timed("match"), counting(lambda: marked(scratch), what, total=rows, quiet=quiet):
            answer.write.parquet(str(scratch / "counts" if count else draft))
        with self.timed("finish"):
            if not count:
                return int(self.spark.read.parquet(by_letter(draft)).count())
            counted = self.spark.read.schema(answer.schema).parquet(by_letter(scratch / "counts"))
            # A task that holds the whole index knows all of an event at once.
            alone = of_side(counted, "event") if whole else totals(counted, "event", self.events)
            alone.write.parquet(str(draft / "events"))
            totals(counted, "subscription", self.subscriptions).write.parquet(str(draft / "subscriptions"))
            events = self.spark.read.parquet(by_letter(draft / "events"))
            found = events.selectExpr("coalesce(sum(matches), 0) AS matches")
            return int(found.toArrow()["matches"][0].as_py())


def check_plan(wanted: str, task_memory_mb: int) -> None:
    if wanted not in PLANS:
        raise ConfigError(f"there is no plan {wanted!r}; there is {', '.join(PLANS)}")
    if task_memory_mb < 1:
        raise ConfigError(f"a task needs some memory, got {task_memory_mb} MB")


def survey(frame: "DataFrame", path: str, names: Iterable[str] = ()) -> dict[str, Any]:
    """How many rows there are, each with an id of its own; and of the columns that are named how many rows have a value
    (`told_NAME`), the least and the greatest."""
    from pyspark.sql import functions as F

    ways = (("told", F.count, F.sum), ("least", F.min, F.min), ("most", F.max, F.max))
    parts = [(f"{way}_{name}", name, inner, outer) for name in names for way, inner, outer in ways]
    each = frame.groupBy("id").agg(F.count("*").alias("rows"), *(i(name).alias(out) for out, name, i, _ in parts))
    asked = each.agg(
        F.coalesce(F.sum("rows"), F.lit(0)).alias("rows"),
        F.max("rows").alias("most"),
        F.max_by("id", F.struct("rows", "id")).alias("id"),
        F.count_if(F.col("id").isNull()).alias("nameless"),
        *(o(out).alias(out) for out, _, _, o in parts),
    )
    found: dict[str, Any] = asked.toArrow().to_pylist()[0]
    if found["nameless"]:
        raise ConfigError(f"{path} has rows without an id")
    if (found["most"] or 0) > 1:
        raise ConfigError(
            f"{path} has the id {found['id']!r} {found['most']} times, and ids are there to tell rows apart"
        )
    return found


def _sample(subscriptions: "DataFrame") -> list[Filter]:
    """The same ones however the rows are spread."""
    from pyspark.sql import functions as F

    rows = subscriptions.orderBy(F.xxhash64("id"), "id").limit(SAMPLE).toArrow().combine_chunks()
    if not rows.num_rows:
        return []
    return parsed(rows["id"].chunk(0), rows["filter"].chunk(0))
