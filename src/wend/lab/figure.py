"""The figure of a comparison: on-time ratio against Pf, and data packets per delivery beside it.

Each family of systems has one colour. Lines of systems as shipped are dashed, those of tuned systems are solid. If
there is a single Pf, the figure has one bar per system instead of lines.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wend.lab.report import ORACLE, SystemSummary
from wend.model.errors import ConfigError

COLOURS = {
    ORACLE: "#888888",
    "udp-tree": "#c9a227", "udp-two-path": "#e07b00", "udp-flood": "#8c564b",
    "wend-dcrd": "#17a2b8", "wend-none": "#7fc97f", "wend": "#1a9641", "wend-free": "#00583a",
    "nats": "#b3cde3", "nats-tuned": "#8c96c6", "nats-ospf": "#6a51a3", "nats-ospf-tuned": "#3f007d",
    "nats-leaf": "#9ecae1", "nats-leaf-tuned": "#3182bd",
    "zenoh": "#fb6a9a", "zenoh-tuned": "#c51b7d",
    "mosquitto": "#fc9272", "mosquitto-tuned": "#cb181d",
}  # fmt: skip
_SHIPPED = ("nats", "nats-ospf", "nats-leaf", "zenoh", "mosquitto")
_TALL = 0.34


def check_drawing() -> None:
    """Raise ConfigError if matplotlib is missing; the bench calls this before it measures."""
    if find_spec("matplotlib") is None:
        raise ConfigError("a figure needs matplotlib: pip install 'wend[lab]'")


def draw(rows: list[SystemSummary], stem: Path) -> list[Path]:
    """Draw as SVG and PNG. Returns both paths."""
    check_drawing()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "wend"  # the same cells give the same bytes
    pfs = sorted({row.pf for row in rows})
    figure = _lines(plt, rows, pfs) if len(pfs) > 1 else _bars(plt, rows)
    figure.tight_layout()
    paths = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=130)
    plt.close(figure)
    return paths


def _lines(plt: Any, rows: list[SystemSummary], pfs: list[float]) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.2))
    names = [row.system for row in rows if row.pf == pfs[-1]]
    names += sorted({row.system for row in rows} - set(names))
    for name in names:
        mine = [row for row in rows if row.system == name]
        style = {
            "color": COLOURS.get(name, "black"),
            "linestyle": "--" if name in _SHIPPED else "-",
            "linewidth": 2.4 if name.startswith("wend") else 1.4,
            "marker": "o",
            "markersize": 4 if name.startswith("wend") else 3,
            "label": name,
        }
        left.plot([row.pf for row in mine], [row.on_time for row in mine], **style)
        right.plot([row.pf for row in mine], [row.data for row in mine], **style)
    left.set_ylabel("on time")
    right.set_ylabel("data packets per delivery")
    right.set_yscale("log")
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_formatter("{x:g}")
    for axes in (left, right):
        axes.set_xlabel("Pf: share of links that are down")
        axes.set_xticks(pfs)
        axes.grid(alpha=0.3)
    right.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small", frameon=False)
    return figure


def _bars(plt: Any, rows: list[SystemSummary]) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 1.2 + _TALL * len(rows)), sharey=True)
    worst_first = sorted(rows, key=lambda row: row.on_time)
    names = [row.system for row in worst_first]
    colours = [COLOURS.get(name, "black") for name in names]
    for axes, values, form in (
        (left, [row.on_time for row in worst_first], "{:.3f}"),
        (right, [row.data for row in worst_first], "{:.2f}"),
    ):
        drawn = axes.barh(names, values, color=colours)
        axes.bar_label(drawn, [form.format(value) for value in values], padding=3, fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, 1.15 * max(values))
    left.set_xlabel(f"on time, at Pf {rows[0].pf:g}")
    right.set_xlabel("data packets per delivery")
    return figure
