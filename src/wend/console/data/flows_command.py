"""`wend data flows`: turn matches into the workload of a plan."""

import json
import time
from contextlib import nullcontext
from typing import Annotated

import msgspec
import typer

from wend.console.options import Json
from wend.console.outputs import Overwrite, check_job_output
from wend.console.spark_options import Conf, Master, MaxBad, Ship
from wend.console.terminal import facts_table, message_console, output_console, quarantine_row, stop_on_signals
from wend.model.errors import ConfigError
from wend.model.units import parse_duration

FLOWS_HELP = """Turn matches into flows, the workload of `wend plan`.

The matches are the output of `wend data match` for the same events and subscriptions. Events need a column publisher,
and may have size_bytes, weight and time_ns. Subscriptions need a column peer. Peers are numbers or names of the
topology.

The result is Parquet: publisher, receivers, rate, size_bytes and weight, a row for each publisher and set of receivers.
Rates are events per second of --span or, without it, of the time that time_ns covers.

Rows that cannot be used, such as an event whose time is far from all others, go to the table _quarantine in the result.
"""


def data_flows(
    matches: Annotated[str, typer.Option(metavar="DIR", help="The output of `wend data match`.")],
    subscriptions: Annotated[str, typer.Option(metavar="PATH", help="The subscriptions: id and peer.")],
    events: Annotated[str, typer.Option(metavar="PATH", help="The events: id and publisher.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder for the flows.")],
    span: Annotated[str | None, typer.Option(help="The time in which the events were published: 60s, 24h.")] = None,
    max_bad: MaxBad = 0.01,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
    ship: Ship = False,
    as_json: Json = False,
) -> None:
    from wend.pipeline.flows_job import write_flows
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.storage.input_tables import check_max_bad
    from wend.pipeline.storage.json_lines import is_json_lines

    # Find mistakes before Spark starts.
    check_max_bad(max_bad)
    length = None if span is None else parse_duration(span)
    if length == 0:
        raise ConfigError(f"--span must be longer than 0, got {span}")
    is_json_lines(subscriptions)
    is_json_lines(events)
    if is_json_lines(matches):
        raise ConfigError(f"{matches} is not the output of `wend data match`, which is Parquet")
    check_job_output(out, overwrite, matches, subscriptions, events)
    with stop_on_signals("nothing was written"), spark_session(master, conf=conf, ship=ship) as spark:
        began = time.perf_counter()
        with nullcontext() if as_json else message_console().status("grouping matches into flows"):
            summary = write_flows(
                spark, matches, subscriptions, events, out, span=length, max_bad=max_bad, overwrite=overwrite
            )
        took_s = time.perf_counter() - began
    if as_json:
        print(json.dumps({**msgspec.to_builtins(summary), "seconds": round(took_s, 3)}))
        return
    wanted = summary.events - summary.unwanted
    rows = [
        ("events", f"{summary.events:,}", f"in {summary.span_s:g} s; no other peer wants {summary.unwanted:,} of them"),
        ("flows", f"{summary.flows:,}", f"{wanted / summary.flows:,.1f} events in each"),
        *quarantine_row(summary.quarantined, summary.out),
        ("deliveries", f"{summary.deliveries:,.1f}", "per second"),
        ("time", f"{took_s:.1f} s", ""),
    ]
    console = output_console()
    console.print(facts_table("Flows", rows))
    console.print(f"result: {summary.out}", soft_wrap=True)
