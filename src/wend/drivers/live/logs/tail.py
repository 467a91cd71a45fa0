"""The newest records of a log, in memory for readers that follow it."""

from typing import Final

from wend.drivers.live.logs.record import LogRecord

MAX_RECORDS: Final = 2048
MAX_BYTES: Final = 1024 * 1024
_RECORD_BYTES: Final = 200


class Tail:
    """Records with consecutive positions; the oldest leave in batches."""

    def __init__(self) -> None:
        self._records: list[LogRecord] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: LogRecord) -> None:
        records = self._records
        if records and record.position != records[-1].position + 1:
            self.clear()
        records.append(record)
        self._bytes += _RECORD_BYTES + len(record.encoded)
        if len(records) > MAX_RECORDS or self._bytes > MAX_BYTES:
            self._keep(records[len(records) // 2 + 1 :])

    def drop_before(self, position: int) -> None:
        if self._records and self._records[0].position < position:
            self._keep([each for each in self._records if each.position >= position])

    def clear(self) -> None:
        self._keep([])

    def _keep(self, records: list[LogRecord]) -> None:
        self._records[:] = records
        self._bytes = sum(_RECORD_BYTES + len(each.encoded) for each in records)

    def read(self, position: int, most: int) -> list[LogRecord] | None:
        """Up to so many records from a position on; None if the record at this position is not among them."""
        records = self._records
        if not records or not records[0].position <= position <= records[-1].position:
            return None
        begin = position - records[0].position
        return records[begin : begin + most]
