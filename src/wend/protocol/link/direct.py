"""Messages to peers without a link: plain ones, and acknowledged ones that the sender repeats a few times.

A link needs a window, estimators and a failure detector at both ends. A peer that sends occasional messages to
thousands of others needs only their addresses. The state here is the unacknowledged messages, and the numbers of the
last messages received, so that a repetition is not delivered twice. A repeated event carries its current age.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import TX_SHIFT, DirectAck, DirectMessage, PlainMessage, increase_age
from wend.protocol.plugins import SendTo
from wend.protocol.ports import Notice, Send
from wend.protocol.timers import Effects, Timers

FIRST_TIMEOUT_NS: Nanos = SECOND
"""The first timeout, since no round trip is measured to a peer without a link. It doubles with each repetition."""
TRIES = 4
REMEMBERED = 4096
_NUMBER_BITS = 64


class _Pending(msgspec.Struct, frozen=True, gc=False):
    peer: PeerId
    message: DirectMessage
    sent_ns: Nanos
    """When the message was first sent."""
    wait_ns: Nanos
    due_ns: Nanos
    """When the message is sent again or given up."""
    tries: int
    left: int

    def aged_message(self, now: Nanos) -> DirectMessage:
        """The message as it is sent now: an event in it has aged since the first transmission."""
        waited = now - self.sent_ns
        message = increase_age(self.message, waited) if waited else self.message
        assert isinstance(message, DirectMessage)
        return message


class DirectMessages:
    __slots__ = ("_due", "_number", "_pending", "_seen", "_timers", "_undelivered")

    def __init__(
        self,
        config: PeerConfig,
        timers: Timers,
        undelivered: Callable[[Nanos, PeerId, str, Any, Effects], None],
    ) -> None:
        self._number = config.incarnation << TX_SHIFT
        self._timers = timers
        self._undelivered = undelivered
        self._pending: dict[int, _Pending] = {}
        self._due: dict[Nanos, list[tuple[int, int]]] = {}
        """By time: the messages due then, each with its transmissions so far. Messages sent to many peers at once share
        one timer."""
        self._seen: dict[int, None] = {}
        """Sender and number of each message, packed into one integer: a peer remembers thousands."""

    def send(self, now: Nanos, send: SendTo, plugin: str, effects: Effects) -> None:
        if not send.acknowledged:
            effects.append(Send(send.peer, PlainMessage(plugin, send.message)))
            return
        self._number += 1
        message = DirectMessage(self._number, plugin, send.message)
        wait, tries = send.wait_ns or FIRST_TIMEOUT_NS, send.tries or TRIES
        self._transmit(now, _Pending(send.peer, message, now, wait, now + wait, 1, tries - 1), effects)

    def on_ack(self, sender: PeerId, ack: DirectAck) -> None:
        pending = self._pending.get(ack.number)
        if pending is not None and pending.peer == sender:
            del self._pending[ack.number]

    def acknowledge_early(self, time_ns: Nanos, sender: PeerId, ack: DirectAck) -> bool:
        """Process an ACK that will arrive at this time. Return False if its message is repeated before then."""
        pending = self._pending.get(ack.number)
        if pending is not None and pending.peer == sender:
            if pending.due_ns < time_ns:
                return False
            del self._pending[ack.number]
        return True

    def accept(self, sender: PeerId, message: DirectMessage, effects: Effects) -> bool:
        """Acknowledge a message. Return whether it is new."""
        effects.append(Send(sender, DirectAck(message.number)))
        key = sender << _NUMBER_BITS | message.number
        if key in self._seen:
            effects.append(Notice("duplicate", sender))
            return False
        self._seen[key] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True

    def drop(self, now: Nanos, number: int) -> tuple[PeerId, str, Any] | None:
        """Remove a message that the driver cannot send. Return its peer, plug-in and body if it was still pending."""
        pending = self._pending.pop(number, None)
        return None if pending is None else (pending.peer, pending.message.plugin, pending.aged_message(now).body)

    def _transmit(self, now: Nanos, pending: _Pending, effects: Effects) -> None:
        number = pending.message.number
        self._pending[number] = pending
        effects.append(Send(pending.peer, pending.aged_message(now)))
        together = self._due.get(pending.due_ns)
        if together is None:
            self._due[pending.due_ns] = [(number, pending.tries)]
            self._timers.set_timer(pending.due_ns, self._on_timer, pending.due_ns)
        else:
            together.append((number, pending.tries))

    def _on_timer(self, now: Nanos, due_ns: Nanos, effects: Effects) -> None:
        for number, tries in self._due.pop(due_ns):
            self._on_timeout(now, number, tries, effects)

    def _on_timeout(self, now: Nanos, number: int, tries: int, effects: Effects) -> None:
        pending = self._pending.get(number)
        if pending is None or pending.tries != tries:
            return
        if pending.left:
            effects.append(Notice("retransmit", pending.peer))
            due = now + (pending.wait_ns << tries)
            again = msgspec.structs.replace(pending, due_ns=due, tries=tries + 1, left=pending.left - 1)
            self._transmit(now, again, effects)
            return
        del self._pending[number]
        effects.append(Notice("undelivered", pending.peer))
        self._undelivered(now, pending.peer, pending.message.plugin, pending.aged_message(now).body, effects)
