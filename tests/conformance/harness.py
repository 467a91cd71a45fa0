"""The interface between the conformance suite and a driver, and two drivers: virtual time and real sockets, the latter
without keys and with.

The suite uses this interface alone, so a test that passes on one must pass on the other.
"""

import asyncio
import heapq
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import msgspec

from tests.security.roots import Laboratory
from wend.drivers.live.clock import SteadyClock
from wend.drivers.live.counters import Counters
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.store.store import Store
from wend.drivers.live.transport.multicast import MulticastOptions
from wend.matching.filters import topic_filter
from wend.model.events import PeerId, Qos
from wend.model.publication import Publication
from wend.model.units import MS, SECOND, Nanos
from wend.protocol import ports
from wend.protocol.config import PeerConfig
from wend.protocol.messages import HELLOS, Data, Fragment, Message
from wend.protocol.peer import Peer
from wend.protocol.plugins import Plugin
from wend.protocol.ports import (
    Deliver,
    Effect,
    Input,
    LocalSubscription,
    Neighbour,
    Receipt,
    Received,
    Send,
    SendEach,
    Started,
    Stopping,
    Subscribed,
    Unsubscribed,
    WakeAt,
    Woken,
)
from wend.protocol.records import Record
from wend.security.identity import Credentials, Verifier
from wend.strategies.registry import make_peer

DELAY_NS: Nanos = 10 * MS
PATIENCE_S = 60
QUIET_S = 0.4
QUIET_TRIES = 4
LIVE_QUIET_NS: Nanos = 150 * MS
"""Longer than a link's timeout and than any delay of control."""
LIVE_PATIENCE_NS: Nanos = 800 * MS
LOOK_S = 0.02

Links = list[tuple[PeerId, PeerId]]


class Got(msgspec.Struct, frozen=True):
    """One delivery."""

    peer: PeerId
    subscription: int
    payload: bytes
    late: bool


class Harness(Protocol):
    got: list[Got]

    async def __aenter__(self) -> "Harness": ...

    async def __aexit__(self, *_: object) -> None: ...

    def tell(self, peer: PeerId, event: Input) -> Receipt | None: ...

    def cut(self, a: PeerId, b: PeerId) -> None: ...

    def heal(self, a: PeerId, b: PeerId) -> None: ...

    def link(self, a: PeerId, b: PeerId) -> None:
        """Make a link while both peers run."""
        ...

    def unlink(self, a: PeerId, b: PeerId) -> None: ...

    def crash(self, peer: PeerId) -> None: ...

    def restart(self, peer: PeerId) -> None:
        """Comes back with what it stored and subscribed to, as a new incarnation."""
        ...

    def plugin(self, peer: PeerId, name: str) -> Plugin:
        """A plug-in of a peer, to look at."""
        ...

    def unfinished(self, peer: PeerId) -> bool:
        """Whether it has received some fragments of an event, and not all."""
        ...

    async def until(self, what: Callable[[], bool]) -> None: ...

    async def quiet(self) -> None:
        """Until no event has moved for a while; not forever, since a stored event is tried again and again."""
        ...

    async def ages_tell(self) -> None:
        """Until peers have run for longer than the age of an event may be wrong. Without persistence a peer drops what
        seems to be older than itself, because it may have delivered it before."""
        ...


class Common:
    """The half that both share: it records links, subscriptions, deliveries and fragments."""

    def __init__(self, links: Links, strategy: str, persistence: bool, membership: str | None) -> None:
        self.links = links
        self.strategy = strategy
        self.membership = membership
        self.persistence = persistence
        self.ids = sorted({peer for link in links for peer in link})
        self.got: list[Got] = []
        self.subscriptions: dict[PeerId, dict[int, LocalSubscription]] = {peer: {} for peer in self.ids}
        self.incarnations = dict.fromkeys(self.ids, 0)
        self.blocks = 0
        """How many blocks of coded events have arrived."""
        self._missing: dict[PeerId, dict[int, set[int]]] = {peer: {} for peer in self.ids}

    def neighbours(self, peer: PeerId) -> list[PeerId]:
        return sorted({b for a, b in self.links if a == peer} | {a for a, b in self.links if b == peer})

    def config(self, peer: PeerId, incarnation: int) -> PeerConfig:
        return PeerConfig(
            peer=peer,
            incarnation=incarnation,
            strategy=self.strategy,
            membership=self.membership,
            persistence=self.persistence,
            estimator="nominal",
            margin_ns=20 * MS,
            coding="1/2",
        )

    def started(self, peer: PeerId, stored: tuple[Record, ...]) -> Started:
        neighbours = tuple(Neighbour(n, DELAY_NS) for n in self.neighbours(peer))
        return Started(neighbours, tuple(self.subscriptions[peer].values()), (), stored)

    def note(self, peer: PeerId, effect: Deliver) -> None:
        late = effect.deadline_ns is not None and effect.age_ns > effect.deadline_ns
        self.got.append(Got(peer, effect.subscription.number, effect.event.payload, late))

    def remember(self, peer: PeerId, event: Input) -> None:
        if isinstance(event, Received):
            if isinstance(fragment := event.message, Fragment):
                left = self._missing[peer].setdefault(fragment.number, set(range(fragment.count)))
                left.discard(fragment.index)
            elif isinstance(data := event.message, Data) and data.event.block is not None:
                self.blocks += 1
        elif isinstance(event, Started):
            self._missing[peer].clear()
        elif isinstance(event, Subscribed):
            self.subscriptions[peer][event.subscription.number] = event.subscription
        elif isinstance(event, Unsubscribed):
            self.subscriptions[peer].pop(event.number, None)

    def unfinished(self, peer: PeerId) -> bool:
        return any(self._missing[peer].values())


class SimHarness(Common):
    """A heap and a virtual clock around bare peers."""

    def __init__(
        self, links: Links, strategy: str, persistence: bool, folder: Path, membership: str | None = None
    ) -> None:
        super().__init__(links, strategy, persistence, membership)
        self.groups: dict[str, set[PeerId]] = {}
        self.now: Nanos = 0
        self.peers: dict[PeerId, Peer | None] = {}
        self.stores: dict[PeerId, list[Record]] = {peer: [] for peer in self.ids}
        self.down: set[frozenset[PeerId]] = set()
        self.moved: Nanos = 0
        self._heap: list[tuple[Nanos, int, int, PeerId, Input]] = []
        self._count = 0

    async def __aenter__(self) -> "SimHarness":
        for peer in self.ids:
            self.restart(peer)
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def restart(self, peer: PeerId) -> None:
        self.incarnations[peer] += 1
        self.peers[peer] = make_peer(self.config(peer, self.incarnations[peer]))
        self.tell(peer, self.started(peer, tuple(self.stores[peer])))

    def crash(self, peer: PeerId) -> None:
        self.peers[peer] = None
        for members in self.groups.values():
            members.discard(peer)

    def plugin(self, peer: PeerId, name: str) -> Plugin:
        found = self.peers[peer]
        assert found is not None
        return found.plugins[name]

    def cut(self, a: PeerId, b: PeerId) -> None:
        self.down.add(frozenset((a, b)))

    def heal(self, a: PeerId, b: PeerId) -> None:
        self.down.discard(frozenset((a, b)))

    def link(self, a: PeerId, b: PeerId) -> None:
        for one, other in ((a, b), (b, a)):
            self.tell(one, ports.LinkAdded(Neighbour(other, DELAY_NS)))

    def unlink(self, a: PeerId, b: PeerId) -> None:
        for one, other in ((a, b), (b, a)):
            self.tell(one, ports.LinkRemoved(other))

    def tell(self, peer: PeerId, event: Input) -> Receipt | None:
        self.remember(peer, event)
        target = self.peers[peer]
        assert target is not None
        receipt = None
        for effect in target.handle(self.now, event):
            match effect:
                case Send(receiver, message):
                    self._send(peer, (receiver,), message)
                case SendEach(receivers, message):
                    self._send(peer, receivers, message)
                case WakeAt(time):
                    self._push(time, 1, peer, Woken())
                case Deliver():
                    self.note(peer, effect)
                case Receipt():
                    receipt = effect
                case ports.Persist(record):
                    self.stores[peer].append(record)
                case ports.JoinMulticast(group):
                    self.groups.setdefault(group, set()).add(peer)
                case ports.LeaveMulticast(group):
                    self.groups[group].discard(peer)
                case ports.Multicast(group, message):
                    self._send(peer, tuple(sorted(self.groups.get(group, set()) - {peer})), message)
        return receipt

    def _send(self, peer: PeerId, receivers: tuple[PeerId, ...], message: Message) -> None:
        if isinstance(message, Data | Fragment):
            self.moved = self.now
        for receiver in receivers:
            if frozenset((peer, receiver)) not in self.down:
                self._push(self.now + DELAY_NS, 0, receiver, Received(peer, message))

    def _push(self, time: Nanos, kind: int, peer: PeerId, event: Input) -> None:
        self._count += 1
        heapq.heappush(self._heap, (time, kind, self._count, peer, event))

    def _step(self) -> None:
        self.now, _, _, peer, event = heapq.heappop(self._heap)
        if self.peers.get(peer) is not None:
            self.tell(peer, event)

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.now + round(seconds * SECOND)
        while self._heap and self._heap[0][0] < until:
            self._step()

    async def until(self, what: Callable[[], bool]) -> None:
        give_up = self.now + PATIENCE_S * SECOND
        while not what():
            assert self._heap and self.now < give_up, "it never came true"
            self._step()

    async def quiet(self) -> None:
        while_ns = round(QUIET_S * SECOND)
        first, last = self.now + while_ns, self.now + QUIET_TRIES * while_ns
        while self._heap and self._heap[0][0] < min(last, max(first, self.moved + while_ns)):
            self._step()

    async def ages_tell(self) -> None:
        """Ages are exact here."""


class LiveHarness(Common):
    """Peers on loopback sockets, with shaped links and stores in files."""

    def __init__(
        self, links: Links, strategy: str, persistence: bool, folder: Path, membership: str | None = None
    ) -> None:
        super().__init__(links, strategy, persistence, membership)
        self._scope = str(folder)
        self.folder = folder
        self.clock = SteadyClock()
        self.peers: dict[PeerId, LivePeer] = {}
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "LiveHarness":
        await self.clock.__aenter__()
        for peer in self.ids:
            self._make(peer)
        for peer in self.ids:
            self._start(peer)
        return self

    async def __aexit__(self, *_: object) -> None:
        for peer in self.peers.values():
            peer.close()
        await self.clock.__aexit__()
        assert not any(peer.counters.failed for peer in self.peers.values())

    def _make(self, peer: PeerId) -> None:
        store = Store(self.folder / f"{peer}.store")
        listen = self.peers[peer].address if peer in self.peers else ("127.0.0.1", 0)
        self._stored = getattr(self, "_stored", {}) | {peer: store.records}
        remember = partial(self.remember, peer)

        class RememberingPeer(Peer):
            def handle(self, now: Nanos, event: Input) -> list[Effect]:
                remember(event)
                return super().handle(now, event)

        with patch("wend.strategies.registry.Peer", RememberingPeer):
            self.peers[peer] = LivePeer(
                self.config(peer, store.incarnation),
                listen=listen,
                store=store,
                clock=self.clock,
                multicast=MulticastOptions(scope=self._scope),
                keys=self.keys(peer),
            )
        self.peers[peer].observe(DeliveryObserver(self, peer))

    def keys(self, peer: PeerId) -> tuple[Credentials, Verifier] | None:
        return None

    def _start(self, peer: PeerId) -> None:
        for neighbour in self.neighbours(peer):
            self.peers[peer].add_peer(neighbour, self.peers[neighbour].address, delay_ns=DELAY_NS)
        self.peers[peer].start(self.started(peer, self._stored[peer]))

    def restart(self, peer: PeerId) -> None:
        self._make(peer)
        self._start(peer)

    def crash(self, peer: PeerId) -> None:
        self.peers[peer].close()

    def plugin(self, peer: PeerId, name: str) -> Plugin:
        return self.peers[peer].peer.plugins[name]

    def cut(self, a: PeerId, b: PeerId) -> None:
        self.peers[a].pipes.cut(b)
        self.peers[b].pipes.cut(a)

    def heal(self, a: PeerId, b: PeerId) -> None:
        self.peers[a].pipes.heal(b)
        self.peers[b].pipes.heal(a)

    def link(self, a: PeerId, b: PeerId) -> None:
        for one, other in ((a, b), (b, a)):
            self.peers[one].add_peer(other, self.peers[other].address, delay_ns=DELAY_NS)
            self.peers[one].link(Neighbour(other, DELAY_NS))

    def unlink(self, a: PeerId, b: PeerId) -> None:
        for one, other in ((a, b), (b, a)):
            self.peers[one].unlink(other)

    def tell(self, peer: PeerId, event: Input) -> Receipt | None:
        if isinstance(event, Publication):
            return self.peers[peer].publish(event)
        self.peers[peer].ask(event)
        return None

    def delivered(self, peer: PeerId, effect: Deliver) -> None:
        self.note(peer, effect)
        self._changed.set()

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not what():
                # Not everything that may come true is announced, so look now and then as well.
                self._changed.clear()
                try:
                    async with asyncio.timeout(0.02):
                        await self._changed.wait()
                except TimeoutError:
                    pass

    async def quiet(self) -> None:
        """An observation, not a guess: for a while no packet but probes was sent, in flight or unanswered."""
        before, quiet_since = -1, self.clock()
        give_up = self.clock() + LIVE_PATIENCE_NS
        while self.clock() < min(give_up, quiet_since + LIVE_QUIET_NS):
            now = sum(_packets(peer.counters) for peer in self.peers.values())
            busy = any(p.pipes.in_flight() or p.peer.status().in_flight for p in self.peers.values())
            if now != before or busy:
                quiet_since = self.clock()
            before = now
            await asyncio.sleep(LOOK_S)

    async def ages_tell(self) -> None:
        """A busy host makes ages wrong by the time for which it did not read: it has to be idle for a moment."""
        await self.quiet()


class SealedHarness(LiveHarness):
    """The same with keys."""

    laboratory = Laboratory()

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        assert all(peer.counters.notices["session"] for peer in self.peers.values())

    def keys(self, peer: PeerId) -> tuple[Credentials, Verifier]:
        return self.laboratory.keys(peer)


def _packets(counters: Counters) -> int:
    return counters.data + counters.control.total() - counters.control[HELLOS]


class DeliveryObserver(Observer):
    def __init__(self, harness: LiveHarness, peer: PeerId) -> None:
        self._harness = harness
        self._peer = peer

    def on_delivered(self, effect: Deliver) -> None:
        self._harness.delivered(self._peer, effect)


def subscribed(number: int, topic: str, deadline_ns: Nanos | None = None) -> Subscribed:
    return Subscribed(LocalSubscription(number, topic_filter(topic), Qos(deadline_ns=deadline_ns)))


def published(topic: str, payload: bytes = b"") -> Publication:
    return Publication({"topic": topic}, payload)


HARNESSES: dict[str, Any] = {"sim": SimHarness, "live": LiveHarness, "sealed": SealedHarness}
LIVE = ("live", "sealed")
__all__ = ["HARNESSES", "LIVE", "Got", "Harness", "Stopping", "published", "subscribed"]
