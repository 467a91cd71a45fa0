"""The results of a DHT simulation: deliveries in columns, and counters by class of message.

Nothing is lost silently. Every message that was sent arrived, got lost, found its receiver down, or is in transit at
the end.
"""

import os
from array import array
from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np

from wend.model.events import EventId, PeerId
from wend.model.units import Nanos
from wend.topology.underlay import Ints

UNKNOWN_HOPS = -1
"""The hops of a delivery that no message with a field `hops` brought."""


class MessageClass(NamedTuple):
    """Messages are counted by plug-in and type of content."""

    plugin: str
    body: str


class MessageCounts(msgspec.Struct):
    """How many messages of one class were sent and lost."""

    sent: int = 0
    """Overlay messages."""
    physical: int = 0
    """Physical hops of all of them."""
    lost: int = 0
    receiver_down: int = 0

    def __add__(self, other: "MessageCounts") -> "MessageCounts":
        return MessageCounts(
            self.sent + other.sent,
            self.physical + other.physical,
            self.lost + other.lost,
            self.receiver_down + other.receiver_down,
        )


class DeliveryColumns:
    """Deliveries, a column for each fact. Millions of them take 36 bytes each."""

    __slots__ = ("delay_ns", "hops", "number", "peer", "publication", "time_ns")

    def __init__(self) -> None:
        self.publication = array("i")
        """The position of the publication in the workload."""
        self.peer = array("i")
        self.number = array("i")
        self.time_ns = array("q")
        self.delay_ns = array("q")
        self.hops = array("i")
        """Overlay hops, as the message said that brought it."""

    def __len__(self) -> int:
        return len(self.publication)

    def add_delivery(
        self, publication: int, peer: PeerId, number: int, time_ns: Nanos, delay_ns: Nanos, hops: int
    ) -> None:
        self.publication.append(publication)
        self.peer.append(peer)
        self.number.append(number)
        self.time_ns.append(time_ns)
        self.delay_ns.append(delay_ns)
        self.hops.append(hops)

    def column(self, name: str) -> Ints:
        return np.array(getattr(self, name), dtype=np.int64)


class DhtResults:
    """Everything that a run counts."""

    def __init__(self) -> None:
        self.deliveries = DeliveryColumns()
        self.messages: dict[MessageClass, MessageCounts] = {}
        self.in_transit = 0
        """Messages that had not arrived when the run ended."""
        self.drops: Counter[str] = Counter()
        self.notices: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.receipts: dict[int, tuple[EventId, bool]] = {}
        """By publication: its id, and whether its peer stored it."""
        self.unpublished: list[int] = []
        """Publications whose peer was down."""
        self.unknown_deliveries = 0
        """Deliveries of events that nobody published."""

    def total(self) -> MessageCounts:
        return sum(self.messages.values(), MessageCounts())


def measure_resident_bytes() -> int:
    """The memory that this process holds now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
