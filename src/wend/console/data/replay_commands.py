"""`wend data replay` and `wend data recommend`: how other strategies would have done in the recorded windows."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import Json, split_names
from wend.console.outputs import check_file, check_resumable, write_text
from wend.console.spark_options import FAILED_RUNS, RESUMES, Conf, Master, Ship, TimeLimit
from wend.console.terminal import column_table, count_text, output_console, stop_on_signals
from wend.model.errors import ConfigError
from wend.model.units import SECOND, parse_duration

if TYPE_CHECKING:
    from rich.table import Table

    from wend.pipeline.telemetry.recommendation import MeanInterval, Recommendation


def data_replay(
    links: Annotated[str, typer.Option(metavar="DIR", help="The tables of `wend data links`.")],
    workload: Annotated[str, typer.Option(metavar="DIR", help="The tables of `wend data workload`.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the runs and for the table `replays`.")],
    strategies: Annotated[
        str, typer.Option(help="The strategies to play, separated by commas.")
    ] = "adaptive,dcrd,d-tree",
    redundancy: Annotated[
        str, typer.Option(help="Values of redundancy, for strategies that have this setting: none, tight, free.")
    ] = "none,tight,free",
    windows: Annotated[int, typer.Option(help="The most windows to play, spread evenly over time.")] = 12,
    seeds: Annotated[
        int, typer.Option(help="How many runs of each window. Only the first one publishes at the recorded times.")
    ] = 3,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting that the recorded peers had; may be repeated."),
    ] = None,
    time_limit: TimeLimit = "6h",
    master: Master = None,
    conf: Conf = None,
    ship: Ship = False,
    as_json: Json = False,
) -> None:
    """Play recorded windows in the simulator, under each strategy and setting."""
    from wend.pipeline.spark.session import spark_session
    from wend.pipeline.storage.versioned_tables import read_table
    from wend.pipeline.telemetry.recorded_publications import RecordedPublications
    from wend.pipeline.telemetry.recordings import make_recordings, read_workload
    from wend.pipeline.telemetry.replays import make_variants, run_replays, save_replays

    # Find mistakes before Spark starts.
    chosen = make_variants(split_names(strategies), split_names(redundancy))
    more = _parse_settings(settings or [])
    for name, count in (("--windows", windows), ("--seeds", seeds)):
        if count < 1:
            raise ConfigError(f"{name} must be 1 or more, got {count}")
    check_resumable(out)
    limit_s = parse_duration(time_limit) / SECOND
    with stop_on_signals(RESUMES), spark_session(master, conf=conf, ship=ship) as spark:
        tables = (read_table(spark, links, "links"), read_table(spark, links, "outages"))
        played = make_recordings(
            *tables, read_workload(spark, workload), windows, RecordedPublications(spark, workload)
        )
        swept = run_replays(spark, played, chosen, out, seeds=seeds, settings=more, limit_s=limit_s, quiet=as_json)
        save_replays(spark, swept, str(out))
    if as_json:
        about = {"windows": len(played), "variants": len(chosen), "runs": swept.runs, "ran": swept.ran}
        print(json.dumps({**about, "failures": swept.failures, "out": str(out)}))
    else:
        variety = f"{count_text(len(played), 'window')}, {count_text(len(chosen), 'variant')}"
        bad = f", {len(swept.failures)} of them failed" if swept.failures else ""
        output_console().print(
            f"{variety}: {count_text(swept.runs, 'run')}, {swept.ran} of them now{bad}", markup=False
        )
        for failure in swept.failures[:3]:
            output_console().print(f"failed: {failure['strategy']}: {failure['error']}", markup=False, soft_wrap=True)
        output_console().print(f"wend data recommend {out} says what follows from them", markup=False, soft_wrap=True)
    if swept.failures:
        raise typer.Exit(FAILED_RUNS)


def data_recommend(
    replays: Annotated[str, typer.Argument(metavar="DIR", help="The output of `wend data replay`.")],
    equal: Annotated[
        float,
        typer.Option(
            metavar="POINTS",
            help="Variants that are this close count as equal, and the cheapest of them is recommended.",
        ),
    ] = 0.1,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the comparison to this SVG file.")] = None,
    as_json: Json = False,
) -> None:
    """Say which strategy and setting would have been best for what was recorded, and why."""
    import msgspec

    from wend.pipeline.storage.versioned_tables import read_table
    from wend.pipeline.telemetry.recommendation import draw_recommendation as drawn
    from wend.pipeline.telemetry.recommendation import recommend

    if picture is not None:
        check_file(picture, ".svg")
    recommendation = recommend(read_table(None, replays, "replays").to_pylist(), equal / 100)
    if picture is not None:
        write_text(picture, drawn(recommendation))
    if as_json:
        print(json.dumps(msgspec.to_builtins(recommendation)))
        return
    console = output_console()
    console.print(_recommendation_table(recommendation))
    console.print()
    console.print(recommendation.paragraph, markup=False)
    console.print("\nIn the file of each peer:\n", markup=False)
    for name, value in recommendation.settings.items():
        console.print(f'    {name} = "{value}"', markup=False)
    if picture is not None:
        console.print(f"\npicture: {picture}", markup=False, soft_wrap=True)


def _recommendation_table(recommendation: "Recommendation") -> "Table":
    heads = ("on time %", "behind", "recorded", "delivered", "packets", "p99 ms")
    table = column_table("strategy", *heads, left=("strategy",))
    for one in recommendation.ranked:
        table.add_row(
            one.variant.name, _interval_text(one.on_time, 100), _interval_text(one.behind, 100),
            "–" if one.recorded is None else f"{100 * one.recorded:.2f}", f"{100 * one.delivery.mean:.2f}",
            f"{one.packets.mean:.2f}", "–" if one.delay_p99_ms is None else f"{one.delay_p99_ms:.0f}",
        )  # fmt: skip
    return table


def _interval_text(value: "MeanInterval", factor: float) -> str:
    half = "" if value.half is None else f" ±{factor * value.half:.2f}"
    return f"{factor * value.mean:.2f}{half}"


def _parse_settings(texts: list[str]) -> dict[str, Any]:
    """Check the settings of the command line."""
    from wend.drivers.settings import known_settings, unknown_setting

    declared, values = known_settings(), {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise ConfigError(f"--set needs NAME=VALUE, got {text!r}")
        if name not in declared:
            raise unknown_setting(name, declared)
        each = declared[name]
        typed: Any = value
        if each.kind in ("int", "float", "bool"):
            try:
                typed = json.loads(value)
            except ValueError:
                raise ConfigError(f"--set {text}: {name} is a number or true or false") from None
        values[name] = each.write(each.read(typed))
    return values
