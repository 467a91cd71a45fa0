"""`wend lab bottleneck`: measures live peers across one slow link, alone and beside others."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from wend.console.options import Json
from wend.console.terminal import column_table, message_console, output_console
from wend.model.choices import DEFAULT_STRATEGY
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wend.lab.bottleneck.experiment import BottleneckResult


def bottleneck(
    experiments: Annotated[
        str | None, typer.Option(help="The experiments to run, separated by commas. By default, all.")
    ] = None,
    strategy: Annotated[str, typer.Option(help="The peers' strategy.")] = DEFAULT_STRATEGY,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the peers; may be repeated."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds to measure in each experiment.", min=4.0)] = 15.0,
    seed: Annotated[int, typer.Option(help="The seed for lost packets.")] = 1,
    as_json: Json = False,
) -> None:
    """Measure two live peers across a link of 1 Mbit/s with a queue of 32 kB."""
    import msgspec

    from wend.lab.bottleneck.experiment import EXPERIMENTS, BottleneckSetup, run_experiment

    chosen = EXPERIMENTS if experiments is None else tuple(experiments.split(","))
    for name in chosen:
        if name not in EXPERIMENTS:
            raise ConfigError(f"there is no experiment {name!r}: choose from {', '.join(EXPERIMENTS)}")
    setup = BottleneckSetup(strategy, tuple(map(_parse_setting, settings or ())), seconds, seed)
    results = []
    for name in EXPERIMENTS:
        if name in chosen:
            with message_console().status(f"{name} ..."):
                results.append(run_experiment(name, setup))
    if as_json:
        print(json.dumps({"setup": msgspec.to_builtins(setup), "results": msgspec.to_builtins(results)}))
    else:
        output_console().print(_make_table(results))
        for one in results:
            if line := _extra_metrics(one):
                output_console().print(f"{one.experiment}: {line}", style="bright_black")


def _parse_setting(text: str) -> tuple[str, str]:
    """A line of a peer's file: numbers and truth values unchanged, anything else as text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set needs NAME=VALUE, got {text!r}")
    try:
        return name, json.dumps(json.loads(value))
    except json.JSONDecodeError:
        return name, json.dumps(value)


def _make_table(results: "list[BottleneckResult]") -> "RenderableType":
    table = column_table("", "load", "goodput", "on time", "of best", "queue p50", "p95", "downs", left=("",))
    for one in results:
        table.add_row(
            one.experiment,
            f"{one.offered:g} x",
            f"{one.goodput:.3f}",
            f"{one.on_time:.3f}",
            f"{one.of_best:.3f}",
            f"{one.queueing_p50_ms:.0f} ms",
            f"{one.queueing_p95_ms:.0f} ms",
            str(one.link_downs),
        )
    return table


def _extra_metrics(one: "BottleneckResult") -> str:
    """The metrics that only this experiment has."""
    if one.tcp_share is not None:
        return f"share beside TCP {one.tcp_share:.2f}"
    if one.jain is not None:
        return f"Jain {one.jain:.3f}"
    if one.outage_bytes is None:
        return ""
    into = f"{one.outage_packets_per_probe:.1f} packets per probe into the outage, {one.outage_bytes} bytes"
    return f"{into}; then {one.after_outage:.2f} x capacity in 100 ms"
