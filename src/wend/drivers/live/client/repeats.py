"""Finds events that a client gets more than once, and events that come after later ones of their publisher.

Peers suppress repeats, each for itself. A client that moves to another peer, or whose peer lost its memory, may get
events again. So it remembers the newest events itself.
"""

from collections import OrderedDict, deque
from typing import Literal

from wend.model.events import KEY_HEADER, Event, EventId, PeerId

MAX_IDS = 20_000
MAX_PUBLISHERS = 4_096


class RecentIds:
    """The ids and keys of the newest events."""

    def __init__(self, most: int = MAX_IDS) -> None:
        self._most = most
        self._ids: set[EventId | str] = set()
        self._order: deque[EventId | str] = deque()

    def __contains__(self, id_: EventId | str) -> bool:
        return id_ in self._ids

    def add(self, id_: EventId | str) -> bool:
        """Remember an event by its id or key. Returns whether it is new."""
        if id_ in self._ids:
            return False
        self._ids.add(id_)
        self._order.append(id_)
        if len(self._order) > self._most:
            self._ids.discard(self._order.popleft())
        return True


class PublisherSequences:
    """The last event of each publisher that the application got."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[PeerId, int], int] = OrderedDict()
        """By publisher and incarnation; the one heard last is at the end."""

    def advance(self, id_: EventId) -> bool:
        """Go on to this event. Returns False if a later one of its publisher came before."""
        publisher = id_[:2]
        last = self._last.get(publisher, -1)
        if id_.sequence < last:
            return False
        self._last[publisher] = id_.sequence
        self._last.move_to_end(publisher)
        if len(self._last) > MAX_PUBLISHERS:
            self._last.popitem(last=False)
        return True


Verdict = Literal["new", "repeat", "overtaken"]


class RepeatFilter:
    """Judges the events of a subscription without a name."""

    def __init__(self, *, is_ordered: bool) -> None:
        self._ids = RecentIds()
        self._sequences = PublisherSequences() if is_ordered else None

    def classify(self, event: Event) -> Verdict:
        """Tell whether an event is new, a repeat, or out of order: older than another one of its publisher."""
        id_ = event.origin or event.id
        is_new = self._ids.add(id_)
        key = event.headers.get(KEY_HEADER)
        if key is not None:
            is_new = self._ids.add(key) and is_new
        if not is_new:
            return "repeat"
        if self._sequences is not None and not self._sequences.advance(id_):
            return "overtaken"
        return "new"
