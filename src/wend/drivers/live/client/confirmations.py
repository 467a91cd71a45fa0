"""The events of a durable subscription that a client has confirmed.

The peer repeats an event until the client confirms it. The client confirms an event when the application asks for the
next one (`ack="auto"`), or when the application says so (`event.ack()`). Over a new connection the peer sends all
unconfirmed events again. The client skips those that the application has already, so the application sees each event
once as long as the client lives.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from wend.drivers.live.client.arrivals import DurableArrival
from wend.model.errors import ClientError
from wend.model.events import PeerId

AUTO, EXPLICIT = "auto", "explicit"
_REMEMBERED = 20_000
"""The most confirmed positions to remember, in case a confirmation was lost with the connection."""


class Confirmations:
    """The positions of one subscription at one peer."""

    def __init__(self, ack: str, send: Callable[[tuple[int, ...]], bool]) -> None:
        """`send` reports confirmed positions to the peer. It returns False if there is no connection."""
        if ack not in (AUTO, EXPLICIT):
            raise ClientError(f'ack is "{AUTO}" or "{EXPLICIT}", got {ack!r}')
        self.moves = 0
        """How often the subscription moved to another peer."""
        self._is_automatic = ack == AUTO
        self._send = send
        self.peer: PeerId = -1
        """The peer that assigned the positions."""
        self._current: DurableArrival | None = None
        """The event that the application has."""
        self._held: set[int] = set()
        """Positions in the buffer and in the application's hands."""
        self._confirmed: deque[int] = deque()
        self._confirmed_set: set[int] = set()
        self._unsent: list[int] = []
        self._flushes = False

    def move(self, peer: PeerId) -> bool:
        """Continue at this peer. Returns whether it replaces another peer. Its positions mean other events; the former
        peer still has the unconfirmed ones."""
        if peer == self.peer:
            return False
        was_elsewhere, self.peer = self.peer != -1, peer
        self.moves += was_elsewhere
        self._held.clear()
        self._confirmed_set.clear()
        self._confirmed.clear()
        self._unsent.clear()
        return was_elsewhere

    def accept(self, position: int) -> bool:
        """Whether an event is new to the application."""
        if position in self._held:
            return False
        if position in self._confirmed_set:  # the confirmation was lost with a connection
            self._send((position,))
            return False
        self._held.add(position)
        return True

    def hand_over(self, arrival: DurableArrival) -> None:
        """Make this event, which is handed to the application, the current one."""
        self._current = arrival

    def confirm_current(self) -> None:
        """Confirm the current event: the application asks for the next one, or closes the stream."""
        if self._is_automatic and self._current is not None:
            self.confirm(self._current.peer, self._current.position)
        self._current = None

    def forget_current(self) -> None:
        """Leave the current event unconfirmed, so that the next client gets it again: the application failed."""
        self._current = None

    def confirm(self, peer: PeerId, position: int) -> None:
        """Confirm an event."""
        if peer != self.peer or position not in self._held:
            return  # it is confirmed already, or of another peer, which will send it again
        self._held.discard(position)
        self._confirmed_set.add(position)
        self._confirmed.append(position)
        if len(self._confirmed) > _REMEMBERED:
            self._confirmed_set.discard(self._confirmed.popleft())
        self._unsent.append(position)
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send the confirmations to the peer."""
        self._flushes = False
        if self._unsent and self._send(tuple(self._unsent)):
            self._unsent.clear()
