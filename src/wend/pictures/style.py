"""Type, sizes and style sheets of all pictures and pages.

An SVG picture has one style sheet for light and dark paper: a viewer in dark mode shows it dark. `matplotlib_style`
gives the same appearance to matplotlib; this module does not import it.
"""

from collections.abc import Iterable
from typing import Any

from wend.pictures.palette import COLOURS

FONT = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', sans-serif"
TITLE = 18.0
HEADING = 14.0
TEXT = 13.0
NOTE = 12.0
SMALL = 11.0
TINY = 9.0
"""Sizes in pixels of an SVG picture at its natural size."""

POINTS = {"title": 12.0, "heading": 10.0, "text": 9.0, "note": 7.5}
"""Sizes in points of a picture that matplotlib draws."""


def style_sheet(classes: Iterable[str]) -> str:
    """The rules for `fill-NAME`, `stroke-NAME` and `halo`, where NAME is a colour of the palette."""
    names = sorted(classes)
    rules = [f"text {{ font-family: {FONT}; }}", ".halo { paint-order: stroke; stroke-width: 3.5px; }"]
    dark = []
    for name in names:
        kind, _, colour = name.partition("-")
        if name == "halo":
            kind, colour = "stroke", "paper"
        if kind not in ("fill", "stroke") or colour not in COLOURS:
            continue
        rules.append(f".{name} {{ {kind}: {COLOURS[colour].light}; }}")
        dark.append(f".{name} {{ {kind}: {COLOURS[colour].dark}; }}")
    rules.append(f"@media (prefers-color-scheme: dark) {{ {' '.join(dark)} }}")
    return "\n".join(rules)


def page_colours(*, dark: bool) -> str:
    """The palette as custom properties of a page: `--NAME: colour;`."""
    return " ".join(f"--{name}: {colour.dark if dark else colour.light};" for name, colour in COLOURS.items())


def matplotlib_style() -> dict[str, Any]:
    """Settings of matplotlib that give its pictures this style, on light paper."""
    ink, line = COLOURS["ink"].light, COLOURS["line"].light
    return {
        "font.family": "sans-serif",
        "font.size": POINTS["text"],
        "axes.titlesize": POINTS["heading"],
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": line,
        "grid.linewidth": 0.7,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "axes.titlecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "legend.frameon": False,
        "lines.linewidth": 1.6,
        "lines.markersize": 5.0,
    }
