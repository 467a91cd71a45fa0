"""Events and subscriptions: what is published, who wants it, and how soon.

An event's identity is (publisher, incarnation, sequence): a publisher that restarts begins a new
incarnation, so its numbers never collide with those of its former life.
"""

from typing import NamedTuple

import msgspec

from wend.model.units import Nanos

PeerId = int
Scalar = bool | int | float | str
Attributes = dict[str, Scalar]


class EventId(NamedTuple):
    publisher: PeerId
    incarnation: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.publisher}.{self.incarnation}.{self.sequence}"


class Event(msgspec.Struct, frozen=True, gc=False):
    """What an application publishes. Never changed after it was made; shared by reference in the simulator."""

    id: EventId
    attributes: Attributes
    payload: bytes = b""


class Qos(msgspec.Struct, frozen=True, gc=False):
    """How soon a subscriber wants its events.

    Either an absolute deadline, or a factor on the shortest delay between publisher and subscriber
    (what the system offers as a hint, and what the dcrd paper evaluates). With neither, events are
    only wanted, not wanted soon.
    """

    deadline_ns: Nanos | None = None
    factor: float | None = None


class SubscriptionId(NamedTuple):
    """Numbered by the peer that the subscriber is connected to. A durable one outlives incarnations."""

    peer: PeerId
    number: int


class Subscription(msgspec.Struct, frozen=True, gc=False):
    id: SubscriptionId
    filter: str
    qos: Qos = Qos()
