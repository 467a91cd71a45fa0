"""Publishing many events at once, and without waiting."""

import asyncio
from typing import Any

import pytest

import wend
from tests.drivers.live.net import overlay, run, take, until
from tests.errors import raises
from wend.drivers.live import frames
from wend.drivers.live.client import batches, client
from wend.drivers.live.transport import wire
from wend.model.publication import Publication


def test_many_events_arrive_in_order_with_a_receipt_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_MSGS", 7)

    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'x'") as events,
        ):
            many: list[Any] = [({"topic": "x"}, b"%d" % number) for number in range(98)]
            receipts = await client.publish_many([*many, {"topic": "x", "n": 98}, ({"topic": "y"}, b"", {"a": "b"})])
            arrived = await take(events, 99)
            assert [event.payload for event in arrived] == [*(b"%d" % number for number in range(98)), b""]
            assert [receipt.id for receipt in receipts[:99]] == [event.id for event in arrived]
            assert (receipts[98].targets, receipts[99].targets) == (1, 0)
            assert await client.publish_many([]) == []

    run(scene())


def test_a_batch_is_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 1000)
    written: list[int] = []

    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            before = batches.PublishBatch.encode

            def encode(batch: batches.PublishBatch) -> bytes:
                written.append(len(batch.refs))
                return before(batch)

            monkeypatch.setattr(batches.PublishBatch, "encode", encode)
            sizes = (400, 400, 400, 2000, 1)
            assert len(await client.publish_many([({"topic": "x"}, bytes(size)) for size in sizes])) == 5

    run(scene())
    assert written == [2, 1, 1, 1]


def test_an_invalid_event_is_named_and_nothing_is_sent() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            with raises("invalid-event", match="event 1 of many: attribute 'n' must be"):
                await client.publish_many([{"topic": "x"}, {"n": None}])  # type: ignore[dict-item]
            assert (await client.publish({"topic": "x"})).id.sequence == 1

    run(scene())


def test_a_refusal_of_one_event_loses_no_receipt_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            publish = a.peer.publish

            def picky(publication: Publication) -> Any:
                if publication.payload == b"1":
                    raise wend.Refused("not this one")
                return publish(publication)

            monkeypatch.setattr(a.peer, "publish", picky)
            with raises("partly-published", match=r"1 of 3 events .*: not this one") as caught:
                await client.publish_many([({"topic": "x"}, b"%d" % number) for number in range(3)])
            first, second, third = caught.value.results
            assert isinstance(second, wend.Refused)
            assert (first.id.sequence, third.id.sequence) == (1, 2)

    run(scene())


def test_a_broken_connection_ends_it_and_says_what_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_MSGS", 2)

    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            publish = a.peer.publish

            def dying(publication: Publication) -> Any:
                if publication.payload == b"3":
                    for session in list(a.listener.sessions):
                        session.end()
                return publish(publication)

            monkeypatch.setattr(a.peer, "publish", dying)
            with raises("partly-published") as caught:
                await client.publish_many([({"topic": "x"}, b"%d" % number) for number in range(20)])
            results = caught.value.results
            assert len(results) == 20
            assert all(isinstance(result, wend.PublishReceipt) for result in results[:3])
            assert all(isinstance(result, wend.ConnectionLost) for result in results[3:])
            assert "was not sent" in str(results[-1]) and "broke before the answer" in str(results[3])
            assert (await client.publish({"topic": "x"})).id.sequence == 5  # the client is back

    run(scene())


def test_a_peer_that_does_not_answer_is_waited_for_once() -> None:
    async def scene() -> None:
        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(wire.encode_frame(frames.Welcome(7, 1)))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(deaf, "127.0.0.1", 0)
        async with wend.connect(f"wend://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
            client.timeout = 0.05
            with raises("partly-published", match=r"did not answer within 0\.05 s"):
                await client.publish_many([{"topic": "x"}] * 1000)
        server.close()

    run(scene())


def test_try_publish_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WINDOW_MSGS", 5)

    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            receipt = await client.try_publish({"topic": "x"}, b"payload", {"a": "b"})
            assert receipt is not None and receipt.id.sequence == 1
            many = [asyncio.create_task(client.try_publish({"topic": "x"})) for _ in range(9)]
            receipts = [await each for each in many]
            assert [each is not None for each in receipts] == [True] * 5 + [False] * 4
            await a.listener.stop()
            await until(lambda: not client.connected)
            assert await client.try_publish({"topic": "x"}) is None
            with raises("invalid-event", match="attribute 'n' must be"):
                await client.try_publish({"n": None})  # type: ignore[dict-item]

    run(scene())
