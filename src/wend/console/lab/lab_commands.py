"""`wend lab`: creates, inspects, breaks and removes an emulated wide-area network for real processes."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.lab import bench_command, bottleneck_command, replay_command
from wend.console.options import Degree, Json, Peers, Pl, Seed, Topology, world_option
from wend.console.outputs import check_file
from wend.console.scenario_flags import read_scenario
from wend.console.terminal import column_table, count_text, facts_table, output_console, print_remarks
from wend.model.errors import ConfigError, LabError
from wend.model.rates import parse_rate
from wend.model.scenario import DRAWN
from wend.model.units import MS, SECOND, parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wend.drivers.scenarios import Scenario
    from wend.lab.emulator_control import EmulatorStatus, LinkCounter
    from wend.lab.lab import Lab
    from wend.topology.graph import Overlay

_SCHEDULE_FOR = "1h"

Name = Annotated[str, typer.Option(help="The lab's name; several labs can be up at once.")]
LinkText = Annotated[str, typer.Argument(metavar="A-B|LINK", help="The two ends of a link, or its number.")]

lab = typer.Typer(
    help="Emulate a wide-area network (Linux, root): hosts are network namespaces, links delay and fail.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    lab.command("bench")(bench_command.bench)
    lab.command("replay")(replay_command.replay)
    lab.command("bottleneck")(bottleneck_command.bottleneck)
    app.add_typer(lab, name="lab")


@lab.command("up")
def up(
    topology: Topology = None,
    peers: Peers = None,
    degree: Degree = None,
    seed: Seed = None,
    pl: Pl = None,
    corruption: Annotated[float | None, world_option("corruption")] = None,
    reordering: Annotated[float | None, world_option("reordering")] = None,
    reordering_delay: Annotated[str | None, world_option("reordering_delay")] = None,
    link_capacity: Annotated[
        str | None,
        typer.Option(help="The capacity of links in each direction: 500kbit/s, 10Mbit/s. By default, no limit."),
    ] = None,
    queue_bytes: Annotated[
        int | None, typer.Option(help="The size of the queue of a link with a capacity, in bytes.")
    ] = None,
    routers: Annotated[
        str | None,
        typer.Option(help='Nodes that only forward: 0-13,Berlin. In GraphML, also those with kind="router".'),
    ] = None,
    routes: Annotated[str, typer.Option(help="Static routes: shortest (to all nodes) or neighbours.")] = "shortest",
    pf: Annotated[float, typer.Option(help="Probability that a link is down, per link and second.")] = 0.0,
    schedule_for: Annotated[str, typer.Option(help="How long the failures of --pf last.")] = _SCHEDULE_FOR,
    name: Name = "lab",
    as_json: Json = False,
) -> None:
    """Create a lab and return. It stays up until `wend lab down`."""
    from wend.drivers.world import build_world
    from wend.lab.emulator import QUEUE_BYTES
    from wend.lab.lab import Lab

    flags = {"topology": topology, "peers": peers, "degree": degree, "seed": seed, "pl": pl, "pf": pf}
    faults = {"corruption": corruption, "reordering": reordering, "reordering_delay": reordering_delay}
    scenario = read_scenario(flags | faults)
    length_ns = parse_duration(schedule_for)
    rate_bps = 0 if link_capacity is None else _parse_bits(link_capacity)
    overlay = build_world(scenario).overlay
    print_remarks(overlay.remarks)
    forwarding = _parse_routers(scenario, overlay, routers)
    begin = time.monotonic()
    network = Lab.up(
        overlay,
        name=name,
        routes=routes,  # type: ignore[arg-type]  # `up` checks it
        seed=scenario.seed,
        rate_bps=rate_bps,
        queue_bytes=QUEUE_BYTES if queue_bytes is None else queue_bytes,
        corruption=scenario.corruption,
        reordering=scenario.reordering,
        reordering_delay_ns=scenario.reordering_delay_ns,
        routers=forwarding,
    )
    took_s = time.monotonic() - begin
    if scenario.pf > 0:
        from wend.topology.faults import PerSecond

        outages = PerSecond(len(overlay.links), scenario.pf, begin=0, end=length_ns, seed=scenario.seed).outages()
        network.schedule(outages, time.monotonic_ns())
    if as_json:
        print(json.dumps(_lab_fields(network, took_s)))
    else:
        _print_lab(network, scenario, routes, took_s)


@lab.command("run")
def run(
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host, by name or number.")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command to run, after --.")],
    name: Name = "lab",
) -> None:
    """Run a command on a host and return its exit code."""
    from wend.lab.node_names import find_node

    there = _attach(name)
    with there.inside(find_node(there.overlay, host)):
        try:
            os.execvp(command[0], command)
        except OSError as error:
            raise LabError(f"cannot run {command[0]!r}: {error.strerror}") from None


@lab.command("cut")
def cut(link: LinkText, name: Name = "lab") -> None:
    """Take a link down in both directions, until `wend lab heal`."""
    from wend.lab.node_names import find_link

    there = _attach(name)
    there.cut(find_link(there.overlay, link))


@lab.command("heal")
def heal(link: LinkText, name: Name = "lab") -> None:
    """Bring a link up, even during a scheduled outage."""
    from wend.lab.node_names import find_link

    there = _attach(name)
    there.heal(find_link(there.overlay, link))


@lab.command("status")
def status(name: Name = "lab", as_json: Json = False) -> None:
    """Show every link: its ends, delay, state and packets."""
    there = _attach(name)
    now, counters = there.status(), there.counters()
    if as_json:
        import msgspec

        links = [{**row, "up": row["link"] not in now.down} for row in _link_rows(there.overlay, counters)]
        print(json.dumps({"name": name, "emulator": msgspec.to_builtins(now), "links": links}))
    else:
        _print_status(there, now, counters)


@lab.command("down")
def down(name: Name = "lab", as_json: Json = False) -> None:
    """Remove a lab and end the processes in it."""
    from wend.lab.lab_state import clean

    removed = clean(name)
    if not removed.labs:
        raise LabError(f"no lab named {name!r} is up")
    if as_json:
        print(json.dumps({"name": name, "processes": removed.processes}))
        return
    ended = f", {count_text(removed.processes, 'process', 'processes')} in it ended" if removed.processes else ""
    print(f"lab {name} is down{ended}")


@lab.command()
def log(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A Parquet file to write.")],
    name: Name = "lab",
    as_json: Json = False,
) -> None:
    """Write the outages so far to a file, for `wend sim --failures`."""
    from wend.topology.faults import write_faults

    check_file(out)
    there = _attach(name)
    outages = there.outages()
    write_faults(out, there.overlay, outages)
    if as_json:
        print(json.dumps({"outages": len(outages), "out": str(out)}))
    else:
        print(f"wrote {count_text(len(outages), 'outage')} to {out}")


@lab.command("clean")
def clean_up(
    name: Annotated[str | None, typer.Option(help="Remove only this lab, even if it is up.")] = None,
    as_json: Json = False,
) -> None:
    """Remove the remains of crashed labs; running labs stay."""
    from wend.lab.lab_state import clean

    removed = clean(name)
    if as_json:
        found = {"labs": list(removed.labs), "spared": list(removed.spared), "namespaces": len(removed.namespaces)}
        print(json.dumps({**found, "emulators": removed.emulators, "processes": removed.processes}))
        return
    for lab_name in removed.labs:
        print(f"removed the remains of lab {lab_name}")
    if removed.labs:
        processes = count_text(removed.processes, "process", "processes")
        namespaces, emulators = len(removed.namespaces), count_text(removed.emulators, "emulator")
        print(f"{count_text(namespaces, 'namespace')}, {emulators}, {processes}")
    else:
        print("found no remains")
    for lab_name in removed.spared:
        print(f"lab {lab_name} is up and stays: wend lab down --name {lab_name}")


# ---------------------------------------------------------------- arguments


def _attach(name: str) -> "Lab":
    from wend.lab.lab import Lab
    from wend.lab.lab_state import check_root

    check_root()
    return Lab.attach(name)


def _parse_bits(text: str) -> int:
    rate = parse_rate(text, "--link-capacity")
    if not rate.bits or round(rate.value) < 1:
        raise ConfigError(f"--link-capacity of a lab is in bits and above 0: 500kbit/s, 10Mbit/s; got {text}")
    return round(rate.value)


def _parse_routers(scenario: "Scenario", overlay: "Overlay", text: str | None) -> frozenset[int]:
    from wend.lab.node_names import find_nodes, read_routers

    if text is not None:
        return find_nodes(overlay, text)
    drawn = scenario.topology in DRAWN or scenario.topology.startswith("topohub:")
    return frozenset() if drawn else read_routers(Path(scenario.topology))


# ---------------------------------------------------------------- output


def _lab_fields(network: "Lab", took_s: float) -> dict[str, Any]:
    import msgspec

    links = [{"link": i, **msgspec.to_builtins(link)} for i, link in enumerate(network.overlay.links)]
    nodes = msgspec.to_builtins(network.nodes)
    return {"name": network.name, "folder": str(network.folder), "took_s": took_s, "nodes": nodes, "links": links}


def _print_lab(network: "Lab", scenario: "Scenario", routes: str, took_s: float) -> None:
    delays = [link.delay_ns / MS for link in network.overlay.links]
    first, last = network.hosts[0], network.hosts[-1]
    named = "" if network.name == "lab" else f"--name {network.name} "
    rows = [
        ("hosts", f"{len(network.hosts)}", f"{first.address} is {first.name}, {last.address} is {last.name}"),
        ("links", f"{len(network.overlay.links)}", f"{min(delays):.1f}-{max(delays):.1f} ms, routes: {routes}"),
        ("failures", f"Pf {scenario.pf:g}", f"{network.status().changes_ahead} scheduled changes"),
        ("up in", f"{took_s:.2f} s", f"{network.folder}"),
    ]
    if len(network.nodes) > len(network.hosts):
        rows.insert(1, ("routers", f"{len(network.nodes) - len(network.hosts)}", "forward only"))
    output_console().print(facts_table(f"lab {network.name}", rows))
    output_console().print(f"try: wend lab run {named}{first.number} -- ping -c 3 {last.address}", style="bright_black")


def _link_rows(overlay: "Overlay", counters: "Sequence[LinkCounter]") -> list[dict[str, Any]]:
    rows = [
        {"link": i, "a": k.a, "b": k.b, "delay_ms": k.delay_ns / MS} | dict.fromkeys(_COUNTER_NAMES, 0)
        for i, k in enumerate(overlay.links)
    ]
    for counter in counters:
        for what in _COUNTER_NAMES:
            rows[counter.link][what] += getattr(counter, what)
    return rows


_COUNTER_NAMES = ("packets", "bytes", "data", "down", "loss", "queue", "corrupted", "reordered")


def _print_status(there: "Lab", now: "EmulatorStatus", counters: "Sequence[LinkCounter]") -> None:
    names = there.overlay.names
    counted_as = ("packets", "data", "while down", "lost", "queue-full", "corrupted", "reordered")
    table = column_table("link", "ends", "delay", "state", *counted_as, left=("ends", "state"), wrapped=counted_as)
    for row in _link_rows(there.overlay, counters):
        state = "[red]down[/]" if row["link"] in now.down else "up"
        counts = [str(row[what]) for what in _COUNTER_NAMES if what != "bytes"]
        ends = f"{names[row['a']]}-{names[row['b']]}"
        table.add_row(str(row["link"]), ends, f"{row['delay_ms']:.1f} ms", state, *counts)
    late = f"packets leave {now.late_mean_ns / 1000:.0f} us late on average, at most {now.late_max_ns / MS:.2f} ms"
    cpu = f"the emulator used {now.cpu_ns / SECOND:.1f} s of CPU"
    console = output_console()
    console.print(table)
    console.print(f"{now.changes_ahead} scheduled changes; {late}; {cpu}", style="bright_black")
