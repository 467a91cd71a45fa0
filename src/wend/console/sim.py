"""`wend sim`: one scenario, from flags or a file, to its figures and, if wanted, its trace."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from wend.console.options import (
    STRATEGIES,
    Degree,
    Json,
    NamesStrategies,
    Peers,
    Pl,
    Seed,
    Topology,
    check_strategy,
    fit_topics,
    of,
    probes,
    say_ignored,
)
from wend.console.outputs import Overwrite, check_out, drafted
from wend.console.show import remark
from wend.drivers.scenarios import Scenario, load_scenario, make_scenario
from wend.model.errors import ConfigError
from wend.model.scenario import Spread, read_toml
from wend.model.units import MS, SECOND, parse_duration, parse_short

# flag -> field of the scenario, where the names differ
_FIELDS = {
    "duration": "duration_s",
    "rate": "rate_hz",
    "detect": "detect_ms",
    "trace_level": "trace",
    "queue": "queue_msgs",
    "mean_outage": "mean_outage_s",
}
_RENAMED = {flag: _FIELDS[flag] for flag in ("rate", "trace_level", "queue")}
"""Those of the same unit."""


def register(app: typer.Typer) -> None:
    app.command("sim", cls=NamesStrategies)(sim)


def sim(
    strategy: Annotated[str | None, of("strategy", STRATEGIES)] = None,
    topology: Topology = None,
    peers: Peers = None,
    degree: Degree = None,
    underlay: Annotated[
        str | None,
        of(
            "underlay", "Peers on routers: brite, transit-stub, power-law, topohub:NAME or a file; see `wend topology`."
        ),
    ] = None,
    mean_outage: Annotated[
        str | None,
        of("mean_outage_s", "Components of the underlay fail as often as quist says, for so long on average: 5s."),
    ] = None,
    aware: Annotated[
        bool | None, of("aware", "Heed what links share beneath (adaptive).", "--aware/--no-aware")
    ] = None,
    pf: Annotated[float | None, of("pf", "Probability that a link is down, per link and second.")] = None,
    pl: Pl = None,
    m: Annotated[int | None, of("m", "Transmissions over a link before another way is tried.")] = None,
    factor: Annotated[float | None, of("factor", "Deadline, in shortest delays.")] = None,
    duration: Annotated[str | None, of("duration_s", "How long publishers publish: 600, 90s, 2h.")] = None,
    seed: Seed = None,
    ack: Annotated[str | None, of("ack", "How ACKs come: round-trip, over the link, or free, at once.")] = None,
    topics: Annotated[
        int | None, of("topics", "Topics, each with its own publisher; fewer where there are fewer peers.")
    ] = None,
    rate: Annotated[float | None, of("rate_hz", "Events per second and topic.")] = None,
    pace: Annotated[
        str | None, of("pace", "When in its period a topic publishes: even (always then) or moving.")
    ] = None,
    redundancy: Annotated[
        str | None, of("redundancy", "Copies ahead of a loss: none, tight or free (adaptive).")
    ] = None,
    persistency: Annotated[
        bool | None, of("persistency", "Keep what cannot go on.", "--persistency/--no-persistency")
    ] = None,
    detect: Annotated[str | None, of("detect_ms", "How soon a dead link is noticed: 160ms.")] = None,
    estimator: Annotated[
        str | None, of("estimator", "What peers believe of links: nominal (what is stated) or measured.")
    ] = None,
    content: Annotated[
        bool | None, typer.Option("--content", help="Subscriptions by content: ranges on numbers, not topics.")
    ] = None,
    capacity: Annotated[
        str | None,
        of(
            "capacity",
            "What a link carries each way: 40msg/s, 10Mbit/s, or stated (by the topology).",
            "--link-capacity",
            "--capacity",
        ),
    ] = None,
    peer_capacity: Annotated[
        str | None,
        of("peer_capacity", "What a peer takes in: 200msg/s, links (what they bring together), or stated."),
    ] = None,
    queue: Annotated[
        int | None, of("queue_msgs", "Packets that may wait for a link or peer; more are dropped.")
    ] = None,
    charge: Annotated[str | None, of("charge", "What capacities are charged with: data or all.")] = None,
    flows: Annotated[
        str | None, of("flows", "Publish these flows instead of topics; see `wend plan`.", metavar="FILE")
    ] = None,
    plan: Annotated[str | None, of("plan", "The plan that peers follow (planned).", metavar="DIR")] = None,
    overlay: Annotated[
        str | None, of("overlay", "Peers choose their links: tdo-landmark, tdo-random, chain, random, ... (full-mesh).")
    ] = None,
    trees: Annotated[int | None, of("trees", "Trees that events go on (mrst, spt-k).")] = None,
    reliability: Annotated[
        float | None, of("reliability", "Share of events to get at the first go, on as few trees as that takes.")
    ] = None,
    failures: Annotated[
        str | None, of("failures", "Play these failures again: faults.parquet of a trace or a lab.", metavar="FILE")
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A scenario in TOML; flags win over it.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the trace there, as Parquet.")] = None,
    overwrite: Overwrite = False,
    trace_level: Annotated[str | None, of("trace", "What the trace holds: deliveries, or hops too.")] = None,
    as_json: Json = False,
) -> None:
    """Run one scenario in the simulator."""
    flags: dict[str, Any] = {
        "strategy": strategy, "topology": topology, "peers": peers, "degree": degree, "pf": pf, "pl": pl, "m": m,
        "factor": factor, "duration": duration, "seed": seed, "ack": ack, "topics": topics, "rate": rate,
        "pace": pace, "redundancy": redundancy, "persistency": persistency, "detect": detect, "estimator": estimator,
        "trace_level": trace_level, "failures": failures, "content": {} if content else None,
        "capacity": capacity, "peer_capacity": peer_capacity, "queue": queue, "charge": charge,
        "flows": flows, "plan": plan, "overlay": overlay, "trees": trees, "reliability": reliability,
        "underlay": underlay, "mean_outage": mean_outage, "aware": aware,
    }  # fmt: skip
    wanted = read_scenario(flags, scenario)
    check_strategy(wanted)
    wanted = fit_topics(wanted, topics is not None or (scenario is not None and "topics" in read_toml(scenario)))
    say_ignored(wanted, flags)
    if trace is not None:
        check_out(trace, overwrite, *(path for path in (wanted.flows, wanted.plan, wanted.failures) if path))
    outcome = _simulate(wanted, quiet=as_json)
    world = outcome.world
    remark(world.overlay.remarks if world.placement is None else world.placement.underlay.remarks)
    if trace is not None:
        with drafted(trace) as (draft, _):
            outcome.trace.write(draft)
    if as_json:
        import msgspec

        played = msgspec.to_builtins(wanted) | {"peers": world.overlay.peers}
        print(json.dumps({"scenario": played, **msgspec.to_builtins(outcome.summary)}))
    else:
        _show(wanted, outcome)


def read_scenario(flags: dict[str, Any], path: Path | None = None, **defaults: Any) -> Scenario:
    """Flags that were given, over the file if there is one, over the defaults."""
    given = {_FIELDS.get(name, name): value for name, value in flags.items() if value is not None}
    if "duration_s" in given:
        given["duration_s"] = parse_duration(given["duration_s"]) / SECOND
    if "mean_outage_s" in given:
        given["mean_outage_s"] = parse_duration(given["mean_outage_s"]) / SECOND
    if "detect_ms" in given:
        given["detect_ms"] = parse_short(given["detect_ms"], "--detect") / MS
    try:
        return make_scenario({**defaults, **given}) if path is None else load_scenario(path, **given)
    except ConfigError as error:
        for flag, field in _RENAMED.items():  # a field that was given as a flag is blamed as one
            if flags.get(flag) is not None and str(error).startswith(f"{field} "):
                raise ConfigError(f"--{flag.replace('_', '-')}{str(error).removeprefix(field)}") from None
        raise


def _simulate(scenario: Scenario, *, quiet: bool) -> Any:
    from wend.console.show import compiling, messages, stoppable
    from wend.drivers.sim import simulate

    console = messages()
    ways = nullcontext() if scenario.underlay is None else compiling()
    with stoppable("nothing was written"), ways:
        if quiet or not console.is_terminal:
            return simulate(scenario)
        with console.status(f"simulating {scenario.duration_s:g} s of {scenario.strategy} on {scenario.peers} peers"):
            return simulate(scenario)


def _show(scenario: Scenario, outcome: Any) -> None:
    from wend.console.show import facts, milliseconds, output, percent

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
    known = s.outage_known_ms
    if known.unnoticed_share is not None:
        remark = f"on average; p95 {milliseconds(known.p95, 0)}"
        if known.unnoticed_share:
            remark += f"; {percent(known.unnoticed_share)} were not noticed"
        rows.insert(-1, ("outages known after", milliseconds(known.mean, 0), remark))
    if probes(scenario.strategy):
        rows.insert(-1, ("detection", f"{scenario.detect_ms:g} ms", "until a dead link is noticed, plus one way"))
    world = outcome.world.overlay
    if scenario.underlay is not None:
        rows.insert(0, ("beneath", scenario.underlay, _beneath(outcome.world)))
    title = f"{scenario.strategy} on {scenario.topology}, {world.peers} peers, {len(world.links)} links"
    title += f", {_fails(scenario)}, Pl {scenario.pl:g}, {scenario.duration_s:g} s, seed {scenario.seed}"
    output().print(facts(title, rows))


def _whose(s: Scenario) -> str:
    """Without persistency nobody keeps an event for a peer that is down, so none is expected there."""
    return "" if s.peer_outages is None or s.persistency else ", to subscribers that were up when it was published"


def _fails(s: Scenario) -> str:
    """What is played, in the order in which one excludes the other."""
    if s.failures is not None:
        fails = f"failures of {s.failures}"
    elif s.mean_outage_s is not None:
        fails = f"outages of {s.mean_outage_s:g} s"
    else:
        drawn = {"outages": s.outages, "router outages": s.router_outages if s.underlay is not None else None}
        said = [f"{what} of {_mean_s(o.down)} after {_mean_s(o.up)}" for what, o in drawn.items() if o is not None]
        fails = ", ".join(said) or f"Pf {s.pf:g}"
    crashes = s.peer_outages
    return fails if crashes is None else f"{fails}, crashes of {_mean_s(crashes.down)} after {_mean_s(crashes.up)}"


def _mean_s(spread: Spread) -> str:
    return f"{(spread.low_s + spread.high_s) / 2 if spread.kind == 'uniform' else spread.mean_s:g} s"


def _beneath(world: Any) -> str:
    """How much overlay links share, in the numbers that matter: the network, a link's way, who fails together."""
    from wend.topology.overlap import neighbours_that_meet

    placement, links = world.placement, world.overlay.links
    routers = placement.paths([link.a for link in links], [link.b for link in links]).lengths().mean()
    down = sum(until - start for _, start, until in world.faults.outages())
    share = down / (len(links) * (world.end_ns - world.begin_ns))
    return (
        f"{placement.underlay.routers} routers, {routers:.1f} on a link's way; links are down {100 * share:.1f} % of "
        f"the time; two links of a peer meet in {100 * neighbours_that_meet(placement, world.overlay):.0f} % of cases"
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items() if count)
