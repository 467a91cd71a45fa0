"""Reads a range of a log as a table: `spark.read.format("wend")`."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from wend.drivers.live.client.log_ranges import LogRange
from wend.drivers.live.log_frames import LogPlace
from wend.drivers.live.logs.record import count_of
from wend.model.errors import ConfigError
from wend.pipeline.log_source.event_columns import check_schema
from wend.pipeline.log_source.log_peer import LogPeer
from wend.pipeline.log_source.options import ReadOptions
from wend.pipeline.log_source.pushdown import PushedFilters
from wend.pipeline.log_source.ranges import LogPartition, read_range, report_loss, split_range

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class _PushFilters:
    """`pushFilters` of a reader, which Spark calls if `spark.sql.python.filterPushdown.enabled` is true.

    If it is false, Spark refuses a reader whose class has the method. It recognises the method by its function.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, pushed: PushedFilters) -> None:
        self._pushed = pushed

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pushed.push(filters)
        return filters


class LogBatchReader(DataSourceReader):
    """A range of a log."""

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        """Raises `ConfigError`."""
        check_schema(schema)
        self._options = options
        self._schema = schema
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        self._pushed = PushedFilters(options.filter, kinds)
        self.pushFilters = _PushFilters(self._pushed)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with LogPeer(options.access, options.log) as peer:
            wanted = self._find_range(peer)
        return [*split_range(wanted, options.per_partition)]

    def _find_range(self, peer: LogPeer) -> LogRange:
        """The positions to read. Raises `WendError`."""
        options, bounds = self._options, self._pushed.bounds
        reading = peer.find(options.begin, is_patient=False)
        first = peer.find(LogPlace("first"), is_patient=False).position
        end = peer.find(options.end, is_patient=False).position
        begin = reading.position
        if options.begin.by == "position":
            newest = peer.find(LogPlace("end"), is_patient=False).position
            if begin > newest:
                raise ConfigError(f"position {begin} is not in the log {options.log!r} yet: its next one is {newest}")
            report_loss(options, count_of(first) - count_of(max(begin, 1)), first)
        begin = max(begin, first, bounds.low_position)
        end = end if bounds.high_position is None else min(end, bounds.high_position)
        low, high = bounds.times()
        if low is not None:
            begin = max(begin, peer.find(low, is_patient=False).position)
        if high is not None:
            end = min(end, peer.find(high, is_patient=False).position)
        return LogRange(options.log, reading.log_id, begin, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, LogPartition):
            yield from read_range(partition, self._options, self._pushed.filter, self._schema)
