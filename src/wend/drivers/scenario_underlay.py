"""A scenario on an underlay: the placement of its peers, the overlay over it, and the failures of its components.

An overlay link fails only if one of its components fails: a router, an underlay link or a last mile. Components fail
independently of each other. The per-second draw gives all routers and links the same probability of failure, so that
overlay links fail with the scenario's Pf on average. So with and without an underlay, the same Pf differs only in which
links fail together.
"""

from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np

from wend.drivers.scenarios import Scenario
from wend.model.events import PeerId
from wend.model.fault_settings import Outages
from wend.model.paths import Path, Router
from wend.model.randomness import stream
from wend.model.units import SECOND, Nanos, seconds
from wend.topology import catalog, generators
from wend.topology.component_reliability import draw_outages_over_time, draw_reliabilities
from wend.topology.faults import Faults, Intervals, Outage, draw_outages, drop_partitions
from wend.topology.graph import Overlay
from wend.topology.inferred_topology import InferredTopology
from wend.topology.placement import Placement, attach_peers
from wend.topology.traceroute import Hop, Tracer, router_address
from wend.topology.underlay import Index, Underlay
from wend.topology.underlay_faults import UnderlayFaults


def place_peers(s: Scenario) -> Placement:
    """The scenario's underlay with its peers placed on it."""
    assert s.underlay is not None
    return attach_peers(
        catalog.make(s.underlay, s.seed), s.peers, s.seed, last_mile_ns=s.last_mile_ns, access_routers=s.access_routers
    )


def make_underlay_overlay(placement: Placement, s: Scenario) -> Overlay:
    """The overlay of the scenario's topology; each link has the delay of its underlay path."""
    if s.topology == "full-mesh":
        pairs = generators.full_mesh_pairs(s.peers)
    elif s.topology == "regular":
        pairs = generators.regular_pairs(s.peers, s.degree, s.seed)
    else:
        pairs = generators.random_pairs(s.peers, s.degree, s.seed)
    return placement.overlay(pairs, s.pl)


def draw_failures(s: Scenario, placement: Placement, overlay: Overlay, *, begin: Nanos, end: Nanos) -> UnderlayFaults:
    """Draw the outages of routers, links and last miles. The outages of peers are `peer_outages`."""
    if s.mean_outage_ns is not None:
        reliable = draw_reliabilities(placement, s.seed)
        reliable[placement.first_peer : placement.first_last_mile] = 1.0
        return UnderlayFaults(
            placement,
            overlay,
            draw_outages_over_time(reliable, down_s=s.mean_outage_ns / SECOND, begin=begin, end=end, seed=s.seed),
        )
    rejected = 0
    if s.outages is None and s.router_outages is None:
        starts, components = placement.link_components(overlay)
        drawn = list(_draw_outages_per_second(s, placement, starts, components, begin=begin, end=end))
    else:
        under = placement.underlay
        drawn = _draw_outages(under.routers, s.router_outages, "routers", s.seed, begin=begin, end=end)
        if s.partitions:
            links = _draw_outages(under.links, s.outages, "underlay-links", s.seed, begin=begin, end=end)
        else:
            links, rejected = _draw_outages_without_partitions(s, under, begin=begin, end=end)
        drawn += [(placement.first_link + link, start, until) for link, start, until in links]
    return UnderlayFaults(
        placement,
        overlay,
        Intervals(placement.components, drawn),
        rejected=rejected,
        reroute_in_domains=s.reroute_in_domains,
    )


def _draw_outages(
    count: int, outages: Outages | None, what: str, seed: int, *, begin: Nanos, end: Nanos
) -> list[Outage]:
    if outages is None:
        return []
    return list(draw_outages(count, outages, begin=begin, end=end, seed=seed, what=what).outages())


def _draw_outages_without_partitions(
    s: Scenario, under: Underlay, *, begin: Nanos, end: Nanos
) -> tuple[list[Outage], int]:
    """Outages of links that never partition the underlay, and the number of those that would have, since the first."""
    assert s.outages is not None
    first, whole = begin - seconds(s.outages.past_s), msgspec.structs.replace(s.outages, past_s=0.0)
    drawn = _draw_outages(under.links, whole, "underlay-links", s.seed, begin=first, end=end)
    happen, rejected = drop_partitions(under.routers, under.ends.tolist(), drawn)
    return [(link, max(start, begin), until) for link, start, until in happen if until > begin], rejected


def _draw_outages_per_second(
    s: Scenario, placement: Placement, starts: np.ndarray, components: Index, *, begin: Nanos, end: Nanos
) -> Iterator[Outage]:
    """Draw each used router and link from a stream of its own: adding a peer changes no other failure."""
    chance = compute_component_pf(s.pf, np.diff(starts) - 2)
    first, last = -(-begin // SECOND), end // SECOND
    for component in np.unique(components[components < placement.first_peer]).tolist():
        down = stream(s.seed, "faults", "components", component).random(last) < chance
        for second in np.flatnonzero(down[first:]).tolist():
            yield component, (first + second) * SECOND, (first + second + 1) * SECOND


def compute_component_pf(pf: float, lengths: np.ndarray) -> float:
    """The probability of failure per component with which links of these lengths fail with `pf` on average."""
    from scipy.optimize import brentq  # imported late: it takes longer to import than the whole simulator

    return float(brentq(lambda chance: (1 - (1 - chance) ** lengths).mean() - pf, 0.0, 1.0))


class SimulatedTraceroutes:
    """Answers the traceroutes of simulated peers. A trace ends at the first component that is down.

    Routers stay silent and answers get lost as often as the scenario says."""

    def __init__(self, s: Scenario, placement: Placement, faults: Faults) -> None:
        self._placement = placement
        self._tracer = Tracer(placement, seed=s.seed, anonymous=s.anonymous, loss=s.traceroute_loss)
        self._faults = faults if isinstance(faults, UnderlayFaults) else None
        self._reroute_in_domains = s.reroute_in_domains

    def trace_route(self, a: PeerId, b: PeerId, now: Nanos, attempt: int) -> tuple[Hop, ...] | None:
        """The routers between two peers, with None after the last if the path is broken. None alone if the
        asking peer's own last mile is down."""
        hops = self._tracer.trace(a, b, attempt)
        if self._faults is not None:
            for number, component in enumerate(self._placement.components_between(a, b)):
                if not self._faults.is_component_up(component, now) and not self._was_rerouted(component, a, b):
                    return (*hops[: number // 2], None) if number else None
        return hops

    def complete(self, a: PeerId, b: PeerId, path: Path, topology: InferredTopology) -> Path:
        """The path with its holes filled by an inferred topology, whose records name routers by their addresses."""
        named = tuple(router_address(hop) if isinstance(hop, int) else hop for hop in path)
        return tuple(
            hop if router is None or hop is not None else self._numbers.get(router, router)
            for hop, router in zip(path, topology.complete(a, b, named), strict=True)
        )

    @cached_property
    def _numbers(self) -> dict[Router, int]:
        """Routers by their addresses."""
        return {router_address(router): router for router in range(self._placement.underlay.routers)}

    def _was_rerouted(self, component: int, a: PeerId, b: PeerId) -> bool:
        return self._reroute_in_domains and self._placement.in_own_domain(component, a, b)
