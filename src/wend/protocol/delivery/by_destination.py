"""Delivery by destination: a peer knows all subscribers, and packets name the destinations that still need them.

The methods are those of `InNetwork` (`in_network.py`). A peer uses one of the two.
"""

from typing import ClassVar

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.delivery.local import LocalDelivery, Route
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.host import PluginHost
from wend.protocol.messages import Data
from wend.protocol.plugins import Arrived, GiveUp
from wend.protocol.ports import Drop, Receipt, Refuse
from wend.protocol.timers import Effects


class ByDestination:
    __slots__ = ("_host", "_local", "_route", "_store")

    knows_all_subscribers: ClassVar[bool] = True
    """Whether receipts name all known subscribers at any peer. If so, clients may ask for publisher order, queue
    groups, replies and retained events."""
    stores_transit: ClassVar[bool] = True
    """Whether a peer with persistence stores the packets that it forwards for others."""

    def __init__(self, host: PluginHost, local: LocalDelivery, store: StoreAndForward | None, route: Route) -> None:
        self._host = host
        self._local = local
        self._store = store
        self._route = route

    def may_miss_subscribers(self) -> bool:
        """Whether an event that is published now may miss subscribers."""
        view = self._host.view
        alone = self._host.forms_links and not view.links
        return alone or not self._host.interest.table.knows(view.neighbours)

    def publish(self, now: Nanos, event: Event, receipt: Receipt, effects: Effects) -> None:
        """Deliver an event to local subscriptions, and send it to the other subscribers."""
        me, others = self._host.view.me, receipt.targets
        is_for_me = me in others
        if is_for_me:
            others = tuple([peer for peer in others if peer != me])
        if self._store is not None:
            self._store.publish(now, event, others, effects)
        if is_for_me:
            self._local.deliver(now, event, now, effects)
        effects.append(receipt)  # local backlogs have stored the event by now
        if self._store is not None and others:
            others = self._store.hold_back(now, event, others, effects)
        if others:
            self._route(now, Arrived(me, event, now, others), effects)

    def publish_to(self, now: Nanos, event: Event, peer: PeerId, effects: Effects) -> None:
        """Send an event only to the subscribers at one peer, such as a reply to its client."""
        if peer == self._host.view.me:
            self._local.deliver(now, event, now, effects)
        else:
            self._local.send_to_one_peer(now, event, now, peer, effects)

    def receive(self, now: Nanos, sender: PeerId, data: Data, born_ns: Nanos, effects: Effects) -> None:
        """Receive a packet that names this peer among its destinations."""
        self._local.deliver(now, data.event, born_ns, effects)

    def receive_without_destinations(
        self, now: Nanos, sender: PeerId, data: Data, born_ns: Nanos, effects: Effects
    ) -> None:
        effects.append(Refuse(sender, "no-destinations"))

    def give_up(self, now: Nanos, stuck: GiveUp, effects: Effects) -> None:
        """Store or drop an event for which the routing has no route."""
        if self._store is None:
            effects.append(Drop(stuck.event.id, stuck.dests, stuck.code))
        else:
            self._store.give_up(now, stuck, effects)
