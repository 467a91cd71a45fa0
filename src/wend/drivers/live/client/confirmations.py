"""The events of a durable subscription that a client has confirmed.

A peer repeats an event until the client confirms it. The client confirms an event when the application asks for the
next one (`ack="auto"`), or when the application says so (`event.ack()`). After a break of a connection the peer sends
all unconfirmed events again, and other homes of the subscription may send them, too. The client skips those that the
application has already, so the application sees each event once as long as the client lives.

Each home gets every confirmation: by the position that it gave the event, or by the id of the event if the client got
it elsewhere. A home that is away gets them when it is back.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice

from wend.drivers.live.client.repeats import PublisherSequences, RecentIds
from wend.model.errors import ClientError
from wend.model.events import KEY_HEADER, Event, EventId

AUTO, EXPLICIT = "auto", "explicit"
MAX_UNSENT = 100_000
"""The most confirmations that wait for a home that is away. It repeats events beyond, and marks them."""
MAX_FRAME = 5_000
"""The most events in one frame."""
SendConfirmations = Callable[[tuple[int, ...], tuple[EventId, ...]], bool]


class HomeConfirmations:
    """The confirmations that one home has not received."""

    def __init__(self, send: SendConfirmations) -> None:
        """`send` takes positions and ids. It returns False if there is no connection."""
        self._send = send
        self._positions: deque[int] = deque()
        self._ids: deque[EventId] = deque()

    def add(self, id_: EventId, position: int | None) -> None:
        """`position`: what the home calls the event; None if the client did not get it there."""
        unsent: deque[int] | deque[EventId]
        if position is None:
            self._ids.append(id_)
            unsent = self._ids
        else:
            self._positions.append(position)
            unsent = self._positions
        if len(unsent) > MAX_UNSENT:
            unsent.popleft()

    def forget_positions(self) -> None:
        """Forget what the former home called the events: another peer is the home now."""
        self._positions.clear()

    def flush(self) -> None:
        """Send the confirmations that the home has not received."""
        while self._positions or self._ids:
            positions = tuple(islice(self._positions, MAX_FRAME))
            ids = tuple(islice(self._ids, MAX_FRAME - len(positions)))
            if not self._send(positions, ids):
                return
            for _ in positions:
                self._positions.popleft()
            for _ in ids:
                self._ids.popleft()


class Confirmations:
    """Which events of one subscription the application has, and which it has confirmed."""

    def __init__(self, ack: str, *, is_ordered: bool) -> None:
        if ack not in (AUTO, EXPLICIT):
            raise ClientError(f'ack is "{AUTO}" or "{EXPLICIT}", got {ack!r}')
        self.overtaken = 0
        """Events that came after later ones of their publisher, and that the application does not get."""
        self._is_automatic = ack == AUTO
        self._homes: list[HomeConfirmations] = []
        self._current: EventId | None = None
        """The event that the application has."""
        self._held: dict[EventId, dict[HomeConfirmations, int]] = {}
        """The events in the buffer and in the application's hands, with their positions at the homes that sent them."""
        self._confirmed = RecentIds()
        self._keys = RecentIds()
        self._sequences = PublisherSequences() if is_ordered else None
        self._flushes = False

    def add_home(self, send: SendConfirmations) -> HomeConfirmations:
        home = HomeConfirmations(send)
        self._homes.append(home)
        return home

    def accept(self, home: HomeConfirmations, event: Event, position: int) -> bool:
        """Whether an event is for the application."""
        id_ = event.id
        held = self._held.get(id_)
        if held is not None:
            held[home] = position
            return False
        if id_ in self._confirmed:  # the confirmation was lost with a connection, or is under way
            home.add(id_, position)
            self._flush_soon()
            return False
        self._held[id_] = {home: position}
        key = event.headers.get(KEY_HEADER)
        if key is not None and not self._keys.add(key):  # it has the event under another id
            self.confirm(id_)
            return False
        if self._sequences is None or self._sequences.advance(id_):
            return True
        self.overtaken += 1
        self.confirm(id_)
        return False

    def on_home_moved(self, home: HomeConfirmations) -> None:
        """Forget the positions of a home, because another peer has taken its place."""
        home.forget_positions()
        for positions in self._held.values():
            positions.pop(home, None)

    def set_current(self, id_: EventId) -> None:
        """Make this event, which is handed to the application, the current one."""
        self._current = id_

    def confirm_current(self) -> None:
        """Confirm the current event: the application asks for the next one, or closes the stream."""
        if self._is_automatic and self._current is not None:
            self.confirm(self._current)
        self._current = None

    def forget_current(self) -> None:
        """Leave the current event unconfirmed, so that the next client gets it again: the application failed."""
        self._current = None

    def confirm(self, id_: EventId) -> None:
        """Confirm an event, if the application has it."""
        positions = self._held.pop(id_, None)
        if positions is None:
            return
        self._confirmed.add(id_)
        for home in self._homes:
            home.add(id_, positions.get(home))
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send the confirmations to the homes that are connected."""
        self._flushes = False
        for home in self._homes:
            home.flush()
