"""`scribe` and `hermes` on an ideal ring: everybody who wants an event gets it once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.ring.interest_rings import RingNet
from tests.strategies.ring.worlds import PEERS, Phase, events, odd, odd_events, phases, play, topics

BOTH = ["scribe", "hermes"]


@pytest.mark.parametrize("strategy", BOTH)
@given(phases(topics, events | odd_events), st.booleans())
@settings(max_examples=15)
def test_random_worlds(strategy: str, world: list[Phase], hop_acks: bool) -> None:
    net = RingNet(strategy, PEERS, hop_acks=hop_acks)
    play(net, world)
    net.check()
    assert not net.refusals and not net.drops


@pytest.mark.parametrize("strategy", BOTH)
@given(phases(odd, odd_events))
@settings(max_examples=10)
def test_filters_of_any_form(strategy: str, world: list[Phase]) -> None:
    net = RingNet(strategy, PEERS)
    play(net, world)
    net.check()


@pytest.mark.parametrize("strategy", BOTH)
def test_what_nobody_renews_expires(strategy: str) -> None:
    net = RingNet(strategy, PEERS)
    for peer in range(PEERS):
        net.subscribe(peer, 0, "topic = 'x'")
    net.run(100.0)
    assert all(net.status(peer)["groups"] for peer in range(PEERS))
    for peer in range(PEERS - 1):
        net.crash(peer)
    net.detect()
    net.run(130.0)
    status = net.status(PEERS - 1)
    assert status["groups"] == 1
    assert status.get("children", status.get("entries", 0)) <= 1


@pytest.mark.parametrize("strategy", BOTH)
def test_after_a_crash_events_arrive_again(strategy: str) -> None:
    net = RingNet(strategy, PEERS)
    for peer in range(PEERS):
        net.subscribe(peer, 0, "topic = 'x'")
    net.settle()
    net.crash(net.owner("topic x"))
    net.detect()
    net.run(31.0)
    net.publish(next(iter(net.peers)), {"topic": "x"})
    net.settle()
    net.check()
    assert len(net.deliveries) == PEERS - 1
