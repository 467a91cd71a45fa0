"""A comparison of strategies on real sockets: each has its own overlay, and all see the same failures.

One world defines the links, their delays, the publishers and subscribers, and when each link is down. Each strategy
gets its own peers with their own sockets on loopback, and shaped links between them. Every event is published in all
overlays at the same moment, so results can differ only by the strategy.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.arrivals import ORACLE
from wend.drivers.live.clock import Clock, SteadyClock
from wend.drivers.live.comparison.meter import Meter, OracleMeter, TrackedPublication
from wend.drivers.live.comparison.overlay import Incident, LiveOverlay
from wend.drivers.workload import Topic
from wend.drivers.world import World
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.summary import Summary
from wend.model.units import MS, SECOND, Nanos

if TYPE_CHECKING:  # only peers with keys need ciphers, and only telemetry needs segments
    from wend.drivers.live.access.throwaway_keys import ThrowawayRoot
    from wend.drivers.live.comparison.telemetry import OverlayTelemetry

GRACE_NS: Nanos = 2 * SECOND
"""How long after its publication an event enters the metrics."""
START_SHARE = 0.5
"""The share of the warm-up in which peers are started."""
TREES_NS: Nanos = 30 * SECOND
"""The longest time that the first publication waits for trees."""
LOOK_NS: Nanos = 100 * MS


class Comparison:
    """Runs until its world stops publishing, or until `stop`."""

    def __init__(
        self,
        world: World,
        strategies: tuple[str, ...],
        kill_ns: Nanos | None = None,
        root: "ThrowawayRoot | None" = None,
        telemetry: "Callable[[Clock], OverlayTelemetry] | None" = None,
    ) -> None:
        """`kill_ns`: when one peer crashes in all overlays. `root`: signs the keys of peers. `telemetry`: records the
        overlay of the first strategy."""
        if world.has_capacities:
            raise ConfigError("capacities are simulated, not played live: leave capacity and peer_capacity out")
        self.world = world
        self.clock = SteadyClock()
        self.incidents: deque[Incident] = deque(maxlen=200)
        recorders = None if telemetry is None else telemetry(self.clock)
        self.overlays = [
            LiveOverlay(world.for_strategy(name), name, self.clock, self.incidents, root, recorders if not at else None)
            for at, name in enumerate(strategies)
        ]
        self.oracle = OracleMeter(world)
        self.origin_ns: Nanos = 0
        self.waits_for: tuple[str, ...] = ()
        """The strategies whose trees are not built yet; after the first publication, those that were not ready for
        it."""
        self.killed: PeerId | None = None
        self._kill_ns = kill_ns
        self._ended_ns: Nanos | None = None
        self._payload = bytes(world.scenario.payload_bytes)
        self._stopped = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def meters(self) -> dict[str, Meter | OracleMeter]:
        return {**{overlay.strategy: overlay.meter for overlay in self.overlays}, ORACLE: self.oracle}

    def elapsed_ns(self) -> Nanos:
        return (self._ended_ns or self.clock()) - self.origin_ns

    def stop(self) -> None:
        """Stop publishing, wait for events in transit, and end. The second call ends at once: then events in transit
        are not in the metrics."""
        if self._stopped.is_set():
            self._ended.set()
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    async def run(self) -> None:
        async with self.clock:
            self.origin_ns = self.clock()
            try:
                await self._start_all()
                await self._wait_until_ready()
                await self._sleep_until(self.world.begin_ns)
                for overlay in self.overlays:
                    overlay.meter.begin()
                await self._publish_all()
                await self._wait_until_arrived()
                self._settle(self._ended.is_set())
            finally:
                self._ended_ns = self.clock()
                for overlay in self.overlays:
                    overlay.close()

    def choose_victim(self) -> PeerId:
        """The peer to kill: the coordinator of a cluster, or the peer with the most links; a publisher only if all
        are."""
        publishers = {topic.publisher for topic in self.world.topics}
        coordinators = [
            peer for overlay in self.overlays for trees in overlay.coordinators().values() for peer in trees.values()
        ]
        linked = sorted(range(self.world.overlay.peers), key=lambda peer: -len(self.world.overlay.neighbours(peer)))
        candidates = [*coordinators, *([] if coordinators else linked)]
        return next((peer for peer in candidates if peer not in publishers), candidates[0])

    def kill(self, peer: PeerId) -> None:
        """Crash a peer in all overlays. From now on, nobody expects events of it or for it."""
        self.killed = peer
        for overlay in self.overlays:
            overlay.crash(peer)

    def down_links(self) -> list[tuple[PeerId, PeerId]]:
        """The links that are down at this moment."""
        now = self.elapsed_ns()
        faults, links = self.world.faults, self.world.overlay.links
        return [(link.a, link.b) for i, link in enumerate(links) if not faults.is_up(i, now)]

    def summaries(self) -> dict[str, Summary]:
        """The results so far, over all publications that had time to arrive."""
        self._settle(True)
        publishing = max(1, self.elapsed_ns() - self.world.begin_ns)
        return {name: row.summary(publishing) for name, row in self.meters.items()}

    def write_description(self) -> None:
        """Write beside the telemetry of peers what was injected and measured."""
        for overlay in self.overlays:
            if overlay.telemetry is not None:
                overlay.telemetry.write_run_file(
                    overlay.world, self.origin_ns, overlay.strategy, self.summaries()[overlay.strategy]
                )

    def _settle(self, only_old: bool) -> None:
        before = self.clock() - (GRACE_NS if only_old else 0)
        for row in self.meters.values():
            row.settle(before)

    async def _start_all(self) -> None:
        """Start one peer after the other: hundreds that flood at once would overload the loop that they share."""
        for overlay in self.overlays:
            overlay.link_peers(lambda: self.origin_ns)
        every = round(self.world.begin_ns * START_SHARE / (self.world.overlay.peers * len(self.overlays)))
        for peer in range(self.world.overlay.peers):
            for overlay in self.overlays:
                overlay.start(peer)
                await self._sleep_until(self.elapsed_ns() + every)

    async def _wait_until_ready(self) -> None:
        """Wait for trees, for `TREES_NS` at most. Meanwhile the time of the run stands still, before its first
        publication and failure."""
        last, waited_ns = self.world.begin_ns - 2 * LOOK_NS, 0
        while waited_ns < TREES_NS and not self._stopped.is_set():
            self.waits_for = tuple(overlay.strategy for overlay in self.overlays if not overlay.is_ready())
            if not self.waits_for:
                return
            await self._sleep_until(self.elapsed_ns() + LOOK_NS)
            over = max(0, self.elapsed_ns() - last)
            self.origin_ns += over
            waited_ns += over

    async def _publish_all(self) -> None:
        for due, topic in _publications(self.world):
            await self._sleep_until(due)
            if self._stopped.is_set():
                return
            if self._kill_ns is not None and due - self.world.begin_ns >= self._kill_ns and self.killed is None:
                self.kill(self.choose_victim())
            if topic.publisher == self.killed:
                continue
            if self.killed in topic.subscribers:
                living = tuple(peer for peer in topic.subscribers if peer != self.killed)
                topic = msgspec.structs.replace(topic, subscribers=living)
            self.oracle.on_published(TrackedPublication(self.clock(), topic), self.elapsed_ns())
            for overlay in self.overlays:
                overlay.publish(topic, self._payload)

    async def _wait_until_arrived(self) -> None:
        """Wait for events in transit for as long as they may take; after `stop`, only until all have arrived."""
        until = self.elapsed_ns() + GRACE_NS
        while self.elapsed_ns() < until and not (self._stopped.is_set() and self._are_complete()):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_NS / SECOND):
                    await self._ended.wait()
                    return

    def _are_complete(self) -> bool:
        return all(row.is_complete() for row in self.meters.values())

    async def _sleep_until(self, moment_ns: Nanos) -> None:
        """Sleep until a moment of the run, or until `stop`. The clock may be slower than the time of sleep."""
        while (wait := moment_ns - self.elapsed_ns()) > 0 and not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(wait / SECOND):
                    await self._stopped.wait()


def _publications(world: World) -> Iterator[tuple[Nanos, Topic]]:
    """The publications of all topics in order of time."""
    due = [
        zip(topic.publication_times(world.begin_ns, world.stop_ns), repeat(n)) for n, topic in enumerate(world.topics)
    ]
    for moment, number in heapq.merge(*due):
        yield moment, world.topics[number]
