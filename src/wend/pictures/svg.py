"""SVG elements as text, and the extent of words.

Elements name their colours by classes (`fill-ink`, `stroke-line`); `document` adds the style sheet. Sizes of type are
attributes, so a reader of the file knows the extent of every word without the style sheet.
"""

import re
from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from wend.pictures.style import TEXT, style_sheet

# Advance widths of printable ASCII in DejaVu Sans, the widest of the usual fonts, in hundredths of the size.
_WIDTHS = (
    32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84,
    84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63, 61, 73, 68, 99, 69,
    61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63, 63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63,
    59, 82, 59, 59, 52, 64, 34, 64, 84,
)  # fmt: skip
_OTHER = 84
_BOLD = 1.17
ASCENT, DESCENT = 0.78, 0.24
"""The extent of words above and below their baseline, as shares of the size of type."""


class Extent(NamedTuple):
    """A rectangle in the picture; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Extent") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def is_within(self, other: "Extent") -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


def text_width(words: str, size: float = TEXT, *, bold: bool = False) -> float:
    """The width of words in the widest usual font."""
    hundredths = sum(_WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127 else _OTHER for c in words)
    return hundredths / 100 * size * (_BOLD if bold else 1.0)


def text_box(
    x: float, y: float, words: str, size: float = TEXT, anchor: str = "start", *, bold: bool = False
) -> Extent:
    """The extent of words whose baseline is at y."""
    width = text_width(words, size, bold=bold)
    left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
    return Extent(left, y - ASCENT * size, left + width, y + DESCENT * size)


def text(
    x: float,
    y: float,
    words: str,
    size: float = TEXT,
    css: str = "fill-ink",
    anchor: str = "start",
    *,
    bold: bool = False,
) -> str:
    start = "" if anchor == "start" else f' text-anchor="{anchor}"'
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"{start}{weight} class="{css}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str, width: float = 1.0, more: str = "") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} class="{css}" stroke-width="{width:g}"{more}/>'


def circle(x: float, y: float, radius: float, css: str, more: str = "") -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{css}"{more}/>'


def path(points: Iterable[tuple[float, float]], css: str, width: float = 1.0, more: str = "") -> str:
    """A line through points."""
    places = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{places}" fill="none" class="{css}" stroke-width="{width:g}"{more}/>'


def add_tooltip(element: str, title: str) -> str:
    """An element with a tooltip."""
    name = element[1:].partition(" ")[0]
    return f"{element.removesuffix('/>')}><title>{escape(title)}</title></{name}>"


def document(width: float, height: float, title: str, body: Iterable[str], description: str = "") -> str:
    """An SVG document with its style sheet. `title` and `description` are for readers who do not see it."""
    elements = list(body)
    classes = {name for names in re.findall(r'class="([^"]*)"', " ".join(elements)) for name in names.split()}
    about = f"<desc>{escape(description)}</desc>\n" if description else ""
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"{about}<style>\n{style_sheet({*classes, 'fill-paper'})}\n</style>",
            f'<rect width="{width:g}" height="{height:g}" class="fill-paper"/>',
            *elements,
            "</svg>",
            "",
        )
    )
