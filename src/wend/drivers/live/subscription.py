"""The reading end of a subscription: a bounded buffer that is iterated over.

Bounded twice, by messages and by bytes, because either alone can be met by a gigabyte. When it is
full the oldest event gives way to the newest, which is what somebody who asked for events on time
would rather have; how many were lost, here or at the peer, is in `dropped`.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from types import TracebackType
from typing import Any, Protocol

import msgspec

from wend.drivers.live.frames import Delivery
from wend.model.errors import ClientError, WendError
from wend.model.events import Attributes, EventId, Headers
from wend.model.units import SECOND, Nanos

BUFFER_MSGS = 10_000
BUFFER_BYTES = 16 * 1024 * 1024
_EVENT_BYTES = 200


class Arrival(msgspec.Struct, frozen=True):
    """An event as a subscriber gets it."""

    id: EventId
    attributes: Attributes
    payload: bytes
    age: float
    """Seconds from publication to delivery at the subscriber's peer."""
    late: bool
    """Whether that is more than the subscription's deadline."""
    headers: Headers = {}


class Owner(Protocol):
    """What a subscription needs of its client, and applications do not."""

    async def _open(self, subscription: "Subscription") -> None: ...

    async def _forget(self, subscription: "Subscription") -> None: ...


class Subscription:
    """Made by `Client.subscribe`."""

    def __init__(
        self,
        owner: Owner,
        handle: int,
        filter: str,
        deadline_ns: Nanos | None,
        reliability: float | None,
        buffer_msgs: int,
        buffer_bytes: int,
    ) -> None:
        self._handle = handle
        self.filter = filter
        self.deadline_ns = deadline_ns
        self.reliability = reliability
        self.dropped = 0
        self._owner = owner
        self._buffer_msgs = buffer_msgs
        self._buffer_bytes = buffer_bytes
        self._buffer: deque[tuple[Delivery, int]] = deque()
        """With the size of each."""
        self._bytes = 0
        self._error: WendError | None = None
        self._entered = False
        self._ended = False
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "Subscription":
        if self._ended:
            raise ClientError("this subscription is closed: make another")
        if not self._entered:
            await self._owner._open(self)
            self._entered = True
        return self

    def __await__(self) -> Generator[Any, None, "Subscription"]:
        return self.__aenter__().__await__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """No more events; what is buffered can still be read."""
        self._end(None)
        await self._owner._forget(self)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Arrival:
        """Ends when the subscription is closed; raises when the peer did not come back, or refused it then."""
        while not self._buffer:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            if not self._entered:
                raise ClientError("enter it first: async with client.subscribe(...)")
            await self._change()
        delivery, size = self._buffer.popleft()
        self._bytes -= size
        self._changed.set()
        event = delivery.event
        age = delivery.age_ns / SECOND
        return Arrival(event.id, event.attributes, event.payload, age, delivery.late, event.headers)

    async def consumed(self) -> None:
        """Until the buffer is empty."""
        while self._buffer:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # ---------------------------------------------------------------- what the client calls, and nobody else

    def _take(self, delivery: Delivery) -> None:
        if self._ended:
            return
        size = _size(delivery)
        self._buffer.append((delivery, size))
        self._bytes += size
        while len(self._buffer) > self._buffer_msgs or self._bytes > self._buffer_bytes:
            self._bytes -= self._buffer.popleft()[1]
            self.dropped += 1
        self._changed.set()

    def _end(self, error: WendError | None) -> None:
        self._ended = True
        self._error = self._error or error
        self._changed.set()


def _size(delivery: Delivery) -> int:
    """Roughly what an event takes in memory: exact enough for a bound."""
    event = delivery.event
    size = _EVENT_BYTES + len(event.payload)
    for value in event.attributes.values():
        size += 64 + len(str(value))
    for name, text in event.headers.items():
        size += 128 + len(name) + len(text)
    return size
