"""Follows a log as a stream: `spark.readStream.format("wend")`.

An offset names a log by its id, and a position in it: the first that is not read yet. Spark's checkpoint alone decides
what is read; the peer knows nothing of the query, so what Spark commits frees nothing there.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from wend.drivers.live.client.log_ranges import LogRange
from wend.drivers.live.frames import Reading
from wend.drivers.live.log_frames import LogPlace
from wend.drivers.live.logs.record import count_of
from wend.model.errors import ClientError, ConfigError, Refused
from wend.pipeline.log_source.event_columns import check_schema
from wend.pipeline.log_source.log_peer import LogPeer
from wend.pipeline.log_source.options import ReadOptions
from wend.pipeline.log_source.ranges import LogPartition, log, read_range, report_loss, split_range

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Offset = dict[str, int]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A log that is followed."""

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        """Raises `ConfigError`."""
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._peer: LogPeer | None = None
        """The connection, while this is the planner of a query."""
        self._log_id = ""
        """The log that it goes on with; empty: any of its name."""
        self._target: Offset | None = None
        """Where a query ends that reads what is available now."""

    # ---------------------------------------------------------------- offsets

    def initialOffset(self) -> Offset:
        options = self._options
        begin = self._find(options.begin, is_patient=False)
        newest = self._find(LogPlace("end")).position
        if begin.position > newest:
            next_one = f"its next one is {newest}"
            raise ConfigError(f"position {begin.position} is not in the log {options.log!r} yet: {next_one}")
        return {begin.log_id: begin.position}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        log_id, begin, first = self._go_on(start)
        newest = self._find(LogPlace("end")).position
        if self._target is not None:
            newest = min(newest, self._target.get(log_id, newest))
        begin = max(begin, first)
        if isinstance(limit, ReadMaxRows) and count_of(newest) - count_of(begin) > limit.max_rows:
            newest = begin + limit.max_rows
        return {log_id: newest} if newest > begin else start

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> Offset:
        newest = self._find(LogPlace("end"))
        return {newest.log_id: newest.position}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.reportLatestOffset()

    def _find(self, place: LogPlace, *, is_patient: bool = True) -> Reading:
        if self._peer is None:
            self._peer = LogPeer(self._options.access, self._options.log, self._log_id)
        return self._peer.find(place, is_patient=is_patient)

    def _use_log(self, log_id: str) -> None:
        """Ask for this log from now on; empty: for any of its name."""
        if log_id != self._log_id:
            self._log_id = log_id
            self.stop()

    def _go_on(self, start: Offset) -> tuple[str, int, int]:
        """The log with which a query goes on after an offset, the position there, and the first one that the log still
        has. Raises if events are lost, or only warns."""
        log_id, begin = next(iter(start.items()))
        self._use_log(log_id)
        try:
            first = self._find(LogPlace("first"))
        except Refused as error:
            if error.code not in ("other-log", "unknown-log"):
                raise
            self._report_other_log(error)
            self._use_log("")
            first = self._find(LogPlace("first"))
            return first.log_id, first.position, first.position
        report_loss(self._options, count_of(first.position) - count_of(max(begin, 1)), first.position)
        return log_id, begin, first.position

    def _report_other_log(self, error: Refused) -> None:
        if self._options.must_be_whole:
            advice = "to go on with the log that is there, set failOnDataLoss to false"
            raise ClientError(f"{error}; {advice}", code=error.code)
        log.warning("%s; the query goes on with the log that is there", error)

    # ---------------------------------------------------------------- reading

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        log_id, last = next(iter(end.items()))
        found, begin, first = self._go_on(start if log_id in start else end)
        if found != log_id:
            return []  # the log of this batch is gone
        begin = max(begin, first) if log_id in start else first
        return split_range(LogRange(self._options.log, log_id, begin, last), self._options.per_partition)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, LogPartition)
        return read_range(partition, self._options, self._options.filter, self._schema)

    def stop(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
