"""Grants at a live peer: what clients are refused, with which sentence and which counter, and what they never receive.

Durable subscriptions, queue groups, retained events and requests obey grants, too. Limits hold under clients that try.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import wend
from tests.drivers.live.key_ring import KeyRing, add_token
from tests.drivers.live.net import PAIR, RawClient, Site, known, overlay, run, until
from wend.drivers.live import frames
from wend.drivers.live.admission import ClientAdmission
from wend.drivers.live.grants import LOCAL, Grant, GrantTable, UsageLimits
from wend.drivers.live.key_files import KeyFolder, read_folder
from wend.model.errors import FilterError, NoReply, PartlyPublished, Refused
from wend.model.events import DurableOptions

PLANT = Grant(publish="topic prefix 'plant.'", subscribe="topic prefix 'plant.' and secret absent")
OFFICE = Grant(publish="topic = 'office'", subscribe="topic = 'office'")
ADMIN = Grant(publish="true", subscribe="true", admin=True)
GRANTS = {"plant": PLANT, "office": OFFICE, "admin": ADMIN}


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Scene:
    """A peer with keys and grants, and clients by name."""

    def __init__(self, site: Site, ring: KeyRing, keys: KeyFolder, clock: Clock) -> None:
        self.site = site
        self.counts = site.counts
        self.clock = clock
        self._ring = ring
        self._keys = keys

    @property
    def url(self) -> str:
        return self.site.url.replace("wend://", "wends://")

    def connect(self, name: str, *groups: str) -> Any:
        return wend.connect(self.url, keys=self._ring.enrol(name, groups=groups))

    def change(self, **grants: Grant) -> None:
        self.site.listener.admission.replace(self._keys, GrantTable(grants))
        self.site.listener.recheck()


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing(tmp_path_factory.mktemp("keys"))


@asynccontextmanager
async def granting(ring: KeyRing, **grants: Grant) -> AsyncIterator[Scene]:
    keys, clock = ring.keys("site", 0), Clock()
    admission = ClientAdmission(keys, GrantTable(grants or GRANTS), tls=True, clock_s=clock)
    async with overlay([], admission=admission) as (site,):
        yield Scene(site, ring, keys, clock)


def refused_with(why: str) -> Any:
    return pytest.raises(Refused, match=why)


# ---------------------------------------------------------------- publications and subscriptions


def test_publications_must_match_and_subscriptions_are_conjoined(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("p", "plant") as plant, s.connect("a", "admin") as admin:
            everything = await plant.subscribe("true")
            with refused_with(r"this client may publish only events with topic prefix 'plant\.'"):
                await plant.publish({"topic": "office"})
            with refused_with(r"this client may subscribe only to events with"):
                await plant.subscribe("topic = 'office'")
            with pytest.raises(FilterError):
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
            with pytest.raises(PartlyPublished, match="5 of 10"):
                await plant.publish_many(events)
            for event in events:
                await plant.post(event)
            with refused_with("may publish only"):
                await plant.flush()
            assert s.site.peer.counters.publications == 10
            assert s.counts["publish-refused"] == 10

    run(scene())


def test_a_client_without_a_granted_group_can_do_nothing(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s, s.connect("n", "unknown") as nobody:
            with refused_with("may publish only events with false"):
                await nobody.publish({"topic": "plant.1"})
            with refused_with("this client may not subscribe"):
                await nobody.subscribe("true")

    run(scene())


def test_tokens_have_groups_too(ring: KeyRing) -> None:
    async def scene() -> None:
        folder = ring.enrol("site", 0)
        token = add_token(folder, "cam", ("office",))
        admission = ClientAdmission(read_folder(folder), GrantTable(GRANTS), tls=True)
        async with overlay([], admission=admission) as (site,):
            url = site.url.replace("wend://", "wends://")
            async with wend.connect(url, root=ring.root, token=token) as client:
                await client.publish({"topic": "office"})
                with refused_with("may publish only"):
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
                with refused_with("this client may not administer the peer"):
                    await call
            assert s.counts["admin-refused"] == 7
            with refused_with("allows no experiments"):
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
            with refused_with("no durable subscription 'o/p/work'"):
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
                await until(lambda: events.missed["not granted"] == 2)
                assert s.counts["withheld"] == 2
            await until(lambda: s.site.broker.durable()[0].events <= 1)

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
            with refused_with("may publish only"):
                await plant.publish({"topic": "office"}, retain=True)
            await admin.publish({"topic": "office", "place": 2}, retain="place")
            with refused_with("not this client's to change"):
                await plant.publish({"topic": "plant.1", "place": 2}, retain="place")
            with refused_with("not this client's to change"):
                await plant.unretain("office")
            await plant.publish({"topic": "plant.7", "place": 1}, retain="place")
            async with plant.subscribe("true") as events:
                event = await anext(events)
                assert (event.retained, event.attributes) == (True, {"topic": "plant.7", "place": 1})
            await plant.unretain(1, "place")
            assert [event.attributes for event, _ in s.site.peer.retained("true")] == [
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
            with refused_with("may publish only"):
                await plant.request({"topic": "office"})
            with pytest.raises(NoReply):
                await plant.request({"topic": "plant.nobody"})

    run(scene())


async def raw(s: Scene, ring: KeyRing, name: str, *groups: str) -> RawClient:
    from wend.drivers.live.tls import client_tls

    context = client_tls(keys=ring.enrol(name, groups=groups)).context
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
            assert isinstance(answer, frames.No) or (isinstance(answer, frames.Posted) and answer.refused == 1)
            assert answer.why and s.counts[counter] == 1
            assert s.site.peer.counters.publications == 0 and s.site.broker.subscriptions == ()
            client.close()

    run(scene())


# ---------------------------------------------------------------- limits


def limited(**limits: Any) -> dict[str, Grant]:
    return {"plant": Grant(publish="true", subscribe="true", client_limits=UsageLimits(**limits))}


def test_connections_of_a_client_are_limited(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(connections=2)) as s:
            async with s.connect("p", "plant"), s.connect("p", "plant"), s.connect("q", "plant"):
                with refused_with("this client may have 2 connections"):
                    await s.connect("p", "plant")
                assert s.counts["connections-refused"] == 1
            await until(lambda: s.counts["now"] == 0)
            async with s.connect("p", "plant"):
                pass

    run(scene())


def test_connections_of_a_group_are_limited(ring: KeyRing) -> None:
    async def scene() -> None:
        grants = {"plant": Grant(group_limits=UsageLimits(connections=2))}
        async with granting(ring, **grants) as s, s.connect("p", "plant"), s.connect("q", "plant"):
            with refused_with("the group plant may have 2 connections"):
                await s.connect("r", "plant")

    run(scene())


def test_subscriptions_are_limited_over_all_connections(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(subscriptions=3)) as s:
            async with s.connect("p", "plant") as first, s.connect("p", "plant") as second:
                streams = [await client.subscribe(f"a = {i}") for i, client in enumerate((first, first, second))]
                with refused_with("this client may have 3 subscriptions"):
                    await second.subscribe("a = 5")
                await streams[0].close()
                await second.subscribe("a = 5")
                assert s.counts["subscriptions-refused"] == 1
            await until(lambda: s.counts["now"] == 0)
            async with s.connect("p", "plant") as third:
                for i in range(3):
                    await third.subscribe(f"a = {i}")

    run(scene())


@pytest.mark.parametrize("again", [False, True], ids=["one connection", "many connections"])
def test_the_rate_of_publications_is_limited(ring: KeyRing, again: bool) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(events_per_s=10)) as s:

            async def attempt(count: int) -> int:
                async with s.connect("p", "plant") as client:
                    results = await asyncio.gather(
                        *(client.publish({"topic": "a"}) for _ in range(count)), return_exceptions=True
                    )
                assert all("may publish 10 events a second" in str(r) for r in results if isinstance(r, Exception))
                return sum(not isinstance(result, Exception) for result in results)

            accepted = sum([await attempt(5) for _ in range(8)]) if again else await attempt(40)
            assert accepted == 10 and s.counts["rate-refused"] == 30
            s.clock.now_s += 0.5
            assert await attempt(20) == 5
            s.clock.now_s += 100
            assert await attempt(20) == 10

    run(scene())


def test_the_bytes_of_publications_are_limited(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(bytes_per_s=10_000)) as s, s.connect("p", "plant") as client:
            await client.publish({"topic": "a"}, b"x" * 50_000)  # more than a second's worth: the client has to wait
            for _ in range(4):
                with refused_with("may publish 10000 bytes a second"):
                    await client.publish({"topic": "a"}, b"x")
                s.clock.now_s += 1
            s.clock.now_s += 2.0
            await client.publish({"topic": "a"}, b"x")

    run(scene())


def test_nothing_may_be_published_at_a_rate_of_0(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(events_per_s=0)) as s, s.connect("p", "plant") as client:
            with refused_with("may publish 0 events a second"):
                await client.publish({"topic": "a"})

    run(scene())


def test_kept_bytes_are_limited(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring, **limited(kept_bytes=10_000)) as s, s.connect("p", "plant") as client:
            await client.publish({"topic": "a"}, b"x" * 3000, retain=True)
            await client.publish({"topic": "a"}, b"x" * 4000, retain=True)
            with refused_with("may keep 10000 bytes"):
                await client.publish({"topic": "b"}, b"x" * 9000, retain=True)
            async with client.subscribe("topic = 'c'", name="one"):
                backlogs = {backlog.options.name: backlog.options for backlog in s.site.peer.peer.durable.values()}
                assert 5000 < backlogs["p/one"].max_bytes < 6000
                with refused_with("may keep 10000 bytes, and they are in use"):
                    await client.subscribe("topic = 'd'", name="two")
            await client.remove_subscription("one")
            await client.unretain("a")
            async with client.subscribe("topic = 'd'", name="two"):
                pass
            assert s.counts["kept-refused"] == 2

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
