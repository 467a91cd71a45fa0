"""Batches of publications: many events in one write, each with an answer.

Waiting for a receipt before the next event would cost a round trip for every event. `Client.publish_many` writes a
batch while the receipts of the previous batch are in transit, so that the peer always has something to read.
"""

import asyncio
from collections.abc import Iterator

from wend.drivers.live import frames
from wend.drivers.live.client.answers import (
    BATCH_BYTES,
    PendingAnswers,
    make_no_answer_error,
    make_unexpected_answer_error,
)
from wend.drivers.live.client.arrivals import PublishReceipt, make_receipt
from wend.drivers.live.client.connection import PeerConnection
from wend.drivers.live.transport import wire
from wend.model.errors import ClientError, ConnectionLost, WendError, make_refusal

BATCH_MSGS = 256


class PublishBatch:
    """Publications that are written together, each with its own receipt."""

    def __init__(self, requests: list[frames.Publish]) -> None:
        self.error: ClientError | None = None
        """Why publications without an answer failed."""
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._answers: dict[int, frames.Answer] = {}

    @property
    def refs(self) -> list[int]:
        return [request.ref for request in self._requests]

    def encode(self) -> bytes:
        return b"".join(map(wire.encode_frame, self._requests))

    def on_answer(self, frame: frames.Answer) -> None:
        self._answers[frame.ref] = frame
        if len(self._answers) == len(self._requests) and not self.complete.done():
            self.complete.set_result(None)

    def on_failed(self, error: ClientError) -> None:
        if not self.complete.done():
            self.error = error
            self.complete.set_result(None)

    def results(self, unsent: ClientError, url: str) -> list[PublishReceipt | WendError]:
        """In the order of the publications: the receipt, or the reason why there is none."""
        return [_read_result(self._answers.get(ref, self.error or unsent), url) for ref in self.refs]


def _read_result(answer: frames.Answer | ClientError, url: str) -> PublishReceipt | WendError:
    match answer:
        case frames.Accepted():
            return make_receipt(answer)
        case frames.RefusedFrame(_, code, why):
            return make_refusal(code, why)
        case ClientError():
            return answer
    return make_unexpected_answer_error(url)


async def send_batches(
    connection: PeerConnection, answers: PendingAnswers, requests: list[frames.Publish]
) -> list[PublishReceipt | WendError]:
    """Send publications in batches. The next batch is written while the peer answers the previous one.

    If an answer does not arrive, no further batch is sent, so that no event overtakes one whose fate is unknown. A
    refused event does not stop the others."""
    batches, calls, timeout = list(_make_batches(requests)), answers.calls, answers.timeout
    unsent = ConnectionLost("the event was not sent, because an earlier event got no answer", code="not-sent")
    before: PublishBatch | None = None
    try:
        for batch in batches:
            if before is not None and before.error is not None:
                break
            await connection.wait_until_open()
            calls.update(dict.fromkeys(batch.refs, batch))
            connection.unwritten.append(batch.encode())
            await connection.drain()
            if before is not None:
                await _wait_for_answers(before, connection.current_url, timeout)
            before = batch
        if before is not None:
            await _wait_for_answers(before, connection.current_url, timeout)
    except ClientError as error:
        unsent = error if isinstance(error, ConnectionLost) else ConnectionLost(str(error), code=error.code)
    finally:
        for ref in (ref for batch in batches for ref in batch.refs):
            calls.pop(ref, None)
    return [result for batch in batches for result in batch.results(unsent, connection.current_url)]


async def _wait_for_answers(batch: PublishBatch, url: str, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await asyncio.shield(batch.complete)
    except TimeoutError:
        batch.on_failed(make_no_answer_error(url, timeout))


def _make_batches(requests: list[frames.Publish]) -> Iterator[PublishBatch]:
    """Publications in batches, bounded by their number and the bytes of their payloads."""
    batch: list[frames.Publish] = []
    size = 0
    for request in requests:
        if batch and (len(batch) >= BATCH_MSGS or size + len(request.payload) > BATCH_BYTES):
            yield PublishBatch(batch)
            batch, size = [], 0
        batch.append(request)
        size += len(request.payload)
    if batch:
        yield PublishBatch(batch)
