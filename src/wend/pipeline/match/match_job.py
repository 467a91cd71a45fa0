"""Match a table of events with a table of subscriptions: choose a plan, run the job, write the result.

The broadcast plan (`broadcast_plan.py`) gives every task the whole index. The job uses it if the index fits into the
memory of a task; a sample of the filters gives the estimate. Otherwise the partitioned plan (`partitioned_plan.py`)
brings events and subscriptions together region by region. Both plans give the same rows.
"""

import pickle
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wend.matching.batch_index import BatchIndex
from wend.matching.filters import Filter
from wend.model.errors import ConfigError
from wend.pipeline.match import broadcast_plan, partitioned_plan
from wend.pipeline.match.attribute_regions import AttributePlane, choose_planes
from wend.pipeline.match.match_input import parse_filters, read_events, read_subscriptions
from wend.pipeline.match.match_output import select_side_counts, sum_counts
from wend.pipeline.spark.partitions import MAX_ROWS, count_cores, spread_rows
from wend.pipeline.spark.task_errors import translate_errors
from wend.pipeline.spark.task_progress import READ, row_progress, sum_reported_rows
from wend.pipeline.storage.input_tables import (
    MAX_BAD,
    SiftedTable,
    check_max_bad,
    check_share,
    quarantine_rows,
    sift_table,
    write_quarantine,
)
from wend.pipeline.storage.job_folders import JobFolders, Target, literal_path, new_output

PlanName = Literal["broadcast", "partitioned"]
PLANS = ("auto", "broadcast", "partitioned")
SAMPLE_ROWS = 4096
TASK_MEMORY_MB = 1024


class MatchPlan(msgspec.Struct, frozen=True):
    """The plan of a job, and why it was chosen."""

    name: PlanName
    why: str
    subscriptions: int
    events: int
    index_bytes: int
    planes: tuple[tuple[str, ...], ...] = ()


class MatchSummary(msgspec.Struct, frozen=True):
    """The result of a job. Seconds do not include the start of the session."""

    plan: MatchPlan
    matches: int
    out: str
    seconds: dict[str, float]
    regions: int = 0
    quarantined: int = 0
    """Rows of both tables that could not be used."""


class MatchJob:
    """Both tables, sifted once: their rows can be read, and each id is unique."""

    def __init__(self, spark: SparkSession, subscriptions: str, events: str, *, max_bad: float = MAX_BAD) -> None:
        check_max_bad(max_bad)
        self.spark = spark
        self.max_bad = max_bad
        self.index: Path | None = None
        self.seconds: dict[str, float] = {}
        with self.measure_time("survey"):
            self.sifted = sift_table(read_subscriptions(spark, subscriptions), max_bad=max_bad)
            self.sifted_events = sift_table(read_events(spark, events), max_bad=max_bad)
            self.subscriptions, self.events = self.sifted.rows, self.sifted_events.rows
            self.subscription_count = int(self.sifted.seen["rows"])
            self.event_count = int(self.sifted_events.seen["rows"])
            self.cores = count_cores(spark)
            self.events = spread_rows(self.events, self.event_count, int(self.sifted_events.seen["tasks"]), self.cores)
            self.sample = _sample_filters(self.subscriptions)

    @contextmanager
    def measure_time(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        with translate_errors():
            yield
        self.seconds[what] = round(time.perf_counter() - start, 3)

    @cached_property
    def planes(self) -> list[AttributePlane]:
        return choose_planes(self.sample, self.subscription_count)

    def plan(self, choice: str = "auto", task_memory_mb: int = TASK_MEMORY_MB) -> MatchPlan:
        check_plan(choice, task_memory_mb)
        each = len(pickle.dumps(BatchIndex(self.sample))) / max(1, len(self.sample))
        size = int(each * self.subscription_count)
        fits = size <= task_memory_mb * 10**6
        fitting = "fits" if fits else "does not fit"
        estimate = f"an index of about {size / 10**6:,.0f} MB {fitting} {task_memory_mb:,} MB"
        name: PlanName = "broadcast" if choice == "broadcast" or (choice == "auto" and fits) else "partitioned"
        why = estimate if choice == "auto" else f"asked for; {estimate}"
        planes = tuple(plane.names for plane in self.planes) if name == "partitioned" else ()
        return MatchPlan(name, why, self.subscription_count, self.event_count, size, planes)

    def run(
        self,
        plan: MatchPlan,
        out: Target,
        *,
        count: bool = False,
        overwrite: bool = False,
        scratch: Path | None = None,
        index: Path | None = None,
        quiet: bool = True,
    ) -> MatchSummary:
        """Write the matches. `scratch` is a local folder that all workers share, for the files of tasks; without it
        these go beside the output. `index` is a folder that stores the compiled subscriptions for later jobs."""
        if index is not None:
            index.mkdir(parents=True, exist_ok=True)
        self.index = index
        self.seconds = {"survey": self.seconds["survey"]}
        with new_output(self.spark, out, overwrite=overwrite, scratch=scratch) as draft:
            answer = self._run_broadcast if plan.name == "broadcast" else self._run_partitioned
            matches, regions, sifted = answer(draft, count, quiet)
            with translate_errors():
                quarantined = write_quarantine(draft.result, sifted, self.sifted_events)
        return MatchSummary(plan, matches, str(out), self.seconds, regions, quarantined)

    def _run_broadcast(self, draft: JobFolders, count: bool, quiet: bool) -> tuple[int, int, SiftedTable]:
        folder = draft.shared_folder()
        with self.measure_time("compile"), self._show_reading(draft, quiet):
            blocks = broadcast_plan.compile_blocks(self.subscriptions, self.subscription_count, folder, self.index)
            rows = blocks.toArrow()
            files = sorted(rows["file"].drop_null().to_pylist())
            bad = rows.filter(rows["reason"].is_valid()).select(["subscription", "reason"])
            sifted, everyone = self._quarantine_filters(
                self.spark.createDataFrame(bad) if bad.num_rows else None, bad.num_rows
            )
        answer = broadcast_plan.match_events(self.events, self.subscriptions, folder, files, count=count)
        return self._write_matches(answer, draft, everyone, count, self.event_count, quiet, whole=True), 0, sifted

    def _run_partitioned(self, draft: JobFolders, count: bool, quiet: bool) -> tuple[int, int, SiftedTable]:
        planes = self.planes
        with self.measure_time("route"):
            sent = f"{draft.scratch}/sent"
            sending = partitioned_plan.route_subscriptions(self.subscriptions, planes, draft.folder)
            with self._show_reading(draft, quiet):
                sending.write.parquet(sent)
            routed = self.spark.read.schema(sending.schema).parquet(literal_path(sent))
            bad = partitioned_plan.unreadable_filters(routed)
            sifted, everyone = self._quarantine_filters(bad, bad.count())
            populations = partitioned_plan.count_subscriptions(routed).toArrow().to_pylist()
            layout = partitioned_plan.make_layout(planes, populations)
            load = partitioned_plan.count_events(self.events, layout).toArrow().to_pylist()
            layout, rows = partitioned_plan.add_slices(layout, load)
        groups = partitioned_plan.gather_groups(routed, self.events, layout, max(2 * self.cores, -(-rows // MAX_ROWS)))
        answer = partitioned_plan.match_groups(
            groups, self.events, self.subscriptions, layout, draft.folder, count=count
        )
        return self._write_matches(answer, draft, everyone, count, rows, quiet), len(layout.regions), sifted

    def _quarantine_filters(self, bad: DataFrame | None, count: int) -> tuple[SiftedTable, DataFrame]:
        """Put subscriptions whose filters cannot be read into the quarantine. Return also the other subscriptions."""
        if bad is None or not count:
            return self.sifted, self.subscriptions
        table, few = self.sifted.table, F.broadcast(bad.withColumnRenamed("subscription", "id"))
        rows = table.judged.where("reason IS NULL").drop("reason").join(few, "id")
        quarantine = quarantine_rows(table, rows.withColumn("text", F.coalesce("text", "filter")))
        quarantine = quarantine if self.sifted.bad is None else self.sifted.bad.unionByName(quarantine)
        total = self.sifted.bad_rows + count
        everything = self.subscription_count + self.sifted.bad_rows
        check_share(table.path, quarantine, total, everything, self.max_bad)
        return replace(self.sifted, bad=quarantine, bad_rows=total), self.subscriptions.join(few, "id", "left_anti")

    def _show_reading(self, draft: JobFolders, quiet: bool) -> AbstractContextManager[None]:
        return row_progress(
            lambda: sum_reported_rows(draft.folder, READ), "filters read", total=self.subscription_count, quiet=quiet
        )

    def _write_matches(
        self,
        answer: DataFrame,
        draft: JobFolders,
        everyone: DataFrame,
        count: bool,
        rows: int,
        quiet: bool,
        whole: bool = False,
    ) -> int:
        """Write the result; return the number of matches."""
        what = "events" if rows == self.event_count else "events by region"
        with (
            self.measure_time("match"),
            row_progress(lambda: sum_reported_rows(draft.folder), what, total=rows, quiet=quiet),
        ):
            answer.write.parquet(f"{draft.scratch}/counts" if count else draft.result)
        with self.measure_time("finish"):
            if not count:
                return int(self.spark.read.parquet(literal_path(draft.result)).count())
            counted = self.spark.read.schema(answer.schema).parquet(literal_path(f"{draft.scratch}/counts"))
            # A task with the whole index counts all matches of an event at once.
            alone = select_side_counts(counted, "event") if whole else sum_counts(counted, "event", self.events)
            alone.write.parquet(f"{draft.result}/events")
            sum_counts(counted, "subscription", everyone).write.parquet(f"{draft.result}/subscriptions")
            events = self.spark.read.parquet(literal_path(f"{draft.result}/events"))
            return int(events.selectExpr("coalesce(sum(matches), 0)").toArrow()[0][0].as_py())


def check_plan(choice: str, task_memory_mb: int) -> None:
    if choice not in PLANS:
        raise ConfigError(f"there is no plan {choice!r}; the plans are {', '.join(PLANS)}")
    if task_memory_mb < 1:
        raise ConfigError(f"a task needs at least 1 MB of memory, got {task_memory_mb}")


def _sample_filters(subscriptions: DataFrame) -> list[Filter]:
    """Draw a sample of the filters that does not depend on the partitions."""
    rows = subscriptions.orderBy(F.xxhash64("id"), "id").limit(SAMPLE_ROWS).toArrow().combine_chunks()
    if not rows.num_rows:
        return []
    return parse_filters(rows["id"].chunk(0), rows["filter"].chunk(0))[1]
