"""The public face of a running overlay: connect to a peer, publish, subscribe.

    async with wend.connect("wend://127.0.0.1:7700") as client:
        async with client.subscribe("topic = 'stuttgart'", deadline=0.2) as events:
            receipt = await client.publish({"topic": "stuttgart", "temperature": 15}, b"payload")
            async for event in events: ...

One task reads the connection, whatever the application does, so a slow subscriber fills only its own
bounded buffer: the oldest events give way and are counted in `dropped`. When the connection breaks
the client connects again, waiting longer each time, and restores its subscriptions; what reached the
peer meanwhile is missed (but see `protocol/delivery/pending.py`), and what was under way fails with
`ConnectionLost`, since nobody can know whether the peer took it.
"""

import asyncio
import itertools
import random
from collections.abc import Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from wend.drivers.live import frames, wire
from wend.drivers.live.addresses import parse_url
from wend.drivers.live.subscription import BUFFER_BYTES, BUFFER_MSGS, Subscription
from wend.model.errors import ClientError, ConnectionLost, FilterError, Refused, WendError, WireError
from wend.model.events import Attributes, EventId, Headers, PeerId
from wend.model.units import seconds

FIRST_BACKOFF_S = 0.05
LAST_BACKOFF_S = 2.0
_CHUNK_BYTES = 256 * 1024

A = TypeVar("A", frames.Accepted, frames.DoneFrame, frames.StatusFrame, frames.Following)


class Receipt(msgspec.Struct, frozen=True):
    """What a peer promises for a publication."""

    id: EventId
    targets: int
    """How many peers are to get it, as far as the publishing peer knows."""
    kept: bool
    """Whether it survives a crash of the publishing peer."""


class Client:
    """Made by `connect`."""

    def __init__(self, url: str, *, timeout: float, patience: float) -> None:
        self.url = url
        self.peer: PeerId = -1
        self.reconnects = 0
        self._address = parse_url(url)
        self._timeout = timeout
        self._patience = patience
        self._refs = itertools.count(1)
        self._calls: dict[int, asyncio.Future[frames.ToClient]] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._restoring: dict[int, Subscription] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: ClientError | None = None

    # ---------------------------------------------------------------- what the application calls

    async def publish(self, attributes: Attributes, payload: bytes = b"", headers: Headers | None = None) -> Receipt:
        """Hands the event to the peer; returns when the peer has taken it. What is no event is not sent."""
        wire.check_kinds(attributes, payload, headers)
        wire.check_event(attributes, payload, headers)
        asked = frames.Publish(next(self._refs), attributes, payload, headers or {})
        answer = await self._call(asked, frames.Accepted)
        return Receipt(answer.id, answer.targets, answer.kept)

    def subscribe(
        self,
        filter: str,
        *,
        deadline: float | None = None,
        reliability: float | None = None,
        buffer_msgs: int = BUFFER_MSGS,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> Subscription:
        """Enter it with `async with`, or await it; then iterate.

        `deadline` is in seconds; `reliability` is the share of events that is enough at the first go, for peers that
        send on several trees.
        """
        if not isinstance(filter, str):
            raise ClientError(f"a filter is a text, got {filter!r}")
        for name, value in (("deadline", deadline), ("reliability", reliability)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                unit = ", in seconds" if name == "deadline" else ""
                raise ClientError(f"a {name} is a number{unit}, got {value!r}")
        if deadline is not None and not 0 < deadline < float("inf"):
            raise ClientError(f"a deadline must be above 0 seconds, got {deadline}")
        if reliability is not None and not 0 < reliability <= 1:
            raise ClientError(f"a reliability must lie above 0 and up to 1, got {reliability}")
        if buffer_msgs < 1 or buffer_bytes < 1:
            raise ClientError(f"a buffer of {buffer_msgs} messages and {buffer_bytes} bytes holds nothing")
        deadline_ns = None if deadline is None else max(1, seconds(deadline))
        return Subscription(self, next(self._refs), filter, deadline_ns, reliability, buffer_msgs, buffer_bytes)

    async def drain(self, timeout: float | None = None) -> None:
        """Until everything published is acknowledged and everything received is consumed."""
        try:
            async with asyncio.timeout(timeout):
                if self._calls:
                    await asyncio.wait(list(self._calls.values()))
                await self._call(frames.PingFrame(next(self._refs)), frames.DoneFrame)
                for subscription in list(self._subscriptions.values()):
                    await subscription.consumed()
        except TimeoutError:
            raise ClientError(f"not everything was consumed within {timeout} s") from None

    async def status(self) -> dict[str, int]:
        """What the peer has counted."""
        return (await self._call(frames.AskStatus(next(self._refs)), frames.StatusFrame)).counts

    async def cut(self, neighbour: PeerId) -> None:
        """Lose everything that the peer sends to this neighbour; for experiments."""
        await self._call(frames.SetLink(next(self._refs), neighbour, False), frames.DoneFrame)

    async def heal(self, neighbour: PeerId) -> None:
        await self._call(frames.SetLink(next(self._refs), neighbour, True), frames.DoneFrame)

    async def load_plan(self) -> int:
        """Have the peer read its plan again and follow it; the plan's id. No event is lost or doubled by it."""
        return (await self._call(frames.LoadPlan(next(self._refs)), frames.Following)).plan

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._finish(ClientError("the client is closed"))

    # ---------------------------------------------------------------- what subscriptions call, and nobody else

    async def _open(self, subscription: Subscription) -> None:
        # Registered before the connection is back, it would be restored and then asked for a second time.
        await self._until_ready()
        self._subscriptions[subscription._handle] = subscription
        try:
            await self._call(self._request(subscription), frames.DoneFrame)
        except BaseException as error:
            self._subscriptions.pop(subscription._handle, None)
            if self._writer is not None and not isinstance(error, FilterError | Refused):
                # Nobody waits for the answer any more, and it may be yes.
                self._writer.write(frames.encode(frames.Unsubscribe(next(self._refs), subscription._handle)))
            raise

    async def _forget(self, subscription: Subscription) -> None:
        if self._subscriptions.pop(subscription._handle, None) is None or not self._ready.is_set():
            return
        with suppress(ClientError):
            await self._call(frames.Unsubscribe(next(self._refs), subscription._handle), frames.DoneFrame)

    # ---------------------------------------------------------------- questions and answers

    async def _call(self, frame: Any, expected: type[A]) -> A:
        try:
            data = frames.encode(frame)
        except WireError as error:
            raise ClientError(str(error)) from None
        await self._until_ready()
        assert self._writer is not None
        answer: asyncio.Future[frames.ToClient] = asyncio.get_running_loop().create_future()
        self._calls[frame.ref] = answer
        try:
            self._writer.write(data)
            async with asyncio.timeout(self._timeout):
                with suppress(OSError):  # a broken connection fails the answer too, and says so better
                    await self._writer.drain()
                found = await answer
        except TimeoutError:
            raise ConnectionLost(f"{self.url} did not answer within {self._timeout:g} s") from None
        finally:
            self._calls.pop(frame.ref, None)
        if isinstance(found, frames.No):
            raise _refusal(found)
        if not isinstance(found, expected):
            raise ClientError(f"{self.url} gave an answer that does not fit the question")
        return found

    async def _until_ready(self) -> None:
        while not self._ready.is_set():
            if self._error is not None:
                raise self._error
            await self._ready.wait()
        if self._error is not None:
            raise self._error

    def _request(self, subscription: Subscription) -> frames.Subscribe:
        handle, text = subscription._handle, subscription.filter
        return frames.Subscribe(next(self._refs), handle, text, subscription.deadline_ns, subscription.reliability)

    # ---------------------------------------------------------------- the connection

    async def _start(self) -> None:
        """The first connection fails at once and says why; later ones are patient."""
        reader, splitter = await self._connect()
        self._task = asyncio.create_task(self._live(reader, splitter), name=f"wend client of {self.url}")

    async def _connect(self) -> tuple[asyncio.StreamReader, frames.Splitter]:
        try:
            async with asyncio.timeout(self._timeout):
                reader, writer = await asyncio.open_connection(*self._address)
                splitter = frames.Splitter()
                try:
                    writer.write(frames.encode(frames.Greet()))
                    await self._welcome(reader, splitter)
                except BaseException:
                    writer.close()
                    raise
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", None) or "it does not answer"
            raise ConnectionLost(f"cannot reach a peer at {self.url}: {why}") from None
        except WireError as error:
            raise ConnectionLost(f"{self.url} is not a Wend peer of this version: {error}") from None
        self._writer = writer
        self._ready.set()
        return reader, splitter

    async def _welcome(self, reader: asyncio.StreamReader, splitter: frames.Splitter) -> None:
        while True:
            data = await reader.read(_CHUNK_BYTES)
            if not data:
                raise ConnectionLost(f"{self.url} closed the connection")
            for body in splitter.feed(data):
                match frames.decode_to_client(body):
                    case frames.Welcome(peer=peer, version=frames.VERSION):
                        self.peer = peer
                        return
                    case frames.No(why=why):
                        raise Refused(why)
                    case _:
                        raise WireError("it did not welcome us")

    async def _live(self, reader: asyncio.StreamReader, splitter: frames.Splitter) -> None:
        try:
            while True:
                with suppress(OSError, WireError):
                    await self._read(reader, splitter)
                self._lost(ConnectionLost(f"the connection to {self.url} broke before the answer came"))
                reader, splitter = await self._reconnect()
                self.reconnects += 1
        except ClientError as error:
            self._finish(error)
        finally:
            self._lost(ClientError("the client is closed"))

    async def _read(self, reader: asyncio.StreamReader, splitter: frames.Splitter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            for body in splitter.feed(data):
                self._take(frames.decode_to_client(body))

    def _take(self, frame: frames.ToClient) -> None:
        match frame:
            case frames.Delivery(handle=handle):
                if handle in self._subscriptions:
                    self._subscriptions[handle]._take(frame)
            case frames.Dropped(handle, count):
                if handle in self._subscriptions:
                    self._subscriptions[handle].dropped += count
            case frames.Welcome():
                pass
            case _:
                restored = self._restoring.pop(frame.ref, None)
                if restored is not None and isinstance(frame, frames.No):
                    self._subscriptions.pop(restored._handle, None)
                    restored._end(_refusal(frame))
                answer = self._calls.get(frame.ref)
                if answer is not None and not answer.done():
                    answer.set_result(frame)

    async def _reconnect(self) -> tuple[asyncio.StreamReader, frames.Splitter]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._patience
        wait = FIRST_BACKOFF_S
        while True:
            # Spread out, so that the clients of a restarted peer do not all come at once.
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            try:
                connected = await self._connect()
            except ConnectionLost as error:
                if loop.time() > give_up:
                    raise ConnectionLost(f"{error}; gave up after {self._patience:g} s") from None
                wait = min(2 * wait, LAST_BACKOFF_S)
            else:
                self._restore()
                return connected

    def _restore(self) -> None:
        assert self._writer is not None
        for subscription in self._subscriptions.values():
            request = self._request(subscription)
            self._restoring[request.ref] = subscription
            self._writer.write(frames.encode(request))

    def _lost(self, error: ClientError) -> None:
        self._ready.clear()
        self._restoring.clear()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(error)

    def _finish(self, error: ClientError) -> None:
        """No more connections: everybody who waits is told."""
        self._error = self._error or error
        self._lost(error)
        self._ready.set()
        for subscription in list(self._subscriptions.values()):
            subscription._end(error)
        self._subscriptions.clear()


def _refusal(answer: frames.No) -> WendError:
    return (FilterError if answer.filter else Refused)(answer.why)


class Connecting:
    """`async with connect(url) as client` or `client = await connect(url)`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def _start(self) -> Client:
        await self._client._start()
        return self._client

    def __await__(self) -> Generator[Any, None, Client]:
        return self._start().__await__()

    async def __aenter__(self) -> Client:
        return await self._start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._client.close()


def connect(url: str, *, timeout: float = 10.0, patience: float = 60.0) -> Connecting:
    """A client of the peer at `url`.

    In seconds: `timeout` bounds each attempt to connect, and each answer once the question is sent; `patience` is
    how long a broken connection is tried again, which questions asked meanwhile wait for.
    """
    return Connecting(Client(url, timeout=timeout, patience=patience))
