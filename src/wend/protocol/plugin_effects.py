"""Carries out the effects of plug-ins, but for `Forward`, and for those that concern plug-ins alone (`host.py`)."""

from collections.abc import Callable
from typing import Any

from wend.model.units import Nanos
from wend.protocol.delivery.local import LocalDelivery
from wend.protocol.delivery.mode import DeliveryMode
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.host import Host, Hosted, blamed
from wend.protocol.link.in_flight import OutgoingControl
from wend.protocol.link.layer import LinkLayer
from wend.protocol.messages import PlainMessage
from wend.protocol.packet_outcomes import PacketOutcomes
from wend.protocol.plugins import (
    DeliverHere,
    EndLink,
    GiveUp,
    InterestLearned,
    MakeLink,
    Reroute,
    RouteEvent,
    SendTo,
    Tell,
)
from wend.protocol.ports import Drop, Multicast
from wend.protocol.timers import Effects


class PluginEffects:
    __slots__ = ("_host", "_layer", "_local", "_mode", "_outcomes", "_store")

    def __init__(
        self,
        host: Host,
        layer: LinkLayer,
        local: LocalDelivery,
        mode: DeliveryMode,
        store: StoreAndForward | None,
        outcomes: PacketOutcomes,
    ) -> None:
        self._host = host
        self._layer = layer
        self._local = local
        self._mode = mode
        self._store = store
        self._outcomes = outcomes

    def _give_up(self, now: Nanos, one: Hosted, stuck: GiveUp, effects: Effects) -> None:
        self._mode.give_up(now, stuck, effects)

    def _drop(self, now: Nanos, one: Hosted, drop: Drop, effects: Effects) -> None:
        self._outcomes.drop(drop, effects)

    def _tell(self, now: Nanos, one: Hosted, tell: Tell, effects: Effects) -> None:
        self._layer.tell(now, OutgoingControl(tell.peer, one.name, tell.slot, tell.message), effects)

    def _send_to(self, now: Nanos, one: Hosted, send: SendTo, effects: Effects) -> None:
        self._layer.direct.send(now, send, one.name, effects)

    def _multicast(self, now: Nanos, one: Hosted, cast: Multicast, effects: Effects) -> None:
        effects.append(Multicast(cast.group, PlainMessage(one.name, cast.message)))

    def _route_event(self, now: Nanos, one: Hosted, handed: RouteEvent, effects: Effects) -> None:
        if self._host.router.kind != "routing":
            raise blamed(one, None, "answered a RouteEvent, but the strategy has no routing")
        self._host.tell(now, self._host.router, handed.arrived, effects)

    def _deliver_here(self, now: Nanos, one: Hosted, arrived: DeliverHere, effects: Effects) -> None:
        self._local.deliver(now, arrived.event, arrived.born_ns, effects)

    def _interest_learned(self, now: Nanos, one: Hosted, learned: InterestLearned, effects: Effects) -> None:
        if self._store is not None:
            self._store.interest_learned(now, learned.peer, learned.returned, effects)

    def _make_link(self, now: Nanos, one: Hosted, wanted: MakeLink, effects: Effects) -> None:
        self._layer.make(now, wanted.peer, wanted.path, effects)

    def _reroute(self, now: Nanos, one: Hosted, wanted: Reroute, effects: Effects) -> None:
        self._layer.manager.reroute(now, wanted.peer, wanted.path, effects)

    def _end_link(self, now: Nanos, one: Hosted, wanted: EndLink, effects: Effects) -> None:
        self._layer.end(now, wanted.peer, effects)


ACTIONS: dict[type, Callable[[PluginEffects, Nanos, Hosted, Any, Effects], None]] = {
    GiveUp: PluginEffects._give_up,
    Drop: PluginEffects._drop,
    Tell: PluginEffects._tell,
    SendTo: PluginEffects._send_to,
    Multicast: PluginEffects._multicast,
    RouteEvent: PluginEffects._route_event,
    DeliverHere: PluginEffects._deliver_here,
    InterestLearned: PluginEffects._interest_learned,
    MakeLink: PluginEffects._make_link,
    Reroute: PluginEffects._reroute,
    EndLink: PluginEffects._end_link,
}
"""How to carry out an effect, by its type. Any other goes to the driver as it is."""
