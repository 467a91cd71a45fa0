"""The outcomes of forwarded packets: acknowledged, failed, not sent or dropped."""

from collections.abc import Callable

from wend.model.units import Nanos
from wend.protocol.delivery.in_network import DeliveryMode
from wend.protocol.delivery.store_and_forward import StoreAndForward
from wend.protocol.link.layer import LinkLayer
from wend.protocol.messages import Control, Data, Fragment
from wend.protocol.plugins import Acked, Failed, Forward, GiveUp
from wend.protocol.ports import Drop, Notice
from wend.protocol.timers import Effects


class PacketOutcomes:
    __slots__ = ("_mode", "_retransmission", "_route", "_store")

    def __init__(
        self,
        layer: LinkLayer,
        mode: DeliveryMode,
        store: StoreAndForward | None,
        route: Callable[[Nanos, Failed | Acked, Effects], None],
    ) -> None:
        self._retransmission = layer.retransmission
        self._mode = mode
        self._store = store
        self._route = route

    def drop(self, drop: Drop, effects: Effects) -> None:
        effects.append(drop)
        if self._store is not None:
            self._store.abandon(drop, effects)

    def on_failed(self, now: Nanos, forward: Forward, effects: Effects, congested: bool = False) -> None:
        """Ask the routing for another route for a packet that did not reach its neighbour."""
        if not self._is_expired(now, forward, effects):
            if congested:
                effects.append(Notice("congested", forward.peer))
            self._route(now, Failed(forward, congested), effects)

    def on_queue_full(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """Give up a packet for which the send queue of a link has no room."""
        if not self._is_expired(now, forward, effects):
            where = (forward.event, forward.born_ns, forward.dests)
            self._mode.give_up(now, GiveUp(*where, "send-queue-full", forward.ranks, forward.header), effects)

    def _is_expired(self, now: Nanos, forward: Forward, effects: Effects) -> bool:
        expired = forward.event.ttl_ns is not None and forward.event.is_expired(now - forward.born_ns)
        if expired:
            self.drop(Drop(forward.event.id, forward.dests, "expired"), effects)
        return expired

    def on_ack(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """End the responsibility for a packet that the neighbour has acknowledged."""
        if self._store is not None:
            self._store.on_ack(now, forward, effects)
        if forward.confirm:
            self._route(now, Acked(forward), effects)

    def on_unsent(self, now: Nanos, message: Data | Fragment | Control, effects: Effects) -> None:
        """Drop a packet that the driver cannot send over any link."""
        forward = self._retransmission.on_unsent(now, message.tx, effects)
        if forward is not None:
            self.drop(Drop(forward.event.id, forward.dests, "unsendable"), effects)
