"""Detection delays of outages, and the packet rate at which BFD would detect them as fast.

Only the simulator sees both the outage and the peer that detects it. An end that already suspected the link when the
outage began does not count.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from wend.model.events import PeerId
from wend.model.summary import DetectionDelays
from wend.model.units import MS, Nanos
from wend.topology.faults import Faults
from wend.topology.graph import Overlay

LinkVerdict = tuple[Nanos, PeerId, PeerId, bool]
"""(time, peer, neighbour, up): when a peer decided that the link to a neighbour is up or down."""


def compute_detection_delays(overlay: Overlay, faults: Faults, verdicts: Iterable[LinkVerdict]) -> DetectionDelays:
    """The delays from the beginning of an outage until an end of the link decides that it is down.

    If an end believes the link up until the outage ends, the outage counts as unnoticed.
    """
    changes: dict[tuple[PeerId, PeerId], list[tuple[Nanos, bool]]] = defaultdict(list)
    for now, peer, neighbour, up in verdicts:
        changes[peer, neighbour].append((now, up))
    if not changes:
        return DetectionDelays()
    took: list[Nanos] = []
    unnoticed = 0
    for index, start, end in faults.outages():
        link = overlay.links[index]
        for pair in ((link.a, link.b), (link.b, link.a)):
            mine = changes[pair]
            if not next((up for now, up in reversed(mine) if now <= start), True):
                continue
            first = next((now for now, up in mine if start < now < end and not up), None)
            if first is None:
                unnoticed += 1
            else:
                took.append(first - start)
    if not took:
        return DetectionDelays(unnoticed_share=1.0) if unnoticed else DetectionDelays()
    p50, p95 = np.percentile(took, [50, 95])
    return DetectionDelays(
        mean=float(np.mean(took)) / MS,
        p50=float(p50) / MS,
        p95=float(p95) / MS,
        unnoticed_share=unnoticed / (unnoticed + len(took)),
    )


def compute_bfd_rate_hz(overlay: Overlay, known_ms: float, multiplier: int) -> float | None:
    """Packets per second, on all links and in both directions, at which BFD (RFC 5880) detects outages as fast.

    On average an outage begins half an interval after the last packet was sent. That packet arrives, and
    `multiplier` intervals later BFD declares the link down. If the detection is faster than a packet's delay, no rate
    is enough, and the result is None.
    """
    delay_ms = float(np.mean([link.delay_ns for link in overlay.links])) / MS
    interval_ms = (known_ms - delay_ms) / (multiplier - 0.5)
    return 2 * len(overlay.links) * 1e3 / interval_ms if interval_ms > 0 else None
