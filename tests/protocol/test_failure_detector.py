"""How much silence proves an outage, when hellos are sent, and the share of time that links are down."""

import pytest

from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.link.failure_detector import proves_outage
from wend.protocol.link.hellos import HelloSchedule
from wend.protocol.link.link import Link
from wend.protocol.link.outages import OutageStatistics
from wend.protocol.messages import Hello
from wend.protocol.ports import Effect, Send

CONFIG = PeerConfig(peer=0, strategy="adaptive", estimator="nominal", margin_ns=0)


def link(reliability: float, up: bool = True) -> Link:
    made = Link(1, 10 * MS, reliability, CONFIG)
    if not up:
        made.declared_down()
    return made


@pytest.mark.parametrize(("reliability", "missing"), [(1.0, 1), (0.9999, 1), (0.99, 2), (0.9, 3)])
def test_the_more_a_link_loses_the_more_must_be_missing(reliability: float, missing: int) -> None:
    one = link(reliability)
    assert one.detect_multiplier == missing
    for fails in range(1, missing + 1):
        one.gave_up()
        assert proves_outage(one.timeout_ns, one) == (fails == missing)


def test_unanswered_packets_prove_nothing_about_a_neighbour_that_was_heard_since() -> None:
    one = link(1.0)
    one.gave_up()
    arrived = 10 * MS
    one.heard_ns = arrived
    assert proves_outage(one.timeout_ns, one)
    one.heard_ns = arrived + 1
    assert not proves_outage(one.timeout_ns, one)


@pytest.mark.parametrize(
    ("made", "every_ms"),
    [(link(1.0), 160), (link(0.99), 80), (link(0.9), 53), (link(1.0, up=False), 80), (link(0.9, up=False), 53)],
)
def test_how_often_a_quiet_link_gets_a_hello(made: Link, every_ms: int) -> None:
    schedule = HelloSchedule(CONFIG, {1: made})
    hellos, now = 0, 0
    while now < 10 * SECOND:
        effects: list[Effect] = []
        made.heard_ns = now
        now = schedule.send(now, [], effects)
        hellos += sum(isinstance(e, Send) and isinstance(e.message, Hello) for e in effects)
    assert hellos == pytest.approx(10_000 / every_ms, rel=0.05)


@pytest.mark.parametrize(("reliability", "silence_ms"), [(1.0, 60), (0.99, 120), (0.9, 160)])
def test_silence_beyond_what_was_promised_is_an_outage_unless_packets_get_lost(
    reliability: float, silence_ms: int
) -> None:
    made = link(reliability)
    made.promised(60 * MS)
    assert made.seems_up(silence_ms * MS)
    assert not made.seems_up(silence_ms * MS + 1)


@pytest.mark.parametrize("absurd", [-1, 0, 1 << 62])
def test_an_absurd_promise_is_bounded(absurd: int) -> None:
    made = link(1.0)
    made.promised(absurd)
    assert not made.seems_up(20 * SECOND)
    assert made.seems_up(0)


def test_a_neighbour_with_another_detection_time_is_not_taken_for_dead() -> None:
    slow = PeerConfig(peer=1, strategy="adaptive", estimator="nominal", margin_ns=0, detection_ns=800 * MS)
    there = Link(0, 10 * MS, 1.0, slow)
    here, now, effects = link(1.0), 0, []
    schedule = HelloSchedule(slow, {0: there})
    for _ in range(20):
        effects.clear()
        there.heard_ns = now
        again = schedule.send(now, [], effects)
        for effect in effects:
            here.promised(effect.message.within_ns)
            here.heard_ns = now
        assert here.seems_up(again)
        now = again


def test_what_an_outage_swallowed_is_not_held_against_the_link() -> None:
    made = Link(1, 10 * MS, 1.0, PeerConfig(peer=0, strategy="adaptive", estimator="measured"))
    for _ in range(26):
        made.answered(20 * MS, False)
    made.gave_up()
    made.declared_down()
    made.gave_up()  # repeated to a link that is down
    made.adopt()
    assert (made.reliability, made.detect_multiplier) == (1.0, 1)


def test_packets_lost_without_an_outage_are() -> None:
    made = Link(1, 10 * MS, 1.0, PeerConfig(peer=0, strategy="adaptive", estimator="measured"))
    for _ in range(26):
        made.unanswered()
        made.answered(20 * MS, False)
    made.adopt()
    assert made.detect_multiplier == 3


def test_a_busy_host_does_not_make_the_link_longer() -> None:
    made = Link(1, 10 * MS, 1.0, PeerConfig(peer=0, strategy="adaptive", estimator="measured"))
    for jitter in range(30):
        made.answered((20 + jitter % 10) * MS, False)
    assert not made.adopt()
    assert made.delay_ns == 10 * MS
    assert made.timeout_ns > 30 * MS


def test_the_statistics_are_the_share_of_time_that_links_were_down() -> None:
    links = {n: Link(n, 10 * MS, 1.0, CONFIG) for n in range(1, 5)}
    outages = OutageStatistics(links)
    outages.begin(0)
    for second in range(100):  # one of four links is down half of the time
        outages.down(second * SECOND, 1)
        outages.up(second * SECOND + SECOND // 2, 1)
    assert outages.outage_share(100 * SECOND) == pytest.approx(0.125, abs=0.02)
    assert outages.outage_share(1000 * SECOND) < 0.01
