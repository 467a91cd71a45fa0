"""`wend lab`: a wide area on this machine, for real processes: made, entered, broken, watched and taken down."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console import lab_bench, lab_replay
from wend.console.outputs import check_file
from wend.console.sim import read_scenario
from wend.model.errors import ConfigError, LabError
from wend.model.units import MS, SECOND, parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wend.lab.control import Counter, Status
    from wend.lab.network import Lab
    from wend.model.scenario import Scenario
    from wend.topology.graph import Overlay

_SCHEDULE_FOR = "1h"
_RATES = {"kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000, "bit": 1}

Name = Annotated[str, typer.Option(help="The lab's name; several can be up at once.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
LinkText = Annotated[str, typer.Argument(metavar="A-B|LINK", help="The two ends of a link, or its number.")]

lab = typer.Typer(
    help="A wide area on this machine: hosts are network namespaces, links delay and fail.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    lab_bench.register(lab)
    lab_replay.register(lab)
    app.add_typer(lab, name="lab")


@lab.command("up")
def up(
    topology: Annotated[str | None, typer.Option(help="regular, full-mesh, topohub:NAME or a GraphML file.")] = None,
    peers: Annotated[int | None, typer.Option(help="Number of hosts.")] = None,
    degree: Annotated[int | None, typer.Option(help="Neighbours of each host (regular).")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides links, delays, losses and failures.")] = None,
    pl: Annotated[float | None, typer.Option(help="Probability that a packet is lost on a working link.")] = None,
    rate: Annotated[str | None, typer.Option(help="What a link carries each way: 10mbit. Else no limit.")] = None,
    queue: Annotated[int | None, typer.Option(help="Bytes that wait where there is a rate; more is dropped.")] = None,
    routers: Annotated[
        str | None, typer.Option(help='Nodes that only forward: 0-13,Berlin. In GraphML also kind="router".')
    ] = None,
    routes: Annotated[str, typer.Option(help="shortest (to everyone) or neighbours.")] = "shortest",
    pf: Annotated[float | None, typer.Option(help="Probability that a link is down, per link and second.")] = None,
    schedule_for: Annotated[str, typer.Option(help="How long links fail with --pf.")] = _SCHEDULE_FOR,
    name: Name = "lab",
    as_json: Json = False,
) -> None:
    """Make the network and return; it stays up until `wend lab down`."""
    from wend.drivers.world import build
    from wend.lab.emulator import QUEUE_BYTES
    from wend.lab.network import Lab

    flags = {"topology": topology, "peers": peers, "degree": degree, "seed": seed, "pl": pl, "pf": pf}
    scenario = read_scenario(flags, topics=1, pf=0.0)
    length_ns = parse_duration(schedule_for)
    rate_bps = 0 if rate is None else _rate(rate)
    overlay = build(scenario).overlay
    forwarding = _routers(scenario, overlay, routers)
    begin = time.monotonic()
    made = Lab.up(
        overlay,
        name=name,
        routes=routes,  # type: ignore[arg-type]  # it says so itself where it is neither
        seed=scenario.seed,
        rate_bps=rate_bps,
        queue_bytes=QUEUE_BYTES if queue is None else queue,
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
    host: Annotated[str, typer.Argument(help="A host, by name or number.")],
    command: Annotated[list[str], typer.Argument(help="What to run there, after --.")],
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
def down(name: Name = "lab") -> None:
    """Take a lab down, with the processes that run in it."""
    from wend.lab.network import clean

    removed = clean(name)
    if not removed.labs:
        raise LabError(f"no lab named {name!r} is up")
    ended = f", {_counted(removed.processes, 'process')} in it ended" if removed.processes else ""
    print(f"lab {name} is down{ended}")


@lab.command()
def log(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A Parquet file to write.")],
    name: Name = "lab",
) -> None:
    """Write what failed so far, for `wend sim --failures`."""
    from wend.topology.faults import write_faults

    check_file(out)
    there = _attach(name)
    found = there.outages()
    write_faults(out, there.overlay, found)
    print(f"wrote {_counted(len(found), 'outage')} to {out}")


@lab.command("clean")
def clean_up(
    name: Annotated[str | None, typer.Option(help="Only this lab, even if it is up.")] = None,
) -> None:
    """Remove what crashed labs left behind; labs that are up stay."""
    from wend.lab.network import clean

    removed = clean(name)
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


def _rate(text: str) -> int:
    for unit, bits in _RATES.items():
        if text.lower().endswith(unit):
            try:
                rate = round(float(text[: -len(unit)]) * bits)
            except (ValueError, OverflowError):
                break
            if rate > 0:
                return rate
    raise ConfigError(f"cannot read {text!r} as a rate: it looks like 500kbit, 10mbit or 1gbit")


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
