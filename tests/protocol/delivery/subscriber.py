"""A lone peer with persistence and the records that it stores, for tests of what its clients get."""

from collections.abc import Iterable
from typing import Any

import msgspec

from wend.model.events import DurableOptions, Event, EventId, PeerId, Qos
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import TX_SHIFT, Ack, Data
from wend.protocol.ports import (
    Attached,
    Confirmed,
    Deliver,
    Detached,
    Drop,
    Effect,
    Input,
    LocalSubscription,
    Missed,
    Neighbour,
    Notice,
    Persist,
    Received,
    Send,
    Started,
    Subscribed,
    Woken,
)
from wend.protocol.records import Record
from wend.strategies.registry import make_peer

ME, PUBLISHER = 1, 2
GRACE_NS = 60 * SECOND
"""After it nobody waits for clients that reconnect."""


def durable(name: str = "orders", filter: str = "true", number: int = 1, **bounds: Any) -> LocalSubscription:
    qos = Qos(**{key: bounds.pop(key) for key in list(bounds) if key in Qos.__struct_fields__})
    return LocalSubscription(number, filter, qos, DurableOptions(name, **bounds))


def made(sequence: int, *, previous: int | None = None, incarnation: int = 1, **fields: Any) -> Event:
    chain = () if previous is None else ((ME, previous),)
    id_ = EventId(PUBLISHER, incarnation, sequence)
    return Event(id_, {"topic": "t", "n": sequence}, previous=chain, **fields)


class Subscriber:
    """The peer, its store, and what it told its clients; `crash` starts its next incarnation."""

    def __init__(self, *, neighbours: tuple[PeerId, ...] = (PUBLISHER,), **settings: Any) -> None:
        self._settings = {"strategy": "dcrd", "persistence": True, **settings}
        self._neighbours = tuple(Neighbour(peer, 10 * MS) for peer in neighbours)
        self.now: Nanos = 0
        self.store: list[Record] = []
        self.incarnation = 6_000_000_000  # as live peers count them
        self._tx = 0
        self.effects: list[Effect] = []
        self.start()

    def start(self, wait_ns: Nanos = GRACE_NS, *, lost_records: bool = False) -> None:
        """Start an incarnation, and wait until no events wait for clients any more."""
        self.incarnation += 1
        self.peer = make_peer(PeerConfig(peer=ME, incarnation=self.incarnation, **self._settings))
        self(Started(self._neighbours, stored=tuple(self.store), lost_records=lost_records))
        self.run(wait_ns)

    crash = start

    def __call__(self, told: Input) -> list[Effect]:
        found = self.peer.handle(self.now, told)
        self.effects += found
        stored = [effect.record for effect in found if isinstance(effect, Persist)]
        self.store += [msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record) for record in stored]
        return found

    def run(self, time: Nanos) -> list[Effect]:
        self.now += time
        return self(Woken())

    def subscribe(self, wanted: LocalSubscription, window: int = 100) -> list[Effect]:
        return [*self(Subscribed(wanted)), *self.attach(wanted.number, window)]

    def attach(self, number: int = 1, window: int = 100) -> list[Effect]:
        return self(Attached(number, window))

    def detach(self, number: int = 1) -> list[Effect]:
        return self(Detached(number))

    def confirm(self, deliveries: Iterable[Deliver], number: int = 1) -> list[Effect]:
        return self(Confirmed(number, tuple(each.position for each in deliveries)))

    def hear(self, event: Event, age: Nanos = 0) -> list[Effect]:
        """The event arrives; the peer must acknowledge it."""
        self._tx += 1
        number = (1 << TX_SHIFT) + self._tx
        effects = self(Received(PUBLISHER, Data(number, event, age, (ME,))))
        assert Send(PUBLISHER, Ack(number)) in effects
        return effects


def delivered(effects: Iterable[Effect]) -> list[int]:
    return [effect.event.id.sequence for effect in effects if isinstance(effect, Deliver)]


def deliveries(effects: Iterable[Effect]) -> list[Deliver]:
    return [effect for effect in effects if isinstance(effect, Deliver)]


def missed(effects: Iterable[Effect]) -> list[dict[Any, int]]:
    return [effect.counts for effect in effects if isinstance(effect, Missed)]


def dropped(effects: Iterable[Effect]) -> list[tuple[int, str]]:
    return [(effect.id.sequence, effect.code) for effect in effects if isinstance(effect, Drop)]


def noticed(effects: Iterable[Effect], what: str) -> int:
    return sum(effect.count for effect in effects if isinstance(effect, Notice) and effect.what == what)
