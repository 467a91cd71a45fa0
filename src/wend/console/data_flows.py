"""`wend data flows`: from matches to the workload of a plan."""

import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wend.console.outputs import Overwrite
from wend.console.show import facts, messages, output, stoppable
from wend.console.study import AsJson, Master, Ship
from wend.model.errors import ConfigError
from wend.model.units import parse_duration

HELP = """Make flows of matches: the workload that `wend plan` plans for.

Matches are what `wend data match` wrote of the same events and subscriptions. Events need a column publisher, and may
have size_bytes, weight and time_ns; subscriptions need a column peer. Peers are numbers or names of the topology.

The answer is Parquet: publisher, receivers, rate, size_bytes and weight, a row for each set of receivers that a
publisher has events for. Rates are events per second of --span or, without it, of the time that time_ns covers.
"""


def data_flows(
    matches: Annotated[str, typer.Option(metavar="DIR", help="What `wend data match` wrote.")],
    subscriptions: Annotated[str, typer.Option(metavar="PATH", help="The subscriptions: id and peer.")],
    events: Annotated[str, typer.Option(metavar="PATH", help="The events: id and publisher.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the flows go.")],
    span: Annotated[str | None, typer.Option(help="In how much time the events were published: 60s, 24h.")] = None,
    overwrite: Overwrite = False,
    master: Master = "local[*]",
    ship: Ship = False,
    as_json: AsJson = False,
) -> None:
    from wend.model.files import check_out
    from wend.pipeline.flows import write_flows
    from wend.pipeline.session import spark_session
    from wend.pipeline.tables import is_lines

    # Whatever can be said without Spark is said before it starts.
    length = None if span is None else parse_duration(span)
    if length == 0:
        raise ConfigError(f"--span must be longer than nothing, got {span}")
    is_lines(subscriptions)
    is_lines(events)
    if is_lines(matches):
        raise ConfigError(f"{matches} is not what `wend data match` writes: that is Parquet")
    check_out(out, overwrite, matches, subscriptions, events)
    with stoppable("nothing was written"), spark_session(master, ship=ship) as spark:
        began = time.perf_counter()
        with nullcontext() if as_json else messages().status("gathering matches into flows"):
            found = write_flows(spark, matches, subscriptions, events, out, span=length, overwrite=overwrite)
        took_s = time.perf_counter() - began
    if as_json:
        print(json.dumps({**msgspec.to_builtins(found), "seconds": round(took_s, 3)}))
        return
    wanted = found.events - found.unwanted
    rows = [
        ("events", f"{found.events:,}", f"in {found.span_s:g} s; {found.unwanted:,} of them nobody else wants"),
        ("flows", f"{found.flows:,}", f"{wanted / found.flows:,.1f} events in each"),
        ("deliveries", f"{found.deliveries:,.1f}", "per second"),
        ("time", f"{took_s:.1f} s", ""),
    ]
    console = output()
    console.print(facts("Flows", rows))
    console.print(f"answer: {found.out}", soft_wrap=True)
