"""`wend data`: Spark jobs on files. This module has `match` and `generate`; `sweep` is in `study.py`.

The commands import Spark themselves, so that `wend --help` stays fast.
"""

import json
import re
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from wend.console.outputs import Overwrite, check_target, check_writable
from wend.console.show import EXIT_CODES, facts, messages, output, quarantine_row, stoppable
from wend.console.study import AsJson, Conf, Master, MaxBad, Ship, data_sweep
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from wend.pipeline.match import Matched, MatchPlan

_MATCH_HELP = """Match events with subscriptions.

A subscription has an id and a filter. An event has an id and a column for each attribute; or an id and one column
attributes, a map or a JSON text. Null is a missing attribute. A struct of low, high, low_open and high_open is a range.
Both tables are Parquet (.parquet) or JSON lines (.jsonl), a file or a folder. Ids are integers or texts, and unique.

The result is Parquet: event and subscription, a row for each match. With --count it is two tables, events and
subscriptions, with the number of matches of each.
"""


def register(app: typer.Typer) -> None:
    """Add the commands on data to the `wend` command."""
    from wend.console import data_flows, data_paths, data_replay, data_submit, data_telemetry, data_topology

    data = typer.Typer(help="Spark jobs on files.", epilog=EXIT_CODES, no_args_is_help=True)
    data.command("match", help=_MATCH_HELP, epilog=EXIT_CODES)(data_match)
    data.command("generate", epilog=EXIT_CODES)(data_generate)
    data.command("flows", help=data_flows.HELP, epilog=EXIT_CODES)(data_flows.data_flows)
    data.command("topology", help=data_topology.HELP, epilog=EXIT_CODES)(data_topology.data_topology)
    data.command("paths", epilog=EXIT_CODES)(data_paths.data_paths)
    data.command("sweep", epilog=EXIT_CODES)(data_sweep)
    data.command("replay", epilog=EXIT_CODES)(data_replay.data_replay)
    data.command("recommend", epilog=EXIT_CODES)(data_replay.data_recommend)
    data.command("submit", help=data_submit.HELP, context_settings=data_submit.OPTIONS)(data_submit.data_submit)
    data.command("links", help=data_telemetry.LINKS_HELP, epilog=EXIT_CODES)(data_telemetry.data_links)
    data.command("late", help=data_telemetry.LATE_HELP, epilog=EXIT_CODES)(data_telemetry.data_late)
    data.command("workload", help=data_telemetry.WORKLOAD_HELP, epilog=EXIT_CODES)(data_telemetry.data_workload)
    data.command("compact", epilog=EXIT_CODES)(data_telemetry.data_compact)
    app.add_typer(data, name="data")


def data_match(
    subscriptions: Annotated[str, typer.Option(metavar="PATH", help="Subscriptions: id and filter.")],
    events: Annotated[str, typer.Option(metavar="PATH", help="Events: id and attributes.")],
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder for the result; --explain alone needs none.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Count the matches of each event and subscription.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan and the reason for it.")] = False,
    plan: Annotated[
        str, typer.Option(help="broadcast: the index in every task; partitioned: region by region; auto: by size.")
    ] = "auto",
    task_memory: Annotated[int, typer.Option(help="The most memory of an index in a task, in MB (for auto).")] = 1024,
    scratch: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Local folder that all workers share, for the index.")
    ] = None,
    index: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that keeps the compiled subscriptions for later jobs.")
    ] = None,
    max_bad: MaxBad = 0.01,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
    ship: Ship = False,
    as_json: AsJson = False,
) -> None:
    from wend.pipeline.input_tables import check_max_bad
    from wend.pipeline.match import MatchJob, check_plan
    from wend.pipeline.match_input import is_lines
    from wend.pipeline.session import spark_session

    # Find mistakes before Spark starts.
    check_max_bad(max_bad)
    check_plan(plan, task_memory)
    is_lines(subscriptions)
    is_lines(events)
    if out is not None:
        check_target(out, overwrite, subscriptions, events)
    if index is not None:
        check_writable(index, inside=True)
    if out is None and not explain:
        raise ConfigError("--out is needed for the result (only --explain works without)")
    with stoppable("nothing was written"), spark_session(master, conf=conf, ship=ship) as spark:
        started = time.perf_counter()
        with nullcontext() if as_json else messages().status("checking both tables"):
            job = MatchJob(spark, subscriptions, events, max_bad=max_bad)
            chosen = job.plan(plan, task_memory)
        if explain and not as_json:
            _say_plan(chosen)
        if out is None:
            if as_json:
                print(json.dumps({"plan": msgspec.to_builtins(chosen)}))
            return
        matched = job.run(chosen, out, count=count, overwrite=overwrite, scratch=scratch, index=index, quiet=as_json)
        total_s = time.perf_counter() - started
    _say_match(matched, total_s, as_json)


def _say_plan(plan: "MatchPlan") -> None:
    rows = [
        ("plan", plan.name, plan.why),
        ("subscriptions", f"{plan.subscriptions:,}", ""),
        ("events", f"{plan.events:,}", ""),
    ]
    if plan.name == "partitioned":
        planes = ", ".join(" × ".join(names) for names in plan.planes) or "no attribute is selective"
        rows.append(("planes", f"{len(plan.planes)}", planes))
    output().print(facts("Plan", rows))


def _say_match(matched: "Matched", total_s: float, as_json: bool) -> None:
    plan, seconds = matched.plan, matched.seconds
    rate = plan.events / seconds["match"]
    if as_json:
        metrics = {**msgspec.to_builtins(matched), "total_s": round(total_s, 3), "events_per_s": round(rate, 1)}
        print(json.dumps(metrics))
        return
    steps = ", ".join(f"{name} {took:.1f} s" for name, took in seconds.items())
    each = matched.matches / plan.events if plan.events else 0.0
    rows = [
        ("events", f"{plan.events:,}", f"{rate:,.0f} per second while matching"),
        ("subscriptions", f"{plan.subscriptions:,}", ""),
        ("matches", f"{matched.matches:,}", f"{each:,.1f} for each event"),
        *quarantine_row(matched.quarantined, matched.out),
        ("plan", plan.name, plan.why),
        ("time", f"{total_s:.1f} s", steps),
    ]
    console = output()
    console.print(facts("Matched", rows))
    console.print(f"result: {matched.out}", soft_wrap=True)


def data_generate(
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder for events and subscriptions, as Parquet.")],
    events: Annotated[int, typer.Option(metavar="N", help="Number of events.")] = 100_000,
    subscriptions: Annotated[int, typer.Option(metavar="N", help="Number of subscriptions.")] = 10_000,
    kind: Annotated[str, typer.Option(help="uniform, zipf, narrow, fixed (dmm) or rectangles (quist).")] = "uniform",
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 1,
    attributes: Annotated[int | None, typer.Option(help="Number of attributes: a0, a1, …")] = None,
    predicates: Annotated[
        str | None, typer.Option(metavar="A-B", help="Attributes that a filter names: 3 or 1-5.")
    ] = None,
    present: Annotated[
        str | None, typer.Option(metavar="A-B", help="Attributes that an event has: 10 or 1-10.")
    ] = None,
    width: Annotated[float | None, typer.Option(help="Widest range, as a share of the domain (narrow).")] = None,
    ranges: Annotated[float, typer.Option(help="Share of values that are published as ranges.")] = 0.0,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
    ship: Ship = False,
    as_json: AsJson = False,
) -> None:
    """Draw events and subscriptions from a seed. The rows do not depend on the master; a larger number adds rows."""
    from wend.pipeline.session import spark_session
    from wend.pipeline.workload import make_workload, write_workload

    workload = make_workload(
        kind,
        seed,
        attributes=attributes,
        predicates=_span(predicates),
        present=_span(present),
        width=width,
        ranges=ranges,
    )
    for name, count in (("--events", events), ("--subscriptions", subscriptions)):
        if count < 0:
            raise ConfigError(f"{name} must not be negative, got {count}")
    check_target(out, overwrite)
    with stoppable("nothing was written"), spark_session(master, conf=conf, ship=ship) as spark:
        started = time.perf_counter()
        write_workload(
            spark, workload, out, events_count=events, subscriptions_count=subscriptions,
            overwrite=overwrite, quiet=as_json,
        )  # fmt: skip
        took_s = time.perf_counter() - started
    if as_json:
        about = {"workload": msgspec.to_builtins(workload), "events": events, "subscriptions": subscriptions}
        print(json.dumps({**about, "out": out, "seconds": round(took_s, 3)}))
        return
    rate = (events + subscriptions) / took_s
    rows = [
        ("events", f"{events:,}", f"{out}/events"),
        ("subscriptions", f"{subscriptions:,}", f"{out}/subscriptions"),
        ("time", f"{took_s:.1f} s", f"{rate:,.0f} rows per second"),
    ]
    output().print(facts(f"Workload {kind}, seed {seed}", rows))


def _span(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text.strip())
    if found is None:
        raise ConfigError(f"expected a number such as 3 or a span such as 1-5, got {text!r}")
    return int(found[1]), int(found[2] or found[1])
