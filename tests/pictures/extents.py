"""Reads a picture as a viewer would: where each label and each shape is, by the metrics of a real font.

DejaVu Sans is the widest of the fonts that the pictures name. Where labels do not overlap in it, they do not in others.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from math import cos, radians, sin
from typing import Any

import pytest

from wend.pictures.svg import Extent

Matrix = tuple[float, float, float, float, float, float]
STILL: Matrix = (1, 0, 0, 1, 0, 0)
_SLACK = 0.6
"""Pixels of overlap that nobody sees."""
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?"


@cache
def _font(bold: bool) -> Any:
    fonts = pytest.importorskip("matplotlib.font_manager")
    name = fonts.findfont(fonts.FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal"))
    font = pytest.importorskip("matplotlib.ft2font").FT2Font(name)  # our own, matplotlib changes its shared ones
    font.set_size(100, 72)
    return font


@cache
def extent(words: str, bold: bool = False) -> tuple[float, float, float]:
    """Width, height above the baseline and depth below it, for a size of 1."""
    font = _font(bold)
    font.set_text(words, 0.0)
    width, height = (number / 64 / 100 for number in font.get_width_height())
    depth = font.get_descent() / 64 / 100
    return width, height - depth, depth


def times(a: Matrix, b: Matrix) -> Matrix:
    return (
        a[0] * b[0] + a[2] * b[1],
        a[1] * b[0] + a[3] * b[1],
        a[0] * b[2] + a[2] * b[3],
        a[1] * b[2] + a[3] * b[3],
        a[0] * b[4] + a[2] * b[5] + a[4],
        a[1] * b[4] + a[3] * b[5] + a[5],
    )


def _transform(text: str) -> Matrix:
    found = STILL
    for name, inside in re.findall(r"(\w+)\(([^)]*)\)", text):
        numbers = [float(n) for n in re.findall(_NUMBER, inside)]
        match name:
            case "translate":
                found = times(found, (1, 0, 0, 1, numbers[0], numbers[1] if len(numbers) > 1 else 0))
            case "scale":
                found = times(found, (numbers[0], 0, 0, numbers[-1], 0, 0))
            case "rotate":
                x, y = numbers[1:] or (0.0, 0.0)
                c, s = cos(radians(numbers[0])), sin(radians(numbers[0]))
                found = times(times(times(found, (1, 0, 0, 1, x, y)), (c, s, -s, c, 0, 0)), (1, 0, 0, 1, -x, -y))
            case "matrix":
                found = times(found, tuple(numbers))  # type: ignore[arg-type]
            case _:
                raise AssertionError(f"unknown transform {name}")
    return found


def _around(points: list[tuple[float, float]], matrix: Matrix) -> Extent:
    a, b, c, d, e, f = matrix
    moved = [(a * x + c * y + e, b * x + d * y + f) for x, y in points]
    xs, ys = [x for x, _ in moved], [y for _, y in moved]
    return Extent(min(xs), min(ys), max(xs), max(ys))


def _declared(text: str) -> dict[str, str]:
    return {name.strip(): value.strip() for name, _, value in (part.partition(":") for part in text.split(";")) if name}


class Picture:
    """The labels and shapes of an SVG picture."""

    def __init__(self, source: str) -> None:
        root = ET.fromstring(source)
        left, top, width, height = (float(n) for n in root.attrib["viewBox"].split())
        self.canvas = Extent(left, top, left + width, top + height)
        self.labels: list[tuple[str, Extent]] = []
        self.shapes: list[tuple[str, Extent]] = []
        self._rules: dict[str, dict[str, str]] = {}
        for sheet in root.iter("{http://www.w3.org/2000/svg}style"):
            plain = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", sheet.text or "")
            for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", plain):
                for selector in selectors.split(","):
                    self._rules.setdefault(selector.strip(), {}).update(_declared(body))
        self._walk(root, STILL, {})

    def _walk(self, node: ET.Element, matrix: Matrix, inherited: dict[str, str]) -> None:
        name = node.tag.rpartition("}")[2]
        if name in ("defs", "style", "title", "desc", "metadata"):
            return
        matrix = times(matrix, _transform(node.get("transform", "")))
        looks = {
            **inherited,
            **{key: node.attrib[key] for key in ("font-size", "font-weight", "text-anchor") if key in node.attrib},
            **self._rules.get(name, {}),
            **{k: v for css in node.get("class", "").split() for k, v in self._rules.get(f".{css}", {}).items()},
            **_declared(node.get("style", "")),
        }
        if name == "text":
            self._text(node, matrix, looks)
        elif "clip-path" not in node.attrib and not (name == "rect" and self._is_paper(node)):
            points = list(_points(name, node))
            if points:
                said = f"{name} {node.get('class', '')}"
                self.shapes.append((said, _around(points, matrix)))
        if name != "text":
            for child in node:
                self._walk(child, matrix, looks)

    def _is_paper(self, node: ET.Element) -> bool:
        return float(node.get("width", "0")) >= self.canvas.right and float(node.get("height", "0")) > 0

    def _text(self, node: ET.Element, matrix: Matrix, looks: dict[str, str]) -> None:
        """A label; if it is set in several pieces, such as a power of ten, they count as one."""
        words = "".join(node.itertext()).strip()
        if not words:
            return
        corners: list[tuple[float, float]] = []
        for piece in list(node) or [node]:
            of = looks | _declared(piece.get("style", ""))
            said = "".join(piece.itertext()).strip()
            size = float(of["font-size"].removesuffix("px"))
            width, above, below = (size * n for n in extent(said, of.get("font-weight") in ("bold", "600", "700")))
            x, y = (float(piece.get(axis, node.get(axis, "0")).split()[0]) for axis in "xy")
            left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[of.get("text-anchor", "start")]
            corners += [(left, y - above), (left + width, y - above), (left, y + below), (left + width, y + below)]
        self.labels.append((words, _around(corners, matrix)))

    def problems(self) -> list[str]:
        """A sentence for each label on another label, and for everything outside the canvas."""
        found = [
            f"{a!r} overlaps {b!r}"
            for (a, box), (b, other) in combinations(self.labels, 2)
            if _smaller(box).overlaps(_smaller(other))
        ]
        for name, box in (*self.labels, *self.shapes):
            if not _smaller(box).is_within(self.canvas):
                found.append(f"{name!r} leaves the canvas: {tuple(round(n, 1) for n in box)}")
        return found


def _smaller(box: Extent) -> Extent:
    return Extent(box.left + _SLACK, box.top + _SLACK, box.right - _SLACK, box.bottom - _SLACK)


def _points(name: str, node: ET.Element) -> Iterator[tuple[float, float]]:
    of = {key: float(value) for key, value in node.attrib.items() if re.fullmatch(_NUMBER, value)}
    match name:
        case "line":
            yield from ((of["x1"], of["y1"]), (of["x2"], of["y2"]))
        case "circle":
            yield from (
                (of["cx"] - of["r"], of["cy"] - of["r"]),
                (of["cx"] + of["r"], of["cy"] + of["r"]),
            )
        case "rect":
            x, y = of.get("x", 0.0), of.get("y", 0.0)
            yield from ((x, y), (x + of["width"], y + of["height"]))
        case "polygon":
            numbers = [float(n) for n in re.findall(_NUMBER, node.attrib["points"])]
            yield from zip(numbers[::2], numbers[1::2], strict=True)
        case "path":
            yield from _path(node.attrib["d"])
        case "use":
            yield of.get("x", 0.0), of.get("y", 0.0)


def _path(text: str) -> Iterator[tuple[float, float]]:
    """The points of a path, control points included: the path is within their hull."""
    x = y = 0.0
    for command, inside in re.findall(r"([A-Za-z])([^A-Za-z]*)", text):
        numbers = [float(n) for n in re.findall(_NUMBER, inside)]
        match command:
            case "M" | "L" | "Q" | "C" | "T" | "S":
                for x, y in zip(numbers[::2], numbers[1::2], strict=True):
                    yield x, y
            case "H":
                for x in numbers:
                    yield x, y
            case "V":
                for y in numbers:
                    yield x, y
            case "a":  # half a circle to the side: discs of routers
                radius = numbers[0]
                yield from ((x, y - radius), (x, y + radius))
                x, y = x + numbers[5], y + numbers[6]
                yield x, y
            case "z" | "Z":
                pass
            case _:
                raise AssertionError(f"unknown command {command} in a path")
