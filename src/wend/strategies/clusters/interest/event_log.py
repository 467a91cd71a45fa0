"""Event logs: the events of numbered streams that a peer has, lacks, and can still give to other peers.

A stream is the events of one publisher's incarnation in one group, numbered from 1. From the numbers of later events or
from another peer's digest, a peer that follows a group sees which events it lacks, and fetches them from any peer that
has them. This one mechanism repairs loss, crashes and partitions, inside a cluster and between clusters.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from wend.model.events import Event, PeerId
from wend.model.units import Nanos

Stream = tuple[PeerId, int, str]
"""Publisher, incarnation and group."""
Numbers = tuple[int, int]
"""The first and the last of some consecutive numbers."""
LONGEST_SKIP = 4096
"""The most numbers after a gap that another peer may declare lost at once."""


class Logged(msgspec.Struct, frozen=True, gc=False):
    """An event, with the data that every copy carries."""

    event: Event
    born_ns: Nanos
    """When it was published, in this peer's own time."""
    home: str
    """The cluster of its publisher."""


class LogEntry(NamedTuple):
    """An event with its number in a stream."""

    stream: Stream
    number: int
    logged: Logged

    @property
    def group(self) -> str:
        return self.stream[2]


class StreamLog:
    """One stream, as far as this peer follows it."""

    __slots__ = ("_ahead", "complete", "events", "last", "used_ns")

    def __init__(self) -> None:
        self.complete = 0
        """This peer has, or does not want, all events up to this number."""
        self._ahead: dict[int, None] = {}
        """Later events that this peer has."""
        self.last = 0
        """The highest number that this peer knows of."""
        self.events: dict[int, Logged] = {}
        """The events that it can still give to others."""
        self.used_ns: Nanos = 0
        """When the stream last grew."""

    def has(self, number: int) -> bool:
        return number <= self.complete or number in self._ahead

    def add(self, number: int) -> bool:
        """Count an event as one that this peer has or does not want. Returns whether that is new."""
        self.last = max(self.last, number)
        if self.has(number):
            return False
        self._ahead[number] = None
        while self.complete + 1 in self._ahead:
            self.complete += 1
            del self._ahead[self.complete]
        return True

    def skip(self, numbers: Numbers) -> None:
        """Skip events that are lost."""
        low, high = numbers
        if low <= self.complete + 1:
            self.complete = max(self.complete, high)
            for number in [number for number in self._ahead if number <= self.complete]:
                del self._ahead[number]
            while self.complete + 1 in self._ahead:
                self.complete += 1
                del self._ahead[self.complete]
            self.last = max(self.last, self.complete)
        elif high - low < LONGEST_SKIP:
            for number in range(low, high + 1):
                self.add(number)

    def missing(self, most: int) -> list[Numbers]:
        """The events that this peer lacks, `most` ranges at most."""
        gaps: list[Numbers] = []
        low = self.complete + 1
        for number in sorted(self._ahead):
            if low < number:
                gaps.append((low, number - 1))
            low = number + 1
            if len(gaps) == most:
                return gaps
        if low <= self.last:
            gaps.append((low, self.last))
        return gaps

    def select(self, numbers: Numbers, oldest_ns: Nanos) -> tuple[list[tuple[int, Logged]], list[Numbers]]:
        """Select as `EventLog.select` does. Other peers choose the numbers, so the work must depend on the events here,
        not on the request."""
        low, high = max(1, numbers[0]), numbers[1]
        candidates = range(low, high + 1) if high - low < len(self.events) else sorted(self.events)
        copies = [
            (number, logged)
            for number in candidates
            if low <= number <= high and (logged := self.events.get(number)) is not None and logged.born_ns >= oldest_ns
        ]
        losses: list[Numbers] = []
        after = low
        for number, _ in copies:
            if after < number and after <= self.complete:
                losses.append((after, min(number - 1, self.complete)))
            after = number + 1
        if after <= min(high, self.complete):
            losses.append((after, min(high, self.complete)))
        can = {number for number, _ in copies}
        losses += [(number, number) for number in sorted(self._ahead) if low <= number <= high and number not in can]
        return copies, losses

    @property
    def has_gaps(self) -> bool:
        return self.complete < self.last

    @property
    def last_available(self) -> int:
        """Others may fetch the events up to this number here."""
        return min(self.complete, self.last)


class EventLog:
    """The streams that a peer follows. It holds `room` events at most, to give them to others."""

    def __init__(self, room: int) -> None:
        self.streams: dict[Stream, StreamLog] = {}
        self._room = room
        self._held: dict[tuple[Stream, int], Nanos] = {}
        """When each event was added, the oldest first."""

    def __len__(self) -> int:
        return len(self._held)

    def open_stream(self, now: Nanos, stream: Stream) -> StreamLog:
        """Return a stream; add an empty one if it is new."""
        log = self.streams.get(stream)
        if log is None:
            log = self.streams[stream] = StreamLog()
        log.used_ns = now
        return log

    def hold(self, now: Nanos, stream: Stream, number: int, logged: Logged) -> bool:
        """Hold an event for other peers. Returns whether another event was dropped to make room."""
        self.open_stream(now, stream).events[number] = logged
        self._held[stream, number] = now
        if len(self._held) <= self._room:
            return False
        self._forget_event(next(iter(self._held)))
        return True

    def _forget_event(self, key: tuple[Stream, int]) -> None:
        del self._held[key]
        stream, number = key
        del self.streams[stream].events[number]

    def forget_before(self, time_ns: Nanos) -> None:
        """Forget the events that were added before this time."""
        for key, added_ns in list(self._held.items()):
            if added_ns >= time_ns:
                break
            self._forget_event(key)

    def forget_idle(self, time_ns: Nanos) -> None:
        """Forget the streams that have not grown since this time and hold no events."""
        for stream in [stream for stream, log in self.streams.items() if log.used_ns < time_ns and not log.events]:
            del self.streams[stream]

    def drop(self, stream: Stream) -> None:
        """Stop following a stream."""
        log = self.streams.pop(stream, None)
        for number in [] if log is None else log.events:
            del self._held[stream, number]

    def streams_in(self, group: str) -> Iterator[tuple[Stream, StreamLog]]:
        for stream, log in self.streams.items():
            if stream[2] == group:
                yield stream, log

    def select(
        self, stream: Stream, numbers: Numbers, oldest_ns: Nanos
    ) -> tuple[list[tuple[int, Logged]], list[Numbers]]:
        """Select the events of these numbers that this peer holds and that were published since `oldest_ns`.

        Also returns the numbers of events that it had once and cannot give: they are too old, or forgotten."""
        log = self.streams.get(stream)
        return ([], []) if log is None else log.select(numbers, oldest_ns)
