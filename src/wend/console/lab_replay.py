"""`wend lab replay`: windows of `wend lab bench` again, in the simulator, and how far the two are apart."""

import json
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_OUT = Path("out/bench")


def register(lab: typer.Typer) -> None:
    lab.command("replay")(replay)


def replay(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where `wend lab bench` kept its cells.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Play the lab's failure logs again under virtual time, with the same workload."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from wend.console.show import messages, output
    from wend.lab.bench import Store
    from wend.lab.replay import replay as play
    from wend.model.errors import ConfigError

    cells = sorted(Store(out).load(), key=lambda c: (c.settings.pf, c.settings.system, c.settings.failure_seed))
    found = []
    for cell in cells:
        with messages().status(f"{cell.settings.system}, Pf {cell.settings.pf:g}"):
            played = play(cell)
        if played is not None:
            found.append(played)
    if not found:
        raise ConfigError(f"{out} has no finished cells that the simulator can play")
    if as_json:
        rows = [
            {
                "system": r.cell.settings.system,
                "pf": r.cell.settings.pf,
                "topology_seed": r.cell.settings.topology_seed,
                "failure_seed": r.cell.settings.failure_seed,
                "lab": r.cell.figures.on_time_ratio,
                "simulated": r.on_time,
                "difference_points": r.difference,
            }
            for r in found
        ]
        print(json.dumps({"replays": rows}))
        return
    table = Table(header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for title in ("system", "Pf", "world", "lab", "simulated", "points", "data, lab", "simulated"):
        table.add_column(title, justify="left" if title == "system" else "right", no_wrap=True)
    for r in found:
        s, f = r.cell.settings, r.cell.figures
        world = f"{s.topology_seed}/{s.failure_seed}"
        data = r.cell.traffic.data / max(1, f.expected)
        ratios = f"{f.on_time_ratio:.4f}", f"{r.on_time:.4f}", f"{r.difference:+.2f}", f"{data:.2f}", f"{r.data:.2f}"
        table.add_row(s.system, f"{s.pf:g}", world, *ratios, style="red" if abs(r.difference) > 1 else None)
    output().print(table)
    worst = max(found, key=lambda r: abs(r.difference))
    apart = f"at most {abs(worst.difference):.2f} points apart ({worst.cell.settings.system})"
    output().print(apart, style="bright_black")
