"""`wend data generate`: draw events and subscriptions from a seed."""

import json
import re
import time
from typing import Annotated

import msgspec
import typer

from wend.console.options import Json
from wend.console.outputs import Overwrite, check_job_output
from wend.console.spark_options import Conf, Master, Ship
from wend.console.terminal import facts_table, output_console, stop_on_signals
from wend.model.errors import ConfigError


def data_generate(
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder for events and subscriptions, as Parquet.")],
    events: Annotated[int, typer.Option(metavar="N", help="Number of events.")] = 100_000,
    subscriptions: Annotated[int, typer.Option(metavar="N", help="Number of subscriptions.")] = 10_000,
    kind: Annotated[str, typer.Option(help="uniform, zipf, narrow, fixed (dmm) or rectangles (quist).")] = "uniform",
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 1,
    attributes: Annotated[int | None, typer.Option(help="Number of attributes: a0, a1, …")] = None,
    predicates: Annotated[
        str | None, typer.Option(metavar="A-B", help="How many attributes a filter names: 3 or 1-5.")
    ] = None,
    present: Annotated[
        str | None, typer.Option(metavar="A-B", help="How many attributes an event has: 10 or 1-10.")
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="The widest range, as a share of the domain (for narrow).")
    ] = None,
    ranges: Annotated[float, typer.Option(help="Share of values that are published as ranges.")] = 0.0,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
    ship: Ship = False,
    as_json: Json = False,
) -> None:
    """Draw events and subscriptions from a seed. Rows do not depend on the cluster; a larger number adds rows."""
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.workload_generator import make_workload, write_workload

    workload = make_workload(
        kind,
        seed,
        attributes=attributes,
        predicates=_parse_span(predicates),
        present=_parse_span(present),
        width=width,
        ranges=ranges,
    )
    for name, count in (("--events", events), ("--subscriptions", subscriptions)):
        if count < 0:
            raise ConfigError(f"{name} must not be negative, got {count}")
    check_job_output(out, overwrite)
    with stop_on_signals("nothing was written"), spark_session(master, conf=conf, ship=ship) as spark:
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
    output_console().print(facts_table(f"Workload {kind}, seed {seed}", rows))


def _parse_span(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text.strip())
    if found is None:
        raise ConfigError(f"expected a number such as 3 or a span such as 1-5, got {text!r}")
    return int(found[1]), int(found[2] or found[1])
