"""A simulated client of a durable subscription.

A client connects, subscribes, reads at its own pace, and confirms what it has read, sometimes not. It loses its
connection, crashes and comes back; the peer may notice that later than the client. Everything that the client had
confirmed by then is done. It writes down what it saw; `client_checks.py` judges it, `client_engine.py` plays it.
"""

from collections import Counter, deque
from random import Random

import msgspec

from wend.model.events import Attributes, EventId, PeerId
from wend.model.random_stream import peer_stream
from wend.model.units import FOREVER, MS, SECOND, Nanos
from wend.protocol.ports import (
    Deliver,
    LocalSubscription,
    Receipt,
)


class ClientPlan(msgspec.Struct, frozen=True):
    """How one client behaves."""

    peer: PeerId
    subscription: LocalSubscription
    begin_ns: Nanos = 0
    end_ns: Nanos = FOREVER
    """When it unsubscribes."""
    window: int = 100
    read_ns: Nanos = MS
    """How long it reads an event."""
    batch: int = 1
    """How many events it confirms together."""
    forgets: float = 0.0
    """The share of events that it does not confirm."""
    connected_ns: Nanos = FOREVER
    """How long a connection lasts, on average."""
    away_ns: Nanos = SECOND
    """How long it is away then, on average."""
    calm_ns: Nanos = FOREVER
    """From this time on it stays connected, is fast, and confirms everything."""


class Sight(msgspec.Struct, frozen=True, gc=False):
    """An event that a client got."""

    time_ns: Nanos
    id: EventId
    connection: int
    again: bool
    ordered: bool
    """Whether the publisher's peer knew that somebody at this peer wants order."""


class SentEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that a client published. Without a receipt, nobody promised anything."""

    time_ns: Nanos
    attributes: Attributes
    ttl_ns: Nanos | None
    receipt: Receipt | None


class SimulatedClient:
    """The state of a client, and what it saw."""

    def __init__(self, plan: ClientPlan, seed: int) -> None:
        self.plan = plan
        self.number = plan.subscription.number
        self.draw: Random = peer_stream(seed, "client", self.number)
        self.connected = False
        self.connection = 0
        """Counts connections."""
        self.attached_as = 0
        """The connection that the peer knows of; 0 if none."""
        self.since_ns: Nanos | None = None
        """When its subscription was stored."""
        self.ended_ns: Nanos | None = None
        """When it unsubscribed."""
        self.inbox: deque[Deliver] = deque()
        self.read: list[int] = []
        """Positions to confirm."""
        self.reads = False
        self.seen: list[Sight] = []
        self.confirmed: dict[EventId, Nanos] = {}
        """Events whose confirmation the peer has handled."""
        self.ids: dict[int, EventId] = {}
        """By position."""
        self.missed: Counter[str] = Counter()
        """What the peer told it."""
        self.wrong: list[str] = []
        self._here: set[EventId] = set()
        """RecentItems on this connection."""
        self._ever: set[EventId] = set()

    def is_calm(self, now: Nanos) -> bool:
        return now >= self.plan.calm_ns

    def begin(self) -> None:
        self.connected, self.connection = True, self.connection + 1
        self.attached_as = self.connection
        self._here.clear()

    def lose(self) -> None:
        """The connection is gone, and with it what the client had not read, or not confirmed."""
        self.connected = self.reads = False
        self.inbox.clear()
        self.read.clear()

    def get(self, now: Nanos, got: Deliver, is_alive: bool) -> None:
        """An event arrives on the connection."""
        id_, when = got.event.id, f"at {now / SECOND:.3f} s: event {got.event.id}"
        if self.ended_ns is not None:
            self.wrong.append(f"{when} after the client unsubscribed")
        if not self.attached_as and is_alive:
            self.wrong.append(f"{when} is sent though no client is attached")
        if not self.connected or self.attached_as != self.connection:
            return
        if id_ in self.confirmed:
            self.wrong.append(f"{when} comes again though it was confirmed at {self.confirmed[id_] / SECOND:.3f} s")
        if id_ in self._here:
            self.wrong.append(f"{when} comes twice on one connection")
        if id_ in self._ever and not got.again:
            self.wrong.append(f"{when} comes again and does not say so")
        self._here.add(id_)
        self._ever.add(id_)
        self.ids[got.position] = id_
        ordered = any(peer == self.plan.peer for peer, _ in got.event.previous)
        self.seen.append(Sight(now, id_, self.connection, got.again, ordered))
        self.inbox.append(got)

    def handled(self, now: Nanos, positions: tuple[int, ...]) -> None:
        """The peer has handled a confirmation."""
        for position in positions:
            self.confirmed.setdefault(self.ids[position], now)
