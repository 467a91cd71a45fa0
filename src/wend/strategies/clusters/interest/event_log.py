"""Event logs: what a peer has of numbered streams, what it lacks, and what it can still give to others.

A stream is the events of one publisher's incarnation in one group, numbered from 1. Whoever follows a group knows by
the numbers what it lacks, from an event that came too early or from another peer's digest, and fetches it from any peer
that has it. This one mechanism repairs loss, crashes and partitions, inside a cluster and between clusters.
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
"""Numbers after a gap that another peer may declare gone at once."""


class Logged(msgspec.Struct, frozen=True, gc=False):
    """An event, with what every copy of it says."""

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
        """Those after it that this peer has."""
        self.last = 0
        """The highest number that anybody is known to have."""
        self.events: dict[int, Logged] = {}
        """Those that it can still give to others."""
        self.used_ns: Nanos = 0
        """When it last grew."""

    def has(self, number: int) -> bool:
        return number <= self.complete or number in self._ahead

    def add(self, number: int) -> bool:
        """This peer has an event, or does not want it. Whether that is new."""
        self.last = max(self.last, number)
        if self.has(number):
            return False
        self._ahead[number] = None
        while self.complete + 1 in self._ahead:
            self.complete += 1
            del self._ahead[self.complete]
        return True

    def skip(self, numbers: Numbers) -> None:
        """These events will not come."""
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
        """What this peer lacks, `most` ranges at most."""
        found: list[Numbers] = []
        low = self.complete + 1
        for number in sorted(self._ahead):
            if low < number:
                found.append((low, number - 1))
            low = number + 1
            if len(found) == most:
                return found
        if low <= self.last:
            found.append((low, self.last))
        return found

    def give(self, numbers: Numbers, oldest_ns: Nanos) -> tuple[list[tuple[int, Logged]], list[Numbers]]:
        """As `EventLog.give`. Others choose the numbers, so the work depends on what is held, not on how many they ask
        for."""
        low, high = max(1, numbers[0]), numbers[1]
        asked = range(low, high + 1) if high - low < len(self.events) else sorted(self.events)
        given = [
            (number, logged)
            for number in asked
            if low <= number <= high and (logged := self.events.get(number)) is not None and logged.born_ns >= oldest_ns
        ]
        gone: list[Numbers] = []
        after = low
        for number, _ in given:
            if after < number and after <= self.complete:
                gone.append((after, min(number - 1, self.complete)))
            after = number + 1
        if after <= min(high, self.complete):
            gone.append((after, min(high, self.complete)))
        can = {number for number, _ in given}
        gone += [(number, number) for number in sorted(self._ahead) if low <= number <= high and number not in can]
        return given, gone

    @property
    def lacks(self) -> bool:
        return self.complete < self.last

    @property
    def available(self) -> int:
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

    def stream(self, now: Nanos, stream: Stream) -> StreamLog:
        """A stream, to add to it."""
        found = self.streams.get(stream)
        if found is None:
            found = self.streams[stream] = StreamLog()
        found.used_ns = now
        return found

    def hold(self, now: Nanos, stream: Stream, number: int, logged: Logged) -> bool:
        """Hold an event for others. Whether another one had to make room."""
        self.stream(now, stream).events[number] = logged
        self._held[stream, number] = now
        if len(self._held) <= self._room:
            return False
        self._forget(next(iter(self._held)))
        return True

    def _forget(self, held: tuple[Stream, int]) -> None:
        del self._held[held]
        stream, number = held
        del self.streams[stream].events[number]

    def forget_before(self, time_ns: Nanos) -> None:
        """Forget the events that were added before this time."""
        for held, added in list(self._held.items()):
            if added >= time_ns:
                break
            self._forget(held)

    def forget_idle(self, time_ns: Nanos) -> None:
        """Forget the streams that did not grow since this time and of which nothing is held."""
        for stream in [one for one, found in self.streams.items() if found.used_ns < time_ns and not found.events]:
            del self.streams[stream]

    def drop(self, stream: Stream) -> None:
        """Follow a stream no longer."""
        found = self.streams.pop(stream, None)
        for number in [] if found is None else found.events:
            del self._held[stream, number]

    def of_group(self, group: str) -> Iterator[tuple[Stream, StreamLog]]:
        for stream, found in self.streams.items():
            if stream[2] == group:
                yield stream, found

    def give(
        self, stream: Stream, numbers: Numbers, oldest_ns: Nanos
    ) -> tuple[list[tuple[int, Logged]], list[Numbers]]:
        """What this peer can give of these numbers that was published since `oldest_ns`, and what it cannot give though
        it had it once: too old, or forgotten."""
        found = self.streams.get(stream)
        return ([], []) if found is None else found.give(numbers, oldest_ns)
