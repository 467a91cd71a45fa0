"""`wend sim`: simulates a scenario from flags or a file, shows its metrics and can write its trace."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import Json
from wend.console.outputs import Overwrite, check_out, new_folder
from wend.console.scenario_flags import (
    check_strategy,
    played,
    read_scenario,
    runs_failure_detector,
    say_topics,
    say_unused,
)
from wend.console.setting_options import SettingOptions, command_with, given
from wend.console.show import remark
from wend.model.fault_settings import Spread
from wend.model.units import MS, SECOND

if TYPE_CHECKING:
    from wend.drivers.scenarios import Scenario


def register(app: typer.Typer) -> None:
    app.command("sim", cls=command_with(SettingOptions()))(sim)


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
    flags = given(ctx) | ({"content": {}} if content else {})
    run = read_scenario(flags, scenario)
    check_strategy(run)
    say_unused(run, flags)
    if trace is not None:
        check_out(trace, overwrite, *(path for path in (run.flows, run.plan, run.failures) if path))
    outcome = _simulate(run, quiet=as_json)
    world = outcome.world
    say_topics(world)
    remark(world.overlay.remarks if world.placement is None else world.placement.underlay.remarks)
    if trace is not None:
        with new_folder(trace) as (draft, _):
            outcome.trace.write(draft)
    if as_json:
        import msgspec

        print(json.dumps({"scenario": played(world), **msgspec.to_builtins(outcome.summary)}))
    else:
        _show(run, outcome)


def _simulate(scenario: "Scenario", *, quiet: bool) -> Any:
    from wend.console.show import compiling, messages, stoppable
    from wend.drivers.sim import simulate

    console = messages()
    paths = nullcontext() if scenario.underlay is None else compiling()  # underlay paths are found by compiled code
    with stoppable("nothing was written"), paths:
        if quiet or not console.is_terminal:
            return simulate(scenario)
        with console.status(
            f"simulating {scenario.duration_ns / SECOND:g} s of {scenario.strategy} on {scenario.peers} peers"
        ):
            return simulate(scenario)


def _show(scenario: "Scenario", outcome: Any) -> None:
    from wend.console.show import facts, milliseconds, output, percent
    from wend.protocol.config import LinkSettings

    s = outcome.summary
    late = s.late
    rows = [
        ("delivered", percent(s.delivery), f"{s.delivered} of {s.expected}{_whose(scenario)}"),
        ("on time", percent(s.on_time), f"{s.delivered_on_time}, within {scenario.factor:g} x the shortest delay"),
        ("packets per delivery", f"{s.packets.shared:.3f}", f"{s.packets.unicast:.3f} as unicast"),
        ("delay p50", milliseconds(s.delay_ms.p50, 1), f"p99 {milliseconds(s.delay_ms.p99, 1)}"),
        (
            "late, within 1.25 x",
            percent(late.within_1_25),
            f"1.5 x {percent(late.within_1_5)}, 1.75 x {percent(late.within_1_75)}",
        ),
        ("data packets", f"{s.data_packets}", "with retransmissions"),
        ("control packets", f"{s.control_packets}", _listed(s.control)),
        ("given up", f"{sum(s.drops.values())}", _listed(s.drops)),
        ("missing", f"{s.expected - s.delivered}", _listed(s.missing)),
        ("noticed", f"{sum(s.notices.values())}", _listed(s.notices)),
        ("trace", s.trace_sha256[:12], f"sha256; {s.wall_s:.2f} s of work"),
    ]
    delays = s.outage_known_ms
    if delays.unnoticed_share is not None:
        remark = f"on average; p95 {milliseconds(delays.p95, 0)}"
        if delays.unnoticed_share:
            remark += f"; {percent(delays.unnoticed_share)} were not noticed"
        rows.insert(-1, ("outages known after", milliseconds(delays.mean, 0), remark))
    if runs_failure_detector(scenario):
        detection = f"{scenario.of(LinkSettings).detection_ns / MS:g} ms"
        rows.insert(-1, ("detection", detection, "until a dead link is noticed, plus a one-way delay"))
    world = outcome.world.overlay
    if scenario.underlay is not None:
        rows.insert(0, ("underlay", scenario.underlay, _underlay(outcome.world)))
    title = f"{scenario.strategy} on {scenario.topology}, {world.peers} peers, {len(world.links)} links"
    title += f", {_fails(scenario)}, Pl {scenario.pl:g}, {scenario.duration_ns / SECOND:g} s, seed {scenario.seed}"
    output().print(facts(title, rows))


def _whose(s: "Scenario") -> str:
    """Without persistence no peer stores an event for a peer that is down, so none is expected there. Nobody expects
    one at a peer that has left."""
    from wend.protocol.config import DeliverySettings

    if s.churn is not None:
        return ", to subscribers that were there when it was published"
    if s.peer_outages is None or s.of(DeliverySettings).persistence:
        return ""
    return ", to subscribers that were up when it was published"


def _fails(s: "Scenario") -> str:
    """The failures of the scenario, by the one that excludes the others."""
    if s.failures is not None:
        fails = f"failures of {s.failures}"
    elif s.mean_outage_ns is not None:
        fails = f"outages of {s.mean_outage_ns / SECOND:g} s"
    else:
        drawn = {"outages": s.outages, "router outages": s.router_outages if s.underlay is not None else None}
        outages = [f"{what} of {_mean_s(o.down)} after {_mean_s(o.up)}" for what, o in drawn.items() if o is not None]
        fails = ", ".join(outages) or f"Pf {s.pf:g}"
    spells = {
        "crashes": s.peer_outages,
        "absences": s.churn,
        "partitions": s.peer_partitions,
        "delay spikes": s.delay_spikes,
        "congestion": s.congestion,
    }
    shares = {"reordering": s.reordering, "corruption": s.corruption}
    spans = [f"{what} of {_mean_s(o.down)} after {_mean_s(o.up)}" for what, o in spells.items() if o is not None]
    return ", ".join([fails, *spans, *(f"{what} {share:g}" for what, share in shares.items() if share)])


def _mean_s(spread: Spread) -> str:
    return f"{(spread.low_s + spread.high_s) / 2 if spread.kind == 'uniform' else spread.mean_s:g} s"


def _underlay(world: Any) -> str:
    """How much the overlay links share: the network, the length of a link's path, and how often links fail together."""
    from wend.topology.link_overlap import neighbours_that_meet

    placement, links = world.placement, world.overlay.links
    routers = placement.paths([link.a for link in links], [link.b for link in links]).lengths().mean()
    down = sum(until - start for _, start, until in world.faults.outages())
    share = down / (len(links) * (world.end_ns - world.begin_ns))
    return (
        f"{placement.underlay.routers} routers, {routers:.1f} on a link's path; links are down {100 * share:.1f} % of "
        f"the time; two links of a peer meet in {100 * neighbours_that_meet(placement, world.overlay):.0f} % of cases"
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)
