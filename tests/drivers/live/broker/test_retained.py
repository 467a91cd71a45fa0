"""Retained events: a new subscription gets the newest one of each topic, from its own peer and from others."""

from pathlib import Path

import pytest

import wend
from tests.drivers.live.net import PAIR, Site, overlay, run, take, until
from tests.errors import raises
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.store.store import Store
from wend.model.events import Event, EventId
from wend.protocol.config import PeerConfig
from wend.protocol.delivery import retained
from wend.protocol.delivery.retained import RetainedEvents
from wend.protocol.ports import Notice, Started
from wend.protocol.timers import Effects


async def weather(client: wend.Client) -> None:
    for city, temperature in (("ulm", 1), ("ulm", 2), ("bonn", 3)):
        await client.publish({"topic": city, "temperature": temperature}, b"%d" % temperature, retain=True)
    await client.publish({"topic": "ulm", "temperature": 4}, b"4")


def test_a_new_subscription_gets_the_newest_of_each_topic_once() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            await weather(client)
            async with client.subscribe("temperature > 0") as events:
                found = await take(events, 2)
                assert [(event.payload, event.retained, event.late) for event in found] == [
                    (b"2", True, False),
                    (b"3", True, False),
                ]
                assert found[0].id.sequence == 2 and found[0].age > 0
                for session in list(a.listener.sessions):
                    session.end()
                await until(lambda: client.reconnects == 1)
                await client.publish({"topic": "ulm", "temperature": 5}, b"5")
                event = await anext(events)
                assert (event.payload, event.retained) == (b"5", False)
            async with client.subscribe("temperature > 0", retained=False) as events:
                await client.publish({"topic": "ulm", "temperature": 6}, b"6")
                assert (await anext(events)).payload == b"6"
            await client.unretain("ulm")
            async with client.subscribe("topic = 'ulm' or topic = 'bonn'", deadline=0.001) as events:
                assert (await anext(events)).payload == b"3"
                await client.publish({"topic": "ulm"}, b"last")
                assert (await anext(events)).payload == b"last"

    run(scene())


def test_a_subscription_at_another_peer_gets_them_too() -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            await weather(here)
            await here.publish({"sensor": 7, "temperature": 8}, b"by sensor", {"unit": "celsius"}, retain="sensor")
            await until(lambda: b.peer.interested_peers({"topic": "wend.retained"}) == (0,))
            async with there.subscribe("true") as events:
                found = sorted(await take(events, 3), key=lambda event: event.payload)
                assert [(event.payload, event.retained) for event in found] == [
                    (b"2", True),
                    (b"3", True),
                    (b"by sensor", True),
                ]
                assert found[0].attributes == {"topic": "ulm", "temperature": 2} and found[0].id.publisher == 0
                assert (found[2].attributes, found[2].headers) == (
                    {"sensor": 7, "temperature": 8},
                    {"unit": "celsius"},
                )
                await here.publish({"topic": "ulm"}, b"live")
                event = await anext(events)
                assert (event.payload, event.retained) == (b"live", False)  # and nothing of the questions

    run(scene())


def test_peers_that_become_known_later_are_asked_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wend.drivers.live.broker.retained.CHECK_S", 0.02)

    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(a.url) as here,
            wend.connect(b.url) as there,
            there.subscribe("temperature = 2") as events,
        ):
            a.peer.pipes.cut(1)
            await weather(here)
            a.peer.pipes.heal(1)
            event = await anext(events)
            assert event.payload == b"2"
            await here.publish({"temperature": 2}, b"live")
            assert (await anext(events)).payload == b"live"  # the same event does not come twice

    run(scene())


def test_they_survive_a_restart_of_their_peer(tmp_path: Path) -> None:
    async def scene() -> None:
        for restarted in (False, True):
            store = Store(tmp_path / "store")
            config = PeerConfig(peer=0, incarnation=store.incarnation, persistence=True, stores=True)
            site = Site(LivePeer(config, store=store))
            await site.listener.start()
            site.peer.start(Started((), stored=store.records))
            site.broker.restore_durable()
            async with wend.connect(site.url) as client:
                if restarted:
                    async with client.subscribe("temperature > 0") as events:
                        assert [event.payload for event in await take(events, 1)] == [b"2"]
                    assert site.peer.interested_peers({"topic": "wend.retained"}) == (0,)
                else:
                    await weather(client)
                    await client.unretain("bonn")
            await site.listener.stop()
            site.peer.close()

    run(scene())


def test_what_cannot_be_retained_is_said() -> None:
    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            with raises("invalid-event", match="retained by its attribute 'topic', which this one does not"):
                await client.publish({"x": 1}, retain=True)
            with raises("invalid-call", match="retain is True or the name of an attribute, got 3"):
                await client.publish({"x": 1}, retain=3)  # type: ignore[arg-type]
        site = Site(LivePeer(PeerConfig(peer=0, strategy="mrst")))
        await site.listener.start()
        site.peer.start(Started(()))
        async with wend.connect(site.url) as client:
            with raises("not-supported"):
                await client.publish({"topic": "x"}, retain=True)
        await site.listener.stop()
        site.peer.close()

    run(scene())


# ---------------------------------------------------------------- the bounds


def event(number: int, payload: bytes = b"", ttl_ns: int | None = None) -> Event:
    return Event(EventId(0, 1, number), {"topic": f"t{number}"}, payload, {}, ttl_ns)


def test_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "MAX_RETAINED", 3)
    monkeypatch.setattr(retained, "MAX_RETAINED_BYTES", 10_000)
    held, effects = RetainedEvents(0, stores=False), Effects()
    for number in (1, 2, 3, 1, 4):
        held.retain("topic", event(number), 0, effects)
    assert [one.id.sequence for one, _ in held.find_matching(5, "true")] == [3, 1, 4]
    assert effects == [Notice("retained-dropped", 0)]
    held.retain("topic", event(5, bytes(9_300)), 0, effects)
    assert [one.id.sequence for one, _ in held.find_matching(5, "true")] == [4, 5]


def test_an_expired_one_is_not_handed_over() -> None:
    held = RetainedEvents(0, stores=False)
    held.retain("topic", event(1, ttl_ns=10), 100, Effects())
    assert [age for _, age in held.find_matching(110, "topic = 't1'")] == [10]
    assert held.find_matching(111, "topic = 't1'") == []


def test_an_answer_that_does_not_match_the_question_is_dropped() -> None:
    """The other peer may be compromised, or the client may have no right to the event."""

    async def scene() -> None:
        async with overlay(PAIR) as (a, b), wend.connect(a.url) as here, wend.connect(b.url) as there:
            await here.publish({"topic": "x", "n": 1}, b"1", retain="n")
            await here.publish({"topic": "x", "n": 2}, b"2", retain="n")
            answers = a.peer.retained_events
            a.peer.retained_events = lambda filter: answers("true")  # type: ignore[method-assign]
            async with there.subscribe("n = 2") as events:
                assert (await anext(events)).payload == b"2"
                await there.publish({"n": 2}, b"later")
                assert (await anext(events)).payload == b"later"

    run(scene())
