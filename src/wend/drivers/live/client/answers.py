"""The answers that a client waits for.

Every request has a number, which its answer repeats. A request fails with `ConnectionLost` if the connection breaks
before the answer, or if no answer arrives in time, because the client cannot know whether the peer accepted it.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Container
from typing import Protocol, TypeVar

from wend.drivers.live import frames
from wend.drivers.live.client.connection import PeerConnection
from wend.model.errors import ClientError, ConnectionLost, make_refusal

BATCH_BYTES = 256 * 1024
"""With more unsent bytes than this, a client waits until the peer has read some."""
A = TypeVar("A", frames.Accepted, frames.Completed, frames.StatusFrame, frames.Following, frames.Subscriptions)


class PendingBatch(Protocol):
    """Publications that are written together."""

    complete: asyncio.Future[None]
    """Done when each publication has an answer, or will get none."""

    def on_answer(self, frame: frames.Answer) -> None:
        """Handle the answer to a request of this batch."""
        ...

    def on_failed(self, error: ClientError) -> None:
        """Fail the unanswered requests of this batch, because the connection broke."""
        ...


class PendingAnswers:
    """Numbers the requests of a client, and assigns answers to them."""

    def __init__(self, connection: PeerConnection, timeout: float) -> None:
        self.timeout = timeout
        """How long an answer may take, in seconds."""
        self.number: Callable[[], int] = itertools.count(1).__next__
        """Returns a number for the next request or subscription."""
        self.calls: dict[int, asyncio.Future[frames.Answer] | PendingBatch] = {}
        """The requests that wait for an answer, by number."""
        self._connection = connection
        self._deadlines = AnswerDeadlines(self.calls, self._on_overdue)

    async def wait_for_answer(self, ref: int, expected: type[A]) -> A:
        """The answer to a request that was just written. Raises if the peer refuses it, or does not answer."""
        future: asyncio.Future[frames.Answer] = asyncio.get_running_loop().create_future()
        self.calls[ref] = future
        try:
            self._deadlines.add(ref, self.timeout)
            if self._connection.unsent_bytes > BATCH_BYTES:
                async with asyncio.timeout(self.timeout):
                    await self._connection.drain()
            answer = await future
        except TimeoutError:
            raise self._make_no_answer_error() from None
        finally:
            self.calls.pop(ref, None)
        if isinstance(answer, frames.RefusedFrame):
            raise make_refusal(answer.code, answer.why)
        if not isinstance(answer, expected):
            raise make_unexpected_answer_error(self._connection.current_url)
        return answer

    def on_answer(self, frame: frames.Answer) -> None:
        """Handle an answer of the peer: pass it to the request that waits for it."""
        call = self.calls.get(frame.ref)
        if isinstance(call, asyncio.Future):
            if not call.done():
                call.set_result(frame)
        elif call is not None:
            call.on_answer(frame)

    async def wait_for_all(self) -> None:
        """Wait until all requests so far are answered."""
        calls = [call if isinstance(call, asyncio.Future) else call.complete for call in self.calls.values()]
        if calls:
            await asyncio.wait(calls)

    def fail_all(self, error: ClientError) -> None:
        """Fail all requests, because the connection broke."""
        for call in self.calls.values():
            if not isinstance(call, asyncio.Future):
                call.on_failed(error)
            elif not call.done():
                call.set_exception(error)

    def _make_no_answer_error(self) -> ConnectionLost:
        return make_no_answer_error(self._connection.current_url, self.timeout)

    def _on_overdue(self, ref: int) -> None:
        call = self.calls.get(ref)
        if isinstance(call, asyncio.Future) and not call.done():
            call.set_exception(self._make_no_answer_error())


class AnswerDeadlines:
    """One timer for the time limits of all requests. Most requests have the same limit, so they become overdue in the
    order in which they were sent."""

    def __init__(self, waiting: Container[int], overdue: Callable[[int], None]) -> None:
        """`waiting` has the numbers of requests without an answer. `overdue` is called for each that waits too long."""
        self._waiting = waiting
        self._overdue = overdue
        self._due: deque[tuple[float, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, ref: int, timeout: float) -> None:
        """Start the time limit of a request."""
        self._forget_answered()
        when = asyncio.get_running_loop().time() + timeout
        due, place = self._due, len(self._due)
        while place and due[place - 1][0] > when:  # its timeout is shorter than that of earlier requests
            place -= 1
        due.insert(place, (when, ref))
        if self._timer is None or self._timer_at > when:
            self._arm(when)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = asyncio.get_running_loop().call_at(when, self._check)

    def _forget_answered(self) -> None:
        due = self._due
        while due and due[0][1] not in self._waiting:
            due.popleft()

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        self._forget_answered()
        while self._due and self._due[0][0] <= now:
            self._overdue(self._due.popleft()[1])
            self._forget_answered()
        if self._due:
            self._arm(self._due[0][0])


def make_no_answer_error(url: str, timeout: float) -> ConnectionLost:
    return ConnectionLost(f"{url} did not answer within {timeout:g} s", code="timeout")


def make_unexpected_answer_error(url: str) -> ClientError:
    return ClientError(f"{url} gave an answer that does not fit the request", code="unexpected-answer")
