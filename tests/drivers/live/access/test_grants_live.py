"""Grants at a live peer: what clients are refused, with which sentence and which counter, and what they never receive.

Durable subscriptions, queue groups, retained events and requests obey grants, too.
"""

import asyncio
from typing import Any

import pytest

import wend
from tests.drivers.live.granting import ADMIN, GRANTS, PLANT, Scene, granting
from tests.drivers.live.key_ring import KeyRing, add_token
from tests.drivers.live.net import PAIR, RawClient, known, overlay, run, until
from tests.errors import raises
from wend.drivers.live import frames
from wend.drivers.live.access.admission import ClientAdmission
from wend.drivers.live.access.grants import LOCAL, Grant, GrantTable
from wend.drivers.live.access.key_files import read_key_folder
from wend.model.errors import Refused
from wend.model.events import DurableOptions


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing(tmp_path_factory.mktemp("keys"))


# ---------------------------------------------------------------- publications and subscriptions


def test_publications_must_match_and_subscriptions_are_conjoined(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("p", "plant") as plant, s.connect("a", "admin") as admin:
            everything = await plant.subscribe("true")
            with raises("publish-refused"):
                await plant.publish({"topic": "office"})
            with raises("subscribe-refused"):
                await plant.subscribe("topic = 'office'")
            with raises("filter-syntax"):
                await plant.subscribe("topic = ")
            for event in ({"topic": "office"}, {"topic": "plant.1", "secret": 1}, {"topic": "plant.2"}):
                await admin.publish(event)
            await plant.publish({"topic": "plant.3"})
            assert [(await anext(everything)).attributes["topic"] for _ in range(2)] == ["plant.2", "plant.3"]
            assert (s.counts["publish-refused"], s.counts["subscribe-refused"]) == (1, 1)

    run(scene())


def test_the_overlay_does_not_learn_of_interest_that_is_not_granted(ring: KeyRing) -> None:
    async def scene() -> None:
        admission = ClientAdmission(ring.keys("site", 0), GrantTable({LOCAL: PLANT}))
        async with overlay(PAIR, admission=admission) as (a, b), wend.connect(a.url) as here:
            b.listener.admission = ClientAdmission()
            async with wend.connect(b.url) as there, here.subscribe("topic = 'plant.1' or topic = 'office'"):
                await known(there, "plant.1", 1)
                assert (await there.publish({"topic": "office"})).targets == 0
                assert (await there.publish({"topic": "plant.1", "secret": 1})).targets == 0

    run(scene())


def test_many_publications_at_once_are_checked_one_by_one(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("p", "plant") as plant:
            events = [{"topic": f"plant.{i}" if i % 2 else "office"} for i in range(10)]
            with raises("partly-published", match="5 of 10"):
                await plant.publish_many(events)
            for event in events:
                await plant.post(event)
            with raises("publish-refused"):
                await plant.flush()
            assert s.site.peer.counters.publications == 10
            assert s.counts["publish-refused"] == 10

    run(scene())


def test_a_client_without_a_granted_group_can_do_nothing(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("n", "unknown") as nobody:
            with raises("publish-refused"):
                await nobody.publish({"topic": "plant.1"})
            with raises("subscribe-refused"):
                await nobody.subscribe("true")

    run(scene())


def test_tokens_have_groups_too(ring: KeyRing) -> None:
    async def scene() -> None:
        folder = ring.enrol("site", 0)
        token = add_token(folder, "cam", ("office",))
        admission = ClientAdmission(read_key_folder(folder), GrantTable(GRANTS), tls=True)
        async with overlay([], admission=admission) as (site,):
            url = site.url.replace("wend://", "wends://")
            async with wend.connect(url, root=ring.root, token=token) as client:
                await client.publish({"topic": "office"})
                with raises("publish-refused"):
                    await client.publish({"topic": "plant.1"})

    run(scene())


# ---------------------------------------------------------------- administration


def test_only_administrators_change_the_peer(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("p", "plant") as plant, s.connect("a", "admin") as admin:
            for call in (
                plant.add_link(5, "127.0.0.1:9"),
                plant.remove_link(5),
                plant.cut(5),
                plant.load_plan(),
                plant.prepare_plan(1, b"a part"),
                plant.commit_plan(1, 1),
                plant.revert_plan(1, 1),
            ):
                with raises("admin-refused"):
                    await call
            assert s.counts["admin-refused"] == 7
            with raises("experiments-off"):
                await admin.cut(5)
            assert (await plant.status()).peer == 0

    run(scene())


def test_status_calls_are_bounded(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("p", "plant") as plant:
            answers = await asyncio.gather(*(plant.status() for _ in range(300)), return_exceptions=True)
            refused = [answer for answer in answers if isinstance(answer, Refused)]
            assert refused and s.counts["status-refused"] == len(refused)
            assert "may ask for the status 10 times a second" in str(refused[0])
            async with s.connect("p", "plant") as again:  # another connection of the same client
                answers = await asyncio.gather(*(again.status() for _ in range(300)), return_exceptions=True)
                assert sum(not isinstance(answer, Refused) for answer in answers) < 50, "the burst is used up"

    run(scene())


# ---------------------------------------------------------------- durable subscriptions


def test_durable_subscriptions_belong_to_their_client(ring: KeyRing) -> None:
    async def scene() -> None:
        async with (
            granting(ring) as s,
            s.connect("p", "plant") as plant,
            s.connect("o", "office") as office,
            s.connect("a", "admin") as admin,
        ):
            async with plant.subscribe("true", name="work"), office.subscribe("true", name="work"):
                assert [one.name for one in await admin.subscriptions()] == ["o/work", "p/work"]
                assert [one.name for one in await office.subscriptions()] == ["work"]
            with raises("unknown-subscription"):
                await office.remove_subscription("p/work")
            await admin.publish({"topic": "plant.1"})
            await office.remove_subscription("work")
            assert [(one.name, one.events) for one in await admin.subscriptions()] == [("p/work", 1)]
            await admin.remove_subscription("p/work")
            assert await admin.subscriptions() == ()

    run(scene())


def test_a_backlog_from_a_time_when_more_was_granted_is_withheld(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("a", "admin") as admin:
            async with s.connect("p", "plant") as plant, plant.subscribe("true", name="work"):
                pass
            for topic in ("plant.1", "plant.2", "plant.3"):
                await admin.publish({"topic": topic})
            narrow = Grant(publish="false", subscribe="topic = 'plant.2'")
            s.change(plant=narrow, admin=ADMIN)
            async with s.connect("p", "plant") as plant, plant.subscribe("true", name="work") as events:
                assert (await anext(events)).attributes == {"topic": "plant.2"}
                await until(lambda: events.missed["not-granted"] == 2)
                assert s.counts["withheld"] == 2
            await until(lambda: s.site.broker.durable.status()[0].events <= 1)

    run(scene())


# ---------------------------------------------------------------- queue groups, retained events, requests


def test_members_of_a_queue_group_get_what_is_granted(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("p", "plant") as plant, s.connect("a", "admin") as admin:
            mine = await plant.subscribe("true", group="workers")
            for topic in ("office", "plant.1", "office", "plant.2"):
                await admin.publish({"topic": topic})
            assert [(await anext(mine)).attributes["topic"] for _ in range(2)] == ["plant.1", "plant.2"]

    run(scene())


def test_retained_events_obey_grants(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("a", "admin") as admin, s.connect("p", "plant") as plant:
            await admin.publish({"topic": "office", "place": 1}, retain=True)
            await admin.publish({"topic": "plant.1", "place": 1}, retain="place")
            with raises("publish-refused"):
                await plant.publish({"topic": "office"}, retain=True)
            await admin.publish({"topic": "office", "place": 2}, retain="place")
            with raises("publish-refused"):
                await plant.publish({"topic": "plant.1", "place": 2}, retain="place")
            with raises("publish-refused"):
                await plant.unretain("office")
            await plant.publish({"topic": "plant.7", "place": 1}, retain="place")
            async with plant.subscribe("true") as events:
                event = await anext(events)
                assert (event.retained, event.attributes) == (True, {"topic": "plant.7", "place": 1})
            await plant.unretain(1, "place")
            assert [event.attributes for event, _ in s.site.peer.retained_events("true")] == [
                {"topic": "office", "place": 1},
                {"topic": "office", "place": 2},
            ]

    run(scene())


def test_requests_and_replies_obey_grants(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("p", "plant") as plant, s.connect("q", "plant") as other:
            async with other.subscribe("topic = 'plant.ask'") as asked:

                async def answer() -> None:
                    await (await anext(asked)).reply(b"pong")

                task = asyncio.create_task(answer())
                assert (await plant.request({"topic": "plant.ask"}, b"ping")).payload == b"pong"
                await task
            with raises("publish-refused"):
                await plant.request({"topic": "office"})
            with raises("nobody-subscribed"):
                await plant.request({"topic": "plant.nobody"})

    run(scene())


async def raw(s: Scene, ring: KeyRing, name: str, *groups: str) -> RawClient:
    from wend.drivers.live.access.tls import make_client_tls

    context = make_client_tls(keys=ring.enrol(name, groups=groups)).context
    client = await RawClient.connect(s.site.listener.address, ssl=context, server_hostname="x")
    client.send(frames.Greet())
    assert isinstance((await client.receive())[0], frames.Welcome)
    return client


@pytest.mark.parametrize(
    ("request_", "counter"),
    [
        (frames.Publish(1, {"topic": "wend.inbox.0123456789abcdef"}, to=0), "reply-refused"),
        (frames.Publish(1, {"topic": "plant.1"}, to=0), "reply-refused"),
        (
            # The answers would bring events that are not granted to an inbox of the client.
            frames.Publish(
                1, {"topic": "wend.retained.ask"}, b"true", {"wend-reply-to": "wend.inbox.0123456789abcdef/1"}, to=0
            ),
            "reply-refused",
        ),
        (frames.Subscribe(1, 1, "true", announced=False), "subscribe-refused"),
        (frames.Subscribe(1, 1, "topic = 'wend.retained.ask'", announced=False), "subscribe-refused"),
        (frames.Subscribe(1, 1, "topic prefix 'wend.'", announced=False), "subscribe-refused"),
        (frames.Subscribe(1, 1, "topic = 'office'", durable=DurableOptions("x")), "subscribe-refused"),
        (frames.Subscribe(1, 1, "topic = 'office'", group="workers"), "subscribe-refused"),
        (frames.Publish(1, {"topic": "office"}, retain="topic"), "publish-refused"),
        (frames.Post(1, (frames.PostedEvent({"topic": "office"}),)), "publish-refused"),
    ],
)
def test_no_frame_leads_around_the_grants(ring: KeyRing, request_: Any, counter: str) -> None:
    async def scene() -> None:
        async with granting(ring) as s:
            client = await raw(s, ring, "p", "plant")
            client.send(request_)
            (answer,) = await client.receive()
            assert isinstance(answer, frames.RefusedFrame) or (
                isinstance(answer, frames.Posted) and answer.refused == 1
            )
            assert answer.why and answer.code == counter and s.counts[counter] == 1
            assert s.site.peer.counters.publications == 0 and s.site.broker.subscriptions == ()
            client.close()

    run(scene())


# ---------------------------------------------------------------- changes


def test_changed_grants_hold_at_once_and_only_their_clients_connect_again(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("p", "plant") as plant, s.connect("o", "office") as office:
            events = await plant.subscribe("true")
            before = s.counts["connected"]
            s.change(**GRANTS)
            assert s.counts["rights-changed"] == 0
            s.change(**{**GRANTS, "plant": Grant(publish="true", subscribe="topic = 'office'")})
            await until(lambda: plant.reconnects == 1)
            await office.publish({"topic": "office"})
            await plant.publish({"topic": "plant.1"})
            assert (await anext(events)).attributes == {"topic": "office"}
            assert s.counts["rights-changed"] >= 1 and s.counts["connected"] > before

    run(scene())
