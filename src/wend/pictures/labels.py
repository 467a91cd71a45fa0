"""Placement of labels at points such that no label covers another, a node, or the edge of the picture.

The placement is greedy: the labels come in order of importance, and each takes the free position around its point that
crosses the fewest lines. If no position beside its point is free, a label that the text of the picture needs moves away
and gets a leader line; other labels are left out.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wend.pictures.style import SMALL
from wend.pictures.svg import ASCENT, DESCENT, Extent, line, text, text_width

Segments = NDArray[np.float64]
"""(n, 4): x1, y1, x2, y2 of each line."""

_GAP = 3.0
# Directions around a point, the most usual for a label first.
_ANGLES = (0, 180, 270, 90, 315, 45, 225, 135, 337, 23, 203, 157, 292, 68, 248, 112)
_AROUND = tuple((math.cos(math.radians(angle)), math.sin(math.radians(angle))) for angle in _ANGLES)
_REACHES = (0.0, 14.0, 26.0, 40.0, 58.0, 80.0, 110.0, 150.0)
"""How far a label may move away from its point."""


class Label(NamedTuple):
    """Words for a node at a point, which is drawn with a radius."""

    words: str
    x: float
    y: float
    radius: float
    needed: bool = False
    """Whether the text of the picture names the node: the label is drawn even if it has to move away."""


class PlacedLabel(NamedTuple):
    label: Label
    box: Extent
    leader: bool
    """Whether a line leads from the label to its point."""


def place_labels(
    labels: Sequence[Label],
    bounds: Extent,
    *,
    size: float = SMALL,
    discs: Sequence[tuple[float, float, float]] = (),
    lines: Segments | None = None,
) -> list[PlacedLabel]:
    """The labels that fit, with their places. `labels` is in order of importance. `discs` (x, y, radius) must
    not be covered, `lines` should not."""
    nodes = np.array(discs, dtype=np.float64).reshape(-1, 3)
    segments = np.zeros((0, 4)) if lines is None else lines
    placed: list[PlacedLabel] = []
    for label in sorted(labels, key=lambda one: not one.needed):
        spots = [
            (_count_crossings(_add_margin(box), segments) + 0.01 * turn + 2.0 * step, step, box)
            for step, turn, box in _positions(label, size)
            if box.is_within(bounds)
            and not any(box.overlaps(other.box) for other in placed)
            and not _covers(box, nodes)
        ]
        if spots:
            _, step, box = min(spots, key=lambda spot: spot[0])
            placed.append(PlacedLabel(label, box, step > 0))
    return placed


def _positions(label: Label, size: float) -> Iterator[tuple[int, int, Extent]]:
    """The positions that a label may take, each with the numbers of its distance and of its direction."""
    for step, reach in enumerate(_REACHES if label.needed else _REACHES[:1]):
        for turn, direction in enumerate(_AROUND):
            yield step, turn, _place_beside(label, direction, reach, size)


def draw_labels(placed: Iterable[PlacedLabel], size: float = SMALL, css: str = "fill-soft") -> list[str]:
    """The placed labels as SVG. A halo separates words from lines behind them."""
    elements = []
    for label, box, leader in placed:
        if leader:
            x, y = min(max(label.x, box.left), box.right), min(max(label.y, box.top), box.bottom)
            elements.append(line(label.x, label.y, x, y, "stroke-soft", 0.8))
        colour = "fill-ink" if label.needed else css
        baseline = box.bottom - DESCENT * size
        elements.append(text(box.left, baseline, label.words, size, f"{colour} halo", bold=label.needed))
    return elements


def node_box(x: float, y: float, radius: float) -> Extent:
    return Extent(x - radius, y - radius, x + radius, y + radius)


def _place_beside(label: Label, direction: tuple[float, float], reach: float, size: float) -> Extent:
    """The box of a label whose nearest point to the node is in that direction."""
    across, down = direction
    width, height = text_width(label.words, size, bold=label.needed), (ASCENT + DESCENT) * size
    away = label.radius + _GAP + reach
    x, y = label.x + across * away, label.y + down * away
    left = x - width * (0.5 - 0.5 * _sign(across))
    top = y - height * (0.5 - 0.5 * _sign(down))
    return Extent(left, top, left + width, top + height)


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else math.copysign(1.0, value)


def _add_margin(box: Extent) -> Extent:
    """A box with a margin, for lines that have a width."""
    return Extent(box.left - _GAP, box.top - _GAP, box.right + _GAP, box.bottom + _GAP)


def _covers(box: Extent, discs: NDArray[np.float64]) -> bool:
    """Whether a box covers a part of a disc."""
    x, y = discs[:, 0], discs[:, 1]
    away = np.hypot(x - np.clip(x, box.left, box.right), y - np.clip(y, box.top, box.bottom))
    return bool((away < discs[:, 2]).any())


def _count_crossings(box: Extent, segments: Segments) -> int:
    """How many lines run through a box, by clipping each to it (Liang and Barsky)."""
    if not len(segments):
        return 0
    x, y = segments[:, 0], segments[:, 1]
    dx, dy = segments[:, 2] - x, segments[:, 3] - y
    enter, leave = np.zeros(len(segments)), np.ones(len(segments))
    outside = np.zeros(len(segments), dtype=bool)
    for step, room in ((-dx, x - box.left), (dx, box.right - x), (-dy, y - box.top), (dy, box.bottom - y)):
        flat = np.abs(step) < 1e-12
        outside |= flat & (room < 0)
        at = room / np.where(flat, 1.0, step)
        enter = np.where(~flat & (step < 0), np.maximum(enter, at), enter)
        leave = np.where(~flat & (step > 0), np.minimum(leave, at), leave)
    return int((~outside & (enter <= leave)).sum())
