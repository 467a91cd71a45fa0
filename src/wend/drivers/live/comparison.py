"""A comparison of strategies on real sockets: each has its own overlay, and all see the same failures.

One world defines the links, their delays, the publishers and subscribers, and when each link is down. Each strategy
gets its own peers with their own sockets on loopback, and shaped links between them. Every publication is made in all
overlays at the same moment, so only the strategy can make results differ.
"""

import asyncio
import heapq
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.arrivals import ORACLE
from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.clock import Clock, SteadyClock
from wend.drivers.live.counters import Counters
from wend.drivers.live.meter import ComparisonRow, Flight, Meter, OracleMeter
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport.multicast import MulticastOptions
from wend.drivers.workload import Topic
from wend.drivers.world import World
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.publication import Publication
from wend.model.summary import Summary
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.notices import LINK_DOWN, LINK_UP, REROUTE, NoticeName
from wend.protocol.plugins import FLOODED
from wend.protocol.ports import Deliver, Notice, Receipt
from wend.strategies.registry import joins_by_contacts, membership_of, strategy_named

if TYPE_CHECKING:  # only peers with keys need ciphers, and only telemetry needs segments
    from wend.drivers.live.access.throwaway_keys import ThrowawayRoot
    from wend.drivers.live.telemetry.overlay import OverlayTelemetry

GRACE_NS: Nanos = 2 * SECOND
"""How long after its publication an event enters the metrics."""
MARGIN_NS: Nanos = 15 * MS
"""How much later timers may fire, because many peers share one event loop."""
START_SHARE = 0.5
"""The share of the warm-up in which peers are started."""
TREES_NS: Nanos = 30 * SECOND
"""How long the first publication waits for trees."""
LOOK_NS: Nanos = 100 * MS
ACTIVE = "active/"
"""Before the number of a tree, in the status of a membership that has coordinators."""
SHOWN: tuple[NoticeName, ...] = (REROUTE, LINK_DOWN, LINK_UP, "took-over")


class Incident(msgspec.Struct, frozen=True):
    """A notice of a peer about a neighbour that `wend up` shows."""

    time_ns: Nanos
    strategy: str
    peer: PeerId
    what: NoticeName
    about: PeerId


class LiveOverlay:
    """All peers of one strategy."""

    def __init__(
        self,
        world: World,
        strategy: str,
        clock: Clock,
        incidents: deque[Incident],
        root: "ThrowawayRoot | None" = None,
        telemetry: "OverlayTelemetry | None" = None,
    ) -> None:
        """`root`: peers have keys of it, and sealed links. `telemetry`: what they do is recorded."""
        self.world = world
        self.strategy = strategy
        self._clock = clock
        self.meter = Meter(world)
        self._scope = secrets.token_hex(8)  # other overlays on this machine may have groups of the same names
        self._incidents = incidents
        self._published: Flight | None = None
        self._dead: set[PeerId] = set()
        self._origin_ns: Callable[[], Nanos] = lambda: 0
        membership = membership_of(strategy, world.scenario.membership)
        self._ring = membership if membership is not None and joins_by_contacts(membership) else None
        self._root = root
        self.telemetry = telemetry
        self.peers = [self._make(peer) for peer in range(world.overlay.peers)]

    @property
    def is_sealed(self) -> bool:
        """Whether its peers have keys."""
        return self._root is not None

    def _make(self, peer: PeerId) -> LivePeer:
        config: PeerConfig = live_config(self.world, peer, self.strategy)
        counters: Counters = self.meter
        if self.telemetry is not None:
            config, counters = self.telemetry.member(config, self.meter)
        live = LivePeer(
            config,
            counters=counters,
            clock=self._clock,
            paths=WorldPaths(self.world, lambda: self._clock() - self._origin_ns()),
            multicast=MulticastOptions(self.world.scenario.multicast, scope=self._scope),
            keys=None if self._root is None else self._root.keys(peer),
        )
        live.observe(OverlayObserver(self, peer))
        return live

    def link(self, origin_ns: Callable[[], Nanos]) -> None:
        self._origin_ns = origin_ns
        if self.telemetry is not None:
            self.telemetry.open(self.peers)
        for index, link in enumerate(self.world.overlay.links):
            for direction, (here, there) in enumerate(((link.a, link.b), (link.b, link.a))):
                self.peers[here].add_peer(
                    there,
                    self.peers[there].address,
                    delay_ns=link.delay_ns,
                    loss=link.loss,
                    seed=(self.world.scenario.seed << 32) + 2 * index + direction,
                    is_up=_schedule(self.world, index, origin_ns),
                )

    def is_ready(self) -> bool:
        """Whether a peer can send an event at once: all peers have joined the ring, or use the same trees."""
        if self._ring is not None:
            return all(peer.status().plugins[self._ring].get("joined") for peer in self.peers)
        if strategy_named(self.strategy).interest == FLOODED:
            return True
        statuses = [peer.status().flat() for peer in self.peers]
        trees = {tuple(at.get(f"trees.{name}") for name in ("generation", "caller", "incarnation")) for at in statuses}
        return len(trees) == 1 and (None, None, None) not in trees

    def start(self, peer: PeerId) -> None:
        started = self.world.started(peer)
        if self._ring is not None and peer == 0:
            started = msgspec.structs.replace(started, neighbours=())  # it begins the ring, and the others join it
        self.peers[peer].start(started)
        if self.telemetry is not None:
            self.telemetry.begin(peer)

    def crash(self, peer: PeerId) -> None:
        """End a peer at once, as a kill does."""
        self._dead.add(peer)
        self.peers[peer].close()
        if self.telemetry is not None:
            self.telemetry.crash(peer)

    def coordinators(self) -> dict[str, dict[int, PeerId]]:
        """By cluster: who coordinates each tree. Empty if the strategy has no clusters."""
        coordinators: dict[str, dict[int, PeerId]] = {}
        for peer, live in enumerate(self.peers if self._ring is not None else ()):
            if peer not in self._dead:
                for name in live.status().plugins.get(self._ring or "", {}):
                    if name.startswith(ACTIVE):
                        trees = coordinators.setdefault(self.world.cluster_of(peer), {})
                        trees[int(name.removeprefix(ACTIVE))] = peer
        return coordinators

    def publish(self, topic: Topic, payload: bytes) -> None:
        self._published = Flight(self._clock(), topic)
        self.peers[topic.publisher].publish(Publication({"topic": topic.name}, payload))

    def close(self) -> None:
        for number, peer in enumerate(self.peers):
            if number not in self._dead:
                peer.close()
        if self.telemetry is not None:
            self.telemetry.close()

    def published(self, receipt: Receipt) -> None:
        assert self._published is not None
        self.meter.published(receipt.id, self._published)

    def delivered(self, peer: PeerId, effect: Deliver) -> None:
        self.meter.delivered(effect.event.id, peer, self._clock())

    def noticed(self, peer: PeerId, notice: Notice) -> None:
        if notice.what in SHOWN:
            now = self._clock()
            self._incidents.append(Incident(now, self.strategy, peer, notice.what, notice.peer))


class OverlayObserver(Observer):
    """Passes the deliveries, receipts and notices of one peer to its overlay."""

    def __init__(self, overlay: LiveOverlay, peer: PeerId) -> None:
        self._overlay = overlay
        self._peer = peer

    def published(self, receipt: Receipt) -> None:
        self._overlay.published(receipt)

    def delivered(self, effect: Deliver) -> None:
        self._overlay.delivered(self._peer, effect)

    def noticed(self, notice: Notice) -> None:
        self._overlay.noticed(self._peer, notice)


def live_config(world: World, peer: PeerId, strategy: str) -> PeerConfig:
    """The configuration of a peer of the world on real sockets: no ACK is free, and timers allow for jitter."""
    config = world.peer_config(peer, strategy=strategy)
    margin_ns = max(MARGIN_NS, config.of(LinkSettings).margin_ns)
    return config.with_(ack="round-trip", margin_ns=margin_ns)


class WorldPaths:
    """The paths that a traceroute would find in this world, whose peers are all on one machine."""

    def __init__(self, world: World, elapsed_ns: Callable[[], Nanos]) -> None:
        self._world = world
        self._elapsed_ns = elapsed_ns

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        return self._world.path(here, there, self._elapsed_ns())

    def close(self) -> None:
        pass


def _schedule(world: World, index: int, origin_ns: Callable[[], Nanos]) -> Callable[[Nanos], bool]:
    up = world.faults.up
    return lambda now: up(index, now - origin_ns())


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
        """`kill_ns`: after so long, one peer crashes in all overlays, for good. `root`: peers have keys of it.
        `telemetry`: of the first strategy's overlay."""
        if world.limited:
            raise ConfigError("capacities are simulated, not played live: leave capacity and peer_capacity out")
        self.world = world
        self.clock = SteadyClock()
        self.incidents: deque[Incident] = deque(maxlen=200)
        recorded = None if telemetry is None else telemetry(self.clock)
        self.overlays = [
            LiveOverlay(world.for_strategy(name), name, self.clock, self.incidents, root, recorded if not at else None)
            for at, name in enumerate(strategies)
        ]
        self.oracle = OracleMeter(world)
        self.origin_ns: Nanos = 0
        self.waits_for: tuple[str, ...] = ()
        """Strategies whose trees are not built yet; after the first publication, those that were not ready for it."""
        self.killed: PeerId | None = None
        self._kill_ns = kill_ns
        self._ended_ns: Nanos | None = None
        self._payload = bytes(world.scenario.payload_bytes)
        self._stopped = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def rows(self) -> dict[str, ComparisonRow]:
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
                await self._until_ready()
                await self._until(self.world.begin_ns)
                for overlay in self.overlays:
                    overlay.meter.begin()
                await self._publish_all()
                await self._until_arrived()
                self._settle(self._ended.is_set())
            finally:
                self._ended_ns = self.clock()
                for overlay in self.overlays:
                    overlay.close()

    def victim(self) -> PeerId:
        """Whom to kill: the coordinator of a cluster, or the peer with the most links; no publisher, if that can be."""
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

    def down_now(self) -> list[tuple[PeerId, PeerId]]:
        """The links that are down at this moment."""
        now = self.elapsed_ns()
        faults, links = self.world.faults, self.world.overlay.links
        return [(link.a, link.b) for i, link in enumerate(links) if not faults.up(i, now)]

    def summaries(self) -> dict[str, Summary]:
        """The results so far, over all publications that had time to arrive."""
        self._settle(True)
        publishing = max(1, self.elapsed_ns() - self.world.begin_ns)
        return {name: row.summary(publishing) for name, row in self.rows.items()}

    def describe(self) -> None:
        """Where peers wrote telemetry: say beside it what was injected and measured."""
        for overlay in self.overlays:
            if overlay.telemetry is not None:
                overlay.telemetry.describe(
                    overlay.world, self.origin_ns, overlay.strategy, self.summaries()[overlay.strategy]
                )

    def _settle(self, only_old: bool) -> None:
        before = self.clock() - (GRACE_NS if only_old else 0)
        for row in self.rows.values():
            row.settle(before)

    async def _start_all(self) -> None:
        """Start one peer after the other: hundreds that flood at once would overload the loop that they share."""
        for overlay in self.overlays:
            overlay.link(lambda: self.origin_ns)
        every = round(self.world.begin_ns * START_SHARE / (self.world.overlay.peers * len(self.overlays)))
        for peer in range(self.world.overlay.peers):
            for overlay in self.overlays:
                overlay.start(peer)
                await self._until(self.elapsed_ns() + every)

    async def _until_ready(self) -> None:
        """Wait for trees. The time of the run stops before its first publication and failure, but not for ever."""
        last, waited = self.world.begin_ns - 2 * LOOK_NS, 0
        while waited < TREES_NS and not self._stopped.is_set():
            self.waits_for = tuple(overlay.strategy for overlay in self.overlays if not overlay.is_ready())
            if not self.waits_for:
                return
            await self._until(self.elapsed_ns() + LOOK_NS)
            over = max(0, self.elapsed_ns() - last)
            self.origin_ns += over
            waited += over

    async def _publish_all(self) -> None:
        for due, topic in _publications(self.world):
            await self._until(due)
            if self._stopped.is_set():
                return
            if self._kill_ns is not None and due - self.world.begin_ns >= self._kill_ns and self.killed is None:
                self.kill(self.victim())
            if topic.publisher == self.killed:
                continue
            if self.killed in topic.subscribers:
                living = tuple(peer for peer in topic.subscribers if peer != self.killed)
                topic = msgspec.structs.replace(topic, subscribers=living)
            self.oracle.published(Flight(self.clock(), topic), self.elapsed_ns())
            for overlay in self.overlays:
                overlay.publish(topic, self._payload)

    async def _until_arrived(self) -> None:
        """Wait for events in transit as long as they may take; after `stop`, until all have arrived at the latest."""
        until = self.elapsed_ns() + GRACE_NS
        while self.elapsed_ns() < until and not (self._stopped.is_set() and self._are_complete()):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_NS / SECOND):
                    await self._ended.wait()
                    return

    def _are_complete(self) -> bool:
        return all(row.is_complete() for row in self.rows.values())

    async def _until(self, moment_ns: Nanos) -> None:
        """Sleep until a moment of the run, or until `stop`. The clock may be slower than sleep."""
        while (wait := moment_ns - self.elapsed_ns()) > 0 and not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(wait / SECOND):
                    await self._stopped.wait()


def _publications(world: World) -> Iterator[tuple[Nanos, Topic]]:
    """All topics' publications in order of time."""
    due = [zip(topic.moments(world.begin_ns, world.stop_ns), repeat(n)) for n, topic in enumerate(world.topics)]
    for moment, number in heapq.merge(*due):
        yield moment, world.topics[number]
