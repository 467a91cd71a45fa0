"""Flat (one-level) networks as BRITE grows them with its default parameters.

Peers lie in a square and join one by one. Each new peer links to `links` existing peers: with `waxman` near peers are
more likely (exp(-d / (beta L))), with `attached` peers that have many links (Barabási and Albert). A delay is the
distance at the speed of light in fibre.
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.maps import fibre_ns

Growth = Literal["waxman", "attached"]
BETA = 0.2
"""The length scale of Waxman's links, as a share of the square's diagonal."""


def grow(peers: int, growth: Growth, *, seed: int, links: int = 2, side_km: float = 1000.0) -> Overlay:
    """Grow a network. The first `links` + 1 peers form a full mesh; each later peer adds `links` links."""
    if links < 1 or peers <= links:
        raise ConfigError(f"a network that grows by {links} links needs at least {links + 1} peers, got {peers}")
    rng = stream(seed, "topology", growth, peers, links)
    spots = rng.random((peers, 2)) * side_km
    reach = BETA * math.sqrt(2) * side_km
    degree = np.zeros(peers)
    overlay_links: list[OverlayLink] = []
    for here in range(1, peers):
        weights = np.exp(-_compute_distances(spots, here) / reach) if growth == "waxman" else degree[:here]
        count = min(links, here)
        chosen = np.arange(here) if count == here else rng.choice(here, count, replace=False, p=weights / weights.sum())
        for there in sorted(chosen.tolist()):
            away = float(np.hypot(*(spots[here] - spots[there])))
            overlay_links.append(OverlayLink(there, here, fibre_ns(away)))
            degree[[here, there]] += 1
    return Overlay(peers, overlay_links)


def _compute_distances(spots: NDArray[np.float64], here: int) -> NDArray[np.float64]:
    away = spots[:here] - spots[here]
    return np.asarray(np.hypot(away[:, 0], away[:, 1]))
