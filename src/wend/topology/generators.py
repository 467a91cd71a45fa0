"""Overlays drawn from a seed: full mesh, random regular graphs, and random graphs, with delays uniform in a range."""

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.units import millis
from wend.topology.graph import Overlay, OverlayLink

_TRIES = 1000
Pair = tuple[PeerId, PeerId]


def full_mesh(peers: int, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    return _add_delays(peers, full_mesh_pairs(peers), delay_ms, loss, seed)


def full_mesh_pairs(peers: int) -> list[Pair]:
    return [(a, b) for a in range(peers) for b in range(a + 1, peers)]


def regular(peers: int, degree: int, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    """A connected random graph in which every peer has `degree` neighbours."""
    return _add_delays(peers, regular_pairs(peers, degree, seed), delay_ms, loss, seed)


def regular_pairs(peers: int, degree: int, seed: int) -> list[Pair]:
    if not 0 < degree < peers or degree * peers % 2:
        raise ConfigError(f"no regular graph has {peers} peers of degree {degree}")
    rng = stream(seed, "topology", "regular", peers, degree)
    for _ in range(_TRIES):
        pairs = _draw_pairing(peers, degree, rng)
        if pairs is not None and Overlay(peers, [OverlayLink(a, b, 1) for a, b in pairs]).is_connected():
            return sorted(pairs)
    raise ConfigError(f"found no connected graph of {peers} peers with degree {degree} in {_TRIES} draws")


def random_graph(peers: int, degree: int, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    """A connected random graph in which peers have `degree` neighbours on average."""
    return _add_delays(peers, random_pairs(peers, degree, seed), delay_ms, loss, seed)


def random_pairs(peers: int, degree: int, seed: int) -> list[Pair]:
    """Choose links among all pairs of peers until the graph has the mean degree, and again until it is connected."""
    every, links = full_mesh_pairs(peers), peers * degree // 2
    if not 0 < degree < peers or degree * peers % 2:
        raise ConfigError(f"no graph has {peers} peers of mean degree {degree}")
    rng = stream(seed, "topology", "random", peers, degree)
    for _ in range(_TRIES):
        pairs = [every[number] for number in sorted(rng.choice(len(every), size=links, replace=False).tolist())]
        if Overlay(peers, [OverlayLink(a, b, 1) for a, b in pairs]).is_connected():
            return pairs
    raise ConfigError(f"found no connected graph of {peers} peers with mean degree {degree} in {_TRIES} draws")


def _draw_pairing(peers: int, degree: int, rng: np.random.Generator) -> set[Pair] | None:
    """Steger and Wormald: pair free stubs at random and skip loops and duplicates. None if no pair is possible."""
    pairs: set[Pair] = set()
    stubs = np.repeat(np.arange(peers), degree)
    while len(stubs):
        rng.shuffle(stubs)
        unpaired: list[int] = []
        for a, b in zip(stubs[::2].tolist(), stubs[1::2].tolist(), strict=True):
            pair = (min(a, b), max(a, b))
            if a == b or pair in pairs:
                unpaired += [a, b]
            else:
                pairs.add(pair)
        if unpaired and not _has_suitable_pair(unpaired, pairs):
            return None
        stubs = np.array(unpaired, dtype=np.int64)
    return pairs


def _has_suitable_pair(stubs: list[PeerId], pairs: set[Pair]) -> bool:
    free = sorted(set(stubs))
    return any((a, b) not in pairs for i, a in enumerate(free) for b in free[i + 1 :])


def _add_delays(peers: int, pairs: list[Pair], delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    low, high = millis(delay_ms[0]), millis(delay_ms[1])
    delays = stream(seed, "topology", "delays").integers(low, high, size=len(pairs), endpoint=True)
    return Overlay(peers, [OverlayLink(a, b, d, loss) for (a, b), d in zip(pairs, delays.tolist(), strict=True)])
