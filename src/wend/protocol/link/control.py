"""Control messages to neighbours: a peer repeats each one, with growing pauses, until it is acknowledged or replaced.

If a neighbour does not answer for too long, the peer stops repeating (`Link.on_control_given_up`). When the neighbour
is heard again, the plug-ins send it their full state.
"""

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.link.in_flight import OutgoingControl, PacketsInFlight
from wend.protocol.link.link import Link
from wend.protocol.messages import Control, Slot
from wend.protocol.ports import Notice, Send
from wend.protocol.timers import Effects

CONTROL_TRIES = 20
"""How often control is sent. After that, the neighbour needs the full state when it is heard again."""
MAX_BACKOFF_NS = SECOND


class ControlMessages:
    __slots__ = ("_in_flight", "_links", "_slots")

    def __init__(self, links: dict[PeerId, Link], in_flight: PacketsInFlight) -> None:
        self._links = links
        self._in_flight = in_flight
        self._slots: dict[tuple[PeerId, str, Slot], int] = {}
        """The number of the newest message, by neighbour, plug-in and slot."""

    def send(self, now: Nanos, control: OutgoingControl, effects: Effects) -> None:
        """Send control, and stop repeating the message that it replaces."""
        if control.peer not in self._links:
            return
        link = self._links[control.peer]
        tx = self._in_flight.start_timer(now + _timeout_ns(link, 1))
        self._in_flight.packets[tx] = (control, 1, now)
        if control.slot is not None:
            key = (control.peer, control.plugin, control.slot)
            self._in_flight.remove(self._slots.get(key, -1))
            self._slots[key] = tx
        self._transmit_control(now, link, tx, control, effects)

    def is_repeated_to(self, peer: PeerId) -> bool:
        """Whether some control to this neighbour is not acknowledged yet."""
        return any(type(packet) is OutgoingControl for _, packet in self._in_flight.packets_to(peer))

    def on_timeout(
        self, now: Nanos, link: Link, tx: int, control: OutgoingControl, attempt: int, first: Nanos, effects: Effects
    ) -> None:
        """Send control again after a timeout, or give it up."""
        link.on_give_up(is_data=False)
        if attempt < CONTROL_TRIES:
            self._in_flight.restart_timer(tx, control, attempt + 1, first, now + _timeout_ns(link, attempt + 1))
            self._transmit_control(now, link, tx, control, effects)
            return
        self._in_flight.remove(tx)
        self.free_slot(control)
        link.on_control_given_up()
        effects.append(Notice("control-lost", control.peer))

    def free_slot(self, control: OutgoingControl) -> None:
        """Free the slot of a message that is acknowledged or given up."""
        if control.slot is not None:
            self._slots.pop((control.peer, control.plugin, control.slot), None)

    def _transmit_control(self, now: Nanos, link: Link, tx: int, control: OutgoingControl, effects: Effects) -> None:
        link.record_sent(now)
        effects.append(Send(control.peer, Control(tx, control.plugin, control.body)))


def _timeout_ns(link: Link, attempt: int) -> Nanos:
    """How long to wait for the ACK of a control message. It doubles with each attempt, up to a bound."""
    timeout = link.timeout_ns - link.control_discount_ns
    return min(timeout << min(attempt - 1, 10), max(MAX_BACKOFF_NS, timeout))
