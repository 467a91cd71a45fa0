"""Earliest arrivals: the best possible delivery, with knowledge of every past and future failure.

A packet uses links that are up when it is sent. A peer may hold a packet until a link is up again, so the result is an
upper bound on delivery. The simulator runs this as ORACLE; live overlays and the lab are compared with it.
"""

import heapq
from collections.abc import Sequence

from wend.drivers.world import World
from wend.model.events import PeerId
from wend.model.units import FOREVER, Nanos

ORACLE = "oracle"
"""Its name in the list of strategies."""


def earliest_arrivals(
    world: World, publisher: PeerId, now: Nanos, subscribers: set[PeerId] | None = None
) -> tuple[dict[PeerId, Nanos], dict[PeerId, PeerId]]:
    """The arrival time and the parent of each peer for a packet that is published now: of all peers, or at least of the
    subscribers."""
    up, next_change, end = world.faults.is_up, world.faults.next_change, world.end_ns
    overlay = world.overlay
    arrival: dict[PeerId, Nanos] = {publisher: now}
    parent: dict[PeerId, PeerId] = {}
    done: set[PeerId] = set()
    left = None if subscribers is None else set(subscribers)
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


def best_deliveries(
    world: World, publisher: PeerId, now: Nanos, subscribers: Sequence[PeerId], longest_ns: Nanos = FOREVER
) -> tuple[dict[PeerId, Nanos], int, int]:
    """The smallest delay to every subscriber that an event can reach in time, and the packets that this needs: with one
    copy for all subscribers behind a link, and with one for each."""
    arrival, parent = earliest_arrivals(world, publisher, now, set(subscribers))
    delays = {peer: arrival[peer] - now for peer in subscribers if peer in arrival}
    delays = {peer: delay for peer, delay in delays.items() if delay <= longest_ns}
    hops: list[PeerId] = []
    for hop in delays:
        while hop != publisher:
            hops.append(hop)
            hop = parent[hop]
    return delays, len(set(hops)), len(hops)
