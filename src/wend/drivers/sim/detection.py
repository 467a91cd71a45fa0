"""How soon peers know of an outage, and what BFD would have to send to know it as soon.

Only the simulator sees both the outage and the peer that notices it. An end that believed the link down already, when
the outage began, has nothing to notice and does not count.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from wend.model.events import PeerId
from wend.model.summary import DetectionDelays
from wend.model.units import MS, Nanos
from wend.topology.faults import Faults
from wend.topology.graph import Overlay

Noticed = tuple[Nanos, PeerId, PeerId, bool]
"""When, by whom, of the link to whom, and whether it was found to be up rather than down."""


def known_after_ms(overlay: Overlay, faults: Faults, noticed: Iterable[Noticed]) -> DetectionDelays:
    """From the beginning of an outage until an end of the link takes it for down.

    Unnoticed is what an end believed up until the outage was over.
    """
    changes: dict[tuple[PeerId, PeerId], list[tuple[Nanos, bool]]] = defaultdict(list)
    for now, peer, neighbour, up in noticed:
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


def bfd_hz(overlay: Overlay, known_ms: float, multiplier: int) -> float | None:
    """Packets per second, on all links and both ways, with which BFD (RFC 5880) knows of outages as soon, on average.

    An outage begins half an interval after the last packet was sent, on average; that one arrives, and
    `multiplier` intervals later the link is down. None where no rate is soon enough: what is known sooner than a packet
    takes to arrive was known by other means.
    """
    way = float(np.mean([link.delay_ns for link in overlay.links])) / MS
    interval_ms = (known_ms - way) / (multiplier - 0.5)
    return 2 * len(overlay.links) * 1e3 / interval_ms if interval_ms > 0 else None
