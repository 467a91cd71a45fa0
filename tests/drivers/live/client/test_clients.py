"""Clients: what they ask for, what they get, and what they cannot ask of a peer."""

import asyncio
import random
from typing import Any

import numpy as np
import pytest

import wend
from tests.drivers.live.net import PAIR, RawClient, fresh, known, overlay, run, take, until
from tests.errors import raises
from wend.drivers.live import frames
from wend.drivers.live.transport import wire


def test_an_event_crosses_the_overlay_with_its_receipt() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            assert (here.peer, there.peer) == (0, 1)
            async with there.subscribe("topic = 'x'", deadline=30.0, reliability=0.99) as events:
                await known(here, "x", 1)
                receipt = await here.publish({"topic": "x", "n": 5, "ok": True, "t": 1.5}, b"payload", {"a": "b"})
                event = await fresh(events)
                assert event.id == receipt.id
                assert (event.attributes, event.payload) == ({"topic": "x", "n": 5, "ok": True, "t": 1.5}, b"payload")
                assert event.headers == {"a": "b"}
                assert event.age > 0 and not event.late

    run(scene())


def test_scalars_of_numpy_are_published_as_numbers_and_truth_values() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            wanted = client.subscribe("x > 1 and n = 3 and ok = true and r > 5", deadline=np.float32(30.0))
            async with wanted as events:
                given: Any = {
                    "x": np.float64(1.5),
                    "n": np.int64(3),
                    "ok": np.bool_(True),
                    "r": wend.Range(np.int64(4)),
                }
                await client.publish(given)
                assert (await anext(events)).attributes == {"x": 1.5, "n": 3, "ok": True, "r": wend.Range(4)}
            with raises("invalid-event", match="attribute 'x' must be a truth value"):
                await client.publish({"x": np.array(3)})

    run(scene())


def test_awaiting_a_connection_is_the_other_way_to_use_it() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            client = await wend.connect(a.url)
            assert (await client.publish({"topic": "x"})).targets == 0
            await client.close()
            with raises("closed"):
                await client.publish({"topic": "x"})

    run(scene())


def test_the_peers_no_is_raised_with_its_sentence() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            with raises("filter-syntax"):
                async with client.subscribe("temperature >"):
                    pass
            with raises("too-large"):
                await client.publish({"topic": "x"}, bytes(262_145))
            with raises("too-large"):
                await client.publish({"topic": "x" * 50_000})
            with raises("too-large"):
                await client.publish({"topic": "x"}, b"", {"trace": "x" * 50_000})
            with raises("too-large"):
                await client.publish({"topic": "x"}, b"", {str(number): "" for number in range(65)})
            with raises("too-large"):
                wire.encode_frame(frames.Publish(999, {"topic": "x"}, bytes(500_000)))
            with raises("invalid-call", match="deadline"):
                client.subscribe("topic = 'x'", deadline=-1)
            with raises("invalid-call", match=r"a reliability must lie above 0 and up to 1, got 1\.5"):
                client.subscribe("topic = 'x'", reliability=1.5)
            with raises("invalid-subscription"):
                async with client.subscribe("topic = 'x'", deadline=1e10):
                    pass
            with raises("experiments-off"):
                await client.cut(1)
            assert (await client.publish({"topic": "x"})).targets == 0

    run(scene())


NO_EVENTS: list[tuple[tuple[Any, ...], str]] = [
    (({"topic": "x", "t": [1]},), r"attribute 't' must be a truth value, .* got \[1\] \(list\)"),
    (({"t": None},), r"attribute 't' must be .* got None \(NoneType\)"),
    (({"t": b"x"},), r"attribute 't' must be .* got b'x' \(bytes\)"),
    (({"t": {"u": 1}},), r"attribute 't' must be .* \(dict\)"),
    (({5: 1},), r"the name of an attribute is a text, got 5 \(int\)"),
    (({"t": 10**400},), r"attribute 't' is an integer outside -9223372036854775808\.\.18446744073709551615"),
    (({"t": -(2**63) - 1},), "attribute 't' is an integer outside"),
    (({"t": wend.Range(0, 2**64)},), "attribute 't' is an integer outside"),
    (("topic=x",), r"attributes are a dict of names and values, got 'topic=x' \(str\)"),
    (({"t": 1}, "text"), r"a payload is bytes, got 'text' \(str\)"),
    (({"t": 1}, None), r"a payload is bytes, got None"),
    (({"t": 1}, b"", {"a": 3}), r"header 'a' must be a text, got 3 \(int\)"),
    (({"t": 1}, b"", {10**400: "a"}), r"the name of a header is a text, got a large one \(int\)"),
    (({"t": 1}, b"", ["a"]), r"headers are a dict of names and texts, got \['a'\] \(list\)"),
    (({"t": "\ud800"},), "cannot be published"),
]


def test_what_is_no_event_is_not_sent() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            for said, why in NO_EVENTS:
                with raises("invalid-event", match=why) as found:
                    await client.publish(*said)
                assert not isinstance(found.value, wend.ConnectionLost)
            edges = {"least": -(2**63), "most": 2**64 - 1, "between": wend.Range(-(2**63), 2**64 - 1)}
            async with client.subscribe("most > 0") as events:
                receipt = await client.publish(edges, bytearray(b"p"))
                event = await anext(events)
                assert (event.attributes, event.payload) == (edges, b"p")
            assert (receipt.id.sequence, client.reconnects) == (1, 0)

    run(scene())


def test_a_subscription_is_entered_or_awaited_and_else_says_so() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            with raises("not-connected"):
                await anext(client.subscribe("topic = 'x'"))
            for deadline in ("200ms", True, [1]):
                with raises("invalid-call", match="a deadline is a number(, in| of) seconds"):
                    client.subscribe("topic = 'x'", deadline=deadline)  # type: ignore[arg-type]
            with raises("invalid-call", match=r"a reliability is a number, got '0\.9'"):
                client.subscribe("topic = 'x'", reliability="0.9")  # type: ignore[arg-type]
            with raises("invalid-call", match="a filter is a text, got 5"):
                client.subscribe(5)  # type: ignore[arg-type]
            events = await client.subscribe("topic = 'x'")
            async with events as same:  # which asks no second time
                await client.publish({"topic": "x"}, b"once")
                assert same is events and (await anext(events)).payload == b"once"
            assert [event async for event in events] == [] and not a.broker.subscriptions
            with raises("closed"):
                await events

    run(scene())


MONSTERS = [
    ("x = '" + "a" * 100_000 + "'", "16384 characters"),
    ("(" * 7_000 + "x = 1" + ")" * 7_000, "64 deep"),
    ("not " * 4_000 + "x = 1", "64 deep"),
    (" and ".join(f"(a{i} = 1 or b{i} = 2)" for i in range(200)), "conjunctions"),
]


def test_what_would_burn_a_peer_is_answered_with_a_sentence_and_counted() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            for text, reason in MONSTERS:
                with pytest.raises(wend.FilterError, match=reason):
                    async with client.subscribe(text):
                        pass
            with raises("too-large"):
                async with client.subscribe("x = '" + "a" * 10_000_000 + "'"):
                    pass
            with raises("too-large"):
                await client.publish({str(number): number for number in range(1_000_000)})
            # A client that does not check is told the same.
            raw = await RawClient.connect(a.listener.address)
            raw.send(frames.Greet(), frames.Publish(999, {str(number): number for number in range(20_000)}))
            _, refusal = await raw.receive(2)
            assert isinstance(refusal, frames.RefusedFrame) and (refusal.ref, refusal.code) == (999, "too-large")
            raw.close()
            assert a.counts["denied"] == len(MONSTERS) + 1
            assert (await client.publish({"topic": "x"})).targets == 0

    run(scene())


def test_an_event_of_a_quarter_megabyte_arrives_whole() -> None:
    payload = random.Random(1).randbytes(256 * 1024)

    async def scene() -> None:
        async with (
            overlay([(0, 1), (1, 2)]) as (a, _, c),
            wend.connect(a.url) as here,
            wend.connect(c.url) as there,
            there.subscribe("topic = 'x'") as events,
        ):
            await known(here, "x", 1)
            await here.publish({"topic": "x"}, payload, {"content-type": "noise"})
            large = await fresh(events)
            assert (large.payload, large.headers) == (payload, {"content-type": "noise"})
            await here.publish({"topic": "x"}, b"small")
            small = await fresh(events)
            assert (small.payload, small.headers) == (b"small", {})

    run(scene())


def test_clients_that_want_the_same_share_one_subscription() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            async with there.subscribe("topic = 'x'") as one, there.subscribe("topic = 'x'") as two:
                assert len(b.broker.subscriptions) == 1
                await known(here, "x", 1)
                await here.publish({"topic": "x"}, b"both")
                assert [(await fresh(events)).payload for events in (one, two)] == [b"both", b"both"]
                await one.close()
                await here.publish({"topic": "x"}, b"one left")
                assert (await fresh(two)).payload == b"one left"
            assert not b.broker.subscriptions

    run(scene())


def test_a_slow_application_loses_the_oldest_events_and_knows_how_many() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            async with client.subscribe("topic = 'x'", buffer_msgs=10) as events:
                for number in range(50):
                    await client.publish({"topic": "x"}, b"%d" % number)
                await until(lambda: events.dropped == 40)
                assert [event.payload for event in await take(events, 10)] == [b"%d" % n for n in range(40, 50)]
            async with client.subscribe("topic = 'x'", buffer_bytes=11_000) as events:
                for _ in range(10):
                    await client.publish({"topic": "x"}, bytes(3_000))
                await until(lambda: events.dropped == 7)

    run(scene())


def test_drain_waits_for_what_was_received() -> None:
    async def scene() -> None:
        async with (
            overlay([]) as (a,),
            wend.connect(a.url) as client,
            client.subscribe("topic = 'x'") as events,
        ):
            sending = [asyncio.create_task(client.publish({"topic": "x"}, b"%d" % n)) for n in range(20)]
            await asyncio.sleep(0)
            draining = asyncio.create_task(client.drain())
            got = await take(events, 20)
            await draining
            assert len(got) == 20 and all(task.done() for task in sending)
            await client.publish({"topic": "x"})
            with raises("timeout"):
                await client.drain(timeout=0.05)

    run(scene())


def test_import_wend_is_light_and_knows_its_names() -> None:
    import subprocess
    import sys

    code = "import sys, wend; assert not {'asyncio', 'numpy', 'msgspec'} & set(sys.modules); wend.connect"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(hasattr(wend, name) for name in wend.__all__)
    with pytest.raises(AttributeError):
        _ = wend.nothing
