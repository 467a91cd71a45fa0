"""Ranges of positions: how they are split into tasks, and how a task reads one."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from wend.drivers.live.client.log_ranges import LogRange
from wend.drivers.live.log_frames import LoggedEvent, Records
from wend.drivers.live.logs.record import count_of
from wend.model.errors import ClientError
from wend.pipeline.log_source.event_columns import EventTable
from wend.pipeline.log_source.log_peer import LogPeer
from wend.pipeline.log_source.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("wend.spark")

BATCH_ROWS: Final = 10_000
LOSSES: Final = ("log-dropped", "log-damaged")
"""What a log no longer has. It also withholds events on purpose: those past their ttl."""


@dataclass
class LogPartition(InputPartition):
    """The positions that a task reads."""

    log: str
    log_id: str
    begin: int
    end: int


def split_range(wanted: LogRange, most: int) -> list[LogPartition]:
    """A range in parts of nearly equal size, each of at most so many positions. If the log lost its end within the
    range, positions in between name no events, and the range stays whole."""
    begin, end = wanted.begin, wanted.end
    if begin >= end:
        return []
    if end - begin != count_of(end) - count_of(begin):
        return [LogPartition(wanted.log, wanted.log_id, begin, end)]
    parts = -(-(end - begin) // most)
    cuts = [begin + (end - begin) * part // parts for part in range(parts + 1)]
    return [LogPartition(wanted.log, wanted.log_id, low, high) for low, high in pairwise(cuts)]


def read_range(part: LogPartition, options: ReadOptions, filter: str, schema: "StructType") -> Iterator[Any]:
    """The events of a partition as Arrow batches. Raises `WendError`."""
    table = EventTable(schema, options.deadline_ns)
    wanted = LogRange(part.log, part.log_id, part.begin, part.end)
    with LogPeer(options.access, part.log, part.log_id) as peer:
        for blocks in peer.read(wanted, filter, BATCH_ROWS):
            records: list[LoggedEvent] = []
            for block in blocks:
                if isinstance(block, Records):
                    records += block.records
                else:
                    lost = sum(block.counts.get(code, 0) for code in LOSSES)
                    report_loss(options, min(lost, count_of(part.end) - count_of(part.begin)), block.below)
            yield from table.batches(records)


def report_loss(options: ReadOptions, lost: int, below: int) -> None:
    """Fail, or only warn, if events are lost."""
    if lost <= 0:
        return
    sentence = f"the log {options.log!r} has lost {lost} events before position {below}"
    if options.must_be_whole:
        raise ClientError(f"{sentence}; to read on without them, set failOnDataLoss to false", code="failed")
    log.warning("%s", sentence)
