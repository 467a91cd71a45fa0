"""Reads a log from its end, for the last events that match a filter."""

from collections.abc import Iterator
from contextlib import suppress

from wend.drivers.live.logs.log import Log
from wend.drivers.live.logs.record import LogRecord
from wend.drivers.live.logs.segment import HEADER_BYTES, LogSegment


def blocks_backwards(log: Log) -> Iterator[list[LogRecord]]:
    """The records of a log from its end to its beginning, in blocks; the records in a block are in order."""
    for segment in reversed(log.segments):
        try:
            places = log.reader(segment).index.places()
        except OSError:
            continue
        if not places or places[0] > HEADER_BYTES:
            places.insert(0, HEADER_BYTES)
        end = None
        for place in reversed(places):
            block = _read_block(log, segment, place, end)
            end = place
            if block:
                yield block


def _read_block(log: Log, segment: LogSegment, place: int, end: int | None) -> list[LogRecord]:
    block: list[LogRecord] = []
    with suppress(OSError):
        for records, _ in log.reader(segment).scan(place, end):
            block.extend(records)
    return block
