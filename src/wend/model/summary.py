"""The metrics of one run, as the console prints them and sweeps store them.

Metrics that belong together form a struct. The Python names give the columns of a sweep (`pipeline/scenario_rows.py`:
`packets.shared` is `packets_shared`, `delay_ms.p50` is `delay_p50_ms`); `rename` gives the names in `--json` that
differ.
"""

import msgspec


class Packets(msgspec.Struct, frozen=True):
    shared: float
    """Data packets sent on links."""
    unicast: float
    """The same if each packet had a single destination."""


def _multiple_text(field: str) -> str:
    """`within_1_25` -> `1.25`"""
    return field.removeprefix("within_").replace("_", ".")


class Late(msgspec.Struct, frozen=True, rename=_multiple_text):
    """The shares of late packets within multiples of the deadline; None if none was late."""

    within_1_25: float | None = None
    within_1_5: float | None = None
    within_1_75: float | None = None


LATE = tuple(float(field.encode_name) for field in msgspec.structs.fields(Late))
"""The multiples of the deadline."""


class Delays(msgspec.Struct, frozen=True):
    """Statistics over all deliveries; None if there were none."""

    p50: float | None = None
    p99: float | None = None
    mean: float | None = None


class DetectionDelays(msgspec.Struct, frozen=True, omit_defaults=True, rename={"unnoticed_share": "unnoticed"}):
    """Delays until an end of a link detected an outage; empty without failure detection."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    unnoticed_share: float | None = None
    """The share of the ends that could have detected an outage and did not. If it is 1, there are no other values."""


class Summary(
    msgspec.Struct, frozen=True, kw_only=True, rename={"packets": "packets_per_subscriber", "late": "late_within"}
):
    """All metrics of a run. Ratios are relative to `expected`, the number of pairs of a published event and an
    interested subscriber; they are 0 if that is 0."""

    delivery: float
    on_time: float
    packets: Packets
    """Per expected delivery."""
    publications: int
    expected: int
    delivered: int
    delivered_on_time: int
    data_packets: int
    """Data packets sent on links, with retransmissions, without ACKs and control packets."""
    data_packets_unicast: int
    control: dict[str, int]
    """Numbers of control packets: `acks`, `probes`, `link_state`, `subscriptions`, `expectations`, `trees`,
    `overlay`."""
    late: Late
    delay_ms: Delays
    drops: dict[str, int]
    """Destinations given up, by reason. A packet that a full queue dropped counts here, and again if its sender gives
    up."""
    notices: dict[str, int]
    """Numbers of notices, such as reroutes, hedges, link changes and suppressed duplicates."""
    outage_known_ms: DetectionDelays = DetectionDelays()
    """Simulated runs only."""
    missing: dict[str, int] = {}
    """Expected deliveries that did not happen, by their last known state; simulated runs only."""
    trace_sha256: str
    wall_s: float

    @property
    def control_packets(self) -> int:
        return sum(self.control.values())
