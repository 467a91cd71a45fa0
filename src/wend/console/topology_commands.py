"""`wend topology`: make, list, convert and draw underlay networks."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wend.console.options import Json
from wend.console.outputs import check_file, write_text
from wend.console.terminal import announce_compilation, count_text, facts_table, output_console, print_remarks
from wend.model.errors import ConfigError

if TYPE_CHECKING:
    from wend.topology.graph import Overlay
    from wend.topology.placement import Placement
    from wend.topology.underlay import Underlay

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="brite, transit-stub, power-law, topohub:NAME, or a .graphml or .gml file."),
]
Seed = Annotated[int, typer.Option(help="The seed of all random draws.")]

_OVERLAYS = ("tdo-landmark", "chain", "random", "none")


def register(app: typer.Typer) -> None:
    topology = typer.Typer(help="Make, list, convert and draw underlay networks.")
    topology.command("make")(make)
    topology.command("list")(list_networks)
    topology.command("convert")(convert)
    topology.command("show")(show)
    app.add_typer(topology, name="topology", no_args_is_help=True)


def make(
    name: Name,
    seed: Seed = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the network to this .graphml or .gml file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Generate a network, or read one, and print its metrics."""
    from wend.topology.catalog import make as make_underlay
    from wend.topology.underlay_files import check_suffix, write

    if out is not None:
        check_suffix(out)
        check_file(out)
    underlay = make_underlay(name, seed)
    print_remarks(underlay.remarks)
    if out is not None:
        write(underlay, out)
    with announce_compilation():
        m = _underlay_metrics(underlay)
    if as_json:
        print(json.dumps({"name": underlay.name, "seed": seed, **m, "out": None if out is None else str(out)}))
        return

    rows = [
        ("routers", f"{m['routers']}", f"{m['access_routers']} of them are access routers"),
        ("edges", f"{m['edges']}", f"degree {m['mean_degree']:.2f} on average, {m['most_links']} at most"),
        ("domains", f"{m['domains']}", ""),
        ("mean path", f"{m['mean_hops']:.2f} hops", f"{m['diameter_hops']} at most, between {m['over']}"),
        ("mean delay", f"{m['mean_delay_ms']:.1f} ms", f"{m['longest_delay_ms']:.1f} ms at most, one way"),
    ]
    if out is not None:
        rows.append(("written to", str(out), ""))
    output_console().print(facts_table(f"{underlay.name}, seed {seed}", rows))


def _underlay_metrics(underlay: "Underlay") -> dict[str, Any]:
    """Sizes, and the lengths of paths between access routers."""
    import numpy as np

    from wend.topology.routing import shortest_paths
    from wend.topology.underlay import summarise_underlay

    homes = underlay.access()
    if len(homes) < 2:
        homes = np.arange(underlay.routers)
    most = 2000  # a sample of this many sources is enough
    sources = homes[:: -(-len(homes) // most)]
    paths = shortest_paths(underlay, sources)
    delays = paths.delay_ns[:, homes]
    hops = paths.hops()[:, homes]
    apart = delays > 0
    return {
        **summarise_underlay(underlay),
        "mean_hops": float(hops[apart].mean()),
        "diameter_hops": int(hops.max()),
        "mean_delay_ms": float(delays[apart].mean() / 1e6),
        "longest_delay_ms": float(delays.max() / 1e6),
        "over": "access routers" if len(homes) < underlay.routers else "any two routers",
    }


def list_networks(
    maps: Annotated[bool, typer.Option("--maps", help="Also list every map.")] = False,
    as_json: Json = False,
) -> None:
    """List the networks that have a name."""
    from wend.topology.catalog import DRAWN, list_real_maps

    map_names = list_real_maps()
    if as_json:
        print(json.dumps({"drawn": {name: about for name, (_, about) in DRAWN.items()}, "maps": map_names}))
        return
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, (_, about) in DRAWN.items():
        table.add_row(name, f"[bright_black]{about}[/]")
    groups: dict[str, int] = {}
    for name in map_names:
        groups[name.split("/")[0]] = groups.get(name.split("/")[0], 0) + 1
    for group, count in groups.items():
        table.add_row(f"{group}/...", f"[bright_black]{count} maps, delays from distances[/]")
    console = output_console()
    console.print(table)
    if maps:
        for name in map_names:
            print(name)
    else:
        console.print("[bright_black]--maps lists them all[/]")


def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A .graphml or .gml file.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The file to write, .graphml or .gml.")],
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Convert a network to the other format. Missing delays are drawn at random."""
    from wend.topology.underlay_files import check_suffix, read, write

    check_suffix(target)
    check_file(target)
    underlay = read(source, seed=seed)
    print_remarks(underlay.remarks)
    write(underlay, target)
    if as_json:
        print(json.dumps({"routers": underlay.routers, "edges": underlay.links, "out": str(target)}))
    else:
        print(f"{target}: {underlay.routers} routers, {underlay.links} edges")


def show(
    name: Name,
    seed: Seed = 1,
    peers: Annotated[int, typer.Option(help="How many peers to place on the network.")] = 30,
    overlay: Annotated[str, typer.Option(help="tdo-landmark, chain, random or none.")] = "tdo-landmark",
    k: Annotated[int, typer.Option(help="How many landmarks, traced paths per peer, or neighbours.")] = 2,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The SVG file to write.")] = Path("topology.svg"),
    as_json: Json = False,
) -> None:
    """Draw a network with an overlay as SVG, and count the routers that overlay links share."""
    from wend.topology.catalog import make as make_underlay
    from wend.topology.overlays import choose_landmarks
    from wend.topology.placement import attach_peers
    from wend.topology.underlay_drawing import draw

    check_file(out, ".svg")
    if peers < 2:
        raise ConfigError(f"an overlay needs at least 2 peers, got {peers}")
    if overlay not in _OVERLAYS:
        raise ConfigError(f"there is no overlay {overlay!r}: choose {', '.join(_OVERLAYS)}")
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    underlay = make_underlay(name, seed)
    print_remarks(underlay.remarks)
    homes = len(underlay.access())
    if peers > homes:
        print(f"wend: {underlay.name} has {homes} access routers: drawing {homes} peers, not {peers}", file=sys.stderr)
    if k >= min(peers, homes):
        raise ConfigError(f"k = {k} needs more than {k} peers, got {min(peers, homes)}")
    with announce_compilation():
        placement = attach_peers(underlay, min(peers, homes), seed)
        over = _make_overlay(placement, overlay, k, seed)
        landmarks = choose_landmarks(placement, k, seed) if overlay == "tdo-landmark" else []
    words = {"tdo-landmark": f"{k} landmarks", "chain": f"{k} traced paths per peer", "random": f"{k} neighbours"}
    title = f"{underlay.name}, seed {seed}" + (f": {overlay} overlay, {words[overlay]}" if overlay in words else "")
    write_text(out, draw(placement, over, title, landmarks))
    from wend.topology.link_overlap import meeting_routers

    through = meeting_routers(placement, over)
    shared, worst = int((through > 1).sum()), int(through.argmax())
    if as_json:
        most = {"router": underlay.names[worst], "links": int(through[worst])} if shared else None
        found = {"peers": placement.peers, "links": len(over.links), "shared_routers": shared}
        print(json.dumps({**found, "most_shared": most, "picture": str(out)}))
        return
    sizes = count_text(len(over.links), "overlay link"), count_text(shared, "shared router")
    print(f"{out}: {placement.peers} peers, {', '.join(sizes)}")
    if shared:
        print(f"{through[worst]} of {sizes[0]} run through router {underlay.names[worst]}")


def _make_overlay(placement: "Placement", kind: str, k: int, seed: int) -> "Overlay":
    from wend.topology import overlays

    match kind:
        case "tdo-landmark":
            return overlays.landmark(placement, overlays.choose_landmarks(placement, k, seed))
        case "chain":
            return overlays.chain(placement, overlays.choose_traced(placement, k, seed))
        case "random":
            return overlays.random_regular(placement, k, seed)
    return placement.overlay(())
