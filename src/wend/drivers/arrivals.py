"""Earliest arrivals: the best possible delivery, with knowledge of every past and future failure.

A packet uses links that are up when it is sent. A peer may hold a packet until a link is up again, so the result is an
upper bound on delivery. A peer that crashes loses the packets that it holds; with persistence it keeps them. The
simulator runs this as ORACLE; live overlays and the lab are compared with it.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from wend.drivers.world import World
from wend.model.events import PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.config import DeliverySettings

ORACLE = "oracle"
"""Its name in the list of strategies."""
Holder = tuple[PeerId, int]
"""A peer in one of its incarnations, counted from 0."""


class Arrivals(msgspec.Struct, frozen=True):
    """When each peer gets a packet first, and over which peers."""

    times: dict[PeerId, Nanos]
    holders: dict[PeerId, Holder]
    """By peer: its incarnation that gets the packet first."""
    parents: dict[Holder, Holder]

    def holders_before(self, peer: PeerId) -> Iterator[Holder]:
        """The holders on the way to a peer, the last one first, without the publisher."""
        hop = self.holders[peer]
        while hop in self.parents:
            parent = self.parents[hop]
            if parent[0] != hop[0]:  # else the peer kept the packet over a crash
                yield hop
            hop = parent


def find_earliest_arrivals(
    world: World, publisher: PeerId, now: Nanos, subscribers: set[PeerId] | None = None
) -> Arrivals:
    """The earliest arrivals of a packet that is published now: at all peers, or at least at the subscribers."""
    search = _ArrivalSearch(world)
    for number, (start, crash) in enumerate(world.incarnations[publisher]):
        if start <= now < crash:
            search.record_arrival((publisher, number), now, None)
    return search.run(subscribers)


class _ArrivalSearch:
    """A search from holder to holder in the order of time (Dijkstra's)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._keeps_packets = world.scenario.of(DeliverySettings).persistence
        self._arrival: dict[Holder, Nanos] = {}
        self._parents: dict[Holder, Holder] = {}
        self._heap: list[tuple[Nanos, Holder, bool]] = []
        """When a holder sends the packet, and whether it does so again because a neighbour has restarted."""

    def record_arrival(self, holder: Holder, time: Nanos, parent: Holder | None) -> None:
        """Record that a holder gets the packet, earlier than by any other route so far."""
        self._arrival[holder] = time
        if parent is not None:
            self._parents[holder] = parent
        heapq.heappush(self._heap, (time, holder, False))

    def run(self, subscribers: set[PeerId] | None) -> Arrivals:
        """Search until every subscriber has the packet, or every peer that can get it."""
        times: dict[PeerId, Nanos] = {}
        holders: dict[PeerId, Holder] = {}
        missing = None if subscribers is None else set(subscribers)
        while self._heap:
            now, holder, is_again = heapq.heappop(self._heap)
            if now > self._arrival[holder] and not is_again:
                continue
            peer = holder[0]
            if peer not in times:
                times[peer], holders[peer] = now, holder
                if missing is not None:
                    missing.discard(peer)
                    if not missing:
                        break
            self._send(now, holder)
        return Arrivals(times, holders, self._parents)

    def _send(self, now: Nanos, holder: Holder) -> None:
        """Send the packet to all neighbours, to each as soon as possible, and again when one restarts."""
        world, arrival, incarnations = self._world, self._arrival, self._world.incarnations
        up, next_change, overlay, never = world.faults.is_up, world.faults.next_change, world.overlay, world.end_ns + 1
        peer, number = holder
        again = crash = min(incarnations[peer][number][1], never)
        for there in overlay.neighbours(peer):
            index = overlay.link(peer, there)
            delay = overlay.links[index].delay_ns
            runs = incarnations[there]
            latest = len(runs) - 1 if runs[-1][0] <= now + delay else bisect_right(runs, (now + delay, FOREVER)) - 1
            other = there, latest
            leave, bound = now, min(crash, min(arrival.get(other, never), runs[latest][1]) - delay)
            while leave < bound and not up(index, leave):
                leave = next_change(leave)
            if leave < bound:
                self.record_arrival(other, leave + delay, holder)
            if latest + 1 < len(runs):
                again = min(again, runs[latest + 1][0] - delay)
        if again < crash:
            heapq.heappush(self._heap, (again, holder, True))
        if self._keeps_packets and number + 1 < len(incarnations[peer]):
            start = incarnations[peer][number + 1][0]
            if start < arrival.get((peer, number + 1), never):
                self.record_arrival((peer, number + 1), start, holder)


def find_best_deliveries(
    world: World, publisher: PeerId, now: Nanos, subscribers: Sequence[PeerId], longest_ns: Nanos = FOREVER
) -> tuple[dict[PeerId, Nanos], int, int]:
    """The smallest delay to every subscriber that an event can reach in time, and the packets that this needs: with one
    copy for all subscribers behind a link, and with one for each."""
    arrivals = find_earliest_arrivals(world, publisher, now, set(subscribers))
    delays = {peer: arrivals.times[peer] - now for peer in subscribers if peer in arrivals.times}
    delays = {peer: delay for peer, delay in delays.items() if delay <= longest_ns}
    hops = [hop for peer in delays for hop in arrivals.holders_before(peer)]
    return delays, len(set(hops)), len(hops)
