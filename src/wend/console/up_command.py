"""`wend up`: an overlay on this machine, several strategies side by side, and links that fail.

On a terminal the command redraws the table while the overlays run. Elsewhere it prints a line of progress now and then,
and the table at the end. Ctrl-C ends the run early with the metrics so far: events in transit get two seconds to
arrive. A second Ctrl-C ends the run at once.
"""

import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import split_names
from wend.console.scenario_flags import print_topics, print_unused, runs_failure_detector, scenario_fields
from wend.console.setting_options import SettingOptions, given_settings, make_command_class
from wend.console.terminal import colour_strategy, column_table, milliseconds_text, percent_text
from wend.drivers.scenarios import Scenario
from wend.drivers.settings import read_values
from wend.model.errors import ConfigError
from wend.model.units import HOUR, MS, SECOND, Nanos, parse_duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from wend.drivers.live.clock import Clock
    from wend.drivers.live.comparison.comparison import Comparison
    from wend.drivers.live.comparison.overlay import Incident
    from wend.drivers.live.comparison.telemetry import OverlayTelemetry
    from wend.model.summary import Summary
    from wend.protocol.notices import NoticeName

DEFAULT_STRATEGIES = "adaptive,dcrd,multipath,d-tree"
FOREVER_NS: Nanos = 24 * HOUR
LIVE_DEFAULTS = {"duration": FOREVER_NS, "warmup": 3 * SECOND, "drain": 2 * SECOND}
_REDRAWS_HZ = 4
_PROGRESS_S = 10.0
_SHOWN_INCIDENTS = 3
HEADS = ("strategy", "delivered", "on time", "packets", "control", "p50", "p99", "reroutes")
_LEFT_OUT = ("reroutes", "p50", "control", "p99", "packets", "delivered")
"""The columns that a narrow terminal omits, in this order."""
_WIDEST = 1000


LIVE_OPTIONS = SettingOptions(
    world=(
        "interest", "membership", "topology", "peers", "degree", "delay", "seed", "pf", "pl", "topics", "rate",
        "popularity", "factor", "clusters",
    ),
    fixed=frozenset({"ack"}),
    strategies="strategies",
)  # fmt: skip
"""The settings that live peers on this machine can have: no ACK is free, and there are no capacities."""


def register(app: typer.Typer) -> None:
    app.command("up", cls=make_command_class(LIVE_OPTIONS))(up)


def up(
    ctx: typer.Context,
    strategies: Annotated[
        str, typer.Option(help="Strategies to compare, separated by commas. The table always shows the oracle, too.")
    ] = DEFAULT_STRATEGIES,
    duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long to run: 20, 90s, 10min. By default until Ctrl-C, for at most a day."
        ),
    ] = None,
    kill: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Kill a peer after this time. If there are clusters, it is a coordinator."
        ),
    ] = None,
    seal: Annotated[bool, typer.Option(help="Give the peers throw-away keys and seal their links.")] = True,
    telemetry: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write telemetry of the first strategy's peers, each to DIR/peer-N."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Run overlays with failing links on this machine, and compare strategies live."""
    flags = given_settings(ctx) | ({} if duration is None else {"duration": duration})
    scenario = Scenario.from_values({**LIVE_DEFAULTS, **read_values(Scenario, flags)})
    names = _parse_strategies(strategies)
    kill_ns = None if kill is None else _parse_kill_time(kill, scenario.duration_ns)
    print_unused(scenario, flags, names)

    import uvloop

    _allow_many_sockets()
    uvloop.run(_run_comparison(scenario, names, as_json, kill_ns, seal, telemetry))


def _parse_kill_time(text: str, duration_ns: Nanos) -> Nanos:
    kill_ns = parse_duration(text)
    if kill_ns >= duration_ns:
        raise ConfigError(f"--kill {text} is not before the end: the run takes {duration_ns / SECOND:g} s")
    return kill_ns


def _allow_many_sockets() -> None:
    """Raise the limit of open sockets as far as the system allows: each peer of each strategy has its own."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # some systems name a limit that they do not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _parse_strategies(text: str) -> tuple[str, ...]:
    from wend.drivers.arrivals import ORACLE
    from wend.strategies.registry import STRATEGIES, follows_plan, load

    names = tuple(dict.fromkeys(split_names(text)))
    for name in names:
        load("routing", name)
    playable = [name for name in STRATEGIES if not follows_plan(name)]
    for name in names:
        if name == ORACLE:
            raise ConfigError("every table shows the oracle: leave it out of --strategies")
        if name in STRATEGIES and name not in playable:
            raise ConfigError(f"{name} follows a plan, and an overlay of `wend up` has none: wend sim --plan does it")
        if name not in STRATEGIES:
            raise ConfigError(f"unknown strategy {name!r}: choose from {', '.join(playable)}, or MODULE:CLASS")
    if not names:
        raise ConfigError("name at least one strategy")
    return names


async def _run_comparison(
    scenario: Scenario,
    names: tuple[str, ...],
    as_json: bool,
    kill_ns: Nanos | None,
    seal: bool,
    telemetry: Path | None,
) -> None:
    from wend.console.terminal import message_console, output_console, print_remarks
    from wend.drivers.live.access.throwaway_keys import ThrowawayRoot
    from wend.drivers.live.comparison.comparison import Comparison
    from wend.drivers.world import build_world

    world = build_world(scenario)
    print_remarks(world.overlay.remarks)
    print_topics(world)
    recorded = None if telemetry is None else _make_telemetry_factory(telemetry, scenario)
    comparison = Comparison(world, names, kill_ns, ThrowawayRoot() if seal else None, recorded)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, comparison.stop)
    running = asyncio.create_task(comparison.run())
    console = output_console()
    if console.is_terminal and not as_json:
        await _watch_screen(comparison, running, console)
    else:
        await _report_progress(comparison, running, message_console())
    await running
    comparison.write_description()
    if as_json:
        print(json.dumps(_comparison_fields(comparison)))
    else:
        console.print(_render_screen(comparison, console.width, final=True))


def _make_telemetry_factory(folder: Path, scenario: Scenario) -> "Callable[[Clock], OverlayTelemetry]":
    from wend.drivers.live.comparison.telemetry import OverlayTelemetry

    return lambda clock: OverlayTelemetry(folder, clock, {"settings": scenario.flat_settings()})


async def _watch_screen(comparison: "Comparison", running: "asyncio.Task[None]", console: "Console") -> None:
    from rich.live import Live

    # Redrawn from the loop itself, never from a thread beside it; removed before the final table is printed.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not running.done():
            live.update(_render_screen(comparison, console.width, final=False), refresh=True)
            await asyncio.wait([running], timeout=1 / _REDRAWS_HZ)


async def _report_progress(comparison: "Comparison", running: "asyncio.Task[None]", console: "Console") -> None:
    world = comparison.world
    console.print(_title_text(comparison))
    while not running.done():
        await asyncio.wait([running], timeout=_PROGRESS_S)
        done = max(0.0, (comparison.elapsed_ns() - world.begin_ns) / SECOND)
        if not running.done() and comparison.waits_for and done <= 0:
            console.print(_waiting_text(comparison))
        elif not running.done():
            console.print(progress_text(comparison))


def progress_text(comparison: "Comparison") -> str:
    """The time for which publishers have published, and the time of the whole run."""
    world, duration_s = comparison.world, comparison.world.scenario.duration_ns / SECOND
    done_s = min((comparison.elapsed_ns() - world.begin_ns) / SECOND, duration_s)
    of = "" if duration_s >= FOREVER_NS / SECOND else f" of {duration_s:g} s"
    if comparison.is_stopped:
        return "stopped; waiting for events in transit (Ctrl-C ends it at once)"
    return f"{done_s:.0f} s{of}" + (", waiting for events in transit" if done_s == duration_s else "")


# ---------------------------------------------------------------- what is shown


def _render_screen(comparison: "Comparison", width: int, *, final: bool) -> "RenderableType":
    from rich.console import Group

    table, left_out = comparison_table(
        [_table_row(name, summary) for name, summary in comparison.summaries().items()], width
    )
    parts: list[RenderableType] = [f"[bold]{_title_text(comparison)}[/]", meaning_text(comparison), "", table]
    parts.append(f"[bright_black]not in {width} columns: {', '.join(left_out)}[/]" if left_out else "")
    parts += coordination_lines(comparison)
    parts += [closing_text(comparison)] if final else _render_current_state(comparison)
    return Group(*parts)


def _title_text(comparison: "Comparison") -> str:
    from wend.protocol.config import LinkSettings

    s, overlay = comparison.world.scenario, comparison.world.overlay
    delays = [link.delay_ns / 1e6 for link in overlay.links]
    links = f"{len(overlay.links)} links ({min(delays):.0f}-{max(delays):.0f} ms, Pf {s.pf:g})"
    looking = any(runs_failure_detector(s, each.strategy) for each in comparison.overlays)
    detection_ms = s.of(LinkSettings).detection_ns / MS
    detection = f", dead links noticed after {detection_ms:g} ms" if looking else ""
    return f"{overlay.peers} peers, {links}, {len(comparison.world.topics)} publishers, seed {s.seed}{detection}"


def meaning_text(comparison: "Comparison") -> str:
    """Explain to the reader how to compare the rows."""
    factor = comparison.world.scenario.factor
    return (
        "All rows have the same events and the same failing links. "
        f"On time means within {factor:g} x the shortest delay; the rest is the price of failures."
    )


def comparison_table(lines: list[tuple[str, ...]], width: int) -> "tuple[RenderableType, list[str]]":
    """The table, and the columns that it omits because they do not fit."""
    from rich.console import Console

    ruler = Console(width=_WIDEST)
    left_out: list[str] = []
    for name in ("", *_LEFT_OUT):
        left_out += [name] if name else []
        table = _make_table(lines, left_out)
        if ruler.measure(table).maximum <= width:
            break
    return table, left_out


def _make_table(lines: list[tuple[str, ...]], left_out: list[str]) -> "Table":
    shown = [i for i, name in enumerate(HEADS) if name not in left_out]
    table = column_table(*(HEADS[i] for i in shown), left=HEADS[:1])
    for line in lines:
        table.add_row(*(line[i] for i in shown))
    return table


def _table_row(name: str, s: "Summary") -> tuple[str, ...]:
    from wend.drivers.arrivals import ORACLE
    from wend.protocol.notices import REROUTE

    if name == ORACLE:
        shown, control, reroutes = colour_strategy(name), "-", "-"
    else:
        shown, control = colour_strategy(name), f"{s.control_packets / s.wall_s:.0f}/s"
        reroutes = str(s.notices.get(REROUTE, 0))
    if not s.expected:
        return shown, *[""] * 7
    p50, p99 = milliseconds_text(s.delay_ms.p50, 0), milliseconds_text(s.delay_ms.p99, 0)
    packets = f"{s.packets.shared:.2f}"
    return shown, percent_text(s.delivery), percent_text(s.on_time), packets, control, p50, p99, reroutes


def _render_current_state(comparison: "Comparison") -> "list[RenderableType]":
    world = comparison.world
    done = (comparison.elapsed_ns() - world.begin_ns) / SECOND
    if comparison.waits_for and done < 0:
        return [_waiting_text(comparison), "", "", "", ""]
    if done < 0:
        return [f"finding routes, publishing starts in {-done:.0f} s", "", "", "", ""]
    down = " ".join(f"{a}-{b}" for a, b in comparison.down_links()) or "none"
    recent = list(comparison.incidents)[-_SHOWN_INCIDENTS:]
    lines: list[Any] = [f"{progress_text(comparison)}   links down now: {down}"]
    lines += [_incident_text(i, comparison.origin_ns + world.begin_ns) for i in recent]
    return [*lines, *[""] * (_SHOWN_INCIDENTS - len(recent)), "[bright_black]Ctrl-C stops, with the metrics so far[/]"]


def coordination_lines(comparison: "Comparison") -> list[str]:
    """The coordinators of each cluster, and the peer that was killed, if any."""
    lines = []
    for overlay in comparison.overlays:
        clusters = [
            f"{name}: {', '.join(str(trees[tree]) for tree in sorted(trees))}"
            for name, trees in sorted(overlay.coordinators().items())
        ]
        if clusters:
            lines.append(f"{colour_strategy(overlay.strategy)} coordinators   {'   '.join(clusters)}")
    if comparison.killed is not None:
        lines.append(f"peer {comparison.killed} was killed")
    return lines


def _waiting_text(comparison: "Comparison") -> str:
    return f"building the trees or the ring of {' and '.join(comparison.waits_for)}; publishing starts then"


def _incident_text(incident: "Incident", begin_ns: int) -> str:
    sentences: dict[NoticeName, str] = {
        "reroute": f"peer {incident.peer} got no answer from {incident.about} and took another route",
        "link-down": f"peer {incident.peer} found its link to {incident.about} down",
        "link-up": f"peer {incident.peer} has its link to {incident.about} back",
        "took-over": f"peer {incident.peer} coordinates its cluster instead of {incident.about}",
    }
    sentence = sentences[incident.what]
    return f"{(incident.time_ns - begin_ns) / SECOND:7.2f} s  {colour_strategy(incident.strategy)}: {sentence}"


def closing_text(comparison: "Comparison") -> str:
    clock = comparison.clock
    if not comparison.oracle.totals.expected:
        begin_s = comparison.world.begin_ns / SECOND
        return f"Nothing was measured: publishing starts after {begin_s:g} s, when peers have found their routes."
    text = f"{comparison.oracle.totals.expected} deliveries expected of each strategy. "
    text += "Packets: data packets per delivery. Control: ACKs, probes and the rest, per second. "
    text += "Oracle: the best that is possible if every failure is known. "
    if comparison.waits_for:
        names = " and ".join(comparison.waits_for)
        text += f"The trees or the ring of {names} were not ready in time, and the first events waited for them. "
    if clock.stalled_ns > comparison.elapsed_ns() // 20:
        text += f"This machine was too busy to keep pace: the run took {clock.stalled_ns / SECOND:.1f} s longer."
    return f"[bright_black]{text}[/]"


def _comparison_fields(comparison: "Comparison") -> dict[str, Any]:
    import msgspec

    summaries = comparison.summaries()
    return {
        "scenario": scenario_fields(comparison.world),
        "strategies": {name: msgspec.to_builtins(summary) for name, summary in summaries.items()},
        "without_trees": list(comparison.waits_for),
        "sealed": {o.strategy: o.is_sealed for o in comparison.overlays},
        "refused": {o.strategy: dict(o.meter.refused) for o in comparison.overlays},
        "failed": {o.strategy: dict(o.meter.failed) for o in comparison.overlays},
        "loop_lag_ms": {"max": comparison.clock.longest_ns / 1e6, "sum": comparison.clock.stalled_ns / 1e6},
    }
