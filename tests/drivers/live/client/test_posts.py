"""Posted events: publications whose receipts nobody awaits one by one, and deliveries that come in one frame."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wend
from tests.drivers.live.net import RawClient, overlay, run, take, until
from tests.errors import raises
from wend.drivers.live import frames
from wend.drivers.live.broker import fair_scheduler
from wend.drivers.live.client import posts
from wend.drivers.live.transport import wire
from wend.model.errors import Refused
from wend.model.publication import Publication, check_size, check_types, is_surely_valid


def test_posted_events_arrive_in_order_as_they_were_when_they_were_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "POST_MSGS", 7)

    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'x'") as events,
        ):
            attributes: dict[str, Any] = {"topic": "x"}
            payload = bytearray(b"?")
            for number in range(100):
                attributes["n"], payload[:] = number, b"%d" % number
                await client.post(attributes, payload)
            await client.post({"topic": "x", "n": 100}, b"100", {"a": "b"}, ttl=60.0, retain="n")
            assert await client.flush() == 101
            arrived = await take(events, 101)
            assert [(event.attributes["n"], int(event.payload)) for event in arrived] == [(n, n) for n in range(101)]
            assert arrived[100].headers == {"a": "b"}
            assert [event.attributes["n"] for event, _ in a.peer.retained_events("n > 0")] == [100]
            assert await client.flush() == 0

    run(scene())


def test_what_was_posted_is_written_when_the_turn_ends_and_when_the_client_closes() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            client = await wend.connect(a.url)
            await client.post({"topic": "x"})
            await client.drain()
            assert a.peer.counters.publications == 1
            await client.post({"topic": "x"})
            await client.close()
            await until(lambda: a.peer.counters.publications == 2)

    run(scene())


def test_an_invalid_event_is_not_posted() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            await client.post({"topic": "x"})
            with raises("invalid-event", match="attribute 'n' must be"):
                await client.post({"n": None})  # type: ignore[dict-item]
            with raises("invalid-event", match="retained by its attribute 'topic'"):
                await client.post({"n": 1}, retain=True)
            with raises("invalid-event", match="cannot be published"):
                await client.post({"topic": "\ud800"})
            assert await client.flush() == 1

    run(scene())


def test_refusals_are_counted_and_raised_by_the_next_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            publish = a.peer.publish

            def refusing(publication: Publication) -> Any:
                number = publication.attributes["n"]
                if number % 3 == 2:  # type: ignore[operator]
                    raise Refused(f"number {number} is not wanted")
                return publish(publication)

            monkeypatch.setattr(a.peer, "publish", refusing)
            for number in range(9):
                await client.post({"n": number})
            with raises("refused", match=r"^3 of 9 posted events were refused: number 2 is not wanted$"):
                await client.flush()
            await client.post({"n": 0})
            assert await client.flush() == 1
            assert a.counts["denied"] == 3

    run(scene())


def test_posts_without_an_answer_are_raised_when_the_connection_breaks() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url, patience=60) as client:
            await client.post({"topic": "x"})
            assert await client.flush() == 1
            a.listener.sessions.copy().pop().end()
            for _ in range(3):
                await client.post({"topic": "x"})
            with raises("connection-lost", match=r"^3 of 3 posted events got no receipt: the connection"):
                await client.flush()
            await client.post({"topic": "x"})
            assert await client.flush() == 1

    run(scene())


def test_a_post_waits_while_too_many_are_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "WINDOW_MSGS", 4)
    heard: list[frames.Post] = []
    answers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(writer)
        writer.write(wire.encode_frame(frames.Welcome(0, 1)))
        splitter = wire.FrameSplitter()
        while data := await reader.read(1 << 16):
            found = [wire.decode_to_peer(body) for body in splitter.feed(data)]
            heard.extend(frame for frame in found if isinstance(frame, frames.Post))
        writer.close()

    async def scene() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, wend.connect(f"wend://127.0.0.1:{port}") as client:

            async def post_all() -> None:
                for number in range(6):
                    await client.post({"n": number})

            posting = asyncio.create_task(post_all())
            await until(lambda: sum(len(frame.events) for frame in heard) == 4)
            assert not posting.done()
            for frame in heard:
                answers[0].write(wire.encode_frame(frames.Posted(frame.ref, len(frame.events))))
            await posting
            with raises("timeout"):
                await client.flush(timeout=0.05)
            assert sum(len(frame.events) for frame in heard) == 6

    run(scene())


def test_large_events_are_posted_in_frames_of_their_own() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            for number in range(12):
                await client.post({"topic": "x", "long": "l" * 40_000}, bytes(260_000 if number % 2 else 10))
            assert await client.flush() == 12
            assert not a.counts["garbage"]

    run(scene())


def test_other_clients_are_served_while_a_large_post_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_scheduler, "TURN_S", 0.0)

    async def scene() -> None:
        async with overlay([]) as (a,):
            greedy, other = [await RawClient.connect(a.listener.address) for _ in range(2)]
            for client in (greedy, other):
                client.send(frames.Greet())
                await client.receive()
            greedy.send(frames.Post(1, tuple(frames.PostedEvent({"n": n}, ttl_ns=n or None) for n in range(-5, 3000))))
            other.send(frames.PingFrame(1))
            assert await other.receive() == [frames.Completed(1)]
            assert a.peer.counters.publications < 3000
            posted = frames.Posted(1, 3000, 5, "invalid-event", "a ttl must be above 0, got -5 ns")
            assert await greedy.receive() == [posted]
            greedy.close()
            other.close()

    run(scene())


@pytest.mark.parametrize("batches", [True, False])
def test_deliveries_of_one_turn_come_in_one_frame_to_clients_that_take_them_so(batches: bool) -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            client = await RawClient.connect(a.listener.address)
            client.send(frames.Greet(batches=batches), frames.Subscribe(1, 7, "n >= 0"))
            await client.receive(2)
            client.send(frames.Post(2, tuple(frames.PostedEvent({"n": n}) for n in range(3))), frames.PingFrame(3))
            found = await client.receive(3 if batches else 5)
            deliveries = found[0].deliveries if isinstance(found[0], frames.Deliveries) else tuple(found[:3])
            assert isinstance(found[0], frames.Deliveries) is batches
            assert [(one.handle, one.event.attributes) for one in deliveries] == [(7, {"n": n}) for n in range(3)]  # type: ignore[union-attr]
            assert found[-2:] == [frames.Posted(2, 3), frames.Completed(3)]
            client.close()

    run(scene())


values = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=9),
    st.none(),
    st.binary(max_size=2),
    st.just("x" * 9000),
)
names = st.one_of(st.text(max_size=3), st.integers(), st.just("n" * 9000))


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.dictionaries(names, values, max_size=40), st.just([])), st.sampled_from([b"", "", bytes(262_145)]))
def test_a_plain_event_passes_all_checks(attributes: Any, payload: Any) -> None:
    if is_surely_valid(attributes, payload, {}):
        check_types(attributes, payload, {})
        check_size(attributes, payload, {})
    elif isinstance(attributes, dict) and len(attributes) < 3 and payload == b"":
        plain = all(type(name) is str and len(name) < 9 and name.isascii() for name in attributes)
        assert not (plain and all(type(value) in (bool, float) for value in attributes.values()))
