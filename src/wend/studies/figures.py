"""Drawing of figures: one colour and one marker per strategy in every figure, intervals as bands.

The colours are those of all pictures (`wend.pictures`): people with any common kind of colour vision can tell them
apart. Markers and broken lines distinguish the series in print. A star shows a number that the paper states in its
text.
"""

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from wend.pictures.palette import COLOURS, MARKERS, SERIES, STRATEGIES
from wend.pictures.style import POINTS, matplotlib_style
from wend.studies.claims import ANY, SHARE, Bounds, Claim, Estimate
from wend.studies.study_model import Figure, Panel, Point, Series, Size

Estimates = Mapping[tuple[str, str], Estimate]
"""(setting, metric) -> measured value"""
Stated = Mapping[tuple[str, str], float]
"""(setting, metric) -> value that the paper states"""

INK = COLOURS["ink"].light
"""The colour of text and axes. In the HTML report, the text colour of the page replaces it."""


def _figure_style(salt: str) -> Any:
    """The style of a figure. `salt` fixes the names inside an SVG file, so the same figure gives the same file."""
    return {**matplotlib_style(), "svg.hashsalt": salt, "svg.fonttype": "none"}


def colour_name(series: Series) -> str:
    """The name of the colour of a series."""
    return series.colour or STRATEGIES.get(series.strategy, "grey")


def stated_values(claims: Sequence[Claim], size: Size) -> dict[tuple[str, str], float]:
    """The numbers that the paper's text states for single points."""
    return {
        (size.setting_key(term.fields), term.metric): part.value
        for claim in claims
        if claim.rel in ("=", "factor")
        for part in claim.parts
        if part.minus is None and part.over is None
        for term in part.of.terms
    }


class Drawing:
    """Draws the figures of a study from a set of estimates."""

    def __init__(self, size: Size, estimates: Estimates, stated: Stated, footer: str) -> None:
        self.size = size
        self.estimates = estimates
        self.stated = stated
        self.footer = footer

    def save(self, figure: Figure, folder: Path) -> None:
        """Write a figure, with legend and footer, as SVG and PNG."""
        with mpl.rc_context(_figure_style(figure.name)):
            canvas = self._draw_figure(figure)
            paper = COLOURS["paper"].light
            canvas.savefig(folder / f"figure-{figure.name}.svg", metadata={"Date": None}, facecolor=paper)
            canvas.savefig(folder / f"figure-{figure.name}.png", dpi=150, facecolor=paper)

    def draw_inline(self, figure: Figure, panel: Panel) -> str:
        """Draw one panel as an SVG element that takes the width, the font and the colours of its page."""
        with mpl.rc_context(_figure_style(f"{figure.name} {panel.title}")):
            canvas = Canvas(figsize=(4.4, 3.2), layout="constrained")
            self.draw_panel(canvas.subplots(), figure, panel)
            data = BytesIO()
            canvas.savefig(data, format="svg", transparent=True, metadata={"Date": None})
        return _adapt_to_page(data.getvalue().decode())

    def _draw_figure(self, figure: Figure) -> Canvas:
        columns = min(2, len(figure.panels))
        rows = -(-len(figure.panels) // columns)
        height = 3.3 * rows + 1.3
        head = 0.6 / height
        canvas = Canvas(figsize=(9.0, height))
        canvas.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, 1.0 - head))
        every = canvas.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(every, figure.panels, strict=False):
            self.draw_panel(axes, figure, panel)
        for axes in every[len(figure.panels) :]:
            axes.set_axis_off()
        title = f"Figure {figure.name}: {figure.title}"
        canvas.text(
            0.5, 1.0 - 0.35 * head, title, ha="center", va="center", fontsize=POINTS["title"], fontweight="bold"
        )
        below = f"{figure.caption}  {self.footer}"
        canvas.text(0.5, 1.0 - 0.8 * head, below, ha="center", va="center", fontsize=POINTS["note"])
        handles = [Line2D([], [], label=series.label, **_line_style(series)) for series in shown_series(figure)]
        if self.has_stars(figure):
            handles.append(Line2D([], [], label="stated in the paper's text", **_star_style("white")))
        canvas.legend(handles=handles, loc="outside lower center", ncols=5)
        return canvas

    def draw_panel(self, axes: Axes, figure: Figure, panel: Panel) -> None:
        """Draw the series, labels and scales of one panel on `axes`."""
        for series, points in figure.points_by_series(panel, self.size):
            self._draw_line(axes, panel, series, points)
        axes.set_title(panel.title)
        axes.set_ylabel(panel.label)
        axes.set_xlabel(panel.curve_label or (figure.axis.label if figure.axis else ""))
        if panel.curve_log or (figure.axis is not None and figure.axis.log):
            axes.set_xscale("log")
        elif figure.axis is not None:
            _set_ticks(axes, figure.axis.shown_values(self.size))
        else:
            _set_ticks(axes, [x for x, _ in panel.curve])
        if panel.percent and panel.share:
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, -3.0), min(high, 100.0 + 0.03 * (100.0 - max(low, 0.0))))
        if self.size.thin:
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 22, "rotation": 18, "alpha": 0.18}
            axes.text(0.5, 0.5, "smoke run, not a result", transform=axes.transAxes, zorder=0, **look)

    def _draw_line(self, axes: Axes, panel: Panel, series: Series, points: list[Point]) -> None:
        scale = 100.0 if panel.percent else 1.0
        estimates = [(point.x, self._find_estimate(point)) for point in points]
        shown = [(x, estimate) for x, estimate in estimates if estimate is not None]
        if not shown:
            return
        x = [at for at, _ in shown]
        mean = [scale * estimate.mean for _, estimate in shown]
        look = _line_style(series)
        axes.plot(x, mean, **look)
        if not self.size.thin:
            ends = [estimate.interval(value_bounds(panel)) or (estimate.mean, estimate.mean) for _, estimate in shown]
            low, high = [scale * end for end, _ in ends], [scale * end for _, end in ends]
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        for at, value in self._stated_points(points):
            axes.plot([at], [scale * value], **_star_style(look["color"]))

    def _find_estimate(self, point: Point) -> Estimate | None:
        if point.metric is None:
            return Estimate(0.0, 0.0, 0)
        return self.estimates.get((self.size.setting_key(point.fields), point.metric))

    def _stated_points(self, points: list[Point]) -> list[tuple[float, float]]:
        keys = [(point.x, (self.size.setting_key(point.fields), point.metric or "")) for point in points]
        return [(x, self.stated[key]) for x, key in keys if key in self.stated]

    def has_stars(self, figure: Figure) -> bool:
        lines = [line for panel in figure.panels for line in figure.points_by_series(panel, self.size)]
        return any(self._stated_points(points) for _, points in lines)


def value_bounds(panel: Panel) -> Bounds:
    """The possible values of a panel's metric."""
    if panel.signed:
        return ANY
    return SHARE if panel.percent and panel.share else (0.0, inf)


def shown_series(figure: Figure) -> list[Series]:
    """The series of a figure, each once, in the order of its panels."""
    every = [series for panel in figure.panels for series in figure.panel_series(panel)]
    return list({series.label: series for series in every}.values())


def _set_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Set a tick for each value, with its number if that does not overlap the one before."""
    span = (max(values) - min(values)) or 1.0
    texts: list[str] = []
    free = min(values, default=0.0)
    for value in values:
        text = f"{value:g}" if value >= free else ""
        free = value + 0.02 * span * (len(text) + 0.5) if text else free
        texts.append(text)
    axes.set_xticks(list(values), texts)


def _line_style(series: Series) -> dict[str, Any]:
    colour = COLOURS[colour_name(series)].light
    return {
        "color": colour,
        "marker": MARKERS[colour_name(series)],
        "markerfacecolor": "none" if series.variant else colour,
        "linestyle": (0, (4, 2)) if series.variant else "-",
    }


def _star_style(colour: str) -> dict[str, Any]:
    return {
        "marker": "*",
        "markersize": 12,
        "color": colour,
        "markeredgecolor": INK,
        "linestyle": "none",
        "zorder": 5,
    }


_SHAPES = {
    "o": '<circle cx="16" cy="6" r="3.6" {}/>',
    "s": '<path d="M12.4 2.4H19.6V9.6H12.4Z" {}/>',
    "D": '<path d="M16 1.4L20.6 6L16 10.6L11.4 6Z" {}/>',
    "^": '<path d="M16 2L20 9.6H12Z" {}/>',
    "v": '<path d="M16 10L20 2.4H12Z" {}/>',
    "P": '<path d="M14.6 2H17.4V4.6H20V7.4H17.4V10H14.6V7.4H12V4.6H14.6Z" {}/>',
}
"""The markers of the figures, for legends of the page."""


def legend_mark(series: Series) -> str:
    """The line and the marker of a series, as an SVG element of the page."""
    colour = f"var(--{colour_name(series)})"
    dashes = ' stroke-dasharray="5 2.5"' if series.variant else ""
    inside = "var(--card)" if series.variant else colour
    shape = _SHAPES[MARKERS[colour_name(series)]].format(f'fill="{inside}" stroke="{colour}" stroke-width="1.3"')
    line = f'<path d="M0 6H32" stroke="{colour}" stroke-width="2"{dashes}/>'
    return f'<svg viewBox="0 0 32 12" width="32" height="12" aria-hidden="true">{line}{shape}</svg>'


def _adapt_to_page(svg: str) -> str:
    """Remove the XML head and the fixed size, and use the font and the colours of the page."""
    body = svg[svg.index("<svg") :]
    head, rest = body.split(">", 1)
    attributes = [text for text in head.split(" ") if not text.startswith(("width=", "height="))]
    rest = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", rest).replace(INK, "currentColor")
    for name in ("line", *SERIES):
        rest = rest.replace(COLOURS[name].light, f"var(--{name})")
    return " ".join(attributes) + ' role="img">' + rest
