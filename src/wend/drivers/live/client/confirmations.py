"""What a client has confirmed of a durable subscription.

The peer repeats an event until the client confirms it. The client confirms an event when the application asks for the
next one (`ack="auto"`), or when the application says so (`event.ack()`). Over a new connection the peer sends again
what it has no confirmation of. The client leaves out what the application has already, so while the client lives, the
application sees each event once.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from wend.drivers.live.client.arrivals import DurableArrival
from wend.model.errors import ClientError
from wend.model.events import PeerId

AUTO, EXPLICIT = "auto", "explicit"
_REMEMBERED = 20_000
"""Confirmed positions that are remembered, in case the confirmation was lost with the connection."""


class Confirmations:
    """The positions of one subscription at one peer."""

    def __init__(self, ack: str, send: Callable[[tuple[int, ...]], bool]) -> None:
        """`send` tells the peer which positions are confirmed. It returns False if there is no connection."""
        if ack not in (AUTO, EXPLICIT):
            raise ClientError(f'ack is "{AUTO}" or "{EXPLICIT}", got {ack!r}')
        self.moves = 0
        """How often the subscription went on at another peer."""
        self._is_automatic = ack == AUTO
        self._send = send
        self.peer: PeerId = -1
        """The peer that the positions are of."""
        self._current: DurableArrival | None = None
        """The event that the application has."""
        self._held: set[int] = set()
        """Positions in the buffer and in the application's hands."""
        self._confirmed: deque[int] = deque()
        self._confirmed_set: set[int] = set()
        self._unsent: list[int] = []
        self._flushes = False

    def move(self, peer: PeerId) -> bool:
        """Go on at this peer. Returns whether it was another one before: positions mean other events here, and the
        former peer still has what was not confirmed."""
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
        """The application gets an event."""
        self._current = arrival

    def confirm_current(self) -> None:
        """The application wants the next event, or none."""
        if self._is_automatic and self._current is not None:
            self.confirm(self._current.peer, self._current.position)
        self._current = None

    def forget_current(self) -> None:
        """The application failed with the event that it has: the next client gets it again."""
        self._current = None

    def confirm(self, peer: PeerId, position: int) -> None:
        """Confirm an event."""
        if peer != self.peer or position not in self._held:
            return  # it was confirmed, or it is of another peer, which will send it again
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
        """Tell the peer what is confirmed."""
        self._flushes = False
        if self._unsent and self._send(tuple(self._unsent)):
            self._unsent.clear()
