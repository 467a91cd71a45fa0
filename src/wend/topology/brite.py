"""Top-down networks as BRITE draws them: a graph of AS, and in each AS a graph of routers (quist, section 7.1.2).

Both levels grow in the same way. Nodes lie at random in a square and join one by one, each with `m` links to existing
nodes; nearer nodes are more likely (Waxman: exp(-d / (beta L))). The first `m` nodes find no others when they join and
add their links last, so a level of n nodes has exactly m n links: 20 x 82 x 2 + 20 x 2 = 3320.

A link between two AS connects a random router of each, and its length is the distance of the AS centres. The BRITE tool
takes the distance of the two routers, each in the square of its own AS; path lengths and discovery differ by no more
than chance. Waxman's alpha scales all probabilities equally, so it has no effect here.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.topology.maps import fibre_ns
from wend.topology.underlay import LinkKind, RouterKind, Underlay
from wend.topology.underlay_builder import UnderlayBuilder, weighted_choice

_TRIES = 1000


class Brite(msgspec.Struct, frozen=True):
    """Parameters. Sides of squares are in kilometres; a delay is the distance at the speed of light in fibre."""

    domains: int = 20
    size: int = 82
    m: int = 2
    beta: float = 0.2
    side_km: float = 1000.0
    domain_side_km: float = 1000.0


QUIST = Brite()


def brite(seed: int, shape: Brite = QUIST, name: str = "brite") -> Underlay:
    _check(shape)
    builder = UnderlayBuilder(name)
    level = stream(seed, "underlay", name, "domains")
    centres = level.random((shape.domains, 2)) * shape.side_km
    between = draw_waxman_links(centres, shape.m, shape.beta, shape.side_km, level)
    spread = 0.8 / max(1.0, math.sqrt(shape.domains))  # drawings show a domain as a patch around its centre
    for domain, centre in enumerate(centres):
        rng = stream(seed, "underlay", name, "routers", domain)
        spots = rng.random((shape.size, 2)) * shape.domain_side_km
        first = len(builder)
        for x, y in centre + (spots / shape.domain_side_km - 0.5) * shape.side_km * spread:
            builder.add_router(RouterKind.ACCESS, domain, x, y)
        for a, b in draw_waxman_links(spots, shape.m, shape.beta, shape.domain_side_km, rng):
            builder.add_link(first + a, first + b, LinkKind.INNER, _fibre_delay(spots[a], spots[b]))
    borders = stream(seed, "underlay", name, "borders")
    for a, b in between:
        for _ in range(_TRIES):
            here, there = (d * shape.size + int(borders.integers(shape.size)) for d in (a, b))
            if builder.add_link(here, there, LinkKind.BORDER, _fibre_delay(centres[a], centres[b])):
                break
    return builder.build()


def draw_waxman_links(
    spots: NDArray[np.float64], m: int, beta: float, side: float, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """A connected graph with exactly `m` links per node and no duplicates."""
    nodes = len(spots)
    longest = math.sqrt(2) * side
    pull = np.exp(-np.hypot(*(spots[:, None] - spots[None]).transpose(2, 0, 1)) / (beta * longest))
    linked = np.eye(nodes, dtype=bool)
    links: list[tuple[int, int]] = []
    early = range(m)
    for node, present in [*((n, slice(0, n)) for n in range(m, nodes)), *((n, slice(m, nodes)) for n in early)]:
        for _ in range(m):
            weights = np.where(linked[node], 0.0, pull[node])[present]
            a, b = node, present.start + weighted_choice(rng, weights) if weights.any() else node
            if a == b:  # in a tiny graph the node has all possible links: two other nodes get this one
                a, b = divmod(weighted_choice(rng, np.where(linked, 0.0, pull).ravel()), nodes)
            linked[a, b] = linked[b, a] = True
            links.append((min(a, b), max(a, b)))
    return links


def _fibre_delay(a: NDArray[np.float64], b: NDArray[np.float64]) -> int:
    return fibre_ns(float(np.hypot(*(a - b))))


def _check(shape: Brite) -> None:
    if shape.m < 1:
        raise ConfigError(f"brite: m must be at least 1, got {shape.m}")
    for what, count in (("domains", shape.domains), ("routers in a domain", shape.size)):
        if count < 2 * shape.m + 1:
            raise ConfigError(f"brite: m = {shape.m} needs at least {2 * shape.m + 1} {what}, got {count}")
    if shape.beta <= 0 or shape.side_km <= 0 or shape.domain_side_km <= 0:
        raise ConfigError("brite: beta and the sides of the squares must be positive")
