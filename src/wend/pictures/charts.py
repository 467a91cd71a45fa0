"""Two kinds of charts as SVG, labelled at the data, without a legend: lines, and ranked dots."""

from collections.abc import Sequence
from math import log10
from typing import NamedTuple

from wend.pictures.labels import spread
from wend.pictures.style import HEADING, NOTE, SMALL, TEXT, TITLE
from wend.pictures.svg import circle, document, line, path, text, titled, width_of

_EDGE = 20.0
_HEAD = 70.0


class ChartLine(NamedTuple):
    """One line of a chart, with its label at its right end; a line may do without."""

    label: str
    colour: str
    points: tuple[tuple[float, float], ...]
    strong: bool = False
    """Whether the chart is about this line."""
    broken: bool = False


class RankedRow(NamedTuple):
    """One row of ranked dots. A value is None where nothing was measured."""

    label: str
    colour: str
    values: tuple[float | None, ...]
    note: str = ""
    strong: bool = False


def line_chart(
    title: str,
    subtitle: str,
    x_label: str,
    lines: Sequence[ChartLine],
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    size: tuple[float, float] = (760.0, 400.0),
    *,
    log: bool = False,
) -> str:
    """Lines with their labels at their ends. The ticks are (value, words), the lowest and highest at the borders. With
    `log` both scales are logarithmic."""
    width, height = size
    left = _EDGE + max(width_of(words, NOTE) for _, words in y_ticks) + 8
    right = width - _EDGE - 16 - max(width_of(one.label, HEADING, bold=one.strong) for one in lines)
    top, bottom = _HEAD + 8, height - 52
    x_low, x_high = x_ticks[0][0], x_ticks[-1][0]
    y_low, y_high = y_ticks[0][0], y_ticks[-1][0]

    def share(value: float, low: float, high: float) -> float:
        return log10(value / low) / log10(high / low) if log else (value - low) / (high - low)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + share(x, x_low, x_high) * (right - left), bottom - share(y, y_low, y_high) * (bottom - top)

    body = [text(_EDGE, 32, title, TITLE, bold=True), text(_EDGE, 54, subtitle, TEXT, "fill-soft")]
    for value, words in y_ticks:
        _, y = at(x_low, value)
        body.append(line(left, y, right, y, "stroke-line"))
        body.append(text(left - 8, y + 4, words, NOTE, "fill-soft", "end"))
    for value, words in x_ticks:
        x, _ = at(value, y_low)
        body.append(text(x, bottom + 20, words, NOTE, "fill-soft", "middle"))
    body.append(text((left + right) / 2, height - 12, x_label, NOTE, "fill-soft", "middle"))
    labelled = [one for one in lines if one.label]
    ends = [at(*one.points[-1]) for one in labelled]
    places = spread([y for _, y in ends], 1.35 * HEADING, top, bottom)
    for one in sorted(lines, key=lambda one: one.strong):
        spots = [at(*point) for point in one.points]
        dashes = ' stroke-dasharray="7 4"' if one.broken else ""
        more = f' stroke-linejoin="round"{dashes}'
        body.append(path(spots, f"stroke-{one.colour}", 4.0 if one.strong else 2.2, more))
        for (x, y), (given, value) in zip(spots, one.points, strict=True):
            dot = circle(x, y, 4.6 if one.strong else 3.2, f"fill-{one.colour} stroke-paper", ' stroke-width="1.2"')
            body.append(titled(dot, f"{one.label}: {value:,.1f} at {given:,g}".lstrip(": ")))
    for one, (x, y), place in zip(labelled, ends, places, strict=True):
        if abs(place - y) > 3:
            body.append(line(x + 6, y, x + 13, place, f"stroke-{one.colour}"))
        body.append(text(x + 16, place + 5, one.label, HEADING, f"fill-{one.colour}", bold=one.strong))
    return document(width, height, title, body, subtitle)


def ranked_dots(
    title: str,
    subtitle: str,
    groups: Sequence[str],
    note_head: str,
    rows: Sequence[RankedRow],
    width: float = 820.0,
) -> str:
    """One row per label, in the given order, with a dot for each of at most two groups and their numbers beside.

    The values are shares. The first group has filled dots, the second one rings."""
    pitch = 23.0
    top = _HEAD + 34
    bottom = top + pitch * len(rows)
    known = [value for row in rows for value in row.values if value is not None]
    low = max(0.0, min(0.9, int(min(known) * 10) / 10)) if known else 0.0
    left = _EDGE + 12 + max(width_of(row.label, TEXT, bold=row.strong) for row in rows)
    note_width = max(width_of(words, SMALL) for words in (*note_head.split("\n"), *(row.note for row in rows)))
    columns = [width - _EDGE - note_width - 18 - 74 * place for place in range(len(groups))][::-1]
    right = columns[0] - 74
    ticks = [low + step * (0.1 if 1 - low > 0.11 else 0.02) for step in range(11)]

    def at(value: float) -> float:
        return left + (value - low) / (1 - low) * (right - left)

    body = [text(_EDGE, 32, title, TITLE, bold=True), text(_EDGE, 54, subtitle, TEXT, "fill-soft")]
    for place, words in enumerate(groups):
        x = columns[place]
        body.append(text(x, top - 14, words, NOTE, "fill-soft", "end"))
        body.append(_dot(x - width_of(words, NOTE) - 9, top - 18, "grey", ring=place > 0))
    for number, words in enumerate(note_head.split("\n")[::-1]):
        body.append(text(width - _EDGE, top - 14 - 14 * number, words, SMALL, "fill-soft", "end"))
    for value in [tick for tick in ticks if tick <= 1 + 1e-9]:
        body.append(line(at(value), top - 4, at(value), bottom + 2, "stroke-line"))
        body.append(text(at(value), bottom + 18, f"{100 * value:.0f} %", SMALL, "fill-soft", "middle"))
    for number, row in enumerate(rows):
        y = top + pitch * (number + 0.5)
        css = f"fill-{row.colour}" if row.strong else "fill-ink"
        body.append(text(_EDGE, y + 4.5, row.label, TEXT, css, bold=row.strong))
        drawn = [(place, value) for place, value in enumerate(row.values) if value is not None]
        if len(drawn) > 1:
            body.append(line(at(drawn[0][1]), y, at(drawn[-1][1]), y, f"stroke-{row.colour}", 2.0))
        for place, value in drawn[::-1]:
            dot = _dot(at(value), y, row.colour, ring=place > 0)
            body.append(titled(dot, f"{row.label}, {groups[place]}: {100 * value:.2f} %"))
            body.append(text(columns[place], y + 4.5, f"{100 * value:.1f} %", NOTE, "fill-ink", "end", bold=row.strong))
        body += [
            text(columns[place], y + 4.5, "–", NOTE, "fill-soft", "end")
            for place, value in enumerate(row.values)
            if value is None
        ]
        body.append(text(width - _EDGE, y + 4.5, row.note, NOTE, "fill-soft", "end"))
    return document(width, bottom + 34, title, body, subtitle)


def _dot(x: float, y: float, colour: str, *, ring: bool) -> str:
    if ring:
        return circle(x, y, 4.6, f"fill-paper stroke-{colour}", ' stroke-width="2"')
    return circle(x, y, 5.6, f"fill-{colour}")
