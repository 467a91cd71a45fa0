"""Events for a log, its clock, and damage to its files."""

from pathlib import Path

from wend.drivers.live.logs.cursor import LogCursor
from wend.drivers.live.logs.log import Log
from wend.drivers.live.logs.record import LogRecord
from wend.drivers.live.logs.retention import Bounds
from wend.model.events import Event, EventId
from wend.model.units import SECOND

BEGIN_NS = 1_700_000_000 * SECOND


class WallClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = BEGIN_NS

    def __call__(self) -> int:
        return self.now


def make_event(number: int, size: int = 40) -> Event:
    return Event(EventId(1, 1, number), {"topic": "a", "number": number}, bytes([number % 251]) * size)


def open_log(folder: Path, bounds: Bounds = Bounds(), clock: WallClock | None = None, boot: str = "one") -> Log:  # noqa: B008
    return Log(folder, bounds, clock=clock or WallClock(), boot=boot)


def crash(log: Log) -> None:
    """Leave the files as a killed process does."""
    log.leave()


def read_all(log: Log, position: int = 0, most: int = 7) -> tuple[list[LogRecord], LogCursor]:
    """All records from a position on, read by a cursor that ends at the end of the log."""
    cursor = LogCursor(log, position or log.first_position)
    records = []
    while not cursor.is_at_end:
        records += cursor.read(most)
    return records, cursor


def numbers(records: list[LogRecord]) -> list[int]:
    return [record.event().id.sequence for record in records]
