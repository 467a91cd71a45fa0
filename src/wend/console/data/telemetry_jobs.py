"""`wend data links|late|workload|compact`: jobs on telemetry, as a batch or following arriving segments."""

import inspect
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from wend.console.options import Json
from wend.console.outputs import announce_folder, check_file, check_writable, write_text
from wend.console.spark_options import Conf, Master, MaxBad, Ship
from wend.console.terminal import facts_table, message_console, output_console, print_remarks, stop_on_signals
from wend.model.errors import ConfigError
from wend.model.units import MS, SECOND, parse_duration

if TYPE_CHECKING:
    from wend.pipeline.spark.session import SparkSession
    from wend.pipeline.telemetry.segment_listing import Listing
    from wend.pipeline.telemetry.table_update import TelemetryJob
    from wend.pipeline.telemetry.updates import UpdateSummary

Segments = Annotated[str, typer.Argument(metavar="SEGMENTS", help="Folder with segments of telemetry, in any layout.")]
Tables = Annotated[
    str, typer.Option(metavar="DIR", help="Folder of tables. The job adds to tables that it wrote there before.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on and use segments as they arrive, until Ctrl-C.")]
Drain = Annotated[bool, typer.Option("--drain", help="With --follow: stop when no segment is left.")]
CheckpointAt = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="With --follow: the folder for the state of the stream. By default, in --out."),
]
Rebuild = Annotated[
    bool, typer.Option("--rebuild", help="Write the tables from scratch. Old versions stay until `wend data compact`.")
]
Picture = Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the result, as SVG.")]

LINKS_HELP = """Compute statistics of links from the telemetry of peers.

The result is a folder of tables. `links` has a row for each link and window: delays, losses, outages and availability.
`outages` has the begin and the end of each outage, as both ends agree. Clocks of peers may be wrong: they are compared
by events that several peers saw, or by outages that both ends of a link saw.

A later call adds segments that are new. Segments and rows that cannot be used go to the table _quarantine, with a
reason.
"""
LATE_HELP = """Show where late events lost their time, from the telemetry of peers.

The result is a folder of tables. `causes` says, for each window, what time late deliveries spent waiting at each peer
for each neighbour (in queues, for retransmissions), on each link, in the queue of a receiving host, and between arrival
and delivery. A detour is time on links that are not on the shortest route. `lateness` counts deliveries, late ones, and
those of which a part of the route is not known.
"""
WORKLOAD_HELP = """Compute the flows of an overlay for `wend plan` from the telemetry of peers.

The result is a folder of tables. `flows` has a row for each publisher and set of receivers: the rate of its events per
second, their mean size, and the shortest deadline. `wend plan --from` reads the folder as it is.
"""


@dataclass(frozen=True)
class JobOptions:
    """The options that all jobs on telemetry take."""

    segments: Segments
    out: Tables
    picture: Picture = None
    follow: Follow = False
    drain: Drain = False
    checkpoint: CheckpointAt = None
    max_bad: MaxBad = 0.01
    rebuild: Rebuild = False
    master: Master = None
    conf: Conf = None
    ship: Ship = False
    as_json: Json = False


def _make_job_command(made_by: "Callable[..., TelemetryJob]", without: tuple[str, ...] = ()) -> Callable[..., None]:
    """The command of a job: its own options, from which a function makes the job, and those of all jobs."""
    own = dict(inspect.signature(made_by).parameters)
    common = {name: one for name, one in inspect.signature(JobOptions).parameters.items() if name not in without}

    def command(**given: Any) -> None:
        job = made_by(**{name: given.pop(name) for name in own})
        _run_job(job, JobOptions(**given))

    first = {name: common.pop(name) for name in ("segments", "out")}
    parameters = {
        name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, one in {**first, **own, **common}.items()
    }
    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    return command


def _links_job(
    window: Annotated[str, typer.Option(help="The length of a window: 10s, 1m, 1h.")] = "1m",
) -> "TelemetryJob":
    from wend.pipeline.telemetry.links_job import LinksJob

    length = parse_duration(window)
    if length < 100 * MS:
        raise ConfigError(f"--window must be at least 100ms, got {window}")
    return LinksJob(length)


def _late_job(window: Annotated[str, typer.Option(help="The length of a window: 15m, 1h.")] = "15m") -> "TelemetryJob":
    from wend.pipeline.telemetry.late_job import LateJob

    length = parse_duration(window)
    if length < 60 * SECOND:
        raise ConfigError(f"--window must be at least 1m, got {window}: events are joined by window")
    return LateJob(length)


def _workload_job() -> "TelemetryJob":
    from wend.pipeline.telemetry.workload_job import WorkloadJob

    return WorkloadJob()


data_links = _make_job_command(_links_job)
data_late = _make_job_command(_late_job)
data_workload = _make_job_command(_workload_job, without=("picture",))


def _run_job(job: "TelemetryJob", options: JobOptions) -> None:
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.storage.input_tables import check_max_bad
    from wend.pipeline.storage.job_folders import local_path

    # Find mistakes before Spark starts.
    check_max_bad(options.max_bad)
    _check_places(options.segments, options.out, options.picture)
    if (options.drain or options.checkpoint is not None) and not options.follow:
        raise ConfigError("--drain and --checkpoint are for --follow")
    if options.follow and options.rebuild:
        raise ConfigError("--follow adds to the tables of a folder: --rebuild is for a batch")
    listing = None if options.follow or local_path(options.segments) is None else _list_segments(None, options)
    left = "the tables are as they were after the last update" if options.follow else "the tables are as they were"
    with stop_on_signals(left), spark_session(options.master, conf=options.conf, ship=options.ship) as spark:
        if options.follow:
            _run_follow(spark, job, options)
        else:
            _run_batch(spark, job, options, listing or _list_segments(spark, options))
        if options.picture is not None:
            write_text(options.picture, job.draw_picture(spark, options.out))
            if not options.as_json:
                output_console().print(f"picture: {options.picture}", soft_wrap=True)


def _check_places(segments: str, out: str, picture: Path | None) -> None:
    from wend.pipeline.storage.job_folders import local_path

    source, place = local_path(segments), local_path(out)
    if source is not None and not source.exists():
        raise ConfigError(f"there is no {segments}", code="unreadable")
    if place is not None:
        if place.is_file():
            raise ConfigError(f"{out} is a file, but tables need a folder", code="unwritable")
        if place.is_dir() and any(place.iterdir()) and not (place / "versions").is_dir():
            raise ConfigError(f"{out} is not empty, and has no tables of Wend's", code="file-exists")
        check_writable(place, inside=True)
        announce_folder(place.parent)
    if picture is not None:
        check_file(picture, ".svg")


def _list_segments(spark: "SparkSession | None", options: JobOptions) -> "Listing":
    """The segments of a batch. Local ones are listed without Spark."""
    from wend.pipeline.spark.task_errors import translate_errors
    from wend.pipeline.telemetry.segment_listing import list_segments

    with translate_errors(), nullcontext() if options.as_json else message_console().status("listing segments"):
        listing = list_segments(spark, options.segments)
    if not listing.files:
        others = f"; it has {listing.others} other files" if listing.others else ""
        raise ConfigError(f"{options.segments} has no segments of telemetry{others}")
    return listing


def _run_batch(spark: "SparkSession", job: "TelemetryJob", options: JobOptions, listing: "Listing") -> None:
    from wend.pipeline.telemetry.updates import run_update

    with nullcontext() if options.as_json else message_console().status(f"reading {len(listing.files):,} files"):
        summary = run_update(spark, options.out, job, listing.files, max_bad=options.max_bad, rebuild=options.rebuild)
    assert summary is not None
    _print_summary(job.name, summary, options.as_json, listing.others)


def _run_follow(spark: "SparkSession", job: "TelemetryJob", options: JobOptions) -> None:
    from wend.pipeline.telemetry.follow import follow_segments

    if not options.as_json:
        message_console().print(f"following {options.segments}; Ctrl-C ends it", soft_wrap=True)
    updates = 0

    def report(summary: "UpdateSummary") -> None:
        nonlocal updates
        updates += 1
        (_print_json if options.as_json else _print_line)(summary)

    checkpoint = options.checkpoint or f"{options.out.rstrip('/')}/checkpoint"
    follow_segments(
        spark, options.segments, options.out, job, checkpoint=checkpoint, drain=options.drain, report=report
    )
    if options.drain and not updates and not options.as_json:
        message_console().print(f"{options.segments} has no segment that the stream has not used yet", soft_wrap=True)


def _print_json(summary: "UpdateSummary") -> None:
    print(json.dumps(msgspec.to_builtins(summary)), flush=True)


def _print_line(summary: "UpdateSummary") -> None:
    """One line for an update of a stream."""
    rows = ", ".join(f"{name} {count:,}" for name, count in summary.results.items())
    bad = f", quarantined {summary.quarantined:,}" if summary.quarantined else ""
    now = time.strftime("%H:%M:%S")
    new = f"{summary.segments:,} segments, {summary.rows:,} rows, {summary.copies:,} copies"
    print(f"{now} {new}{bad}; {rows}", flush=True)
    print_remarks(summary.remarks)


def _print_summary(name: str, summary: "UpdateSummary", as_json: bool, others: int) -> None:
    if as_json:
        print(json.dumps({**msgspec.to_builtins(summary), "others": others}))
        return
    rate = summary.rows / summary.seconds if summary.seconds else 0.0
    unaligned = ", ".join(map(str, summary.unaligned[:8])) + (", …" if len(summary.unaligned) > 8 else "")
    clocks = f"on their own clock: {unaligned}" if unaligned else "their clocks are aligned"
    rows = [
        ("segments", f"{summary.segments:,}", f"{summary.rows:,} rows, {rate:,.0f} per second"),
        ("peers", f"{summary.peers:,}", clocks),
        *((table, f"{count:,}", f"rows of {summary.out}, table {table}") for table, count in summary.results.items()),
    ]
    if summary.copies:
        rows.insert(1, ("copies", f"{summary.copies:,}", "files whose segments were used already"))
    if others:
        rows.append(("other files", f"{others:,}", "with names that are not those of segments"))
    if summary.quarantined:
        what = f"{summary.unreadable:,} segments among them; table _quarantine has the reasons"
        rows.append(("quarantined", f"{summary.quarantined:,}", what))
    rows.append(("time", f"{summary.seconds:.1f} s", f"version {summary.version}"))
    output_console().print(facts_table(name.capitalize(), rows))
    print_remarks(summary.remarks)


def data_compact(
    tables: Annotated[str, typer.Argument(metavar="DIR", help="Folder of tables: the --out of another command.")],
    retain: Annotated[str, typer.Option(help="How long versions stay readable after they were replaced.")] = "24h",
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Merge the small files of tables, and remove versions that are no longer needed."""
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.storage.compact_tables import compact_tables
    from wend.pipeline.storage.job_folders import local_path
    from wend.pipeline.storage.versioned_tables import TableFolder

    retain_ns = parse_duration(retain)
    if local_path(tables) is not None:
        TableFolder(None, tables).require_newest_version()
    with stop_on_signals("the tables are as they were"), spark_session(master, conf=conf) as spark:
        began = time.perf_counter()
        with nullcontext() if as_json else message_console().status("merging files"):
            result = compact_tables(spark, tables, retain_ns=retain_ns)
        took_s = time.perf_counter() - began
    if as_json:
        print(json.dumps({**msgspec.to_builtins(result), "seconds": round(took_s, 3)}))
        return
    hours = f"{retain_ns / SECOND / 3600:g} h"
    rows = [
        ("files", f"{result.files_after:,}", f"{result.files_before:,} before"),
        ("versions removed", f"{result.versions_removed:,}", f"replaced more than {hours} ago"),
        ("files removed", f"{result.files_removed:,}", "that no version names"),
        ("time", f"{took_s:.1f} s", f"version {result.version}"),
    ]
    output_console().print(facts_table("Compacted", rows))
