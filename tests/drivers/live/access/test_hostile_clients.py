"""Clients that try to get around their grants and limits, frame by frame, as no honest client would."""

import asyncio
from typing import Any

import pytest

import wend
from tests.drivers.live.granting import ADMIN, GRANTS, OFFICE, Scene, deliveries, granting, refusals
from tests.drivers.live.key_ring import KeyRing
from tests.drivers.live.net import overlay, run, until
from wend.drivers.live import frames
from wend.drivers.live.access import access
from wend.drivers.live.access.admission import ClientAdmission
from wend.drivers.live.access.grants import Grant, GrantTable, UsageLimits
from wend.drivers.live.broker.listener import QUEUE_MSGS
from wend.drivers.live.broker.retained import ASK, RETAINED, TOPIC
from wend.model.events import DurableOptions, Range
from wend.model.publication import Publication

INBOX = "wend.inbox.0123456789abcdef"
REPLY_TO = "wend-reply-to"


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing(tmp_path_factory.mktemp("keys"))


def inbox(handle: int = 2, **options: Any) -> frames.Subscribe:
    return frames.Subscribe(handle, handle, f"topic = '{INBOX}'", announced=False, **options)


# ---------------------------------------------------------------- subscriptions


@pytest.mark.parametrize("options", [{"durable": DurableOptions("alice/orders")}, {"group": "workers"}])
def test_an_inbox_is_neither_durable_nor_of_a_group(ring: KeyRing, options: dict[str, Any]) -> None:
    """It is not bound to the client's name, so a client could take over the durable subscription of another one."""

    async def scene() -> None:
        async with granting(ring) as s, s.connect("alice", "plant") as alice, s.connect("adm", "admin") as admin:
            async with alice.subscribe("topic prefix 'plant.'", name="orders"):
                pass
            await admin.publish({"topic": "plant.1"}, b"for alice")
            mallory = await s.raw("mallory", "plant")
            answers = await mallory.tell(inbox(**options))
            assert refusals(answers) == ["invalid-subscription"]
            assert not deliveries(answers)
            (kept,) = s.site.broker.durable.status()
            assert (kept.name, kept.events, kept.attached) == ("alice/orders", 1, False)
            mallory.close()

    run(scene())


def test_a_subscription_is_not_shared_with_one_that_is_not_announced(ring: KeyRing) -> None:
    """A client would see the questions of other peers about retained events, or keep them from being answered."""

    async def scene() -> None:
        grants = {"most": Grant(publish="true", subscribe="topic != 'salaries'"), "admin": ADMIN}
        admission = ClientAdmission(ring.keys("site", 0), GrantTable(grants), tls=True)
        async with overlay([(0, 1)], admission=admission) as (a, b):
            b.listener.admission = ClientAdmission()
            mallory = await Scene(a, ring, ring.keys("site", 0), None).raw("mallory", "most")  # type: ignore[arg-type]
            assert not refusals(await mallory.tell(frames.Subscribe(1, 1, f"topic = '{ASK}'")))
            url = a.url.replace("wend://", "wends://")
            async with (
                wend.connect(url, keys=ring.enrol("adm", groups=("admin",))) as admin,
                wend.connect(b.url) as there,
            ):
                await admin.publish({"topic": "salaries"}, b"much", retain=True)
                await until(lambda: b.peer.interested_peers({"topic": TOPIC}) == (0,))
                async with there.subscribe("topic = 'salaries'") as events:
                    assert (await anext(events)).payload == b"much"
            assert not deliveries(await mallory.tell())
            mallory.close()

    run(scene())


# ---------------------------------------------------------------- replies


@pytest.mark.parametrize("topic", [ASK, Range("wend.inbox.", "wend.inbox.~"), Range(f"{TOPIC}.0", f"{TOPIC}.~")])
def test_a_client_replies_to_no_topic_but_the_inbox_of_a_request(ring: KeyRing, topic: Any) -> None:
    """A request to oneself may name any topic as its inbox."""

    async def scene() -> None:
        async with granting(ring) as s, s.connect("adm", "admin") as admin, s.connect("p", "plant") as plant:
            await admin.publish({"topic": "plant.1", "secret": 1}, b"a secret", retain=True)
            async with plant.subscribe(f"topic = '{INBOX}x' or topic prefix 'plant.'"):
                mallory = await s.raw("mallory", "office")
                mine = frames.Publish(3, {"topic": "office"}, headers={REPLY_TO: f"{topic}/1"})
                first = await mallory.tell(frames.Subscribe(1, 1, "topic = 'office'"), inbox(), mine)
                assert deliveries(first) == [b""]  # she has received a request
                headers = {REPLY_TO: f"{INBOX}/1", RETAINED: '[1,[77,1,1],5,"plant.1"]'}
                answers = await mallory.tell(frames.Publish(4, {"topic": topic}, b"true", headers, to=0))
                assert refusals(answers) == ["reply-refused"]
                assert not deliveries(await mallory.tell())
                assert s.counts["reply-refused"] == 1
                mallory.close()

    run(scene())


def test_the_newest_requests_can_be_answered(ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_REQUESTS", 2)

    async def scene() -> None:
        async with granting(ring) as s:
            service = await s.raw("service", "office")
            await service.tell(frames.Subscribe(1, 1, "topic = 'office'"))
            asked = [frames.Publish(2, {"topic": "office"}, headers={REPLY_TO: f"{INBOX}{n}/1"}) for n in (0, 1, 0, 2)]
            assert len(deliveries(await service.tell(*asked))) == 4
            replies = [frames.Publish(9, {"topic": f"{INBOX}{n}"}, b"reply", to=0) for n in (0, 1, 2)]
            assert [isinstance(answer, frames.RefusedFrame) for answer in await service.tell(*replies)] == [
                False,
                True,
                False,
            ]
            service.close()

    run(scene())


# ---------------------------------------------------------------- publications


def test_a_range_without_values_grants_nothing(ring: KeyRing) -> None:
    async def scene() -> None:
        grants = {
            "plant": Grant(publish="topic prefix 'plant.'"),
            "levels": Grant(publish="kind = 'level' and level >= 0"),
            "office": OFFICE,
        }
        async with granting(ring, **grants) as s:
            mallory = await s.raw("mallory", "plant", "levels")
            none = Range(1.0, 1.0000000000000002, True, True)
            event = {"topic": Range("a", "z"), "level": none}
            assert refusals(await mallory.tell(frames.Publish(1, event, b"not granted"))) == ["publish-refused"]
            mallory.close()

    run(scene())


def test_what_is_refused_or_gone_is_not_counted_as_kept(ring: KeyRing) -> None:
    async def scene() -> None:
        grant = Grant(publish="true", subscribe="true", client_limits=UsageLimits(kept_bytes=100_000))
        async with granting(ring, plant=grant) as s:
            client = await s.raw("p", "plant")

            def publish(topic: str, size: int, **options: Any) -> frames.Publish:
                return frames.Publish(1, {"topic": topic}, bytes(size), retain="topic", **options)

            assert not refusals(await client.tell(publish("a", 80_000)))
            forged = publish("a", 0, headers={"wend-signature": "mine"})
            assert refusals(await client.tell(forged)) == ["invalid-event"]
            assert refusals(await client.tell(publish("b", 80_000))) == ["kept-refused"]
            assert refusals(await client.tell(publish("b", 10, to=0)))
            # once it has expired, its bytes are free again
            assert not refusals(await client.tell(publish("a", 80_000, ttl_ns=1)))
            await until(lambda: s.site.peer.retained_event("topic", "a") is None)
            assert not len(s.site.peer.peer.retained), "the peer has forgotten it, too"
            s.clock.now_s += 2.0
            assert not refusals(await client.tell(publish("b", 80_000)))
            client.close()

    run(scene())


def test_two_certificates_of_one_name_do_not_double_its_rate(ring: KeyRing) -> None:
    async def scene() -> None:
        grants = {
            name: Grant(publish="true", client_limits=UsageLimits(events_per_s=rate))
            for name, rate in (("ten", 10), ("eleven", 11))
        }
        async with granting(ring, **grants) as s:
            accepted = 0
            for turn in range(6):
                client = await s.raw("m", ("ten", "eleven")[turn % 2])
                answers = await client.tell(*(frames.Publish(1, {"topic": "a"}) for _ in range(15)))
                accepted += len(answers) - len(refusals(answers))
                client.close()
            assert accepted <= 11

    run(scene())


# ---------------------------------------------------------------- memory and others' deliveries


def test_many_queue_groups_do_not_silence_other_subscribers(ring: KeyRing) -> None:
    async def scene() -> None:
        async with (
            granting(ring) as s,
            s.connect("a", "office") as one,
            s.connect("b", "office") as other,
            other.subscribe("topic = 'office'") as events,
        ):
            mallory = await s.raw("mallory", "office")
            wanted = [
                frames.Subscribe(n, n, "topic = 'office'", group=f"{n:04}{'g' * 190}", retained=False)
                for n in range(1, 200)
            ]
            refused = refusals(await mallory.tell(*wanted))
            assert {*refused} == {"too-many-subscriptions"}
            await one.publish({"topic": "office"}, b"first")
            assert (await anext(events)).payload == b"first"
            (got, *_) = [one for one in await mallory.tell() if isinstance(one, frames.Delivery)]
            assert not got.event.groups, "who else gets it is not the client's business"
            # and once the groups are gone, there is room for others
            await mallory.tell(*(frames.Unsubscribe(n, n) for n in range(1, 200)))
            assert not refusals(await mallory.tell(wanted[-1]))
            mallory.close()

    run(scene())


def test_what_a_client_misses_while_it_does_not_read_is_added_up(ring: KeyRing) -> None:
    async def scene() -> None:
        admission = ClientAdmission(ring.keys("site", 0), GrantTable(GRANTS), tls=True)
        async with overlay([(0, 1)], admission=admission) as (a, b):
            b.listener.admission = ClientAdmission()
            mallory = await Scene(a, ring, ring.keys("site", 0), None).raw("mallory", "office")  # type: ignore[arg-type]
            late = [
                frames.Subscribe(n, n, "topic = 'office'", deadline_ns=n, expire=True, retained=False)
                for n in range(2, 52)
            ]
            await mallory.tell(frames.Subscribe(1, 1, "topic = 'office'"), *late)
            transport = mallory.writer.transport
            assert isinstance(transport, asyncio.Transport)
            async with wend.connect(b.url) as there:
                await until(lambda: 0 in b.peer.interested_peers({"topic": "office"}))
                transport.pause_reading()
                (session,) = a.listener.sessions
                while not session.is_stalled:
                    await there.publish({"topic": "office"}, bytes(200_000))
                count = 2 * QUEUE_MSGS // len(late)
                for _ in range(count):
                    await there.publish({"topic": "office"}, b"late for most")
                await until(lambda: session.queued_bytes > 0)
                transport.resume_reading()
                missed: dict[int, int] = {}
                told = 0
                while len(missed) < len(late) or min(missed.values()) < count:
                    (frame,) = await mallory.receive()
                    if isinstance(frame, frames.MissedFrame):
                        missed[frame.handle] = missed.get(frame.handle, 0) + frame.counts["expired"]
                        told += 1
                assert min(missed) == 2 and told < sum(missed.values()) / 2
            mallory.close()

    run(scene())


def test_a_long_list_of_durable_subscriptions_comes_in_parts(ring: KeyRing) -> None:
    async def scene() -> None:
        async with granting(ring) as s:
            client = await s.raw("p", "admin")
            words = ", ".join(f"'{n:05}{'é' * 20}'" for n in range(500))
            filters = [f"x in {{{words}}}"] * 40 + ["x = 1"] * 2000
            names = [f"{n:04}{'n' * 180}" for n in range(len(filters))]
            wanted = [
                frames.Subscribe(n + 1, n + 1, filter, durable=DurableOptions(name))
                for n, (filter, name) in enumerate(zip(filters, names, strict=True))
            ]
            assert not refusals(await client.tell(*wanted))
            async with s.connect("p", "admin") as honest:
                listed = await honest.subscriptions()
            assert [one.name for one in listed] == [f"p/{name}" for name in names]
            assert len(listed[0].filter) > 10_000
            client.close()

    run(scene())


def test_bytes_of_a_durable_subscription_that_an_administrator_removed_are_free(ring: KeyRing) -> None:
    async def scene() -> None:
        grant = Grant(publish="true", subscribe="true", client_limits=UsageLimits(kept_bytes=100_000))
        async with granting(ring, plant=grant, admin=ADMIN) as s, s.connect("adm", "admin") as admin:
            alice = await s.raw("alice", "plant")
            assert not refusals(await alice.tell(frames.Subscribe(1, 1, "x = 1", durable=DurableOptions("one"))))
            assert refusals(await alice.tell(frames.Subscribe(2, 2, "x = 1", durable=DurableOptions("two"))))
            await admin.remove_subscription("alice/one")
            s.clock.now_s += 2.0
            assert not refusals(await alice.tell(frames.Subscribe(3, 3, "x = 1", durable=DurableOptions("two"))))
            alice.close()

    run(scene())


def test_durable_subscriptions_of_before_a_restart_count_for_the_group_once_their_client_is_back(ring: KeyRing) -> None:
    async def scene() -> None:
        grant = Grant(publish="true", subscribe="true", group_limits=UsageLimits(kept_bytes=100_000))
        async with granting(ring, plant=grant) as s:
            durable = DurableOptions("one", max_bytes=80_000)
            alice = await s.raw("alice", "plant")
            assert not refusals(await alice.tell(frames.Subscribe(1, 1, "x = 1", durable=durable)))
            alice.close()
            fresh = ClientAdmission(ring.keys("site", 0), GrantTable({"plant": grant}), tls=True)
            s.site.listener.admission = fresh  # as after a restart
            alice, bob = await s.raw("alice", "plant"), await s.raw("bob", "plant")
            assert not refusals(await bob.tell(frames.Subscribe(1, 1, "x = 1", durable=durable)))
            kept = {one.options.name: one.options.max_bytes for one in s.site.peer.peer.durable.values()}
            assert kept == {"alice/one": 80_000, "bob/one": 20_000}
            alice.close()
            bob.close()

    run(scene())


def test_retained_events_are_believed_only_of_peers_that_were_asked_and_only_their_own(ring: KeyRing) -> None:
    async def scene() -> None:
        async with (
            overlay([(0, 1), (0, 2)]) as (a, b, c),
            wend.connect(a.url) as here,
            wend.connect(c.url) as there,
        ):
            await there.publish({"topic": "other"}, retain=True)
            await until(lambda: a.peer.interested_peers({"topic": TOPIC}) == (2,))
            async with here.subscribe("topic prefix 'plant.'") as events:
                await until(lambda: c.peer.counters.deliveries > 0)  # it was asked
                topic = Range(f"{TOPIC}.0", f"{TOPIC}.~")
                for site, id_ in ((b, (1, 1, 1)), (c, (77, 1, 1)), (c, (2, 1, 10**30)), (c, (2, 1, 7))):
                    for question in range(1, 4):
                        carried = f'[{question},[{id_[0]},{id_[1]},{id_[2]}],5,"plant.{site.peer.id}"]'
                        site.broker.publish(Publication({"topic": topic}, str(id_).encode(), {RETAINED: carried}, to=0))
                # the last one could be true
                event = await anext(events)
                assert (tuple(event.id), event.payload) == ((2, 1, 7), b"(2, 1, 7)")

    run(scene())
