"""Which links other traffic uses, and the round trips of its flows.

Without an underlay, flows use links of the overlay. On an underlay they use its links: all overlay links over such a
link share its queue with them. The two directions of a link are separate.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.scenario import BackgroundFlows
from wend.model.units import MS, Nanos
from wend.topology.graph import Overlay

if TYPE_CHECKING:  # underlays bring a compiler with them, and most scenarios have none
    from wend.topology.placement import Placement

Arc = tuple[PeerId, PeerId]
"""One direction of an overlay link."""


class SharedLink(msgspec.Struct, frozen=True):
    """One direction of a link that background flows use."""

    arcs: tuple[Arc, ...]
    """The directions of overlay links that run over it."""
    rtts_ns: tuple[Nanos, ...]
    """The round trip of each flow, without the time in the queue."""
    link: int | None
    """The overlay link that it is; None for a link of the underlay."""


def draw_background_links(
    flows: BackgroundFlows | None, seed: int, overlay: Overlay, placement: "Placement | None"
) -> tuple[SharedLink, ...]:
    """The links with background flows."""
    if flows is None:
        return ()
    if placement is not None:
        return _draw_on_underlay(flows, seed, overlay, placement)
    shared = []
    for index, link in enumerate(overlay.links):
        rng = stream(seed, "background", index)
        if rng.random() < flows.share:
            for arc in ((link.a, link.b), (link.b, link.a)):
                shared.append(SharedLink((arc,), _draw_rtts(flows, rng), index))
    return tuple(shared)


def _draw_on_underlay(
    flows: BackgroundFlows, seed: int, overlay: Overlay, placement: "Placement"
) -> tuple[SharedLink, ...]:
    paths = placement.paths(*overlay.ends)
    arcs: dict[tuple[int, int], list[Arc]] = {}
    for number, link in enumerate(overlay.links):
        path: Sequence[int] = paths[number].tolist()
        for router, component in zip(path[::2], path[1::2], strict=False):
            first = placement.underlay.ends[component - placement.first_link][0] == router
            arcs.setdefault((component, int(first)), []).append((link.a, link.b))
            arcs.setdefault((component, int(not first)), []).append((link.b, link.a))
    shared = []
    for component in sorted({component for component, _ in arcs}):
        rng = stream(seed, "background", component)
        if rng.random() < flows.share:
            for direction in (0, 1):
                if (component, direction) in arcs:
                    shared.append(SharedLink(tuple(arcs[component, direction]), _draw_rtts(flows, rng), None))
    return tuple(shared)


def _draw_rtts(flows: BackgroundFlows, rng: np.random.Generator) -> tuple[Nanos, ...]:
    low, high = flows.rtt_ms
    return tuple(round(MS * ms) for ms in rng.uniform(low, high, flows.flows).tolist())
