"""Congestion controllers at a bottleneck: they use it, keep its queue short, share it, and survive loss and outages."""

from statistics import median

import pytest

from tests.protocol.link.bottleneck import SIZE, Bottleneck
from tests.protocol.link.broken_controllers import NeverGrows, NeverShrinks
from wend.model.units import MS, SECOND
from wend.protocol.link.congestion import Aimd, Controller, SlidingMinimum
from wend.protocol.link.copa import Copa


def share(values: list[int]) -> float:
    """Jain's index of fairness."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


@pytest.mark.parametrize("round_trip_ms", [5, 40, 100])
@pytest.mark.parametrize("rate", [50, 200, 2000])
def test_copa_fills_a_link_and_keeps_its_queue_short(rate: int, round_trip_ms: int) -> None:
    link = Bottleneck(Copa, rate=rate, round_trip_ms=round_trip_ms)
    link.run(2)
    before = link.served[0]
    link.run(10)
    assert link.served[0] - before >= 0.95 * 8 * rate
    late = sorted(link.queues_ms[len(link.queues_ms) // 4 :])
    assert late[len(late) * 95 // 100] <= max(30, 6 * 1000 / rate)


@pytest.mark.parametrize(("senders", "room"), [(2, 64), (4, 128)])
def test_flows_of_copa_share_a_link(senders: int, room: int) -> None:
    link = Bottleneck(Copa, senders=senders, rate=500, round_trip_ms=20, room=room)
    link.run(10)
    before = list(link.served)
    link.run(40)
    served = [now - then for now, then in zip(link.served, before, strict=True)]
    assert share(served) >= 0.95
    assert sum(served) >= 0.95 * 30 * 500
    assert sorted(link.queues_ms)[len(link.queues_ms) * 95 // 100] < 60


@pytest.mark.parametrize(("rate", "room"), [(221, 57), (221, 28), (1770, 230)])
def test_copa_takes_its_share_beside_tcp(rate: int, room: int) -> None:
    """1 Mbit/s with queues of 32 and 16 kB, and 8 Mbit/s. TCP keeps the queue full for longer than round trips are
    remembered otherwise."""
    link = Bottleneck(Copa, rate=rate, round_trip_ms=20, room=room, size=564, tcp_at_s=5)
    link.run(9)
    before = list(link.served)
    link.run(60)
    ours, theirs = (now - then for now, then in zip(link.served, before, strict=True))
    assert 0.3 <= ours / (ours + theirs) <= 0.6
    assert ours + theirs >= 0.95 * 51 * rate


def test_two_flows_do_not_take_each_other_for_tcp_when_the_queue_was_full_for_a_moment() -> None:
    link = Bottleneck(Copa, senders=2, rate=221, round_trip_ms=20, room=57, size=564)
    link.run(10)
    link.blocked(0.5)
    link.run(15)
    met = len(link.queues_ms)
    link.run(40)
    assert not any(sender.controller.competitive for sender in link.senders)
    late = sorted(link.queues_ms[met:])
    assert late[len(late) * 95 // 100] <= 60


def test_copa_empties_the_queue_when_tcp_has_ended() -> None:
    link = Bottleneck(Copa, rate=104, round_trip_ms=20, room=27, size=1200, tcp_at_s=2)
    link.run(15)
    assert link.senders[0].controller.queueing_ns > 100 * MS
    link.end_tcp()
    link.run(20)
    met = len(link.queues_ms)
    link.run(40)
    late = sorted(link.queues_ms[met:])
    assert late[len(late) * 95 // 100] <= 60


def test_copa_does_not_take_the_pauses_of_its_host_for_congestion() -> None:
    """Round trips of 1 ms, and 40 ms longer because the host was busy."""
    windows = []
    for pause_ns in (0, 30 * MS):
        controller = Copa(5 * MS)
        controller.start(SIZE)
        now = 0
        for number in range(400):
            now += MS
            if number == 50 and pause_ns:
                controller.on_pause(now, pause_ns)
            controller.on_ack(now, SIZE, MS if number < 50 else 41 * MS, False)
        windows.append(controller.window)
    blamed, forgiven = windows
    assert blamed < 60 * SIZE < 300 * SIZE < forgiven  # it was 60 packets before the pause
    for _ in range(100):  # the pause was long ago, so the same round trips show a queue
        now += 100 * MS
        controller.on_ack(now, SIZE, MS, False)
        controller.on_ack(now, SIZE, 41 * MS, False)
    found = []
    for _ in range(500):
        now += MS
        controller.on_ack(now, SIZE, 41 * MS, False)
        found.append(controller.window)
    assert found[-1] < found[100]


def test_copa_does_not_take_loss_for_congestion() -> None:
    calm, lossy = Bottleneck(Copa), Bottleneck(Copa, loss=0.02)
    calm.run(20)
    lossy.run(20)
    assert lossy.served[0] >= 0.9 * calm.served[0]


def test_aimd_fills_the_queue_until_packets_get_lost() -> None:
    link = Bottleneck(Aimd, room=64)
    link.run(20)
    assert link.served[0] >= 0.95 * 20 * 200
    assert max(link.queues_ms) > 200


def test_the_bottleneck_finds_broken_controllers() -> None:
    right, greedy = Bottleneck(Copa), Bottleneck(NeverShrinks)
    for link in (right, greedy):
        link.run(10)
    assert median(greedy.queues_ms) > 2 * median(right.queues_ms)
    timid = Bottleneck(NeverGrows, rate=2000)
    timid.run(10)
    assert timid.served[0] < 0.5 * 10 * 2000


def test_a_link_that_returns_starts_with_two_packets() -> None:
    link = Bottleneck(Copa, rate=2000)
    link.run(5)
    sender = link.senders[0]
    assert sender.controller.window > 10 * SIZE
    sender.stop()
    sender.restart(6 * SECOND)
    assert sender.controller.window <= 2.1 * SIZE


def test_acks_of_an_application_that_sends_little_let_no_window_grow() -> None:
    for controller in (Copa(0), Aimd(0)):
        controller.start(SIZE)
        before = controller.window
        for number in range(100):
            controller.on_ack(number * 10 * MS, SIZE, 10 * MS, limited=True)
        assert controller.window == before


def test_a_round_trip_that_is_not_known_measures_nothing() -> None:
    controller = Controller(0)
    controller.on_ack(0, SIZE, 0, limited=False)
    assert controller.srtt_ns == 0
    assert controller.least_ns == 0


def test_the_least_of_the_last_samples() -> None:
    least = SlidingMinimum()
    assert [least.add(t, v, 10) for t, v in [(0, 5), (3, 7), (8, 6), (11, 9), (14, 8), (30, 50)]] == [5, 5, 5, 6, 6, 50]
