"""`wend sim`: simulates a scenario from flags or a file, shows its metrics and can write its trace."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import Json
from wend.console.outputs import Overwrite, check_output_folder, new_folder
from wend.console.scenario_flags import (
    check_strategy,
    print_topics,
    print_unused,
    read_scenario,
    runs_failure_detector,
    scenario_fields,
)
from wend.console.setting_options import SettingOptions, given_settings, make_command_class
from wend.console.terminal import print_remarks
from wend.model.fault_settings import Spread
from wend.model.units import MS, SECOND

if TYPE_CHECKING:
    from wend.drivers.scenarios import Scenario


def register(app: typer.Typer) -> None:
    app.command("sim", cls=make_command_class(SettingOptions()))(sim)


def sim(
    ctx: typer.Context,
    scenario: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A scenario in TOML. Flags override it.")
    ] = None,
    content: Annotated[
        bool | None, typer.Option("--content", help="Subscribe to ranges of numbers instead of topics.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the trace to this folder, as Parquet.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Run one scenario in the simulator."""
    flags = given_settings(ctx) | ({"content": {}} if content else {})
    run = read_scenario(flags, scenario)
    check_strategy(run)
    print_unused(run, flags)
    if trace is not None:
        check_output_folder(trace, overwrite, *(path for path in (run.flows, run.plan, run.failures) if path))
    outcome = _simulate(run, quiet=as_json)
    world = outcome.world
    print_topics(world)
    print_remarks(world.overlay.remarks if world.placement is None else world.placement.underlay.remarks)
    if trace is not None:
        with new_folder(trace) as (draft, _):
            outcome.trace.write(draft)
    if as_json:
        import msgspec

        print(json.dumps({"scenario": scenario_fields(world), **msgspec.to_builtins(outcome.summary)}))
    else:
        _print_metrics(run, outcome)


def _simulate(scenario: "Scenario", *, quiet: bool) -> Any:
    from wend.console.terminal import announce_compilation, message_console, stop_on_signals
    from wend.drivers.sim import simulate

    console = message_console()
    paths = (
        nullcontext() if scenario.underlay is None else announce_compilation()
    )  # underlay paths are found by compiled code
    with stop_on_signals("nothing was written"), paths:
        if quiet or not console.is_terminal:
            return simulate(scenario)
        with console.status(
            f"simulating {scenario.duration_ns / SECOND:g} s of {scenario.strategy} on {scenario.peers} peers"
        ):
            return simulate(scenario)


def _print_metrics(scenario: "Scenario", outcome: Any) -> None:
    from wend.console.terminal import facts_table, milliseconds_text, output_console, percent_text
    from wend.protocol.config import LinkSettings

    s = outcome.summary
    late = s.late
    rows = [
        ("delivered", percent_text(s.delivery), f"{s.delivered} of {s.expected}{_expectation_text(scenario)}"),
        ("on time", percent_text(s.on_time), f"{s.delivered_on_time}, within {scenario.factor:g} x the shortest delay"),
        ("packets per delivery", f"{s.packets.shared:.3f}", f"{s.packets.unicast:.3f} as unicast"),
        ("delay p50", milliseconds_text(s.delay_ms.p50, 1), f"p99 {milliseconds_text(s.delay_ms.p99, 1)}"),
        (
            "late, within 1.25 x",
            percent_text(late.within_1_25),
            f"1.5 x {percent_text(late.within_1_5)}, 1.75 x {percent_text(late.within_1_75)}",
        ),
        ("data packets", f"{s.data_packets}", "with retransmissions"),
        ("control packets", f"{s.control_packets}", _counts_text(s.control)),
        ("given up", f"{sum(s.drops.values())}", _counts_text(s.drops)),
        ("missing", f"{s.expected - s.delivered}", _counts_text(s.missing)),
        ("noticed", f"{sum(s.notices.values())}", _counts_text(s.notices)),
        ("trace", s.trace_sha256[:12], f"sha256; {s.wall_s:.2f} s of work"),
    ]
    delays = s.outage_known_ms
    if delays.unnoticed_share is not None:
        remark = f"on average; p95 {milliseconds_text(delays.p95, 0)}"
        if delays.unnoticed_share:
            remark += f"; {percent_text(delays.unnoticed_share)} were not noticed"
        rows.insert(-1, ("outages known after", milliseconds_text(delays.mean, 0), remark))
    if runs_failure_detector(scenario):
        detection = f"{scenario.of(LinkSettings).detection_ns / MS:g} ms"
        rows.insert(-1, ("detection", detection, "until a dead link is noticed, plus a one-way delay"))
    world = outcome.world.overlay
    if scenario.underlay is not None:
        rows.insert(0, ("underlay", scenario.underlay, _underlay_text(outcome.world)))
    title = f"{scenario.strategy} on {scenario.topology}, {world.peers} peers, {len(world.links)} links"
    title += (
        f", {_failures_text(scenario)}, Pl {scenario.pl:g}, {scenario.duration_ns / SECOND:g} s, seed {scenario.seed}"
    )
    output_console().print(facts_table(title, rows))


def _expectation_text(s: "Scenario") -> str:
    """Without persistence no peer stores an event for a peer that is down, so none is expected there. Nobody expects
    one at a peer that has left."""
    from wend.protocol.config import DeliverySettings

    if s.churn is not None:
        return ", to subscribers that were there when it was published"
    if s.peer_outages is None or s.of(DeliverySettings).persistence:
        return ""
    return ", to subscribers that were up when it was published"


def _failures_text(s: "Scenario") -> str:
    """The failures of the scenario, by the one that excludes the others."""
    if s.failures is not None:
        fails = f"failures of {s.failures}"
    elif s.mean_outage_ns is not None:
        fails = f"outages of {s.mean_outage_ns / SECOND:g} s"
    else:
        drawn = {"outages": s.outages, "router outages": s.router_outages if s.underlay is not None else None}
        outages = [
            f"{what} of {_mean_text(o.down)} after {_mean_text(o.up)}" for what, o in drawn.items() if o is not None
        ]
        fails = ", ".join(outages) or f"Pf {s.pf:g}"
    spells = {
        "crashes": s.peer_outages,
        "absences": s.churn,
        "partitions": s.peer_partitions,
        "delay spikes": s.delay_spikes,
        "congestion": s.congestion,
    }
    shares = {"reordering": s.reordering, "corruption": s.corruption}
    spans = [f"{what} of {_mean_text(o.down)} after {_mean_text(o.up)}" for what, o in spells.items() if o is not None]
    return ", ".join([fails, *spans, *(f"{what} {share:g}" for what, share in shares.items() if share)])


def _mean_text(spread: Spread) -> str:
    return f"{(spread.low_s + spread.high_s) / 2 if spread.kind == 'uniform' else spread.mean_s:g} s"


def _underlay_text(world: Any) -> str:
    """Describe the underlay: the network, the length of a link's path, and how often links fail together."""
    from wend.topology.link_overlap import overlapping_share

    placement, links = world.placement, world.overlay.links
    routers = placement.paths([link.a for link in links], [link.b for link in links]).lengths().mean()
    down = sum(until - start for _, start, until in world.faults.outages())
    share = down / (len(links) * (world.end_ns - world.begin_ns))
    return (
        f"{placement.underlay.routers} routers, {routers:.1f} on a link's path; links are down {100 * share:.1f} % of "
        f"the time; two links of a peer meet in {100 * overlapping_share(placement, world.overlay):.0f} % of cases"
    )


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)
