"""How much silence proves an outage, and what the weather is."""

import pytest

from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.links import Link
from wend.protocol.liveness import Liveness, needed
from wend.protocol.messages import Hello
from wend.protocol.ports import Effect, Send

CONFIG = PeerConfig(peer=0, strategy="adaptive", estimator="nominal", margin_ns=0)


def link(reliability: float, up: bool = True) -> Link:
    made = Link(1, 10 * MS, reliability, CONFIG)
    made.up = up
    return made


@pytest.mark.parametrize(("reliability", "missing"), [(1.0, 1), (0.9999, 1), (0.99, 2), (0.9, 3)])
def test_the_more_a_link_loses_the_more_must_be_missing(reliability: float, missing: int) -> None:
    one = link(reliability)
    assert needed(one) == missing
    live = Liveness(CONFIG, {1: one})
    one.fails = missing - 1
    assert missing == 1 or not live.doubted(one)
    one.fails = missing
    assert live.doubted(one)


@pytest.mark.parametrize(("made", "every_ms"), [(link(1.0), 160), (link(0.9), 53), (link(1.0, up=False), 80)])
def test_how_often_a_quiet_link_is_probed(made: Link, every_ms: int) -> None:
    live = Liveness(CONFIG, {1: made})
    hellos, now = 0, 0
    while now < 10 * SECOND:
        effects: list[Effect] = []
        made.heard_ns = now
        _, now = live.probe(now, 1, effects)
        hellos += sum(isinstance(e, Send) and isinstance(e.message, Hello) for e in effects)
    assert hellos == pytest.approx(10_000 / every_ms, rel=0.05)


def test_the_weather_is_the_share_of_time_that_links_were_down() -> None:
    links = {n: Link(n, 10 * MS, 1.0, CONFIG) for n in range(1, 5)}
    live = Liveness(CONFIG, links)
    live.begin(0)
    for second in range(100):  # one of four links is down half of the time
        live.fell(second * SECOND, 1)
        live.rose(second * SECOND + SECOND // 2, 1)
    assert live.outage_share(100 * SECOND) == pytest.approx(0.125, abs=0.02)
    assert live.outage_share(1000 * SECOND) < 0.01
