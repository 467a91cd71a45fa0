"""`wend lab`: a wide area on this machine, for real processes: made, entered, broken, watched and taken down."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console import lab_bench, lab_replay
from wend.console.options import Degree, Json, Peers, Pl, Seed, Topology
from wend.console.outputs import check_file
from wend.console.sim import read_scenario
from wend.model.errors import ConfigError, LabError
from wend.model.rates import parse_rate
from wend.model.units import MS, SECOND, parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wend.lab.control import Counter, Status
    from wend.lab.network import Lab
    from wend.model.scenario import Scenario
    from wend.topology.graph import Overlay

_SCHEDULE_FOR = "1h"

Name = Annotated[str, typer.Option(help="The lab's name; several can be up at once.")]
LinkText = Annotated[str, typer.Argument(metavar="A-B|LINK", help="The two ends of a link, or its number.")]

lab = typer.Typer(
    help="A wide area on this machine (Linux, root): hosts are network namespaces, links delay and fail.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    lab_bench.register(lab)
    lab_replay.register(lab)
    app.add_typer(lab, name="lab")


@lab.command("up")
def up(
    topology: Topology = None,
    peers: Peers = None,
    degree: Degree = None,
    seed: Seed = None,
    pl: Pl = None,
    link_capacity: Annotated[
        str | None, typer.Option(help="What a link carries each way: 500kbit/s, 10Mbit/s. Else no limit.")
    ] = None,
    queue_bytes: Annotated[
        int | None, typer.Option(help="Bytes that may wait for a link of such a capacity; more are dropped.")
    ] = None,
    routers: Annotated[
        str | None, typer.Option(help='Nodes that only forward: 0-13,Berlin. In GraphML also kind="router".')
    ] = None,
    routes: Annotated[str, typer.Option(help="shortest (to everyone) or neighbours.")] = "shortest",
    pf: Annotated[float, typer.Option(help="Probability that a link is down, per link and second.")] = 0.0,
    schedule_for: Annotated[str, typer.Option(help="How long links fail with --pf.")] = _SCHEDULE_FOR,
    name: Name = "lab",
    as_json: Json = False,
) -> None:
    """Make the network and return; it stays up until `wend lab down`."""
    from wend.console.show import remark
    from wend.drivers.world import build
    from wend.lab.emulator import QUEUE_BYTES
    from wend.lab.network import Lab

    flags = {"topology": topology, "peers": peers, "degree": degree, "seed": seed, "pl": pl, "pf": pf}
    scenario = read_scenario(flags, topics=1)
    length_ns = parse_duration(schedule_for)
    rate_bps = 0 if link_capacity is None else _bits(link_capacity)
    overlay = build(scenario).overlay
    remark(overlay.remarks)
    forwarding = _routers(scenario, overlay, routers)
    begin = time.monotonic()
    made = Lab.up(
        overlay,
        name=name,
        routes=routes,  # type: ignore[arg-type]  # it says so itself where it is neither
        seed=scenario.seed,
        rate_bps=rate_bps,
        queue_bytes=QUEUE_BYTES if queue_bytes is None else queue_bytes,
        routers=forwarding,
    )
    took_s = time.monotonic() - begin
    if scenario.pf > 0:
        from wend.topology.faults import PerSecond

        faults = PerSecond(len(overlay.links), scenario.pf, begin=0, end=length_ns, seed=scenario.seed)
        made.schedule(faults.outages(), time.monotonic_ns())
    if as_json:
        print(json.dumps(_as_json(made, took_s)))
    else:
        _show_made(made, scenario, routes, took_s)


@lab.command("run")
def run(
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host, by name or number.")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run there, after --.")],
    name: Name = "lab",
) -> None:
    """Run a command on a host; its exit code is this one's."""
    from wend.lab.naming import find_node

    there = _attach(name)
    with there.inside(find_node(there.overlay, host)):
        try:
            os.execvp(command[0], command)
        except OSError as error:
            raise LabError(f"cannot run {command[0]!r}: {error.strerror}") from None


@lab.command("cut")
def cut(link: LinkText, name: Name = "lab") -> None:
    """Fail a link in both directions, until it is healed."""
    from wend.lab.naming import find_link

    there = _attach(name)
    there.cut(find_link(there.overlay, link))


@lab.command("heal")
def heal(link: LinkText, name: Name = "lab") -> None:
    """Repair a link, also out of a scheduled outage."""
    from wend.lab.naming import find_link

    there = _attach(name)
    there.heal(find_link(there.overlay, link))


@lab.command("status")
def status(name: Name = "lab", as_json: Json = False) -> None:
    """Every link: its ends, delay and state, and the packets that it was given."""
    there = _attach(name)
    now, counters = there.status(), there.counters()
    if as_json:
        import msgspec

        links = [{**row, "up": row["link"] not in now.down} for row in _links(there.overlay, counters)]
        print(json.dumps({"name": name, "emulator": msgspec.to_builtins(now), "links": links}))
    else:
        _show_status(there, now, counters)


@lab.command("down")
def down(name: Name = "lab", as_json: Json = False) -> None:
    """Take a lab down, with the processes that run in it."""
    from wend.lab.network import clean

    removed = clean(name)
    if not removed.labs:
        raise LabError(f"no lab named {name!r} is up")
    if as_json:
        print(json.dumps({"name": name, "processes": removed.processes}))
        return
    ended = f", {_counted(removed.processes, 'process')} in it ended" if removed.processes else ""
    print(f"lab {name} is down{ended}")


@lab.command()
def log(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A Parquet file to write.")],
    name: Name = "lab",
    as_json: Json = False,
) -> None:
    """Write what failed so far, for `wend sim --failures`."""
    from wend.topology.faults import write_faults

    check_file(out)
    there = _attach(name)
    found = there.outages()
    write_faults(out, there.overlay, found)
    if as_json:
        print(json.dumps({"outages": len(found), "out": str(out)}))
    else:
        print(f"wrote {_counted(len(found), 'outage')} to {out}")


@lab.command("clean")
def clean_up(
    name: Annotated[str | None, typer.Option(help="Only this lab, even if it is up.")] = None,
    as_json: Json = False,
) -> None:
    """Remove what crashed labs left behind; labs that are up stay."""
    from wend.lab.network import clean

    removed = clean(name)
    if as_json:
        found = {"labs": list(removed.labs), "spared": list(removed.spared), "namespaces": len(removed.namespaces)}
        print(json.dumps({**found, "emulators": removed.emulators, "processes": removed.processes}))
        return
    for lab_name in removed.labs:
        print(f"removed what was left of lab {lab_name}")
    if removed.labs:
        counts = (len(removed.namespaces), "namespace"), (removed.emulators, "emulator"), (removed.processes, "process")
        print(", ".join(_counted(count, what) for count, what in counts))
    else:
        print("nothing was left behind")
    for lab_name in removed.spared:
        print(f"lab {lab_name} is up and stays: wend lab down --name {lab_name}")


# ---------------------------------------------------------------- what was meant


def _attach(name: str) -> "Lab":
    from wend.lab.network import Lab
    from wend.lab.state import require_root

    require_root()
    return Lab.attach(name)


def _bits(text: str) -> int:
    rate = parse_rate(text, "--link-capacity")
    if not rate.bits or round(rate.value) < 1:
        raise ConfigError(f"--link-capacity of a lab is in bits, and above 0: 500kbit/s, 10Mbit/s; got {text}")
    return round(rate.value)


def _routers(scenario: "Scenario", overlay: "Overlay", text: str | None) -> frozenset[int]:
    from wend.lab.naming import find_nodes, routers_in

    if text is not None:
        return find_nodes(overlay, text)
    drawn = scenario.topology in ("full-mesh", "regular") or scenario.topology.startswith("topohub:")
    return frozenset() if drawn else routers_in(Path(scenario.topology))


# ---------------------------------------------------------------- what is shown


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('s') else 's'}"


def _as_json(made: "Lab", took_s: float) -> dict[str, Any]:
    import msgspec

    links = [{"link": i, **msgspec.to_builtins(link)} for i, link in enumerate(made.overlay.links)]
    nodes = msgspec.to_builtins(made.nodes)
    return {"name": made.name, "folder": str(made.folder), "took_s": took_s, "nodes": nodes, "links": links}


def _show_made(made: "Lab", scenario: "Scenario", routes: str, took_s: float) -> None:
    from wend.console.show import facts, output

    delays = [link.delay_ns / MS for link in made.overlay.links]
    first, last = made.hosts[0], made.hosts[-1]
    named = "" if made.name == "lab" else f"--name {made.name} "
    rows = [
        ("hosts", f"{len(made.hosts)}", f"{first.address} is {first.name}, {last.address} is {last.name}"),
        ("links", f"{len(made.overlay.links)}", f"{min(delays):.1f}-{max(delays):.1f} ms, routes: {routes}"),
        ("failures", f"Pf {scenario.pf:g}", f"{made.status().changes_ahead} changes are scheduled"),
        ("up in", f"{took_s:.2f} s", f"{made.folder}"),
    ]
    if len(made.nodes) > len(made.hosts):
        rows.insert(1, ("routers", f"{len(made.nodes) - len(made.hosts)}", "they only forward"))
    output().print(facts(f"lab {made.name}", rows))
    output().print(f"try: wend lab run {named}{first.number} -- ping -c 3 {last.address}", style="bright_black")


def _links(overlay: "Overlay", counters: "Sequence[Counter]") -> list[dict[str, Any]]:
    rows = [
        {"link": i, "a": k.a, "b": k.b, "delay_ms": k.delay_ns / MS} | dict.fromkeys(_COUNTED, 0)
        for i, k in enumerate(overlay.links)
    ]
    for counter in counters:
        for what in _COUNTED:
            rows[counter.link][what] += getattr(counter, what)
    return rows


_COUNTED = ("packets", "bytes", "data", "down", "loss", "queue")


def _show_status(there: "Lab", now: "Status", counters: "Sequence[Counter]") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from wend.console.show import output

    names = there.overlay.names
    table = Table(header_style="bold", box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("link", justify="right")
    table.add_column("ends", no_wrap=True)
    table.add_column("delay", justify="right", no_wrap=True)
    table.add_column("state")
    for title in ("packets", "data", "while down", "lost", "queue full"):
        table.add_column(title, justify="right")
    for row in _links(there.overlay, counters):
        state = "[red]down[/]" if row["link"] in now.down else "up"
        counted = [str(row[what]) for what in ("packets", "data", "down", "loss", "queue")]
        ends = f"{names[row['a']]}-{names[row['b']]}"
        table.add_row(str(row["link"]), ends, f"{row['delay_ms']:.1f} ms", state, *counted)
    late = f"packets left {now.late_mean_ns / 1000:.0f} us late on average, {now.late_max_ns / MS:.2f} ms at most"
    cpu = f"the emulator has used {now.cpu_ns / SECOND:.1f} s of a processor"
    console = output()
    console.print(table)
    console.print(f"{now.changes_ahead} changes ahead; {late}; {cpu}", style="bright_black")
