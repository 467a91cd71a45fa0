"""Posted events: publications whose receipts are not awaited one by one.

`Client.post` gathers the events of one turn of the event loop into one request, and the peer answers them all at once.
If `WINDOW_MSGS` events are unanswered, `post` waits. Events that the peer refuses or a broken connection loses are
counted, and the next `Client.flush` raises the first cause.
"""

import asyncio

from wend.drivers.live import frames
from wend.drivers.live.client.answers import PendingAnswers, make_no_answer_error, make_unexpected_answer_error
from wend.drivers.live.client.connection import PeerConnection
from wend.drivers.live.clock import monotonic
from wend.drivers.live.transport import wire
from wend.model.errors import ClientError, ConnectionLost, WendError, WireError, make_refusal
from wend.model.publication import Publication

POST_MSGS = 64
POST_BYTES = 64 * 1024
WINDOW_MSGS = 1024
WINDOW_BYTES = 1024 * 1024


class PostBatch:
    """Events of one request."""

    def __init__(self, posts: "Posts", count: int, size: int) -> None:
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._posts = posts
        self._count = count
        self._size = size

    def on_answer(self, frame: frames.Answer) -> None:
        if self.complete.done():
            return
        if isinstance(frame, frames.Posted):
            self._posts.accepted += frame.accepted
            if frame.refused:
                self._posts.count_failed(frame.refused, make_refusal(frame.code, frame.why))
        elif isinstance(frame, frames.RefusedFrame):
            self._posts.count_failed(self._count, make_refusal(frame.code, frame.why))
        else:
            self._posts.count_failed(self._count, make_unexpected_answer_error(self._posts.url))
        self._end()

    def on_failed(self, error: ClientError) -> None:
        if not self.complete.done():
            self._posts.count_failed(self._count, error)
            self._end()

    def _end(self) -> None:
        self.complete.set_result(None)
        self._posts.count_answered(self._count, self._size)


class Posts:
    """The posted events of a client."""

    def __init__(self, connection: PeerConnection, answers: PendingAnswers) -> None:
        self._connection = connection
        self._answers = answers
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._unanswered = 0
        self._unanswered_bytes = 0
        self._changed = asyncio.Event()
        self.accepted = 0
        """Since the last flush."""
        self._failures = 0
        self._failure: WendError | None = None

    @property
    def url(self) -> str:
        return self._connection.current_url

    async def add(self, event: Publication) -> None:
        """Send an event with others; wait while too many are unanswered."""
        encoded, began = _encode(event), monotonic()
        if self._connection.writer is None:
            await self._connection.wait_until_open()
        while self._unanswered >= WINDOW_MSGS or self._unanswered_bytes >= WINDOW_BYTES:
            await self._wake_waiters()
        if event.ttl_ns is not None:
            encoded = _encode(event.after_waiting(monotonic() - began))
        size = len(encoded)
        if self._gathered_bytes + size > POST_BYTES:
            self._send()
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._send)
        self._gathered.append(encoded)
        self._gathered_bytes += size
        self._unanswered += 1
        self._unanswered_bytes += size
        if len(self._gathered) >= POST_MSGS:
            self._send()
            await asyncio.sleep(0)  # so that it is written while the next ones are made

    async def flush(self, timeout: float) -> int:
        """Wait for all answers. Returns how many events the peer accepted since the last flush."""
        self._send()
        try:
            async with asyncio.timeout(timeout):
                while self._unanswered:
                    await self._wake_waiters()
        except TimeoutError:
            raise make_no_answer_error(self.url, timeout) from None
        accepted, failures, failure = self.accepted, self._failures, self._failure
        self.accepted, self._failures, self._failure = 0, 0, None
        if failure is not None:
            count = f"{failures} of {accepted + failures} posted events"
            fate = "got no receipt" if isinstance(failure, ConnectionLost) else "were refused"
            raise type(failure)(f"{count} {fate}: {failure}", code=failure.code)
        return accepted

    def count_failed(self, count: int, error: WendError) -> None:
        """Count events that were refused or lost, and keep the first cause."""
        self._failures += count
        self._failure = self._failure or error

    def count_answered(self, count: int, size: int) -> None:
        self._unanswered -= count
        self._unanswered_bytes -= size
        self._changed.set()

    def _send(self) -> None:
        if not self._gathered:
            return
        events, size = self._gathered, self._gathered_bytes
        self._gathered, self._gathered_bytes = [], 0
        batch, ref = PostBatch(self, len(events), size), self._answers.number()
        self._answers.calls[ref] = batch
        batch.complete.add_done_callback(lambda _: self._answers.calls.pop(ref, None))
        if self._connection.writer is None:
            batch.on_failed(ConnectionLost(f"the connection to {self.url} broke"))
        else:
            self._connection.unwritten.append(wire.encode_post(ref, events))
            self._connection.write_soon()

    async def _wake_waiters(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _encode(event: Publication) -> bytes:
    posted = frames.PostedEvent(event.attributes, event.payload, event.headers, event.ttl_ns, event.retain)
    try:
        return wire.encode_posted(posted)
    except WireError as error:
        raise ClientError(str(error), code=error.code) from None
