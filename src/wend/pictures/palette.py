"""The colours of all pictures and pages, for light and dark paper.

Readers with any common kind of colour vision can tell the series colours apart, and each has a contrast of at least 3
against its paper. `tests/pictures/test_palette.py` computes both. Code refers to a colour by its name in `COLOURS`.
"""

from typing import NamedTuple


class Colour(NamedTuple):
    """One colour on light paper and on dark paper."""

    light: str
    dark: str


SERIES = {
    "green": Colour("#0aa174", "#2bc47a"),
    "blue": Colour("#1a54b0", "#4a8cf0"),
    "red": Colour("#a8430a", "#c8641e"),
    "orange": Colour("#dd7700", "#f3c93a"),
    "pink": Colour("#be62b4", "#ff8fd0"),
    "grey": Colour("#666e76", "#8f8a88"),
}
"""Colours that tell lines, dots and bars apart."""

COLOURS = {
    "paper": Colour("#ffffff", "#15181b"),
    "card": Colour("#f7f8f9", "#1c2024"),
    "ink": Colour("#1c2329", "#e6e9ec"),
    "soft": Colour("#56616b", "#a5aeb7"),
    "line": Colour("#dfe4e8", "#343b42"),
    "faint": Colour("#d3dae0", "#3a424a"),
    "used": Colour("#93a2af", "#4d5862"),
    **SERIES,
    "good": Colour("#00694c", "#5ad3aa"),
    "bad": Colour("#a93400", "#ff9a6b"),
    "doubt": Colour("#7a5a00", "#e8c65a"),
    "good-paper": Colour("#e0f3ec", "#12352a"),
    "bad-paper": Colour("#fbe6dc", "#43210f"),
    "doubt-paper": Colour("#fbf1d3", "#3a300f"),
    # The load of a link: unused, a quarter, a half, three quarters, all of its capacity, beyond.
    "load-0": Colour("#d3dae0", "#3a424a"),
    "load-1": Colour("#a9c6ea", "#3d5c87"),
    "load-2": Colour("#6d9fdc", "#4a83cf"),
    "load-3": Colour("#1a54b0", "#86b6ff"),
    "load-4": Colour("#dd7700", "#f3c93a"),
    "load-5": Colour("#b3141f", "#ff5a4d"),
    # How many overlay links share a router or a link of the underlay, from two to the most.
    "heat-0": Colour("#f2c14e", "#8f5f22"),
    "heat-1": Colour("#eda02f", "#ad6e24"),
    "heat-2": Colour("#e07a1c", "#cc8029"),
    "heat-3": Colour("#c94a1a", "#ee9c42"),
    "heat-4": Colour("#9c1c1c", "#ffd08a"),
}
"""All colours by name."""

LOADS = tuple(f"load-{step}" for step in range(6))
HEATS = tuple(f"heat-{step}" for step in range(5))

STRATEGIES = {
    "adaptive": "green",
    "dcrd": "blue",
    "d-tree": "red",
    "r-tree": "orange",
    "multipath": "pink",
    "oracle": "grey",
    "mrst": "blue",
    "spt-k": "pink",
    "random": "grey",
    "tdo-landmark": "blue",
    "tdo-random": "orange",
    "tdo-nearest": "green",
    "tdo-farthest": "red",
    "chain": "pink",
    "dmm": "red",
    "dmm-ar": "blue",
    "hermes": "orange",
    "scribe": "pink",
    "scribe-acks": "pink",
    "esposito": "orange",
    "clusters": "blue",
    "clusters-any": "blue",
    "clusters-adaptive": "green",
    "rendezvous": "green",
    "direct": "grey",
}
"""The colour of each strategy and overlay, the same in every picture."""

MARKERS = {"green": "P", "blue": "o", "red": "D", "orange": "s", "pink": "^", "grey": "v"}
"""The marker of each series colour, in matplotlib's letters. It tells series apart without colour."""

FAMILIES = {
    "wend": "green",
    "nats": "blue",
    "zenoh": "pink",
    "mosquitto": "orange",
    "udp": "red",
    "oracle": "grey",
}
"""The colour of each family of compared systems: the part of a system's name before the first hyphen."""


def heat_colour(share: float) -> str:
    """The name of the heat colour of a share between 0 and 1."""
    return HEATS[min(max(int(share * len(HEATS)), 0), len(HEATS) - 1)]
