"""The logs of a live peer: each takes the events of a subscription of its own.

The peer announces these subscriptions like those of clients, and like durable ones they stay announced while it is
away. An event is in the log before the peer acknowledges it. While a log cannot be written, the driver holds back the
effects that follow (`store/writer.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from wend.drivers.live.counters import Counters
from wend.drivers.live.logs.log import Log
from wend.drivers.live.logs.settings import EventLogEntry
from wend.drivers.live.status import LogStatus
from wend.matching.filters import Filter, parse
from wend.model.errors import Refused
from wend.model.units import SECOND
from wend.protocol.ports import Deliver, LocalSubscription

log = logging.getLogger("wend.log")

FIRST_NUMBER: Final = 1 << 30
"""Of the subscriptions of logs; those of clients count from 1."""


class LogWriteError(OSError):
    """A log cannot be written."""


class PeerLog:
    """One log of a peer, with the readers that wait for its next event."""

    def __init__(self, entry: EventLogEntry, folder: Path) -> None:
        """Raises `ConfigError` if it cannot be opened."""
        self.name = entry.name
        self.filter = entry.filter
        self.log = Log(folder, entry.bounds(), sync=entry.sync)
        self.appended = 0
        """Events since the peer started."""
        self.read = 0
        """Events that were sent to readers since the peer started."""
        self.waiting: dict[Callable[[], None], None] = {}
        """Called once, when the log has grown."""
        self._parsed = parse(entry.filter)

    def append(self, delivery: Deliver) -> None:
        """Raises `LogWriteError`."""
        try:
            position = self.log.append(delivery.event, delivery.age_ns)
            self.log.sync()
        except OSError as error:
            raise LogWriteError(error.errno, error.strerror, str(self.log.folder)) from None
        if position:
            self.appended += 1
            self.wake()

    def wake(self) -> None:
        """Tell the readers that wait."""
        if self.waiting:
            waiting, self.waiting = self.waiting, {}
            for tell in waiting:
                tell()

    def covers(self, filter: Filter) -> bool:
        """Whether the log has all events that a filter matches."""
        return self._parsed.covers(filter)

    def status(self) -> LogStatus:
        log = self.log
        return LogStatus(
            filter=self.filter,
            first=log.first_position,
            next=log.next_position,
            events=log.events,
            bytes=log.size,
            first_ns=log.first_ns,
            newest_ns=log.newest_ns,
            appended=self.appended,
            read=self.read,
            duplicates=log.duplicates,
            dropped=log.dropped_events,
        )


class PeerLogs:
    """All logs of a peer."""

    def __init__(self, entries: Sequence[EventLogEntry], folder: Path, counters: Counters) -> None:
        """Opens the logs, each in a folder of its name. Raises `ConfigError`."""
        self._counters = counters
        self._by_number: dict[int, PeerLog] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        try:
            for number, entry in enumerate(entries, FIRST_NUMBER):
                self._by_number[number] = opened = PeerLog(entry, folder / entry.name)
                if opened.log.lost_bytes:
                    counters.failed["damaged-log"] += 1
                    log.warning("%s: %d bytes at its end cannot be read", opened.log.folder, opened.log.lost_bytes)
        except BaseException:
            self.close()
            raise

    def subscriptions(self) -> tuple[LocalSubscription, ...]:
        """The subscriptions that the peer has for its logs."""
        return tuple(LocalSubscription(n, each.filter, logged=True) for n, each in self._by_number.items())

    def find(self, number: int) -> PeerLog | None:
        """The log whose subscription has this number."""
        return self._by_number.get(number)

    def named(self, name: str) -> PeerLog:
        """The log of this name. Raises `Refused`."""
        found = next((each for each in self._by_number.values() if each.name == name), None)
        if found is None:
            raise Refused(f"this peer has no log {name!r}", code="unknown-log")
        return found

    def covering(self, filter: Filter) -> PeerLog:
        """The first log that has all events of a filter. Raises `Refused`."""
        found = next((each for each in self._by_number.values() if each.covers(filter)), None)
        if found is None:
            raise Refused("no log of this peer has all events that this filter matches", code="unknown-log")
        return found

    def status(self) -> dict[str, LogStatus]:
        return {each.name: each.status() for each in self._by_number.values()}

    def begin(self) -> None:
        """Look from time to time for events that are too old."""
        for number in self._by_number:
            self._drop_old(number)

    def _drop_old(self, number: int) -> None:
        one = self._by_number[number]
        try:
            if one.log.drop_old():
                one.wake()
        except OSError as error:
            self._counters.failed["log-retention"] += 1
            log.warning("%s: cannot drop old events: %s", one.log.folder, error)
        wait_s = one.log.bounds.check_ns / SECOND
        self._timers[number] = asyncio.get_running_loop().call_later(wait_s, self._drop_old, number)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for each in self._by_number.values():
            each.log.close()
