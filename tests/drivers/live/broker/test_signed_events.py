"""Signed events across live peers: clients learn who signed, and never a name that nobody verified."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import wend
from tests.drivers.live.key_ring import KeyRing
from tests.drivers.live.net import PAIR, Site, fresh, known, overlay, run
from tests.errors import raises
from wend.drivers.live.broker.signed_events import SignedEvents
from wend.model.events import SIGNATURE_HEADER, SIGNED_BY_HEADER
from wend.model.publication import Publication


@asynccontextmanager
async def signing(folder: Path, *, signs: bool = True) -> AsyncIterator[tuple[Site, Site]]:
    """Two linked peers with keys of one root."""
    ring = KeyRing(folder)
    async with overlay(PAIR) as (a, b):
        for site, name in ((a, "here"), (b, "there")):
            keys = ring.keys(name, site.peer.id)
            site.broker.signatures = SignedEvents(site.broker.counts, keys, signs=signs)
        yield a, b


def test_a_subscriber_learns_who_signed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with signing(tmp_path) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            async with there.subscribe("topic = 'x'") as far, here.subscribe("topic = 'x'") as near:
                await known(here, "x", 2)
                await here.publish({"topic": "x"}, b"payload", {"kind": "k"})
                for stream in (far, near):
                    event = await fresh(stream)
                    assert (event.signed_by, event.headers, event.payload) == ("here", {"kind": "k"}, b"payload")
            assert not b.counts["signature-refused"]

    run(scene())


def test_retained_events_replies_and_durable_subscriptions_have_their_signer(tmp_path: Path) -> None:
    async def scene() -> None:
        async with signing(tmp_path) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            async with there.subscribe("topic = 'x'", name="work") as durable:
                await known(here, "x", 1)
                await here.publish({"topic": "x"}, b"kept", retain=True)
                event = await fresh(durable)
                assert (event.signed_by, event.payload) == ("here", b"kept")
            async with there.subscribe("topic = 'x'") as later:
                event = await anext(later)
                assert (event.retained, event.signed_by, event.headers) == (True, "here", {})
            async with there.subscribe("topic = 'ask'") as asked:
                await known(here, "ask", 1)

                async def answer() -> None:
                    await (await fresh(asked)).reply(b"pong")

                task = asyncio.create_task(answer())
                reply = await here.request({"topic": "ask"}, b"ping")
                assert (reply.payload, reply.signed_by) == (b"pong", "there")
                await task

    run(scene())


def test_without_signing_events_have_no_signer(tmp_path: Path) -> None:
    async def scene() -> None:
        async with signing(tmp_path, signs=False) as (a, _), wend.connect(a.url) as here:
            events = await here.subscribe("topic = 'x'")
            await here.publish({"topic": "x"})
            assert (await anext(events)).signed_by is None

    run(scene())


@pytest.mark.parametrize("header", [SIGNATURE_HEADER, SIGNED_BY_HEADER])
def test_a_client_cannot_sign_by_itself(tmp_path: Path, header: str) -> None:
    async def scene() -> None:
        async with signing(tmp_path, signs=False) as (a, _), wend.connect(a.url) as here:
            with raises("invalid-event", match="are the peer's own"):
                await here.publish({"topic": "x"}, b"", {header: "here"})

    run(scene())


def test_a_forged_signer_is_removed_and_a_forged_signature_counted(tmp_path: Path) -> None:
    """A compromised peer publishes what it likes, past its own broker."""

    async def scene() -> None:
        async with signing(tmp_path) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            events = await there.subscribe("topic = 'x'")
            await known(here, "x", 1)
            a.peer.publish(Publication({"topic": "x"}, b"1", {SIGNED_BY_HEADER: "there"}))
            a.peer.publish(Publication({"topic": "x"}, b"2", {SIGNATURE_HEADER: "AAAA", "kind": "k"}))
            for payload, headers in ((b"1", {}), (b"2", {"kind": "k"})):
                event = await fresh(events)
                assert (event.payload, event.headers, event.signed_by) == (payload, headers, None)
            assert b.counts["signature-refused"] == 1

    run(scene())


def test_a_peer_without_keys_tells_no_signer(tmp_path: Path) -> None:
    async def scene() -> None:
        async with signing(tmp_path) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            b.broker.signatures = SignedEvents(b.broker.counts)
            async with there.subscribe("topic = 'x'") as events:
                await known(here, "x", 1)
                await here.publish({"topic": "x"}, b"1")
                event = await fresh(events)
                assert (event.signed_by, event.headers) == (None, {})

    run(scene())
