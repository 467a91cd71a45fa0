"""Publishers become as slow as the network: a peer whose links are congested reads them no further."""

import pytest

import wend
from tests.drivers.live.net import RawClient, overlay, run, until
from wend.drivers.live import frames
from wend.drivers.live.broker import publisher_pause
from wend.drivers.live.client import client as client_module
from wend.drivers.live.driver import PeerDriver
from wend.drivers.live.peer import LivePeer
from wend.model.publication import Publication
from wend.protocol.ports import Receipt


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """While `now` is set, something waits for the links of all peers."""
    crowd = {"now": False}
    publish = PeerDriver.publish

    def congested(self: PeerDriver, publication: Publication) -> Receipt:
        made = publish(self, publication)
        return Receipt(made.id, made.targets, made.kept, crowd["now"])

    monkeypatch.setattr(PeerDriver, "publish", congested)
    monkeypatch.setattr(LivePeer, "is_crowded", property(lambda self: crowd["now"]))
    return crowd


def test_a_publisher_is_read_no_further_while_links_are_congested(crowd: dict[str, bool]) -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            busy, other = [await RawClient.connect(a.listener.address) for _ in range(2)]
            for client in (busy, other):
                client.send(frames.Greet())
                await client.receive()
            crowd["now"] = True
            posted = (frames.PostedEvent({"n": 3}), frames.PostedEvent({"n": 4}))
            busy.send(*(frames.Publish(ref, {"n": ref}) for ref in (1, 2)), frames.Post(3, posted), frames.PingFrame(4))
            (accepted,) = await busy.receive()
            assert isinstance(accepted, frames.Accepted) and (accepted.ref, accepted.congested) == (1, True)
            other.send(frames.PingFrame(1))
            assert await other.receive() == [frames.Completed(1)]
            assert a.peer.counters.publications == 1
            crowd["now"] = False
            (second, *rest) = await busy.receive(3)
            assert isinstance(second, frames.Accepted) and not second.congested
            assert rest == [frames.Posted(3, 2), frames.Completed(4)]
            busy.close()
            other.close()

    run(scene())


def test_a_post_stops_in_the_middle_and_says_that_links_were_congested(crowd: dict[str, bool]) -> None:
    async def scene() -> None:
        async with overlay([]) as (a,):
            busy = await RawClient.connect(a.listener.address)
            busy.send(frames.Greet())
            await busy.receive()
            crowd["now"] = True
            busy.send(frames.Post(1, tuple(frames.PostedEvent({"n": n}) for n in range(5))))
            await until(lambda: a.peer.counters.publications == 1)
            crowd["now"] = False
            assert await busy.receive() == [frames.Posted(1, 5, congested=True)]
            busy.close()

    run(scene())


def test_a_client_of_a_peer_that_stays_congested_is_served_now_and_then(
    crowd: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_pause, "MAX_PAUSE_S", 0.01)
    monkeypatch.setattr(client_module, "CONGESTED_S", 3600.0)

    async def scene() -> None:
        async with overlay([]) as (a,), wend.connect(a.url) as client:
            assert await client.try_publish({"n": 0}) is not None
            crowd["now"] = True
            for _ in range(3):
                assert (await client.publish({"n": 1})).congested
            assert await client.try_publish({"n": 2}) is None
            await client.post({"n": 3})
            assert await client.flush() == 1

    run(scene())
