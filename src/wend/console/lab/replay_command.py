"""`wend lab replay`: replays windows of `wend lab bench` in the simulator and compares the results."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wend.console.options import Json
from wend.console.terminal import column_table, message_console, output_console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wend.lab.bench.simulated_replay import CellReplay

DEFAULT_OUT = Path("out/bench")


def replay(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder with the cells of `wend lab bench`.")] = DEFAULT_OUT,
    as_json: Json = False,
) -> None:
    """Replay the lab's failure logs in the simulator with the same workload, and compare the results."""
    from wend.lab.bench.matrix import CellStore
    from wend.lab.bench.simulated_replay import replay_cell as play
    from wend.model.errors import ConfigError

    cells = sorted(
        CellStore(out).load_cells(), key=lambda c: (c.settings.pf, c.settings.system, c.settings.failure_seed)
    )
    replays = []
    for cell in cells:
        with message_console().status(f"{cell.settings.system}, Pf {cell.settings.pf:g}"):
            played = play(cell)
        if played is not None:
            replays.append(played)
    if not replays:
        raise ConfigError(f"{out} has no finished cells that the simulator can replay")
    if as_json:
        print(json.dumps({"replays": [_replay_fields(one) for one in replays]}))
        return
    output_console().print(_make_table(replays))
    worst = max(replays, key=lambda one: abs(one.difference))
    apart = f"at most {abs(worst.difference):.2f} points apart ({worst.cell.settings.system})"
    output_console().print(apart, style="bright_black")
    for line in _detection_lines(replays):
        output_console().print(line, style="bright_black")


def _replay_fields(one: "CellReplay") -> dict[str, object]:
    s = one.cell.settings
    return {
        "system": s.system,
        "pf": s.pf,
        "rate_hz": s.rate_hz,
        "topology_seed": s.topology_seed,
        "failure_seed": s.failure_seed,
        "lab": one.cell.metrics.on_time_ratio,
        "simulated": one.on_time,
        "difference_points": one.difference,
        "control_hz": one.cell.traffic.control / s.duration_s,
        "outage_known_ms": one.known_ms,
        "bfd_hz": one.bfd_hz,
    }


def _format_replay(one: "CellReplay") -> tuple[str, float, float]:
    s = one.cell.settings
    return s.system, s.pf, s.rate_hz


def _detection_lines(replays: "list[CellReplay]") -> list[str]:
    """Detection time and control packets per system, beside the packets of BFD for the same detection time."""
    from statistics import mean

    lines = []
    looking = [one for one in replays if one.bfd_hz is not None]
    for kind in sorted({_format_replay(one) for one in looking}):
        mine = [one for one in looking if _format_replay(one) == kind]
        detection_ms = mean(one.known_ms or 0.0 for one in mine)
        control = mean(one.cell.traffic.control / one.cell.settings.duration_s for one in mine)
        two, three = (mean(one.bfd_hz[i] for one in mine if one.bfd_hz) for i in (0, 1))
        system, pf, rate = kind
        lines.append(
            f"{system}, Pf {pf:g}, {rate:g}/s: outages detected after {detection_ms:.0f} ms on average (simulated), "
            f"{control:.0f} control packets/s in the lab, with ACKs; BFD would send {two:.0f}/s with multiplier 2, "
            f"{three:.0f}/s with 3"
        )
    return lines


def _make_table(replays: "list[CellReplay]") -> "RenderableType":
    heads = ("system", "Pf", "rate", "world", "lab", "sim", "points", "data lab", "sim")
    table = column_table(*heads, left=("system",))
    for one in replays:
        s, f = one.cell.settings, one.cell.metrics
        data = one.cell.traffic.data / max(1, f.expected)
        ratios = f"{f.on_time_ratio:.4f}", f"{one.on_time:.4f}", f"{one.difference:+.2f}"
        packets = f"{data:.2f}", f"{one.data:.2f}"
        far = "red" if abs(one.difference) > 1 else None
        world = f"{s.topology_seed}/{s.failure_seed}"
        table.add_row(s.system, f"{s.pf:g}", f"{s.rate_hz:g}/s", world, *ratios, *packets, style=far)
    return table
