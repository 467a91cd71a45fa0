"""The pictures of the README, of the comparison page, and of the pages on matching, congestion, coding and telemetry.

    python scripts/pictures.py             # draw them again from their stored data
    python scripts/pictures.py --measure   # simulate the README's data first, a few minutes on one core

The README's data is docs/figures/on-time.json, that of matching is docs/figures/matching.json
(`python -m benchmarks.matching --curve`), that of overload is docs/figures/overload.json
(`python -m benchmarks.overload --curve`), that of coding is docs/figures/coding.json
(`python -m benchmarks.coded_redundancy --output`). The data of the comparison is the table of its page.
Commands of Wend's draw telemetry-links.svg and telemetry-late.svg; benchmarks/telemetry_week.py has them.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from line_chart import ChartLine, line_chart

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
DATA = FIGURES / "on-time.json"
COMPARISON = ROOT / "docs" / "explanation" / "comparison.md"

LABELS = {
    "oracle": "oracle, the best possible",
    "adaptive": "adaptive, Wend's own",
    "dcrd": "dcrd",
    "d-tree": "tree",
}
"""The strategies of the README's picture, with their labels."""


def measure() -> dict[str, Any]:
    """Simulate Figure 3 of the dcrd study: 20 peers of degree 5. `adaptive` and `dcrd` wait for real ACKs."""
    from wend.drivers.scenarios import Scenario
    from wend.drivers.sim import simulate
    from wend.studies.dcrd import study as dcrd

    series = {one.strategy: one for one in (dcrd.ORACLE, dcrd.ADAPTIVE[0], dcrd.DCRD_ROUND_TRIP, *dcrd.PAPER[2:3])}
    assert series.keys() == LABELS.keys()
    size = dcrd.DCRD.find_size("default")
    found: dict[str, dict[str, list[float]]] = {}
    for name in LABELS:
        for pf in dcrd.FAILURES.values:
            scenarios = size.make_runs({**dcrd.FIGURE_3.base, **series[name].fields, "pf": pf})
            runs = [simulate(scenario).summary for scenario in scenarios if isinstance(scenario, Scenario)]
            found.setdefault(name, {})[f"{pf:g}"] = [round(run.on_time, 6) for run in runs]
            print(f"{name}, Pf {pf:g}: {fmean(run.on_time for run in runs):.4f}", flush=True)
    return {
        "made by": "python scripts/pictures.py --measure",
        "metric": "share of expected deliveries that were on time, by strategy, Pf and seed",
        "setting": {**dcrd.FIGURE_3.base, "duration_s": size.duration_s, "seeds": list(range(1, size.seeds + 1))},
        "acknowledgements": {name: str(series[name].fields["ack"]) for name in LABELS},
        "on_time": found,
    }


def readme_picture(data: dict[str, Any]) -> str:
    from wend.pictures.palette import STRATEGIES

    lines = []
    for name, by_pf in data["on_time"].items():
        points = tuple((float(pf), 100 * fmean(values)) for pf, values in by_pf.items())
        label = f"{LABELS[name]} {points[-1][1]:.1f} %"
        lines.append(ChartLine(label, STRATEGIES[name], points, strong=name == "adaptive"))
    lowest = min(y for one in lines for _, y in one.points)
    floor = 5 * int(lowest // 5)
    return line_chart(
        "Events that arrive on time while links fail",
        "20 peers with 5 links each; on time is within 3 x the shortest delay",
        "share of links that are down at any time",
        lines,
        [(float(pf), f"{100 * float(pf):g} %") for pf in next(iter(data["on_time"].values()))],
        [(float(y), f"{y} %") for y in range(floor, 101, 5)],
    )


def matching_picture(data: dict[str, Any]) -> str:

    found = data["events_per_s"]
    lines = [
        ChartLine(label, colour, tuple((float(n), rate) for n, rate in found[width][kind].items()), strong)
        for label, colour, width, kind, strong in (
            ("batches, narrow ranges", "green", "narrow", "batch", True),
            ("batches, wide ranges", "blue", "wide", "batch", True),
            ("NumPy scan, both", "grey", "narrow", "scan", False),
            ("", "grey", "wide", "scan", False),
        )
    ]
    return line_chart(
        "Events matched per second on one core",
        "filters on 1 to 5 of 10 attributes",
        "number of filters",
        lines,
        [(10.0**power, f"{10**power:,}".replace(",", " ")) for power in range(3, 7)],
        [(10.0**power, f"{10**power:,}".replace(",", " ")) for power in range(1, 7)],
        log=True,
    )


OVERLOAD = {
    "adaptive": ("adaptive, Wend's own", "green"),
    "adaptive:congestion_control=none": ("the same without congestion control", "orange"),
    "d-tree": ("tree", "blue"),
}
"""The strategies of the picture of overload, with their labels and colours."""


def overload_picture(data: dict[str, Any]) -> str:
    """Offered load against what arrives in time, both in units of the load that fits on a tree."""

    loads = data["loads"]
    best = tuple((load["load"], load["load"] * load["bound"]) for load in loads)
    lines = [ChartLine("upper bound", "grey", best, broken=True)]
    for name, (label, colour) in OVERLOAD.items():
        shares = [next(one["on_time"] for one in load["strategies"] if one["strategy"] == name) for load in loads]
        points = tuple((load["load"], load["load"] * share) for load, share in zip(loads, shares, strict=True))
        lines.append(ChartLine(label, colour, points, strong=name == "adaptive"))
    return line_chart(
        "What arrives in time under overload",
        "20 peers with 5 links of 200 messages/s; in time is within 3 x the shortest delay",
        "offered load; 1 is what fits on a tree",
        lines,
        [(load["load"], f"{load['load']:g}") for load in loads],
        [(step / 2, f"{step / 2:g}") for step in range(7)],
    )


CODING = {
    "adaptive, coded": ("adaptive, coded", "green", False),
    "adaptive, whole": ("adaptive, whole events", "green", True),
    "2 copies": ("2 copies", "pink", True),
    "coded 1/2": ("coded 1/2", "pink", False),
    "3 copies": ("3 copies", "orange", True),
    "coded 2/3": ("coded 2/3", "orange", False),
}
"""The variants of the picture of coding: label, colour, and whether events travel whole."""


def coding_picture(data: dict[str, Any]) -> str:
    """What arrives in time against loss, with the bytes at the highest loss."""

    points = [point for point in data["points"] if point["part"] == "loss"]
    lines = []
    for variant, (label, colour, is_whole) in CODING.items():
        own = sorted((p for p in points if p["variant"] == variant), key=lambda p: p["loss"])
        words = f"{label}, {own[-1]['bytes'] / 1000:.1f} kB"
        line = tuple((point["loss"], 100 * point["on_time"]) for point in own)
        lines.append(ChartLine(words, colour, line, strong=variant == "adaptive, coded", broken=is_whole))
    floor = 10 * int(min(y for one in lines for _, y in one.points) // 10)
    return line_chart(
        "Large events that arrive on time while links fail and lose packets",
        "events of 4 kB; 6 % of the links down; on time is within 1.5 x the shortest delay; with bytes per delivery",
        "loss of each link",
        lines,
        [(loss / 100, f"{loss} %") for loss in range(6)],
        [(float(y), f"{y} %") for y in range(floor, 101, 10)],
    )


LOOP = (
    ("peers", "write segments", 'telemetry = "DIR"'),
    ("segments", "are shipped", "wend telemetry ship"),
    ("tables", "links, outages, late events, flows", "wend data links, late, workload"),
    ("replays", "the same days under other strategies", "wend data replay"),
    ("a choice", "a strategy, a setting, a plan", "wend data recommend, wend plan"),
)
"""The stations of telemetry: what there is, what it is, and the command or setting that makes it."""


def loop_picture() -> str:
    """The loop from peers over tables back to peers."""
    from wend.pictures.style import NOTE, TEXT, TITLE
    from wend.pictures.svg import circle, document, line, path, text

    width, top, pitch, left = 760.0, 104.0, 62.0, 70.0
    body = [
        text(20, 32, "What peers saw becomes what they do next", TITLE, bold=True),
        text(20, 54, "each step is a command, and its output is a folder", TEXT, "fill-soft"),
    ]
    for number, (what, about, made_by) in enumerate(LOOP):
        y = top + pitch * number
        if number:
            body.append(line(left, y - pitch + 12, left, y - 14, "stroke-green", 3.0))
            body.append(path([(left - 6, y - 21), (left, y - 13), (left + 6, y - 21)], "stroke-green", 3.0))
        body.append(circle(left, y, 9, "fill-green"))
        body.append(text(left + 26, y - 1, what, TEXT, bold=True))
        body.append(text(left + 26, y + 17, about, NOTE, "fill-soft"))
        body.append(text(420, y + 5, made_by, NOTE, "fill-ink"))
    bottom = top + pitch * (len(LOOP) - 1)
    back = [(left - 12, bottom), (left - 42, bottom), (left - 42, top), (left - 14, top)]
    body.append(path(back, "stroke-used", 2.0, ' stroke-linejoin="round"'))
    body.append(path([(left - 22, top - 6), (left - 13, top), (left - 22, top + 6)], "stroke-used", 2.0))
    back_words = "in the peers' files, or as a plan that live peers take over"
    body.append(text(left + 26, bottom + 48, back_words, NOTE, "fill-soft"))
    body.append(path([(left - 42, bottom), (left - 42, bottom + 43), (left + 18, bottom + 43)], "stroke-line", 1.2))
    about = "From peers over tables and replays back to peers"
    return document(width, bottom + 70, "The loop of telemetry", body, about)


def tables(page: str) -> Iterable[tuple[str, list[Any]]]:
    """The measured tables of the comparison page: (path of the picture, rows of the table)."""
    from wend.lab.bench.comparison_page import HEAD, SystemSummary

    for section in page.split("\n## ")[1:]:
        picture = re.search(r"^!\[.*\]\((.+\.svg)\)$", section, re.MULTILINE)
        if picture is None:
            continue
        rows = []
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if len(cells) != len(HEAD) or not cells[0].replace(".", "").isdigit():
                continue
            of = dict(zip(HEAD, cells, strict=True))
            rows.append(
                SystemSummary(
                    system=of["system"].strip("*"), pf=float(of["Pf"]), worlds=int(of["worlds"]), expected=0,
                    on_time=float(of["on time"]), spread=None, delivery=float(of["delivered"]), p50_ms=0.0, p99_ms=0.0,
                    data=float(of["data"]), relative=None, control_hz=None, control=None, cpu=None, discards=0,
                    doubtful=0,
                )
            )  # fmt: skip
        yield picture[1], rows


def pictures() -> dict[Path, str]:
    """Every picture of this script, as it follows from the stored data."""
    from wend.lab.bench.comparison_page import draw_picture

    drawn = {FIGURES / "on-time.svg": readme_picture(json.loads(DATA.read_text(encoding="utf-8")))}
    drawn[FIGURES / "matching.svg"] = matching_picture(json.loads((FIGURES / "matching.json").read_text()))
    drawn[FIGURES / "overload.svg"] = overload_picture(json.loads((FIGURES / "overload.json").read_text()))
    drawn[FIGURES / "coding.svg"] = coding_picture(json.loads((FIGURES / "coding.json").read_text()))
    drawn[FIGURES / "telemetry-loop.svg"] = loop_picture()
    for name, rows in tables(COMPARISON.read_text(encoding="utf-8")):
        drawn[(COMPARISON.parent / name).resolve()] = draw_picture(rows)
    return drawn


def main() -> None:
    if sys.argv[1:] not in ([], ["--measure"]):
        sys.exit(__doc__)
    if sys.argv[1:]:
        DATA.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
