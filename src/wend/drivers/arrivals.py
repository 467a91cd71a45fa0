"""What is possible at best, for one who knows every failure, past and to come.

The earliest arrival over links that are up when a packet is sent, where a peer may also hold a packet until a link is
up again: without that it would be no bound on delivery. The simulator plays it as ORACLE, live overlays and the lab
are measured by it.
"""

import heapq

from wend.drivers.world import World
from wend.model.events import PeerId
from wend.model.units import Nanos

ORACLE = "oracle"
"""Its name among the strategies that can be compared."""


def earliest_arrivals(
    world: World, publisher: PeerId, now: Nanos, wanted: set[PeerId] | None = None
) -> tuple[dict[PeerId, Nanos], dict[PeerId, PeerId]]:
    """Arrival time and parent of every peer (or until all wanted ones are settled), for a packet published now."""
    up, next_change, end = world.faults.up, world.faults.next_change, world.end_ns
    overlay = world.overlay
    arrival: dict[PeerId, Nanos] = {publisher: now}
    parent: dict[PeerId, PeerId] = {}
    done: set[PeerId] = set()
    left = None if wanted is None else set(wanted)
    heap: list[tuple[Nanos, PeerId]] = [(now, publisher)]
    while heap:
        here_at, here = heapq.heappop(heap)
        if here in done:
            continue
        done.add(here)
        if left is not None:
            left.discard(here)
            if not left:
                break
        for there in overlay.neighbours(here):
            if there in done:
                continue
            index = overlay.link(here, there)
            leave, bound = here_at, arrival.get(there, end + 1) - overlay.links[index].delay_ns
            while leave < bound and not up(index, leave):
                leave = next_change(leave)
            if leave < bound:
                arrival[there] = leave + overlay.links[index].delay_ns
                parent[there] = here
                heapq.heappush(heap, (arrival[there], there))
    return {p: arrival[p] for p in done}, parent
