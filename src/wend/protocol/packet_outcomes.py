"""What becomes of packets that the routing forwarded: acknowledged, failed, not sent, dropped."""

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

    def failed(self, now: Nanos, forward: Forward, effects: Effects, congested: bool = False) -> None:
        """A packet did not reach its neighbour: find another route."""
        if not self._is_expired(now, forward, effects):
            if congested:
                effects.append(Notice("congested", forward.peer))
            self._route(now, Failed(forward, congested), effects)

    def queue_full(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """The send queue of a link has no room for a packet."""
        if not self._is_expired(now, forward, effects):
            where = (forward.event, forward.born_ns, forward.dests)
            self._mode.give_up(now, GiveUp(*where, "send-queue-full", forward.ranks, forward.header), effects)

    def _is_expired(self, now: Nanos, forward: Forward, effects: Effects) -> bool:
        expired = forward.event.ttl_ns is not None and forward.event.is_expired(now - forward.born_ns)
        if expired:
            self.drop(Drop(forward.event.id, forward.dests, "expired"), effects)
        return expired

    def acknowledged(self, now: Nanos, forward: Forward, effects: Effects) -> None:
        """The neighbour has taken over a packet."""
        if self._store is not None:
            self._store.handed_on(forward, effects)
        if forward.confirm:
            self._route(now, Acked(forward), effects)

    def unsent(self, now: Nanos, message: Data | Fragment | Control, effects: Effects) -> None:
        """The driver cannot send a message. No other link would carry it either."""
        forward = self._retransmission.unsent(now, message.tx, effects)
        if forward is not None:
            self.drop(Drop(forward.event.id, forward.dests, "unsendable"), effects)
