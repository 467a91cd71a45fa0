"""A chart of ranked dots as SVG, labelled at the data, without a legend."""

from collections.abc import Sequence
from typing import NamedTuple

from wend.pictures.style import NOTE, SMALL, TEXT, TITLE
from wend.pictures.svg import add_tooltip, circle, document, line, text, text_width

_EDGE = 20.0
_HEAD = 70.0
_PITCH = 23.0
_COLUMN = 74.0


class RankedRow(NamedTuple):
    """One row of ranked dots. A value is None if nothing was measured."""

    label: str
    colour: str
    values: tuple[float | None, ...]
    note: str = ""
    strong: bool = False


class _Layout(NamedTuple):
    """The places of a chart: the scale from `left` to `right`, which begins at the share `low`, and the columns."""

    width: float
    left: float
    right: float
    top: float
    bottom: float
    low: float
    columns: list[float]

    def x_position(self, share: float) -> float:
        return self.left + (share - self.low) / (1 - self.low) * (self.right - self.left)


def draw_ranked_dots(
    title: str,
    subtitle: str,
    groups: Sequence[str],
    note_head: str,
    rows: Sequence[RankedRow],
    width: float = 820.0,
) -> str:
    """One row per label, in the given order, with a dot for each of at most two groups and their numbers beside.

    The values are shares. The first group has filled dots, the second one rings."""
    layout = _make_layout(groups, note_head, rows, width)
    body = [text(_EDGE, 32, title, TITLE, bold=True), text(_EDGE, 54, subtitle, TEXT, "fill-soft")]
    body += _draw_heads(layout, groups, note_head) + _draw_scale(layout)
    for number, row in enumerate(rows):
        body += _draw_row(layout, groups, row, layout.top + _PITCH * (number + 0.5))
    return document(width, layout.bottom + 34, title, body, subtitle)


def _make_layout(groups: Sequence[str], note_head: str, rows: Sequence[RankedRow], width: float) -> _Layout:
    shares = [value for row in rows for value in row.values if value is not None]
    low = max(0.0, min(0.9, int(min(shares) * 10) / 10)) if shares else 0.0
    left = _EDGE + 12 + max(text_width(row.label, TEXT, bold=row.strong) for row in rows)
    note_width = max(text_width(words, SMALL) for words in (*note_head.split("\n"), *(row.note for row in rows)))
    columns = [width - _EDGE - note_width - 18 - _COLUMN * place for place in range(len(groups))][::-1]
    top = _HEAD + 34
    return _Layout(width, left, columns[0] - _COLUMN, top, top + _PITCH * len(rows), low, columns)


def _draw_heads(layout: _Layout, groups: Sequence[str], note_head: str) -> list[str]:
    body = []
    for place, (words, x) in enumerate(zip(groups, layout.columns, strict=True)):
        body.append(text(x, layout.top - 14, words, NOTE, "fill-soft", "end"))
        body.append(_draw_dot(x - text_width(words, NOTE) - 9, layout.top - 18, "grey", ring=place > 0))
    for number, words in enumerate(note_head.split("\n")[::-1]):
        body.append(text(layout.width - _EDGE, layout.top - 14 - 14 * number, words, SMALL, "fill-soft", "end"))
    return body


def _draw_scale(layout: _Layout) -> list[str]:
    step = 0.1 if 1 - layout.low > 0.11 else 0.02
    body = []
    for share in [layout.low + number * step for number in range(11)]:
        if share <= 1 + 1e-9:
            x = layout.x_position(share)
            body.append(line(x, layout.top - 4, x, layout.bottom + 2, "stroke-line"))
            body.append(text(x, layout.bottom + 18, f"{100 * share:.0f} %", SMALL, "fill-soft", "middle"))
    return body


def _draw_row(layout: _Layout, groups: Sequence[str], row: RankedRow, y: float) -> list[str]:
    css = f"fill-{row.colour}" if row.strong else "fill-ink"
    body = [text(_EDGE, y + 4.5, row.label, TEXT, css, bold=row.strong)]
    measured = [(place, value) for place, value in enumerate(row.values) if value is not None]
    if len(measured) > 1:
        body.append(
            line(
                layout.x_position(measured[0][1]), y, layout.x_position(measured[-1][1]), y, f"stroke-{row.colour}", 2.0
            )
        )
    for place, value in measured[::-1]:
        dot = _draw_dot(layout.x_position(value), y, row.colour, ring=place > 0)
        body.append(add_tooltip(dot, f"{row.label}, {groups[place]}: {100 * value:.2f} %"))
        number = f"{100 * value:.1f} %"
        body.append(text(layout.columns[place], y + 4.5, number, NOTE, "fill-ink", "end", bold=row.strong))
    absent = [place for place, value in enumerate(row.values) if value is None]
    body += [text(layout.columns[place], y + 4.5, "–", NOTE, "fill-soft", "end") for place in absent]
    return [*body, text(layout.width - _EDGE, y + 4.5, row.note, NOTE, "fill-soft", "end")]


def _draw_dot(x: float, y: float, colour: str, *, ring: bool) -> str:
    if ring:
        return circle(x, y, 4.6, f"fill-paper stroke-{colour}", ' stroke-width="2"')
    return circle(x, y, 5.6, f"fill-{colour}")
