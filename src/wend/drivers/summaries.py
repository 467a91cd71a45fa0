"""Summaries from counts, by the same rules for simulated and live runs."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from wend.model.summary import LATE, Delays, DetectionDelays, Late, Packets, Summary
from wend.model.units import MS

Floats = npt.NDArray[np.float64]


class DeliveryCounts(msgspec.Struct, frozen=True):
    """The counts and delays of the deliveries of a run."""

    delivered: int
    on_time: int
    within: Sequence[int]
    """The number of late deliveries within each bound of `LATE`."""
    mean_ns: float
    sample_ns: Sequence[int] | Floats
    """The delays for percentiles: all of them, or a uniform sample."""


def count_deliveries(delay_ns: Floats, deadline_ns: Floats) -> DeliveryCounts:
    """Count deliveries from arrays with one entry for each."""
    late = delay_ns > deadline_ns
    times = delay_ns[late] / deadline_ns[late]
    within = [int((times <= bound).sum()) for bound in LATE]
    mean_ns = float(delay_ns.mean()) if len(delay_ns) else 0.0
    return DeliveryCounts(len(delay_ns), len(delay_ns) - len(times), within, mean_ns, delay_ns)


def make_summary(
    deliveries: DeliveryCounts,
    *,
    publications: int,
    expected: int,
    data_packets: int,
    data_packets_unicast: int,
    control: Counter[str],
    drops: Counter[str],
    notices: Counter[str],
    wall_s: float,
    trace_sha256: str = "",
    known: DetectionDelays | None = None,
    missing: Counter[str] | None = None,
) -> Summary:
    return Summary(
        delivery=_ratio(deliveries.delivered, expected),
        on_time=_ratio(deliveries.on_time, expected),
        packets=Packets(_ratio(data_packets, expected), _ratio(data_packets_unicast, expected)),
        publications=publications,
        expected=expected,
        delivered=deliveries.delivered,
        delivered_on_time=deliveries.on_time,
        data_packets=data_packets,
        data_packets_unicast=data_packets_unicast,
        control=dict(sorted(control.items())),
        late=_late_shares(deliveries),
        delay_ms=_summarise_delays(deliveries),
        drops=dict(sorted(drops.items())),
        notices=dict(sorted(notices.items())),
        outage_known_ms=known or DetectionDelays(),
        missing=dict(sorted((missing or {}).items())),
        trace_sha256=trace_sha256,
        wall_s=wall_s,
    )


def _ratio(part: int, expected: int) -> float:
    return part / expected if expected else 0.0


def _late_shares(deliveries: DeliveryCounts) -> Late:
    late = deliveries.delivered - deliveries.on_time
    return Late(*(count / late for count in deliveries.within)) if late else Late()


def _summarise_delays(deliveries: DeliveryCounts) -> Delays:
    if not deliveries.delivered:
        return Delays()
    p50, p99 = np.percentile(deliveries.sample_ns, [50, 99])
    return Delays(float(p50) / MS, float(p99) / MS, deliveries.mean_ns / MS)
