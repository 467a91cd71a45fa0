"""Reads logs for clients: history first, then the events that come, through one cursor.

A reader works in turns with the requests of other clients. It stops while its client does not read, or has not taken
the events of a window, and goes on at the position where it stopped. So a slow client costs the peer no memory, and
there is no seam at which an event could be missed or repeated. If retention was faster, or records are damaged, the
client learns how many events it misses.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, cast

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.broker.fair_scheduler import FairScheduler
from wend.drivers.live.clock import monotonic
from wend.drivers.live.log_frames import LoggedEvent, LogPlace, Records
from wend.drivers.live.logs.backwards import blocks_backwards
from wend.drivers.live.logs.cursor import LogCursor
from wend.drivers.live.logs.peer_logs import PeerLog, PeerLogs
from wend.drivers.live.logs.record import LogRecord, encode_event
from wend.matching.filters import Filter, parse
from wend.model.errors import Refused
from wend.model.events import Event, event_bytes
from wend.model.units import SECOND, Nanos

if TYPE_CHECKING:
    from wend.drivers.live.broker.broker import BrokerClient
    from wend.drivers.live.broker.signed_events import SignedEvents

MAX_READERS: Final = 100
"""Per client."""
MAX_LAST: Final = 1_000_000
MAX_WINDOW: Final = 10_000
WINDOW_BYTES: Final = 8 * 1024 * 1024
STEP_RECORDS: Final = 128
RECORDS_BYTES: Final = 64 * 1024
"""The size of a frame of records, unless one event is larger."""
_EXPIRED, _DROPPED, _DAMAGED = "expired", "log-dropped", "log-damaged"


class ReaderOutput(Protocol):
    """Where a reader writes to."""

    @property
    def is_ready(self) -> bool:
        """Whether the client reads what is written."""
        ...

    def write_delivery(self, delivery: frames.Delivery, size: int) -> None: ...

    def answer(self, frame: frames.ToClient) -> None: ...


class LogReader:
    """Reads one log for one client."""

    def __init__(
        self,
        source: PeerLog,
        request: frames.ReadLog,
        filter: Filter,
        output: ReaderOutput,
        verify: Callable[[Event], Event],
        schedule: Callable[["LogReader"], None],
    ) -> None:
        """`schedule` lets it work soon, in turn with others."""
        self.ended = False
        self._source = source
        self._request = request
        self._filter = filter
        self._output = output
        self._verify = verify
        self._schedule = schedule
        self._cursor: LogCursor | None = None
        """None until the place to begin is found."""
        self._last: Iterator[list[LogRecord]] | None = None
        """The records from the end, while the last events are looked for."""
        self._found: list[int] = []
        """The positions of the last events, the newest first."""
        self._records: deque[LogRecord] = deque()
        """Records that were read from the log and not handled yet."""
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """The position and size of each event that the client has not taken."""
        self._unconfirmed_bytes = 0
        self._gathered: list[LoggedEvent] = []
        """Events of the next frame of records."""
        self._gathered_bytes = 0
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._window = min(max(1, request.window), MAX_WINDOW)
        now = time.time_ns()
        self._end_position, self._end_ns = self._find_end(now)
        begin = request.begin
        self._next_at_begin = source.log.next_position
        if begin.by == "last" and begin.value:
            self._last = blocks_backwards(source.log)
        else:
            self._begin_at(self._find_place(begin, now))

    def _find_place(self, place: LogPlace, now: Nanos) -> int:
        log = self._source.log
        match place.by:
            case "position":
                return place.value
            case "time":
                return log.position_at(place.value)
            case "age":
                return log.position_at(max(0, now - place.value))
            case "first":
                return log.first_position
            case _:
                return log.next_position

    def _find_end(self, now: Nanos) -> tuple[int | None, Nanos | None]:
        """The position or the time before which it ends."""
        end = self._request.end
        if end is None:
            return None, None
        if end.by == "time":
            return None, end.value
        return self._find_place(end, now), None

    def _begin_at(self, position: int) -> None:
        self._last = None
        log = self._source.log
        self._cursor = LogCursor(log, position)
        self._output.answer(frames.Reading(self._request.handle, self._source.name, log.id, position))

    # ---------------------------------------------------------------- what others tell it

    def wake(self) -> None:
        """Go on: the log has grown, the client has taken events, or it reads again."""
        if not self._is_scheduled and not self.ended:
            self._is_scheduled = True
            self._schedule(self)

    def take(self, position: int) -> None:
        """The client has taken the events up to this position."""
        unconfirmed = self._unconfirmed
        while unconfirmed and unconfirmed[0][0] <= position:
            self._unconfirmed_bytes -= unconfirmed.popleft()[1]
        self.wake()

    def close(self) -> None:
        self.ended = True
        self._source.waiting.pop(self.wake, None)
        self._records.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---------------------------------------------------------------- work (`Worker`)

    def work(self, until: float) -> bool:
        """Read until this time. Returns whether it can go on."""
        self._is_scheduled = False
        can_go_on = self._read_until(until)
        self._write_gathered()
        return can_go_on

    def _read_until(self, until: float) -> bool:
        while self._can_write():
            if self._cursor is None:
                self._look_back()
            elif self._records:
                self._handle(self._records.popleft())
            elif not self._read(self._cursor):
                return False
            if time.monotonic() >= until:
                self._is_scheduled = True
                return True
        return False

    def _can_write(self) -> bool:
        has_window = len(self._unconfirmed) < self._window and self._unconfirmed_bytes < WINDOW_BYTES
        return has_window and self._output.is_ready and not self.ended

    def _look_back(self) -> None:
        """Look at the block of records before those that were looked at, for the last events."""
        assert self._last is not None
        block = next(self._last, None)
        for record in reversed(block or ()):
            if len(self._found) < self._request.begin.value and self._matches(record):
                self._found.append(record.position)
        if block is None or len(self._found) >= self._request.begin.value:
            self._begin_at(self._found[-1] if self._found else self._next_at_begin)

    def _matches(self, record: LogRecord) -> bool:
        try:
            return self._filter.matches(record.event().attributes)
        except msgspec.MsgspecError:
            return False

    def _read(self, cursor: LogCursor) -> bool:
        """Read records from the log. Returns False if there are none, and waits for the next one."""
        self._records.extend(cursor.read(STEP_RECORDS))
        if cursor.dropped or cursor.damaged:
            counts = {_DROPPED: cursor.dropped, _DAMAGED: cursor.damaged}
            below = self._records[0].position if self._records else cursor.position
            self._report({code: count for code, count in counts.items() if count}, below)
            cursor.dropped = cursor.damaged = 0
        if self._records or not cursor.is_at_end:
            return True
        if self._is_past_end(cursor.position, time.time_ns()):
            self._finish()
        else:
            self._wait()
        return False

    def _wait(self) -> None:
        self._source.waiting[self.wake] = None
        if self._end_ns is not None and self._timer is None:
            wait_s = max(0.0, (self._end_ns - time.time_ns()) / SECOND)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_end_time)

    def _on_end_time(self) -> None:
        self._timer = None
        self.wake()

    def _is_past_end(self, position: int, time_ns: Nanos) -> bool:
        """Whether a record of this position and time comes after the end."""
        if self._end_position is not None:
            return position >= self._end_position
        return self._end_ns is not None and time_ns >= self._end_ns

    def _finish(self) -> None:
        self._write_gathered()
        self.close()
        self._output.answer(frames.Finished(self._request.handle))

    def _handle(self, record: LogRecord) -> None:
        """Deliver a record if it matches."""
        if self._is_past_end(record.position, record.time_ns):
            self._finish()
            return
        try:
            event = record.event()
        except msgspec.MsgspecError:  # the checksum is right: another version wrote it
            self._report({_DAMAGED: 1}, record.position + 1)
            return
        if not self._filter.matches(event.attributes):
            return
        age_ns = record.age_ns + max(0, time.time_ns() - record.time_ns)
        if event.is_expired(age_ns):
            self._report({_EXPIRED: 1}, record.position + 1)
            return
        encoded = record.encoded
        if event.headers and (seen := self._verify(event)) is not event:
            event, encoded = seen, encode_event(seen)
        size, deadline_ns = event_bytes(event), self._request.deadline_ns
        self._unconfirmed.append((record.position, size))
        self._unconfirmed_bytes += size
        self._source.read += 1
        if self._request.records:
            self._gather(record, encoded)
            return
        late = deadline_ns is not None and age_ns > deadline_ns
        delivery = frames.Delivery(self._request.handle, event, age_ns, late, record.position, time_ns=record.time_ns)
        self._output.write_delivery(delivery, size)

    def _gather(self, record: LogRecord, encoded: bytes) -> None:
        """Add an event to the next frame of records."""
        if self._gathered_bytes + len(encoded) > RECORDS_BYTES:
            self._write_gathered()
        event = cast(Event, msgspec.Raw(encoded))  # the encoder copies these bytes into the frame
        logged = LoggedEvent(record.position, record.time_ns, record.age_ns, event)
        self._gathered.append(logged)
        self._gathered_bytes += len(encoded)

    def _write_gathered(self) -> None:
        if self._gathered:
            self._output.answer(Records(self._request.handle, tuple(self._gathered)))
            self._gathered.clear()
            self._gathered_bytes = 0

    def _report(self, counts: dict[str, int], below: int) -> None:
        self._write_gathered()
        self._output.answer(frames.MissedFrame(self._request.handle, counts, below))


class LogReaders:
    """The readers of all clients of a broker."""

    def __init__(self, logs: PeerLogs | None, scheduler: FairScheduler, signatures: "SignedEvents") -> None:
        self._logs = logs
        self._scheduler = scheduler
        self._signatures = signatures
        self._readers: dict[BrokerClient, dict[int, LogReader]] = {}
        """By client and handle."""

    def open(self, client: "BrokerClient", output: ReaderOutput, request: frames.ReadLog, filter: str) -> None:
        """Begin to read, with a filter that the client is granted. Raises `FilterError` or `Refused`."""
        readers = self._readers.get(client, {})
        if request.handle in readers:
            raise Refused(f"subscription {request.handle} exists already", code="invalid-subscription")
        if len(readers) >= MAX_READERS:
            raise Refused(f"a client may read {MAX_READERS} logs at a time", code="too-many-subscriptions")
        if request.begin.by == "last" and request.begin.value > MAX_LAST:
            raise Refused(f"a client may ask for the last {MAX_LAST} events", code="invalid-subscription")
        if self._logs is None:
            raise Refused("this peer has no logs", code="unknown-log")
        wanted = parse(filter)
        ordered = request.order
        source = self._logs.named(request.log) if request.log else self._logs.covering(wanted, ordered=ordered)
        if ordered and not source.is_ordered:
            sentence = f'log {source.name!r} has events in the order of arrival: its table needs order = "publisher"'
            raise Refused(sentence, code="not-supported")
        if request.log_id and request.log_id != source.log.id:
            sentence = f"the log {source.name!r} is not the one that was read before: its positions mean other events"
            raise Refused(sentence, code="other-log")
        reader = LogReader(source, request, wanted, output, self._verify, self._schedule)
        self._readers.setdefault(client, {})[request.handle] = reader
        reader.wake()

    def _schedule(self, reader: LogReader) -> None:
        # In the next turn of the event loop, so that the events of this one are read together.
        asyncio.get_running_loop().call_soon(self._scheduler.add, reader)

    def _verify(self, event: Event) -> Event:
        return self._signatures.verify(event, monotonic())

    def take(self, client: "BrokerClient", handle: int, position: int) -> None:
        reader = self._readers.get(client, {}).get(handle)
        if reader is not None:
            reader.take(position)

    def end(self, client: "BrokerClient", handle: int) -> None:
        """Stop to read, if the client does."""
        reader = self._readers.get(client, {}).pop(handle, None)
        if reader is not None:
            reader.close()

    def resume(self, client: "BrokerClient") -> None:
        """Go on for a client that reads again."""
        for reader in self._readers.get(client, {}).values():
            reader.wake()

    def disconnect(self, client: "BrokerClient") -> None:
        for reader in self._readers.pop(client, {}).values():
            reader.close()
