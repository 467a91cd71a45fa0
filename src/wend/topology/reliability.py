"""How reliable each component is (quist, Table 7.1), and what fails when.

A reliability is `U^(1/alpha)` clipped to [0.85, 1], the inverted Pareto of section 7.3: most components are nearly
perfect, and -ln r is 1/alpha on average. Failures are drawn per event, as in the thesis, or as processes in time:
each component is up and down by turns, up for the share of time that its reliability says. An overlay link is up
while all beneath it is.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.model.scenario import Outages
from wend.model.units import Nanos, seconds
from wend.topology.faults import Intervals, Outage, draw_outages
from wend.topology.graph import Overlay
from wend.topology.ground import Ground
from wend.topology.underlay import Floats, Ints, LinkKind, RouterKind, Underlay

ROUTER_ALPHA = {RouterKind.ACCESS: 50.0, RouterKind.TRANSIT: 100.0}
LINK_ALPHA = {LinkKind.INNER: 50.0, LinkKind.BORDER: 80.0, LinkKind.TRANSIT: 100.0}
PEER_ALPHA = 100.0
LAST_MILE_ALPHA = 200.0
WORST = 0.85


def reliabilities(ground: Ground, seed: int) -> Floats:
    """One number in [0.85, 1] for each component."""
    under = ground.underlay
    routers = np.array([ROUTER_ALPHA[RouterKind(int(kind))] for kind in under.router_kind])
    links = np.array([LINK_ALPHA[LinkKind(int(kind))] for kind in under.link_kind])
    alphas = {
        "routers": routers,
        "links": links,
        "peers": np.full(ground.peers, PEER_ALPHA),
        "last-miles": np.full(ground.peers, LAST_MILE_ALPHA),
    }
    drawn = [stream(seed, "reliability", what).random(len(alpha)) ** (1 / alpha) for what, alpha in alphas.items()]
    return np.clip(np.concatenate(drawn), WORST, 1.0)


def of_paths(starts: Ints, parts: NDArray[np.int32], reliability: Floats) -> Floats:
    """Of each path: the product over what it is made of."""
    found: Floats = np.exp(np.add.reduceat(np.log(reliability)[parts], starts[:-1]))
    return found


def per_event(reliability: Floats, seed: int, event: int) -> NDArray[np.bool_]:
    """Which components are up for this event, independently of each other and of other events."""
    drawn: NDArray[np.bool_] = stream(seed, "failures", "event", event).random(len(reliability)) < reliability
    return drawn


def in_time(reliability: Floats, *, down_s: float, begin: Nanos, end: Nanos, seed: int) -> Intervals:
    """Exponential outages of `down_s` on average, as rare as the reliability asks; components start up.

    A component that is never down takes no part; one that is never up cannot be asked for.
    """
    if down_s <= 0:
        raise ConfigError(f"an outage lasts longer than {down_s:g} s")
    if (reliability <= 0).any():
        raise ConfigError("a component with reliability 0 is never up, which is no process in time")
    found: list[Outage] = []
    for component in np.flatnonzero(reliability < 1).tolist():
        rng = stream(seed, "failures", "time", component)
        up_s = down_s * reliability[component] / (1 - reliability[component])
        now = begin + seconds(rng.exponential(up_s))
        while now < end:
            until = now + max(1, seconds(rng.exponential(down_s)))
            found.append((component, now, min(until, end)))
            now = until + seconds(rng.exponential(up_s))
    return Intervals(len(reliability), found)


def link_outages(underlay: Underlay, outages: Outages, *, begin: Nanos, end: Nanos, seed: int) -> tuple[Intervals, int]:
    """Links that crash by themselves, but never so many at once that the underlay falls apart (esposito, section 4).

    Gives the outages, by link, and how many were refused because they would have cut the network in two.
    """
    drawn = draw_outages(underlay.links, outages, begin=begin, end=end, seed=seed, what="underlay-links")
    kept, refused = without_partitions(underlay, list(drawn.outages()))
    return Intervals(underlay.links, kept), refused


def without_partitions(underlay: Underlay, outages: Sequence[Outage]) -> tuple[list[Outage], int]:
    """In the order of their starts, those outages that leave the network in one piece."""
    kept: list[Outage] = []
    refused = 0
    down: list[tuple[Nanos, int]] = []
    for outage in sorted(outages, key=lambda o: (o[1], o[0])):
        link, start, until = outage
        down = [(end, other) for end, other in down if end > start]
        if _in_one_piece(underlay, [link, *(other for _, other in down)]):
            kept.append(outage)
            down.append((until, link))
        else:
            refused += 1
    return kept, refused


def _in_one_piece(underlay: Underlay, without: Sequence[int]) -> bool:
    ends = np.delete(underlay.ends, without, axis=0)
    matrix = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(underlay.routers,) * 2)
    return int(connected_components(matrix, directed=False, return_labels=False)) == 1


class Beneath:
    """Failures of an overlay's links, seen from the components that they share. It is a `Faults`."""

    def __init__(self, ground: Ground, overlay: Overlay, components: Intervals) -> None:
        self._components = components
        starts, parts = ground.beneath(overlay)
        self._parts = [parts[a:b].tolist() for a, b in pairwise(starts.tolist())]
        by_component: dict[int, list[int]] = {}
        for link, made_of in enumerate(self._parts):
            for component in made_of:
                by_component.setdefault(component, []).append(link)
        down = [
            (link, start, until)
            for component, start, until in components.outages()
            for link in by_component.get(component, ())
        ]
        self._links = Intervals(len(overlay.links), down)

    def up(self, part: int, now: Nanos) -> bool:
        return self._links.up(part, now)

    def outages(self) -> Iterator[Outage]:
        return self._links.outages()

    def calendar(self, part: int, seconds: int) -> bytes | None:
        return None

    def next_change(self, now: Nanos) -> Nanos:
        return self._links.next_change(now)

    def component_up(self, component: int, now: Nanos) -> bool:
        return self._components.up(component, now)

    def culprits(self, part: int, now: Nanos) -> list[int]:
        """Which components keep this overlay link down."""
        return [component for component in self._parts[part] if not self._components.up(component, now)]
