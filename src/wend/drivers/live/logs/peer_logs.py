"""The logs of a live peer: each takes the events of a subscription of its own.

The peer announces these subscriptions like those of clients, and like durable ones they stay announced while it is
away. An event is in the log before the peer acknowledges it. While a log cannot be written, the driver holds back the
effects that follow (`store/writer.py`).

A log in publishers' order is the client of a durable subscription: the peer stores an event, and hands it over when its
turn has come. The log confirms what it has.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from wend.drivers.live.counters import Counters
from wend.drivers.live.logs.log import RECENT_IDS, Log
from wend.drivers.live.logs.settings import EventLogEntry
from wend.drivers.live.status import LogStatus
from wend.matching.filters import Filter, parse
from wend.model.errors import ConfigError, Refused
from wend.model.events import DurableOptions, Qos
from wend.model.units import FOREVER, SECOND
from wend.protocol.ports import Attached, Confirmed, Deliver, Input, LocalSubscription, Unsubscribed

log = logging.getLogger("wend.log")

FIRST_NUMBER: Final = 1 << 32
"""Of the subscriptions of logs; those of clients count from 1."""
WINDOW: Final = RECENT_IDS // 2
"""The most events of a log in order that are not confirmed: the log must know them if they come again."""


def number_of(name: str) -> int:
    """The number of a log's subscription, which is the same after a restart, whatever other logs there are."""
    return FIRST_NUMBER + crc32(name.encode())


class LogWriteError(OSError):
    """A log cannot be written."""


class PeerLog:
    """One log of a peer, with the readers that wait for its next event."""

    def __init__(self, entry: EventLogEntry, folder: Path) -> None:
        """Raises `ConfigError` if it cannot be opened."""
        self.name = entry.name
        self.filter = entry.filter
        self.is_ordered = entry.is_ordered
        self.number = number_of(entry.name)
        self.log = Log(folder, entry.bounds(), sync=entry.sync)
        self.appended = 0
        """Events since the peer started."""
        self.waiting: dict[Callable[[], None], None] = {}
        """Called once, when the log has grown."""
        self._parsed = parse(entry.filter)

    def subscription(self) -> LocalSubscription:
        """The subscription that the peer has for it."""
        if not self.is_ordered:
            return LocalSubscription(self.number, self.filter, logged=True)
        options = DurableOptions(f"wend.log.{self.name}", max_age_ns=FOREVER)
        return LocalSubscription(self.number, self.filter, Qos(order=True), options)

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
            duplicates=log.duplicates,
            dropped=log.dropped_events,
        )


class PeerLogs:
    """All logs of a peer."""

    def __init__(self, entries: Sequence[EventLogEntry], folder: Path, counters: Counters) -> None:
        """Opens the logs, each in a folder of its name. Raises `ConfigError`."""
        self._counters = counters
        self._by_number: dict[int, PeerLog] = {}
        self._tell: Callable[[Input], None] | None = None
        self._unconfirmed: dict[int, list[int]] = {}
        """By number: the positions in the backlog of events that a log in order has."""
        self._timers: dict[int, asyncio.TimerHandle] = {}
        try:
            for entry in entries:
                opened = PeerLog(entry, folder / entry.name)
                if opened.number in self._by_number:
                    opened.log.close()
                    raise ConfigError(f"log {entry.name} needs another name: its number is taken by another log")
                self._by_number[opened.number] = opened
                if opened.log.lost_bytes:
                    counters.failed["damaged-log"] += 1
                    log.warning("%s: %d bytes at its end cannot be read", opened.log.folder, opened.log.lost_bytes)
        except BaseException:
            self.close()
            raise

    def subscriptions(self) -> tuple[LocalSubscription, ...]:
        """The subscriptions that the peer has for its logs."""
        return tuple(each.subscription() for each in self._by_number.values())

    def append(self, log_: PeerLog, delivery: Deliver) -> None:
        """Append an event, and confirm it if it waited in a backlog. Raises `LogWriteError`."""
        log_.append(delivery)
        if delivery.position and self._tell is not None:
            if not self._unconfirmed:
                asyncio.get_running_loop().call_soon(self._confirm)
            self._unconfirmed.setdefault(log_.number, []).append(delivery.position)

    def _confirm(self) -> None:
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for number, positions in unconfirmed.items():
            if self._tell is not None:
                self._tell(Confirmed(number, tuple(positions)))

    def find(self, number: int) -> PeerLog | None:
        """The log whose subscription has this number."""
        return self._by_number.get(number)

    def named(self, name: str) -> PeerLog:
        """The log of this name. Raises `Refused`."""
        found = next((each for each in self._by_number.values() if each.name == name), None)
        if found is None:
            raise Refused(f"this peer has no log {name!r}", code="unknown-log")
        return found

    def covering(self, filter: Filter, *, ordered: bool) -> PeerLog:
        """The first log that has all events of a filter, in publishers' order if asked for. Raises `Refused`."""
        logs = [each for each in self._by_number.values() if each.covers(filter)]
        if not logs:
            raise Refused("no log of this peer has all events that this filter matches", code="unknown-log")
        return next((each for each in logs if each.is_ordered), logs[0]) if ordered else logs[0]

    def status(self) -> dict[str, LogStatus]:
        return {each.name: each.status() for each in self._by_number.values()}

    def begin(self, tell: Callable[[Input], None], backlogs: Collection[int]) -> None:
        """Take the events of a peer that has started, with these durable subscriptions. Look from time to time for
        events that are too old."""
        self._tell = tell
        ordered = {number for number, each in self._by_number.items() if each.is_ordered}
        for number in sorted(number for number in backlogs if number >= FIRST_NUMBER and number not in ordered):
            tell(Unsubscribed(number))  # of a log that is gone, or no longer in order
        for number in sorted(ordered):
            tell(Attached(number, WINDOW))
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
        self._tell = None
        for timer in self._timers.values():
            timer.cancel()
        for each in self._by_number.values():
            each.log.close()
