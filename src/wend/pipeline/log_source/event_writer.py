"""Publishes rows as events: `df.write.format("wend")` and `df.writeStream.format("wend")`.

Each row has a key, by which peers recognise an event that was published before. So if Spark tries a task or a query
again, its events are still published once, as long as peers remember the keys.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from wend.drivers.live.client.arrivals import PublishReceipt
from wend.drivers.live.client.client import CONGESTED_S, Client
from wend.drivers.live.client.connect import make_tls_reader
from wend.model.errors import ClientError, ConfigError, ConnectionLost
from wend.pipeline.log_source.event_rows import EventRow, EventRows, check_columns
from wend.pipeline.log_source.log_peer import FIRST_PAUSE_S, LAST_PAUSE_S
from wend.pipeline.log_source.options import PeerAccess

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("wend.spark")

ROUND_ROWS: Final = 512
"""Events that are published together. The next ones wait for their receipts."""
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class Published(WriterCommitMessage):
    """What a task has published."""

    events: int = 0
    repeated: int = 0
    """Events that an earlier try had published."""


def publish_rows(access: PeerAccess, rows: Iterator[EventRow]) -> Published:
    """Publish rows, and wait for all receipts. Raises `WendError`."""
    return asyncio.run(_publish_rows(access, rows))


async def _publish_rows(access: PeerAccess, rows: Iterator[EventRow]) -> Published:
    published = Published()
    client = await _connect(access)
    try:
        while some := list(islice(rows, ROUND_ROWS)):
            receipts = await asyncio.gather(*(_publish(client, row) for row in some), return_exceptions=True)
            for number, receipt in enumerate(receipts, published.events + 1):
                if isinstance(receipt, ClientError):
                    raise type(receipt)(f"row {number} of a partition: {receipt}", code=receipt.code)
                if isinstance(receipt, BaseException):
                    raise receipt
                published.repeated += receipt.repeated
            published.events += len(some)
            if any(receipt.congested for receipt in receipts if isinstance(receipt, PublishReceipt)):
                await asyncio.sleep(CONGESTED_S)
    finally:
        await client.close()
    return published


async def _publish(client: Client, row: EventRow) -> PublishReceipt:
    return await client.publish(row.attributes, row.payload, row.headers, key=row.key)


async def _connect(access: PeerAccess) -> Client:
    """A connection to one of the peers. It tries for a while."""
    tls = make_tls_reader(access.urls[0], access.credentials)
    give_up, pause_s = time.monotonic() + access.patience_s, FIRST_PAUSE_S
    while True:
        client = Client(",".join(access.urls), timeout=access.timeout_s, patience=access.patience_s, tls=tls)
        try:
            await client
        except ConnectionLost:
            if time.monotonic() >= give_up:
                raise
        else:
            client.timeout = access.patience_s  # it publishes again for this time if the connection breaks
            return client
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_PAUSE_S)


def _check(schema: "StructType", overwrite: bool) -> None:
    check_columns(schema)
    if overwrite:
        raise ConfigError("what is published cannot be overwritten: use the mode append")


def _count(messages: Sequence[WriterCommitMessage | None]) -> str:
    done = [each for each in messages if isinstance(each, Published)]
    return f"{sum(each.events for each in done)} events, {sum(each.repeated for each in done)} of them repeated"


class EventBatchWriter(DataSourceArrowWriter):
    """Publishes a table."""

    def __init__(self, access: PeerAccess, schema: "StructType", overwrite: bool) -> None:
        """Raises `ConfigError`."""
        _check(schema, overwrite)
        self._access = access
        self._run = uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Published:
        rows = EventRows(self._run, _partition_id())
        return publish_rows(self._access, rows.events(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("published %s", _count(messages))


class EventStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the batches of a streaming query."""

    def __init__(self, access: PeerAccess, schema: "StructType", overwrite: bool) -> None:
        """Raises `ConfigError`."""
        _check(schema, overwrite)
        self._access = access

    def write(self, iterator: Iterator[Any]) -> Published:
        context = _task_context()
        run = f"{context.getLocalProperty(QUERY_ID)}:{context.getLocalProperty(BATCH_ID)}"
        rows = EventRows(run, context.partitionId())
        return publish_rows(self._access, rows.events(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.info("batch %d: published %s", batchId, _count(messages))


def _task_context() -> Any:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigError("rows are published by tasks of Spark")
    return context


def _partition_id() -> int:
    number: int = _task_context().partitionId()
    return number
