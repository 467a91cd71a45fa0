"""Carries out the effects of plug-ins, except `Forward` and the effects that concern only plug-ins (`host.py`)."""

from wend.model.units import Nanos
from wend.protocol.delivery.in_network import DeliveryMode
from wend.protocol.delivery.local import LocalDelivery
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.host import HostedPlugin, PluginHost, mistake_error
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
    PluginEffect,
    Reroute,
    RouteEvent,
    SendTo,
    Tell,
)
from wend.protocol.ports import Drop, Multicast, Notice
from wend.protocol.timers import Effects


class PluginEffects:
    __slots__ = ("_host", "_layer", "_local", "_mode", "_outcomes", "_store")

    def __init__(
        self,
        host: PluginHost,
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

    def carry_out(self, now: Nanos, one: HostedPlugin, effect: PluginEffect, effects: Effects) -> None:
        match effect:
            case SendTo():  # the most frequent effect
                self._layer.direct.send(now, effect, one.name, effects)
            case Notice():  # frequent, too
                effects.append(effect)
            case Tell():
                self._layer.send_control(
                    now, OutgoingControl(effect.peer, one.name, effect.slot, effect.message), effects
                )
            case Drop():
                self._outcomes.drop(effect, effects)
            case GiveUp():
                self._mode.give_up(now, effect, effects)
            case DeliverHere():
                self._local.deliver(now, effect.event, effect.born_ns, effects)
            case RouteEvent():
                if self._host.router.kind != "routing":
                    raise mistake_error(one, None, "answered a RouteEvent, but the strategy has no routing")
                self._host.dispatch(now, self._host.router, effect.arrived, effects)
            case InterestLearned():
                if self._store is not None:
                    self._store.on_interest_learned(now, effect.peer, effect.returned, effects)
            case MakeLink():
                self._layer.make_link(now, effect.peer, effect.path, effects)
            case Reroute():
                self._layer.manager.reroute(now, effect.peer, effect.path, effects)
            case EndLink():
                self._layer.end_link(now, effect.peer, effects)
            case Multicast():
                effects.append(Multicast(effect.group, PlainMessage(one.name, effect.message)))
            case _:
                effects.append(effect)  # type: ignore[arg-type]
