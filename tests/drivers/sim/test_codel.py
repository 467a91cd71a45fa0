"""CoDel against the control law of RFC 8289, computed by hand, and as the queue of simulated links."""

from collections import deque

import pytest

from tests.errors import raises
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.codel import CodelControl
from wend.drivers.sim.run import simulate
from wend.model.units import MS, SECOND, Nanos

LONG, SHORT = 20 * MS, 4 * MS


class Packet:
    def __init__(self, entered_ns: Nanos) -> None:
        self.entered_ns = entered_ns


def drops(codel: CodelControl, times_ms: range, sojourn_ns: Nanos) -> list[int]:
    """The times in ms at which CoDel drops, if a packet that waited so long has its turn at each of these times."""
    found = []
    for ms in times_ms:
        now = SECOND + ms * MS
        packet, dropped = codel.dequeue(now, deque(Packet(now - sojourn_ns) for _ in range(5)))
        assert packet is not None
        found += [ms] * len(dropped)
    return found


def test_drops_come_at_shrinking_intervals() -> None:
    """The first after an interval of 100 ms, then 100/sqrt(n) ms after the last due time: 200, 270.7, 328.4, 378.4,
    423.2, 464.0, 501.8. A packet has its turn every 10 ms."""
    assert drops(CodelControl(), range(0, 520, 10), LONG) == [100, 200, 280, 330, 380, 430, 470, 510]


def test_a_burst_passes() -> None:
    codel = CodelControl()
    assert drops(codel, range(0, 100, 10), LONG) == []
    assert drops(codel, range(100, 110, 10), SHORT) == []
    assert drops(codel, range(110, 210, 10), LONG) == []
    assert drops(codel, range(210, 220, 10), LONG) == [210]


def test_it_remembers_the_rate_at_which_it_dropped() -> None:
    """Eight drops, so count is 8 and was 1: it begins again with 7, and drops again after 100/sqrt(7) = 37.8 ms."""
    codel = CodelControl()
    assert len(drops(codel, range(0, 520, 10), LONG)) == 8
    assert drops(codel, range(520, 530, 10), SHORT) == []
    assert drops(codel, range(530, 680, 10), LONG) == [630, 670]


def test_it_forgets_the_rate_after_a_while() -> None:
    codel = CodelControl()
    drops(codel, range(0, 520, 10), LONG)
    assert drops(codel, range(520, 2620, 10), SHORT) == []
    assert drops(codel, range(2620, 2830, 10), LONG) == [2720, 2820]


def test_the_last_packets_stay() -> None:
    codel, now = CodelControl(), SECOND
    for _ in range(50):
        now += 10 * MS
        assert codel.dequeue(now, deque(Packet(now - LONG) for _ in range(2)))[1] == []
    assert codel.dequeue(now, deque[Packet]()) == (None, [])


def test_a_slow_link_may_send_one_packet() -> None:
    assert drops(CodelControl(packet_ns=25 * MS), range(0, 520, 10), LONG) == []


def two_peers(**fields: object) -> Scenario:
    given = {
        "peers": 2,
        "degree": 1,
        "topics": 1,
        "popularity": (1.0, 1.0),
        "pf": 0.0,
        "pl": 0.0,
        "delay": ("20ms", "20ms"),
    }
    given |= {"strategy": "d-tree", "link_capacity": "100msg/s", "duration": "10s", "ack": "free"}
    return Scenario(**{**given, **fields})  # type: ignore[arg-type]


def test_drop_tail_lets_all_wait_for_the_full_queue_and_codel_for_less() -> None:
    full = simulate(two_peers(rate=120.0)).summary
    managed = simulate(two_peers(rate=120.0, queue_discipline="codel")).summary
    assert full.delay_ms.p99 == pytest.approx(20 + 65 * 10, abs=11)
    assert managed.delay_ms.p50 is not None
    assert managed.delay_ms.p50 < 150
    assert managed.drops["queue-delay"] > 50
    assert managed.delivered > 0.99 * 10 * 100


def test_codel_leaves_a_link_alone_that_carries_its_load() -> None:
    plain, managed = (simulate(two_peers(rate=90.0, queue_discipline=name)) for name in ("drop-tail", "codel"))
    assert managed.summary.drops == {}
    assert managed.trace.sha256() == plain.trace.sha256()


def test_a_discipline_needs_queues() -> None:
    with raises("invalid-setting", match="queue_discipline concerns the queues of links"):
        two_peers(link_capacity=None, queue_discipline="codel")
