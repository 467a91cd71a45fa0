"""Deadlines as a multiple of the shortest delay: the subscriber's peer resolves them, and its status shows them."""

import pytest

import wend
from tests.drivers.live.net import PAIR, overlay, run, until
from tests.errors import raises
from wend.model.events import Qos
from wend.model.units import MS


def test_a_relative_deadline_is_resolved_by_the_peer_and_shown() -> None:
    async def scene() -> None:
        async with (
            overlay(PAIR) as (a, b),
            wend.connect(a.url) as publisher,
            wend.connect(b.url) as subscriber,
            subscriber.subscribe("topic = 'x'", deadline="3x") as events,
        ):
            await until(lambda: a.peer.interested_peers({"topic": "x"}) == (1,))
            await publisher.publish({"topic": "x"})
            await anext(events)
            shown = (await subscriber.status()).plugins["flooded"]
            shortest = b.peer.peer.view.graph.distances(0)[1]
            assert abs(1000 * shown["deadline_us.0"] - 3 * shortest) <= 3 * MS
            assert shown["deadline_us.0"] > 0

    run(scene())


@pytest.mark.parametrize("deadline", ["3", "x", "0.5x", "infx", "nanx", "1e9x"])
def test_a_nonsense_deadline_is_refused_by_the_client(deadline: str) -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, _), wend.connect(a.url) as client:
            with pytest.raises(wend.ClientError, match="a multiple of the shortest delay such as '3x'"):
                client.subscribe("true", deadline=deadline)

    run(scene())


@pytest.mark.parametrize("factor", [0.5, -1.0, 1e300])
def test_and_by_the_peer(factor: float) -> None:
    async def scene() -> None:
        async with overlay(PAIR) as (a, _):
            with raises("invalid-subscription"):
                a.broker.subscribe(None, 1, "true", Qos(factor=factor))  # type: ignore[arg-type]

    run(scene())
