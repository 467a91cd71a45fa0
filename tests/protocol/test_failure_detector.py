"""How much silence proves an outage, when hellos are sent, and the share of time that links are down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wend.model.events import Event, EventId
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.link.failure_detector import FailureDetector, proves_outage
from wend.protocol.link.hellos import Batch, HelloSchedule
from wend.protocol.link.link import Link
from wend.protocol.link.outages import OutageChance, OutageStatistics
from wend.protocol.link.retransmission import Retransmission
from wend.protocol.messages import TX_SHIFT, Ack, Control, Data, Hello
from wend.protocol.ports import Effect, Neighbour, Notice, Paused, Received, Send, Started, Woken
from wend.protocol.timers import Timers
from wend.strategies.registry import make_peer

CONFIG = PeerConfig(peer=0, strategy="adaptive", estimator="nominal", margin_ns=0)


def link(reliability: float, up: bool = True) -> Link:
    made = Link(1, 10 * MS, reliability, CONFIG)
    if not up:
        made.declare_down()
    return made


@pytest.mark.parametrize(("reliability", "missing"), [(1.0, 1), (0.9999, 1), (0.99, 2), (0.9, 3)])
def test_the_more_a_link_loses_the_more_must_be_missing(reliability: float, missing: int) -> None:
    one = link(reliability)
    assert one.detection.multiplier == missing
    for fails in range(1, missing + 1):
        one.on_give_up()
        assert proves_outage(one.timeout_ns, one) == (fails == missing)


def test_unanswered_packets_prove_nothing_about_a_neighbour_that_was_heard_since() -> None:
    one = link(1.0)
    one.on_give_up()
    arrived = 10 * MS
    one.heard_ns = arrived
    assert proves_outage(one.timeout_ns, one)
    one.heard_ns = arrived + 1
    assert not proves_outage(one.timeout_ns, one)


def send_due(schedule: HelloSchedule, now: int, effects: list[Effect]) -> int:
    batches: list[Batch] = []
    again = schedule.collect_due(now, [], batches)
    schedule.send(now, batches, effects)
    return again


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
        now = send_due(schedule, now, effects)
        hellos += sum(isinstance(e, Send) and isinstance(e.message, Hello) for e in effects)
    assert hellos == pytest.approx(10_000 / every_ms, rel=0.05)


@pytest.mark.parametrize(("reliability", "silence_ms"), [(1.0, 60), (0.99, 120), (0.9, 160)])
def test_silence_beyond_what_was_promised_is_an_outage_unless_packets_get_lost(
    reliability: float, silence_ms: int
) -> None:
    made = link(reliability)
    made.on_announced_silence(60 * MS)
    assert made.is_working(silence_ms * MS)
    assert not made.is_working(silence_ms * MS + 1)


def announced(schedule: HelloSchedule, made: Link, now: int) -> int:
    """The silence that the next hello announces, in milliseconds."""
    while True:
        made.heard_ns = now
        effects: list[Effect] = []
        now = send_due(schedule, now, effects)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Hello):
                return effect.message.within_ns // MS


def test_a_busy_host_announces_longer_silences_for_a_while_and_says_hello_as_often() -> None:
    made = link(1.0)
    schedule = HelloSchedule(CONFIG.with_(margin_ns=5 * MS), {1: made})
    assert announced(schedule, made, 0) == 160
    assert not schedule.on_pause(SECOND, 5 * MS)
    assert announced(schedule, made, SECOND) == 160
    assert schedule.on_pause(2 * SECOND, 100 * MS)
    assert not schedule.on_pause(2 * SECOND, 30 * MS)  # that is allowed for already
    assert announced(schedule, made, 2 * SECOND) == 4 * 160
    made.heard_ns, effects = 3 * SECOND, []
    assert send_due(schedule, 3 * SECOND, effects) - 3 * SECOND == 120 * MS  # as without the pause
    assert announced(schedule, made, 13 * SECOND) == 2 * 480  # idle by now
    assert announced(schedule, made, 24 * SECOND) == 480
    assert schedule.on_pause(25 * SECOND, 100 * SECOND)
    assert announced(schedule, made, 25 * SECOND) == 8 * 480


@pytest.mark.parametrize(("pause_ms", "down"), [(0, True), (200, True), (240, False), (1000, False)])
def test_a_peer_that_did_not_run_does_not_blame_its_links(pause_ms: int, down: bool) -> None:
    peer = make_peer(CONFIG)
    peer.handle(0, Started((Neighbour(1, 10 * MS),)))
    peer.handle(0, Received(1, Hello(1, True, 160 * MS)))
    if pause_ms:
        peer.handle(400 * MS, Paused(pause_ms * MS))
    notices = [effect.what for effect in peer.handle(400 * MS, Woken()) if isinstance(effect, Notice)]
    assert ("link-down" in notices) is down


def test_an_outage_ends_once_and_only_when_both_directions_work() -> None:
    """The first hello after an outage was sent before the neighbour heard anything: it says so."""
    peer, happened = make_peer(CONFIG), []

    def tell(now: int, said: Woken | Received) -> None:
        notices = [effect.what for effect in peer.handle(now, said) if isinstance(effect, Notice)]
        happened.extend((now // MS, what) for what in notices if what in ("link-down", "link-up"))

    peer.handle(0, Started((Neighbour(1, 10 * MS),)))
    tell(0, Received(1, Hello(1, True, 160 * MS)))
    tell(400 * MS, Woken())
    tell(1000 * MS, Received(1, Hello(1, False, 80 * MS)))
    assert peer.links[1].state.value == "one-way"
    tell(1010 * MS, Woken())
    tell(1060 * MS, Woken())
    tell(1070 * MS, Received(1, Hello(1, True, 160 * MS)))
    tell(1100 * MS, Woken())
    assert happened == [(400, "link-down"), (1070, "link-up")]
    assert peer.links[1].is_working(1100 * MS)


def test_a_neighbour_whose_hello_is_lost_after_an_outage_is_asked_for_an_ack() -> None:
    """It said that it hears nothing, then that it does. The second hello is lost, and its data suppresses others."""
    peer = make_peer(CONFIG)
    said = peer.handle(0, Started((Neighbour(1, 10 * MS),)))
    said += peer.handle(0, Received(1, Hello(1, True, 160 * MS)))
    for effect in said:
        if isinstance(effect, Send) and isinstance(effect.message, Control):
            peer.handle(20 * MS, Received(1, Ack(effect.message.tx)))
    peer.handle(400 * MS, Woken())
    peer.handle(1000 * MS, Received(1, Hello(1, False, 80 * MS)))
    probes: list[tuple[int, Control]] = []
    for number in range(1, 60):  # an event every 20 ms
        now = 1000 * MS + number * 20 * MS
        data = Data((1 << TX_SHIFT) + number, Event(EventId(1, 1, number), {}), 0, (0,), (1,))
        effects = [*peer.handle(now, Received(1, data)), *peer.handle(now, Woken())]
        sent = [effect.message for effect in effects if isinstance(effect, Send)]
        probes += [(now, message) for message in sent if isinstance(message, Control)]
        if probes:
            break
    ((asked_ns, probe),) = probes
    assert 1100 * MS < asked_ns < 1300 * MS and probe.body is None
    peer.handle(asked_ns + 20 * MS, Received(1, Ack(probe.tx)))
    assert peer.links[1].is_working(asked_ns + 20 * MS)


def test_a_hello_of_an_earlier_incarnation_says_nothing_of_this_one() -> None:
    peer, hello = make_peer(CONFIG), Hello(2, True, 160 * MS)
    peer.handle(0, Started((Neighbour(1, 10 * MS),)))
    peer.handle(0, Received(1, hello))
    peer.handle(400 * MS, Woken())
    assert peer.links[1].state.value == "down"
    peer.handle(500 * MS, Received(1, Hello(1, False, 160 * MS)))
    peer.handle(510 * MS, Received(1, hello))
    assert peer.links[1].is_working(510 * MS)


@pytest.mark.parametrize("absurd", [-1, 0, 1 << 62])
def test_an_absurd_promise_is_bounded(absurd: int) -> None:
    made = link(1.0)
    made.on_announced_silence(absurd)
    assert not made.is_working(20 * SECOND)
    assert made.is_working(0)


def test_a_neighbour_with_another_detection_time_is_not_taken_for_dead() -> None:
    slow = PeerConfig(peer=1, strategy="adaptive", estimator="nominal", margin_ns=0, detection_ns=800 * MS)
    there = Link(0, 10 * MS, 1.0, slow)
    here, now, effects = link(1.0), 0, []
    schedule = HelloSchedule(slow, {0: there})
    for _ in range(20):
        effects.clear()
        there.heard_ns = now
        again = send_due(schedule, now, effects)
        for effect in effects:
            here.on_announced_silence(effect.message.within_ns)
            here.heard_ns = now
        assert here.is_working(again)
        now = again


def test_what_an_outage_swallowed_is_not_held_against_the_link() -> None:
    made = Link(1, 10 * MS, 1.0, PeerConfig(peer=0, strategy="adaptive", estimator="measured"))
    for _ in range(26):
        made.record_ack(20 * MS, False)
    made.on_give_up()
    made.declare_down()
    made.on_give_up()  # repeated to a link that is down
    made.end_period()
    assert (made.reliability, made.detection.multiplier) == (1.0, 1)


def test_packets_lost_without_an_outage_are() -> None:
    made = Link(1, 10 * MS, 1.0, PeerConfig(peer=0, strategy="adaptive", estimator="measured"))
    for _ in range(26):
        made.on_timeout()
        made.record_ack(20 * MS, False)
    made.end_period()
    assert made.detection.multiplier == 3


def test_a_busy_host_does_not_make_the_link_longer() -> None:
    made = Link(1, 10 * MS, 1.0, PeerConfig(peer=0, strategy="adaptive", estimator="measured"))
    for jitter in range(30):
        made.record_ack((20 + jitter % 10) * MS, False)
    assert not made.end_period()
    assert made.delay_ns == 10 * MS
    assert made.timeout_ns > 30 * MS


def test_the_statistics_are_the_share_of_time_that_links_were_down() -> None:
    links = {n: Link(n, 10 * MS, 1.0, CONFIG) for n in range(1, 5)}
    outages = OutageStatistics(links)
    outages.begin(0)
    for second in range(100):  # one of four links is down half of the time
        outages.on_down(second * SECOND, 1)
        outages.on_up(second * SECOND + SECOND // 2, 1)
    assert outages.estimate_all(100 * SECOND).share == pytest.approx(0.125, abs=0.02)
    assert outages.estimate_all(1000 * SECOND).share < 0.01


@pytest.mark.parametrize("length_ms", [300, 2_000, 10_000])
def test_lengths_of_outages_are_learned_for_each_link_and_for_all(length_ms: int) -> None:
    links = {n: Link(n, 10 * MS, 1.0, CONFIG) for n in range(1, 5)}
    outages = OutageStatistics(links)
    outages.begin(0)
    now = 0
    for _ in range(100):  # link 1 fails often, the others never
        now += 9 * length_ms * MS
        outages.on_down(now, 1)
        outages.on_down(now, 1)  # known
        now += length_ms * MS
        outages.on_up(now, 1)
        outages.on_up(now, 1)
    failing, stable, others = outages.estimate(now, 1), outages.estimate(now, 2), outages.estimate_all(now)
    assert failing.length_ns / MS == pytest.approx(length_ms, rel=0.25)
    assert others.length_ns / MS == pytest.approx(length_ms, rel=0.4)
    assert failing.share == pytest.approx(0.1, abs=0.03)
    assert stable.share < 0.5 * others.share < 0.5 * failing.share
    assert outages.estimate(now, 9).share == pytest.approx(others.share), "a link that is new is like the others"


def test_what_is_known_of_a_link_ages() -> None:
    """A moment later a link is as it was; much later the past says nothing."""
    chance = OutageChance(0.1, 2 * SECOND, 0)
    assert chance.down_after(0) == chance.up_after(0) == 0.0
    assert chance.down_after(18 * MS) == pytest.approx(0.001, rel=0.02)
    assert chance.down_after(1000 * SECOND) == pytest.approx(0.1)
    assert chance.up_after(1000 * SECOND) == pytest.approx(0.9)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.booleans(), st.integers(1, 5)), max_size=50))
def test_whatever_happens_estimates_are_probabilities(steps: list[tuple[int, bool, int]]) -> None:
    outages = OutageStatistics({n: Link(n, 10 * MS, 1.0, CONFIG) for n in range(1, 4)})
    outages.begin(0)
    now = 0
    for passed, down, peer in steps:
        now += passed
        (outages.on_down if down else outages.on_up)(now, peer)
        for chance in (outages.estimate(now, peer), outages.estimate_all(now)):
            assert 0.0 < chance.share < 1.0
            assert chance.length_ns > 0
            assert 0.0 <= chance.down_after(passed) <= chance.share


def test_loss_explains_missing_acks_only_where_links_lose_packets_and_seldom_fail() -> None:
    def detector(reliability: float) -> tuple[FailureDetector, Link]:
        made = link(reliability)
        links, timers = {1: made}, Timers()
        retransmission = Retransmission(CONFIG, links, timers, *[lambda *_: None] * 3)
        return FailureDetector(CONFIG, links, timers, retransmission, lambda *_: None), made

    sound, made = detector(1.0)
    assert not sound.is_explained_by_loss(30 * MS, made, 1)
    lossy, made = detector(0.95)
    assert lossy.is_explained_by_loss(30 * MS, made, 1)
    assert lossy.is_explained_by_loss(30 * MS, made, 2)
    assert not lossy.is_explained_by_loss(SECOND, made, 1), "the link does not seem up"
    for second in range(1, 60):
        lossy.outages.on_down(second * SECOND, 1)
        lossy.outages.on_up(second * SECOND + 50 * MS, 1)
    made.heard_ns = 60 * SECOND
    assert lossy.is_explained_by_loss(60 * SECOND + 100 * MS, made, 1) is True
    assert lossy.is_explained_by_loss(60 * SECOND + 100 * MS, made, 2) is False, "by now an outage is likelier"
