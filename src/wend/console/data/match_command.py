"""`wend data match`: match events with subscriptions."""

import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from wend.console.options import Json
from wend.console.outputs import Overwrite, check_job_output, check_writable
from wend.console.spark_options import Conf, Master, MaxBad, Ship
from wend.console.terminal import facts_table, message_console, output_console, quarantine_row, stop_on_signals
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from wend.pipeline.match.match_job import MatchPlan, MatchSummary

MATCH_HELP = """Match events with subscriptions.

A subscription has an id and a filter. An event has an id and a column for each attribute; or an id and one column
attributes, a map or a JSON text. Null is a missing attribute. A struct of low, high, low_open and high_open is a range.
Both tables are Parquet (.parquet) or JSON lines (.jsonl), a file or a folder. Ids are integers or texts, and unique.

The result is Parquet: event and subscription, a row for each match. With --count it is two tables, events and
subscriptions, with the number of matches of each.
"""


def data_match(
    subscriptions: Annotated[str, typer.Option(metavar="PATH", help="Subscriptions: id and filter.")],
    events: Annotated[str, typer.Option(metavar="PATH", help="Events: id and attributes.")],
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder for the result. --explain does not need one.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Count the matches of each event and subscription.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan and the reason for it.")] = False,
    plan: Annotated[
        str, typer.Option(help="broadcast: every task has the index; partitioned: region by region; auto: by size.")
    ] = "auto",
    task_memory: Annotated[int, typer.Option(help="With auto: the most memory for the index in a task, in MB.")] = 1024,
    scratch: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A local folder for the index that all workers share.")
    ] = None,
    index: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder in which compiled subscriptions stay for later jobs.")
    ] = None,
    max_bad: MaxBad = 0.01,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
    ship: Ship = False,
    as_json: Json = False,
) -> None:
    from wend.pipeline.match.match_job import MatchJob, check_plan
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.storage.input_tables import check_max_bad
    from wend.pipeline.storage.json_lines import is_json_lines

    # Find mistakes before Spark starts.
    check_max_bad(max_bad)
    check_plan(plan, task_memory)
    is_json_lines(subscriptions)
    is_json_lines(events)
    if out is not None:
        check_job_output(out, overwrite, subscriptions, events)
    if index is not None:
        check_writable(index, inside=True)
    if out is None and not explain:
        raise ConfigError("--out is needed for the result (only --explain works without)")
    with stop_on_signals("nothing was written"), spark_session(master, conf=conf, ship=ship) as spark:
        started = time.perf_counter()
        with nullcontext() if as_json else message_console().status("checking both tables"):
            job = MatchJob(spark, subscriptions, events, max_bad=max_bad)
            chosen = job.plan(plan, task_memory)
        if explain and not as_json:
            _print_plan(chosen)
        if out is None:
            if as_json:
                print(json.dumps({"plan": msgspec.to_builtins(chosen)}))
            return
        matched = job.run(chosen, out, count=count, overwrite=overwrite, scratch=scratch, index=index, quiet=as_json)
        total_s = time.perf_counter() - started
    _print_summary(matched, total_s, as_json)


def _print_plan(plan: "MatchPlan") -> None:
    rows = [
        ("plan", plan.name, plan.why),
        ("subscriptions", f"{plan.subscriptions:,}", ""),
        ("events", f"{plan.events:,}", ""),
    ]
    if plan.name == "partitioned":
        planes = ", ".join(" × ".join(names) for names in plan.planes) or "no attribute is selective"
        rows.append(("planes", f"{len(plan.planes)}", planes))
    output_console().print(facts_table("Plan", rows))


def _print_summary(matched: "MatchSummary", total_s: float, as_json: bool) -> None:
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
    console = output_console()
    console.print(facts_table("Match", rows))
    console.print(f"result: {matched.out}", soft_wrap=True)
