"""One overlay of a comparison: all peers of one strategy, on loopback sockets with shaped links between them."""

import secrets
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.clock import Clock
from wend.drivers.live.comparison.meter import Meter, TrackedPublication
from wend.drivers.live.counters import Counters
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.transport.multicast import MulticastOptions
from wend.drivers.workload import Topic
from wend.drivers.world import World
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.publication import Publication
from wend.model.units import MS, Nanos
from wend.protocol.config import LinkSettings, PeerConfig
from wend.protocol.notices import LINK_DOWN, LINK_UP, REROUTE, NoticeName
from wend.protocol.plugins import FLOODED
from wend.protocol.ports import Deliver, Notice, Receipt
from wend.strategies.registry import find_membership, joins_by_contacts, strategy_named

if TYPE_CHECKING:  # only peers with keys need ciphers, and only telemetry needs segments
    from wend.drivers.live.access.throwaway_keys import ThrowawayRoot
    from wend.drivers.live.comparison.telemetry import OverlayTelemetry

MARGIN_NS: Nanos = 15 * MS
"""How much later timers may fire, because many peers share one event loop."""
ACTIVE = "active/"
"""Before the number of a tree, in the status of a membership that has coordinators."""
SHOWN: tuple[NoticeName, ...] = (REROUTE, LINK_DOWN, LINK_UP, "took-over")


class Incident(msgspec.Struct, frozen=True):
    """A notice of a peer about another one that `wend up` shows."""

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
        """`root`: signs keys of the peers, whose links are sealed then. `telemetry`: records the peers."""
        self.world = world
        self.strategy = strategy
        self._clock = clock
        self.meter = Meter(world)
        self._scope = secrets.token_hex(8)  # other overlays on this machine may have groups with the same names
        self._incidents = incidents
        self.flight: TrackedPublication
        """The newest publication."""
        self._dead: set[PeerId] = set()
        self._origin_ns: Callable[[], Nanos] = lambda: 0
        membership = find_membership(strategy, world.scenario.membership)
        self._ring = membership if membership is not None and joins_by_contacts(membership) else None
        self._root = root
        self.telemetry = telemetry
        self.peers = [self._make_peer(peer) for peer in range(world.overlay.peers)]

    @property
    def is_sealed(self) -> bool:
        """Whether its peers have keys."""
        return self._root is not None

    def _make_peer(self, peer: PeerId) -> LivePeer:
        config: PeerConfig = make_live_config(self.world, peer, self.strategy)
        counters: Counters = self.meter
        if self.telemetry is not None:
            config, counters = self.telemetry.prepare_member(config, self.meter)
        live = LivePeer(
            config,
            counters=counters,
            clock=self._clock,
            paths=WorldPaths(self.world, lambda: self._clock() - self._origin_ns()),
            multicast=MulticastOptions(self.world.scenario.multicast, scope=self._scope),
            keys=None if self._root is None else self._root.issue_to_peer(peer),
        )
        live.observe(MeterObserver(self, peer, self._clock, self._incidents))
        return live

    def link_peers(self, origin_ns: Callable[[], Nanos]) -> None:
        self._origin_ns = origin_ns
        if self.telemetry is not None:
            self.telemetry.observe(self.peers)
        for index, link in enumerate(self.world.overlay.links):
            for direction, (here, there) in enumerate(((link.a, link.b), (link.b, link.a))):
                self.peers[here].add_peer(
                    there,
                    self.peers[there].address,
                    delay_ns=link.delay_ns,
                    loss=link.loss,
                    seed=(self.world.scenario.seed << 32) + 2 * index + direction,
                    is_up=_link_schedule(self.world, index, origin_ns),
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
        started = self.world.make_start_input(peer)
        if self._ring is not None and peer == 0:
            started = msgspec.structs.replace(started, neighbours=())  # it begins the ring that the others join
        self.peers[peer].start(started)
        if self.telemetry is not None:
            self.telemetry.begin(peer)

    def crash(self, peer: PeerId) -> None:
        """End a peer at once."""
        self._dead.add(peer)
        self.peers[peer].close()
        if self.telemetry is not None:
            self.telemetry.crash(peer)

    def coordinators(self) -> dict[str, dict[int, PeerId]]:
        """By cluster and tree: the coordinator. Empty if the strategy has no clusters."""
        coordinators: dict[str, dict[int, PeerId]] = {}
        for peer, live in enumerate(self.peers if self._ring is not None else ()):
            if peer not in self._dead:
                for name in live.status().plugins.get(self._ring or "", {}):
                    if name.startswith(ACTIVE):
                        trees = coordinators.setdefault(self.world.cluster_name(peer), {})
                        trees[int(name.removeprefix(ACTIVE))] = peer
        return coordinators

    def publish(self, topic: Topic, payload: bytes) -> None:
        self.flight = TrackedPublication(self._clock(), topic)
        self.peers[topic.publisher].publish(Publication({"topic": topic.name}, payload))

    def close(self) -> None:
        for number, peer in enumerate(self.peers):
            if number not in self._dead:
                peer.close()
        if self.telemetry is not None:
            self.telemetry.close()


class MeterObserver(Observer):
    """Tells the meter of an overlay what one peer published and got, and notes its incidents."""

    def __init__(self, overlay: LiveOverlay, peer: PeerId, clock: Clock, incidents: deque[Incident]) -> None:
        self._overlay = overlay
        self._peer = peer
        self._clock = clock
        self._incidents = incidents

    def on_published(self, receipt: Receipt) -> None:
        self._overlay.meter.on_published(receipt.id, self._overlay.flight)

    def on_delivered(self, effect: Deliver) -> None:
        self._overlay.meter.on_delivered(effect.event.id, self._peer, self._clock())

    def on_notice(self, notice: Notice) -> None:
        if notice.what in SHOWN:
            incident = Incident(self._clock(), self._overlay.strategy, self._peer, notice.what, notice.peer)
            self._incidents.append(incident)


def make_live_config(world: World, peer: PeerId, strategy: str) -> PeerConfig:
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
        path = self._world.find_path(here, there, self._elapsed_ns())
        return None if path is None else self._world.complete_path(here, there, path)

    def close(self) -> None:
        pass


def _link_schedule(world: World, index: int, origin_ns: Callable[[], Nanos]) -> Callable[[Nanos], bool]:
    up = world.faults.is_up
    return lambda now: up(index, now - origin_ns())
