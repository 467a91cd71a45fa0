"""The bottleneck of the lab: captures, what is computed from them, and one short run."""

import pytest

from tests.lab.labs import needs_lab
from wend.console.lab.bottleneck_command import bottleneck
from wend.lab.bottleneck import experiment as module
from wend.lab.bottleneck.experiment import BottleneckSetup, run_experiment
from wend.lab.bottleneck.packet_capture import CapturedPacket, find_peak_bytes, match_packets
from wend.lab.bottleneck.peer_traffic import DEADLINES_NS, EventFlow
from wend.model.errors import ConfigError
from wend.model.units import MS


def packet(at_ms: int, content: bytes, sent: bool, size: int = 100) -> CapturedPacket:
    return CapturedPacket(at_ms * MS, sent, size, 17, (7711, 7711), content)


def test_packets_of_both_ends_are_paired_in_order() -> None:
    sent = [packet(0, b"a", True), packet(1, b"b", True), packet(2, b"a", True), packet(3, b"lost", True)]
    came = [packet(10, b"a", False), packet(15, b"b", False), packet(20, b"a", False), packet(21, b"other", False)]
    assert match_packets([*sent, packet(4, b"x", False)], came) == [
        (0, 10 * MS, 100),
        (1 * MS, 14 * MS, 100),
        (2 * MS, 18 * MS, 100),
    ]


def test_the_busiest_time_span_is_found() -> None:
    packets = [packet(at, b"", True, size) for at, size in ((0, 500), (50, 100), (99, 100), (100, 300), (160, 250))]
    assert find_peak_bytes(packets, 100 * MS) == 700
    assert find_peak_bytes(packets[3:], 100 * MS) == 550
    assert find_peak_bytes([], 100 * MS) == 0


def test_events_count_by_their_own_deadlines() -> None:
    flow = EventFlow(0)
    flow.sent = [0, 0, 0, 5 * MS, 900 * MS]
    flow.came = {0: DEADLINES_NS[0] + 1, 1: DEADLINES_NS[1], 2: DEADLINES_NS[2], 3: 6 * MS}
    assert flow.count_by_deadline(0, 900 * MS) == [(1, 1, 2), (1, 0, 1), (1, 0, 1)]
    assert flow.count_delivered(0, 300 * MS) == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [({"experiments": "alone,steep"}, "no experiment 'steep'"), ({"settings": ["margin"]}, "--set needs NAME=VALUE")],
)
def test_mistakes_are_named(options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        bottleneck(**options)  # type: ignore[arg-type]


@needs_lab
def test_peers_meet_across_the_bottleneck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WARM_UP_S", 0.2)
    monkeypatch.setattr(module, "SAMPLE_S", 0.3)
    found = run_experiment("tcp", BottleneckSetup("d-tree", seconds=0.8))
    assert 550 < found.packet_bytes < 700
    assert 0 < found.goodput <= 1.1
    assert 0 < found.on_time <= 1
    assert found.queueing_p95_ms > 1
    assert found.tcp_share is not None
    assert 0 < found.tcp_share <= 1
