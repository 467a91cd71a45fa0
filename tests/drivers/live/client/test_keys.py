"""Publications with a key, where the application stands: once, whatever happens to connections and peers."""

import asyncio
from pathlib import Path

import pytest

import wend
from tests.drivers.live.net import PAIR, overlay, run, take, until
from tests.drivers.live.processes import Process
from tests.drivers.live.test_home_crashes import HOMES, PUBLISHER, write_files
from tests.errors import raises
from wend.model.publication import make_publication

X = "topic = 'x'"


def test_published_again_it_is_one_event() -> None:
    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(a.url) as here,
            wend.connect(b.url) as there,
            there.subscribe(X) as events,
        ):
            await until(lambda: a.peer.interested_peers({"topic": "x"}) == (1,))
            first = await here.publish({"topic": "x"}, b"1", key="k")
            assert not first.repeated
            assert (await anext(events)).payload == b"1"
            again = await here.publish({"topic": "x"}, b"1", key="k")
            assert (again.id, again.repeated) == (first.id, True)
            elsewhere = await there.publish({"topic": "x"}, b"1", key="k")
            assert (elsewhere.id, elsewhere.repeated) == (first.id, True)
            await here.publish({"topic": "x"}, b"2")
            assert (await anext(events)).payload == b"2"

    run(scene())


@pytest.mark.parametrize("key", ["", "x" * 201, 7])
def test_an_unusable_key_is_refused(key: object) -> None:
    with raises("invalid-event", "a key has 1 to 200 characters"):
        make_publication({"topic": "x"}, key=key)  # type: ignore[arg-type]


def test_a_client_of_two_peers_publishes_everything_once_though_they_are_killed(tmp_path: Path) -> None:
    """The publisher goes from peer to peer, and publishes again what it has no receipt for."""

    async def scene() -> None:
        async with asyncio.timeout(240):
            files = write_files(tmp_path)
            peers = [await Process.start(file) for file in files]
            url = ",".join(peers[home].url for home in HOMES)
            async with (
                wend.connect(peers[PUBLISHER].url) as client,
                wend.connect(url) as publisher,
                client.subscribe(X, name="orders") as events,
            ):
                await asyncio.sleep(1)
                sent, has_enough = 0, False

                async def publish() -> None:
                    nonlocal sent
                    while not has_enough:
                        await publisher.publish({"topic": "x"}, str(sent).encode(), key=f"order-{sent}")
                        sent += 1

                publishing = asyncio.create_task(publish())
                for home in (1, 2, 1, 2):
                    await asyncio.sleep(0.4)
                    await peers[home].kill()
                    peers[home] = await Process.start(files[home])
                    await asyncio.sleep(0.4)
                await asyncio.sleep(0.5)
                assert not publishing.done()
                has_enough = True
                await publishing  # cancelled, it would leave an event that may or may not be published
                got = [int(event.payload) for event in await take(events, sent)]
                assert sorted(got) == list(range(sent))
                await until(lambda: publisher.reconnects > 0)
            for peer in peers:
                await peer.stop()

    asyncio.run(scene())
