"""Two pictures of telemetry as SVG: a heat map of rows over time, and bars of where time went."""

from collections.abc import Sequence
from typing import NamedTuple

from wend.pictures.style import NOTE, SMALL, TEXT, TITLE
from wend.pictures.svg import add_tooltip, document, line, text, text_width

_EDGE = 20.0
_HEAD = 70.0
SHADES = ("load-0", "load-1", "load-2", "load-3", "load-4", "load-5")
"""From never down to down for most of the time."""
BOUNDS = (0.0, 0.01, 0.05, 0.2, 0.5)
"""The share of time that is down, above which each further shade begins."""
_LABELS = ("always up", "up to 1 %", "5 %", "20 %", "50 %", "more")


class HeatRow(NamedTuple):
    """One row of a heat map. A value is a share of 1, or None if nothing is known."""

    label: str
    values: tuple[float | None, ...]
    note: str = ""


class Bar(NamedTuple):
    """One bar, of pieces with the names of their colours."""

    label: str
    pieces: tuple[tuple[str, float], ...]
    note: str = ""


def choose_shade(down: float) -> str:
    """The colour of a share of time in which a link was down."""
    return SHADES[sum(down > bound for bound in BOUNDS)]


def draw_heat_map(
    title: str, subtitle: str, rows: Sequence[HeatRow], ticks: Sequence[tuple[int, str]], width: float = 900.0
) -> str:
    """Rows of cells, one cell for each step of time. The ticks are (number of a cell, words)."""
    pitch = 22.0 if len(rows) <= 40 else max(5.0, 880.0 / len(rows))
    size = min(TEXT, pitch * 0.72)
    top = _HEAD + 30
    bottom = top + pitch * len(rows)
    left = _EDGE + 10 + max(text_width(row.label, size) for row in rows)
    right = width - _EDGE - 10 - max(text_width(row.note, SMALL) for row in rows)
    many = max(len(row.values) for row in rows)
    step = (right - left) / many
    body = [text(_EDGE, 32, title, TITLE, bold=True), text(_EDGE, 54, subtitle, TEXT, "fill-soft")]
    x = left
    for css, words in zip(SHADES, _LABELS, strict=True):
        body.append(f'<rect x="{x:.1f}" y="{top - 26:.1f}" width="12" height="12" class="fill-{css}"/>')
        body.append(text(x + 17, top - 16, words, SMALL, "fill-soft"))
        x += 17 + text_width(words, SMALL) + 14
    body.append(text(x, top - 16, "of the time down", SMALL, "fill-soft"))
    for number, row in enumerate(rows):
        y = top + pitch * number
        if size >= 6 or number % 4 == 0:
            body.append(text(left - 8, y + pitch / 2 + size * 0.36, row.label, size, "fill-ink", "end"))
        body.append(text(width - _EDGE, y + pitch / 2 + 4, row.note, SMALL, "fill-soft", "end") if pitch > 12 else "")
        body += _draw_cells(row, left, y, step, pitch)
    for place, words in ticks:
        at = left + step * place
        body.append(line(at, bottom, at, bottom + 5, "stroke-soft"))
        body.append(text(at, bottom + 19, words, SMALL, "fill-soft", "middle"))
    return document(width, bottom + 36, title, [one for one in body if one], subtitle)


def _draw_cells(row: HeatRow, left: float, y: float, step: float, pitch: float) -> list[str]:
    """Rectangles for runs of cells with one colour. If all values are known, one rectangle for `always up` lies below
    the others, which halves the picture."""

    def box(begin: int, end: int, colour: str) -> str:
        some = [value for value in row.values[begin:end] if value is not None]
        shape = (
            f'<rect x="{left + step * begin:.2f}" y="{y + 0.6:.1f}" width="{step * (end - begin):.2f}" '
            f'height="{pitch - 1.2:.1f}" class="fill-{colour}"/>'
        )
        return add_tooltip(shape, f"{row.label}: {100 * sum(some) / len(some):.2f} % down")

    colours = [None if value is None else choose_shade(value) for value in row.values]
    ground = SHADES[0] if None not in colours else None
    elements = [box(0, len(colours), ground)] if ground is not None else []
    begin = 0
    for at in range(1, len(colours) + 1):
        if at < len(colours) and colours[at] == colours[begin]:
            continue
        colour = colours[begin]
        if colour is not None and colour != ground:
            elements.append(box(begin, at, colour))
        begin = at
    return elements


def draw_stacked_bars(
    title: str, subtitle: str, legend: Sequence[tuple[str, str]], bars: Sequence[Bar], unit: str, width: float = 900.0
) -> str:
    """One bar per row, of pieces. The legend is (colour, words)."""
    pitch = 26.0
    top = _HEAD + 30
    bottom = top + pitch * len(bars)
    left = _EDGE + 10 + max(text_width(bar.label, TEXT) for bar in bars)
    right = width - _EDGE - 16 - max(text_width(bar.note, NOTE) for bar in bars)
    most = max(sum(value for _, value in bar.pieces) for bar in bars) or 1.0
    body = [text(_EDGE, 32, title, TITLE, bold=True), text(_EDGE, 54, subtitle, TEXT, "fill-soft")]
    x = left
    for colour, words in legend:
        body.append(f'<rect x="{x:.1f}" y="{top - 26:.1f}" width="12" height="12" class="fill-{colour}"/>')
        body.append(text(x + 17, top - 16, words, SMALL, "fill-soft"))
        x += 17 + text_width(words, SMALL) + 18
    for number, bar in enumerate(bars):
        y = top + pitch * number
        body.append(text(left - 8, y + pitch / 2 + 4.5, bar.label, TEXT, "fill-ink", "end"))
        x = left
        for colour, value in bar.pieces:
            wide = value / most * (right - left)
            if wide > 0:
                box = (
                    f'<rect x="{x:.1f}" y="{y + 4:.1f}" width="{wide:.1f}" height="{pitch - 8:.1f}" '
                    f'class="fill-{colour}"/>'
                )
                body.append(add_tooltip(box, f"{bar.label}: {value:,.3g} {unit}"))
            x += wide
        body.append(text(x + 8, y + pitch / 2 + 4.5, bar.note, NOTE, "fill-soft"))
    return document(width, bottom + 16, title, body, subtitle)
