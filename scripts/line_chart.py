"""A chart of lines as SVG, labelled at the data, without a legend."""

from collections.abc import Sequence
from math import log10
from typing import NamedTuple

from wend.pictures.style import HEADING, NOTE, TEXT, TITLE
from wend.pictures.svg import add_tooltip, circle, document, line, path, text, text_width

EDGE = 20.0
HEAD = 70.0
Ticks = Sequence[tuple[float, str]]
Spot = tuple[float, float]


class ChartLine(NamedTuple):
    """One line of a chart, with its label at its right end; a line may do without."""

    label: str
    colour: str
    points: tuple[tuple[float, float], ...]
    strong: bool = False
    """Whether the chart is about this line."""
    broken: bool = False


class Scales(NamedTuple):
    """The rectangle of a chart, and the values at its borders."""

    left: float
    top: float
    right: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]
    log: bool

    def share(self, value: float, low: float, high: float) -> float:
        return log10(value / low) / log10(high / low) if self.log else (value - low) / (high - low)

    def at(self, x: float, y: float) -> Spot:
        across, up = self.share(x, *self.x), self.share(y, *self.y)
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)


def line_chart(
    title: str,
    subtitle: str,
    x_label: str,
    lines: Sequence[ChartLine],
    x_ticks: Ticks,
    y_ticks: Ticks,
    size: tuple[float, float] = (760.0, 400.0),
    *,
    log: bool = False,
) -> str:
    """Lines with their labels at their ends. The ticks are (value, words), the lowest and highest at the borders. With
    `log` both scales are logarithmic."""
    width, height = size
    left = EDGE + max(text_width(words, NOTE) for _, words in y_ticks) + 8
    right = width - EDGE - 16 - max(text_width(one.label, HEADING, bold=one.strong) for one in lines)
    top, bottom = HEAD + 8, height - 52
    x, y = (x_ticks[0][0], x_ticks[-1][0]), (y_ticks[0][0], y_ticks[-1][0])
    scales = Scales(left, top, right, bottom, x, y, log)
    body = [text(EDGE, 32, title, TITLE, bold=True), text(EDGE, 54, subtitle, TEXT, "fill-soft")]
    body += _axes(scales, x_ticks, y_ticks)
    body.append(text((scales.left + scales.right) / 2, height - 12, x_label, NOTE, "fill-soft", "middle"))
    for one in sorted(lines, key=lambda one: one.strong):
        body += _line(scales, one)
    body += _labels(scales, [one for one in lines if one.label])
    return document(width, height, title, body, subtitle)


def _axes(scales: Scales, x_ticks: Ticks, y_ticks: Ticks) -> list[str]:
    body = []
    for value, words in y_ticks:
        _, y = scales.at(scales.x[0], value)
        body.append(line(scales.left, y, scales.right, y, "stroke-line"))
        body.append(text(scales.left - 8, y + 4, words, NOTE, "fill-soft", "end"))
    for value, words in x_ticks:
        x, _ = scales.at(value, scales.y[0])
        body.append(text(x, scales.bottom + 20, words, NOTE, "fill-soft", "middle"))
    return body


def _line(scales: Scales, one: ChartLine) -> list[str]:
    spots = [scales.at(*point) for point in one.points]
    dashes = ' stroke-dasharray="7 4"' if one.broken else ""
    more = f' stroke-linejoin="round"{dashes}'
    body = [path(spots, f"stroke-{one.colour}", 4.0 if one.strong else 2.2, more)]
    for (x, y), (at, value) in zip(spots, one.points, strict=True):
        dot = circle(x, y, 4.6 if one.strong else 3.2, f"fill-{one.colour} stroke-paper", ' stroke-width="1.2"')
        body.append(add_tooltip(dot, f"{one.label}: {value:,.1f} at {at:,g}".lstrip(": ")))
    return body


def _labels(scales: Scales, lines: Sequence[ChartLine]) -> list[str]:
    ends = [scales.at(*one.points[-1]) for one in lines]
    places = spread_labels([y for _, y in ends], 1.35 * HEADING, scales.top, scales.bottom)
    body = []
    for one, (x, y), place in zip(lines, ends, places, strict=True):
        if abs(place - y) > 3:
            body.append(line(x + 6, y, x + 13, place, f"stroke-{one.colour}"))
        body.append(text(x + 16, place + 5, one.label, HEADING, f"fill-{one.colour}", bold=one.strong))
    return body


def spread_labels(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the wanted ones, in their order, at least `gap` apart and between `low` and `high`.

    If there is not enough space for all, they are closer together."""
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # Groups of positions that touch: (sum of the wanted places of their first members, members).
    groups: list[tuple[float, int]] = []
    for i in order:
        groups.append((wanted[i], 1))
        while len(groups) > 1 and _group_start(groups[-2], gap, low, high) + gap * groups[-2][1] > _group_start(
            groups[-1], gap, low, high
        ):
            total, count = groups.pop()
            before, members = groups[-1]
            groups[-1] = before + total - gap * members * count, members + count
    places = [_group_start(group, gap, low, high) + gap * member for group in groups for member in range(group[1])]
    return [place for _, place in sorted(zip(order, places, strict=True))]


def _group_start(group: tuple[float, int], gap: float, low: float, high: float) -> float:
    """The position of a group's first member."""
    total, members = group
    return min(max(total / members, low), high - gap * (members - 1))
