"""Layout of drawings: the positions of nodes, and the aspect ratio that they give to a picture.

The positions are those of the map, with north on top, or of a spring layout if the map states none. All drawings use
this module, so a network looks the same in all of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Attributes = Mapping[str, Any]
_SPRINGS_SEED = 1


def geographic_position(node: Attributes) -> tuple[float, float] | None:
    """The longitude and latitude of a node, if its map states them."""
    return _parse_numbers(node["pos"] if "pos" in node else (node.get("Longitude"), node.get("Latitude")))


def map_positions(nodes: Sequence[Attributes]) -> list[tuple[float, float]]:
    """The position of each node of a map, y downwards; nan if the map states none."""
    squeeze = _longitude_scale(nodes)
    return [_map_position(node, squeeze) or (math.nan, math.nan) for node in nodes]


def lay_out(positions: Floats, ends: Iterable[tuple[int, int]]) -> Floats:
    """The given positions if all are known, else those of a spring layout, the same in every run."""
    if np.isfinite(positions).all():
        return positions
    import rustworkx

    graph = rustworkx.PyGraph()
    graph.add_nodes_from(range(len(positions)))
    graph.add_edges_from_no_data(list(ends))
    # The layout starts from a circle and has a fixed seed.
    angle = 2 * np.pi * np.arange(len(positions)) / len(positions)
    start = {i: (float(np.cos(t)), float(np.sin(t))) for i, t in enumerate(angle)}
    places = rustworkx.spring_layout(graph, pos=start, seed=_SPRINGS_SEED, num_iter=200)
    return np.array([places[i] for i in range(len(positions))], dtype=np.float64)


def fit(positions: Floats, middle: tuple[float, float], size: tuple[float, float]) -> Floats:
    """Scale positions into a rectangle of the picture, with the same scale in x and y."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    scale = float(np.min(np.array(size) / np.maximum(high - low, 1e-9)))
    return np.asarray((positions - (low + high) / 2) * scale + np.array(middle), dtype=np.float64)


def picture_height(positions: Floats, width: float, low: float, high: float) -> float:
    """The height of a picture of this width that has the map's aspect ratio, within bounds."""
    across, down = (positions.max(axis=0) - positions.min(axis=0)).tolist()
    return float(min(max(width * down / across if across > 0 else high, low), high))


def _map_position(node: Attributes, squeeze: float) -> tuple[float, float] | None:
    place = geographic_position(node)
    return _parse_numbers((node.get("x"), node.get("y"))) if place is None else (place[0] * squeeze, -place[1])


def _longitude_scale(nodes: Iterable[Attributes]) -> float:
    """The length of a degree of longitude divided by that of a degree of latitude, at the map's mean latitude."""
    latitudes = [place[1] for node in nodes if (place := geographic_position(node)) is not None]
    return math.cos(math.radians(sum(latitudes) / len(latitudes))) if latitudes else 1.0


def _parse_numbers(spot: Any) -> tuple[float, float] | None:
    try:
        x, y = (float(v) for v in spot)
    except (TypeError, ValueError):
        return None
    return (x, y) if math.isfinite(x) and math.isfinite(y) else None
