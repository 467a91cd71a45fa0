"""What a peer does differently, depending on how it knows who wants an event.

`ByDestination` (`local.py`) knows all subscribers and names them in packets. `InNetwork` (`in_network.py`)
knows only those of this peer; the others are found on the way. A peer makes one of the two.
"""

from typing import Protocol

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Data
from wend.protocol.plugins import GiveUp
from wend.protocol.ports import Receipt
from wend.protocol.timers import Effects


class DeliveryMode(Protocol):
    @property
    def knows_all_subscribers(self) -> bool:
        """Whether receipts name all subscribers that the peer knows, anywhere. If so, clients may ask for publisher
        order, queue groups, replies and retained events."""
        ...

    @property
    def stores_transit(self) -> bool:
        """Whether a peer with persistence stores the packets that it forwards for others."""
        ...

    def is_early(self) -> bool:
        """Whether an event that is published now may miss subscribers."""
        ...

    def publish(self, now: Nanos, event: Event, receipt: Receipt, effects: Effects) -> None:
        """Deliver an event here if somebody here wants it, and send it to the others."""
        ...

    def publish_to(self, now: Nanos, event: Event, peer: PeerId, effects: Effects) -> None:
        """Send an event to the subscribers at one peer only, such as a reply to its client. Raises ConfigError if the
        strategy cannot do that."""
        ...

    def receive(self, now: Nanos, sender: PeerId, data: Data, born_ns: Nanos, effects: Effects) -> None:
        """Take a packet that names this peer among its destinations."""
        ...

    def receive_unnamed(self, now: Nanos, sender: PeerId, data: Data, born_ns: Nanos, effects: Effects) -> None:
        """Take a packet that names no destinations, and send it on."""
        ...

    def give_up(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        """Take an event for which the routing has no route."""
        ...
