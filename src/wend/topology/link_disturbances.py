"""Disturbances of links: they corrupt, reorder or delay packets, or other traffic congests them.

A run draws delay spikes and background loads once, from its seed, for every link of the overlay. On an underlay it
draws them for the underlay's links, so overlay links that share one are disturbed together.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Literal

import msgspec

from wend.model.fault_settings import Congestion, DelaySpikes, Outages
from wend.model.randomness import stream
from wend.model.units import MS, Nanos
from wend.topology.faults import Outage, draw_alternating_outages
from wend.topology.graph import Overlay

if TYPE_CHECKING:  # underlays bring a compiler with them, and most scenarios have none
    from wend.topology.placement import Placement

Anomaly = Literal["corruption", "reordering", "delay", "congestion"]


class DisturbedPeriods:
    """The times in which one component is disturbed, each with an amount."""

    __slots__ = ("_amounts", "_edges")

    def __init__(self, periods: Sequence[tuple[Nanos, Nanos, float]]) -> None:
        self._edges = [edge for start, until, _ in periods for edge in (start, until)]
        self._amounts = [amount for _, _, amount in periods]

    def at(self, now: Nanos) -> float:
        """The amount at this time, 0 while nothing disturbs the component."""
        edge = bisect_right(self._edges, now)
        return self._amounts[edge // 2] if edge % 2 else 0.0

    def __iter__(self) -> Iterator[tuple[Nanos, Nanos]]:
        return iter(list(zip(self._edges[::2], self._edges[1::2], strict=True)))


class LinkConditions(msgspec.Struct, frozen=True):
    """The disturbances of packets on one link."""

    corruption: float = 0.0
    reordering: float = 0.0
    spikes_ms: tuple[DisturbedPeriods, ...] = ()
    """The extra delay of each component."""
    loads: tuple[DisturbedPeriods, ...] = ()
    """The background load of each component, as a share of its capacity."""


class Disturbances(msgspec.Struct, frozen=True):
    """The conditions of all links of an overlay."""

    links: tuple[LinkConditions, ...]
    begin_ns: Nanos
    end_ns: Nanos
    """Links corrupt and reorder packets only between these times."""
    hold_ns: Nanos
    """The longest time for which a reordered packet is held back."""
    queue_msgs: int
    service_ns: Nanos
    """The queue of a congested component, and the time that it takes for a packet."""

    def along(self, routes: Sequence[Sequence[int]]) -> "Disturbances":
        """The conditions of routes, each of which is a list of links."""
        joined = tuple(_combine_conditions([self.links[link] for link in route]) for route in routes)
        return msgspec.structs.replace(self, links=joined)

    def periods(self) -> Iterator[tuple[Anomaly, Outage]]:
        """All disturbances by kind: (link, from, until)."""
        for link, conditions in enumerate(self.links):
            if conditions.corruption:
                yield "corruption", (link, self.begin_ns, self.end_ns)
            if conditions.reordering:
                yield "reordering", (link, self.begin_ns, self.end_ns)
            kinds: tuple[tuple[Anomaly, tuple[DisturbedPeriods, ...]], ...] = (
                ("delay", conditions.spikes_ms),
                ("congestion", conditions.loads),
            )
            for kind, components in kinds:
                for start, until in sorted(period for one in components for period in one):
                    yield kind, (link, start, until)


def draw_disturbances(
    overlay: Overlay,
    placement: "Placement | None",
    *,
    corruption: float,
    reordering: float,
    reordering_delay_ns: Nanos,
    spikes: DelaySpikes | None,
    congestion: Congestion | None,
    seed: int,
    begin: Nanos,
    end: Nanos,
) -> Disturbances | None:
    """The disturbances of links between two times; None if there are none."""
    if not (corruption or reordering or spikes or congestion):
        return None
    components = _components_by_link(overlay, placement)
    used = sorted({one for each in components for one in each})
    slow = {} if spikes is None else _draw_periods(used, spikes, spikes.extra_ms, "delay", seed, begin, end)
    busy = (
        {} if congestion is None else _draw_periods(used, congestion, congestion.load, "congestion", seed, begin, end)
    )
    links = tuple(
        LinkConditions(
            corruption,
            reordering,
            tuple(slow[one] for one in each if one in slow),
            tuple(busy[one] for one in each if one in busy),
        )
        for each in components
    )
    queue, service_ms = (1, 0.0) if congestion is None else (congestion.queue_msgs, congestion.service_ms)
    return Disturbances(links, begin, end, reordering_delay_ns, queue, round(service_ms * MS))


def _components_by_link(overlay: Overlay, placement: "Placement | None") -> list[tuple[int, ...]]:
    """By overlay link: the underlay links of its path. Without an underlay, the link itself."""
    if placement is None:
        return [(link,) for link in range(len(overlay.links))]
    starts, components = placement.link_components(overlay)
    inner = (components >= placement.first_link) & (components < placement.first_peer)
    return [tuple(components[a:b][inner[a:b]].tolist()) for a, b in pairwise(starts.tolist())]


def _draw_periods(
    components: Sequence[int],
    faults: Outages,
    amounts: tuple[float, float],
    what: str,
    seed: int,
    begin: Nanos,
    end: Nanos,
) -> dict[int, DisturbedPeriods]:
    """By component that is ever disturbed: its periods, each with an amount from the given range."""
    periods = {}
    for component in components:
        rng = stream(seed, "disturbances", what, component)
        times = list(draw_alternating_outages(faults, rng, begin=begin, end=end))
        if times:
            periods[component] = DisturbedPeriods([(*time, float(rng.uniform(*amounts))) for time in times])
    return periods


def _combine_conditions(conditions: Sequence[LinkConditions]) -> LinkConditions:
    return LinkConditions(
        1 - prod(1 - one.corruption for one in conditions),
        1 - prod(1 - one.reordering for one in conditions),
        tuple(each for one in conditions for each in one.spikes_ms),
        tuple(each for one in conditions for each in one.loads),
    )
