"""Delivery in the network: a peer knows only its own subscribers, and packets find the others on their way.

Either the routing finds them, for example along a tree, or the interest does. The interest uses its own messages if the
strategy has no routing, or else packets that carry its header. The methods are those of `ByDestination`
(`by_destination.py`).
"""

from typing import ClassVar, Final

from wend.model.errors import ConfigError
from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.delivery.by_destination import ByDestination
from wend.protocol.delivery.local import LocalDelivery
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.host import PluginHost
from wend.protocol.messages import Data
from wend.protocol.plugins import Arrived, GiveUp
from wend.protocol.ports import Drop, Notice, Receipt, Refuse
from wend.protocol.timers import Effects

NOT_TO_ONE: Final = "strategy {} does not name the destinations of events, so an event cannot be for one peer alone"


class InNetwork:
    __slots__ = ("_finder", "_has_packets", "_host", "_local", "_store", "stores_transit")

    knows_all_subscribers: ClassVar[bool] = False

    def __init__(self, host: PluginHost, local: LocalDelivery, store: StoreAndForward | None) -> None:
        self._host = host
        self._local = local
        self._store = store
        self._has_packets = host.interest.header is not None
        """Whether the interest sends packets, receives those for this peer, and repairs losses."""
        self.stores_transit = not self._has_packets
        self._finder = host.interested if self._has_packets else host.router
        """The plug-in that finds the other subscribers."""

    def may_miss_subscribers(self) -> bool:
        return not self._host.interest.table.knows(self._host.view.neighbours)

    def publish(self, now: Nanos, event: Event, receipt: Receipt, effects: Effects) -> None:
        if receipt.targets:
            self._local.deliver(now, event, now, effects)
        self._host.dispatch(now, self._finder, Arrived(self._host.view.me, event, now, ()), effects)
        effects.append(receipt)  # the interest has stored the event by now

    def publish_to(self, now: Nanos, event: Event, peer: PeerId, effects: Effects) -> None:
        raise ConfigError(NOT_TO_ONE.format(self._host.view.config.strategy))

    def receive(self, now: Nanos, sender: PeerId, data: Data, born_ns: Nanos, effects: Effects) -> None:
        host, event = self._host, data.event
        if self._has_packets:
            arrived = Arrived(sender, event, born_ns, (host.view.me,), data.path, data.header)
            host.dispatch(now, host.interested, arrived, effects)
        elif host.view.me in host.interest.table.targets(event):  # its sender only assumed that this peer wants it
            self._local.deliver(now, event, born_ns, effects)

    def receive_without_destinations(
        self, now: Nanos, sender: PeerId, data: Data, born_ns: Nanos, effects: Effects
    ) -> None:
        """Deliver the event to local subscriptions. The routing forwards it."""
        host, event = self._host, data.event
        if self._has_packets:
            effects.append(Refuse(sender, "no-destinations"))
            return
        if host.interest.table.targets(event):
            self._local.deliver(now, event, born_ns, effects)
        elif host.interest.table.widened(event):
            effects.append(Notice("false-positive", host.view.me))
        host.dispatch(now, host.router, Arrived(sender, event, born_ns, (), header=data.header), effects)

    def give_up(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        if self._has_packets:
            self._host.dispatch(now, self._host.interested, stuck, effects)
        elif self._store is not None:
            self._store.give_up(now, stuck, effects)
        else:
            effects.append(Drop(stuck.event.id, stuck.dests, stuck.code))


DeliveryMode = ByDestination | InNetwork
