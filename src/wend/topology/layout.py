"""Where things stand in a picture: as the map has them, north on top, else where springs between neighbours come to
rest. Every drawing asks here, so that a network looks the same in all of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Attributes = Mapping[str, Any]
_SPRINGS_SEED = 1


def globe(node: Attributes) -> tuple[float, float] | None:
    """Longitude and latitude."""
    return _numbers(node["pos"] if "pos" in node else (node.get("Longitude"), node.get("Latitude")))


def positions_of(nodes: Sequence[Attributes]) -> list[tuple[float, float]]:
    """Where to draw each node of a map, y downwards; not a number where the map does not say."""
    squeeze = _squeeze(nodes)
    return [_spot(node, squeeze) or (math.nan, math.nan) for node in nodes]


def laid_out(places: Floats, ends: Iterable[tuple[int, int]]) -> Floats:
    """`places` where all of them are known, else those that the links between them lead to; the same in every run."""
    if np.isfinite(places).all():
        return places
    import rustworkx

    graph = rustworkx.PyGraph()
    graph.add_nodes_from(range(len(places)))
    graph.add_edges_from_no_data(list(ends))
    # From a circle, with a seed for what is left to chance.
    angle = 2 * np.pi * np.arange(len(places)) / len(places)
    start = {i: (float(np.cos(t)), float(np.sin(t))) for i, t in enumerate(angle)}
    found = rustworkx.spring_layout(graph, pos=start, seed=_SPRINGS_SEED, num_iter=200)
    return np.array([found[i] for i in range(len(places))], dtype=np.float64)


def fit(places: Floats, middle: tuple[float, float], room: tuple[float, float]) -> Floats:
    """To a part of the picture, without stretching."""
    low, high = places.min(axis=0), places.max(axis=0)
    scale = float(np.min(np.array(room) / np.maximum(high - low, 1e-9)))
    return np.asarray((places - (low + high) / 2) * scale + np.array(middle), dtype=np.float64)


def readable(names: Sequence[str], at: Floats, letter: tuple[float, float], order: Iterable[int]) -> list[int]:
    """Of names that would cover each other only the first in `order` is written; `letter` is a letter's size."""
    taken = np.empty((0, 4))
    chosen = []
    for i in order:
        x, y = at[i].tolist()
        box = np.array([x, y - letter[1], x + letter[0] * len(names[i]), y])
        if not ((taken[:, :2] < box[2:]) & (box[:2] < taken[:, 2:])).all(axis=1).any():
            taken = np.vstack((taken, box))
            chosen.append(i)
    return sorted(chosen)


def _spot(node: Attributes, squeeze: float) -> tuple[float, float] | None:
    found = globe(node)
    return _numbers((node.get("x"), node.get("y"))) if found is None else (found[0] * squeeze, -found[1])


def _squeeze(nodes: Iterable[Attributes]) -> float:
    """How much shorter a degree of longitude is than one of latitude, around the middle of the map."""
    latitudes = [found[1] for node in nodes if (found := globe(node)) is not None]
    return math.cos(math.radians(sum(latitudes) / len(latitudes))) if latitudes else 1.0


def _numbers(spot: Any) -> tuple[float, float] | None:
    try:
        x, y = (float(v) for v in spot)
    except (TypeError, ValueError):
        return None
    return (x, y) if math.isfinite(x) and math.isfinite(y) else None
