"""The requests of a client and the answers to them, over whatever connection it has at the moment.

Every request has a number, and its answer names it. A request fails with `ConnectionLost` if the connection breaks
before the answer, or if none comes in time, since nobody can know whether the peer accepted it.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import TypeVar

from wend.drivers.live import frames
from wend.drivers.live.client.answer_deadlines import AnswerDeadlines
from wend.drivers.live.client.batches import BATCH_BYTES, Calls, PendingBatch
from wend.drivers.live.client.connection import PeerConnection
from wend.model.errors import ClientError, ConnectionLost, FilterError, Refused, WendError, WireError

A = TypeVar("A", frames.Accepted, frames.Completed, frames.StatusFrame, frames.Following, frames.Subscriptions)


class RequestChannel:
    """Numbers the requests of a client, sends them and matches answers to them."""

    def __init__(self, connection: PeerConnection, timeout: float) -> None:
        self.timeout = timeout
        """How long an answer may take, in seconds."""
        self.number: Callable[[], int] = itertools.count(1).__next__
        """A number for the next request or subscription."""
        self.calls: Calls = {}
        """The requests that wait for an answer."""
        self._connection = connection
        self._deadlines = AnswerDeadlines(self.calls, self._overdue)

    async def call(self, frame: frames.Request, expected: type[A]) -> A:
        """Send a request, and wait for its answer. Raises where the peer refuses it, or does not answer."""
        try:
            data = frames.encode(frame)
        except WireError as error:
            raise ClientError(str(error)) from None
        connection = self._connection
        if connection.writer is None:
            await connection.opened()
        answer: asyncio.Future[frames.Answer] = asyncio.get_running_loop().create_future()
        self.calls[frame.ref] = answer
        try:
            self.write(data)
            self._deadlines.add(frame.ref, self.timeout)
            if connection.unsent_bytes > BATCH_BYTES:
                async with asyncio.timeout(self.timeout):
                    await connection.drain()
            found = await answer
        except TimeoutError:
            raise self._no_answer() from None
        finally:
            self.calls.pop(frame.ref, None)
        if isinstance(found, frames.No):
            raise refusal(found)
        if not isinstance(found, expected):
            raise ClientError(f"{connection.at} gave an answer that does not fit the request")
        return found

    def write(self, data: bytes) -> None:
        """Write a frame, with others of this turn of the event loop."""
        self._connection.unwritten.append(data)
        self._connection.write_soon()

    def answered(self, frame: frames.Answer) -> None:
        """The peer answered a request."""
        call = self.calls.get(frame.ref)
        if isinstance(call, PendingBatch):
            call.answered(frame)
        elif call is not None and not call.done():
            call.set_result(frame)

    async def complete(self) -> None:
        """Wait until the requests sent so far are answered."""
        calls = [call.complete if isinstance(call, PendingBatch) else call for call in self.calls.values()]
        if calls:
            await asyncio.wait(calls)

    def fail(self, error: ClientError) -> None:
        """Fail all requests: no answer will come over the connection that broke."""
        for call in self.calls.values():
            if isinstance(call, PendingBatch):
                call.failed(error)
            elif not call.done():
                call.set_exception(error)

    def _no_answer(self) -> ConnectionLost:
        return ConnectionLost(f"{self._connection.at} did not answer within {self.timeout:g} s")

    def _overdue(self, ref: int) -> None:
        call = self.calls.get(ref)
        if call is not None and not isinstance(call, PendingBatch) and not call.done():
            call.set_exception(self._no_answer())


def refusal(answer: frames.No) -> WendError:
    """The error that a refused request raises."""
    return (FilterError if answer.filter else Refused)(answer.why)
