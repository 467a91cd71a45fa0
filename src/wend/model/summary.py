"""The figures of one run, as the console prints them and sweeps store them.

Fields that belong together are a small struct of their own. Their Python names make the columns of a sweep
(`pipeline/rows.py`: `packets.shared` is `packets_shared`, `delay_ms.p50` is `delay_p50_ms`); `rename` says where
`--json` says it otherwise.
"""

import msgspec


class Packets(msgspec.Struct, frozen=True):
    shared: float
    """Data packets put on links."""
    unicast: float
    """The same with one packet per destination carried."""


def _multiple(field: str) -> str:
    """`within_1_25` -> `1.25`"""
    return field.removeprefix("within_").replace("_", ".")


class Late(msgspec.Struct, frozen=True, rename=_multiple):
    """Of the late packets, the share within so many times the deadline; None where none was late."""

    within_1_25: float | None = None
    within_1_5: float | None = None
    within_1_75: float | None = None


LATE = tuple(float(field.encode_name) for field in msgspec.structs.fields(Late))
"""The multiples of the deadline within which late packets are counted."""


class Delays(msgspec.Struct, frozen=True):
    """Over what was delivered; None where nothing was."""

    p50: float | None = None
    p99: float | None = None
    mean: float | None = None


class DetectionDelays(msgspec.Struct, frozen=True, omit_defaults=True, rename={"unnoticed_share": "unnoticed"}):
    """How soon an end of a link knew of an outage; nothing where nobody looks."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    unnoticed_share: float | None = None
    """Of the ends that could have noticed; stands alone where that is all of them."""


class Summary(
    msgspec.Struct, frozen=True, kw_only=True, rename={"packets": "packets_per_subscriber", "late": "late_within"}
):
    """Ratios are of `expected`, one per published event and interested subscriber; they are 0 where that is 0."""

    delivery: float
    on_time: float
    packets: Packets
    """Per expected delivery."""
    publications: int
    expected: int
    delivered: int
    delivered_on_time: int
    transmissions: int
    """Data packets put on a link, retransmissions included, ACKs and control not."""
    transmissions_unicast: int
    control: dict[str, int]
    """`acks`, `probes`, `link_state`, `subscriptions`, `expectations`, `trees`, `overlay`: a count each."""
    late: Late
    delay_ms: Delays
    drops: dict[str, int]
    """Destinations given up, by reason. What a full queue dropped is here too, and once more if its sender gives up."""
    notices: dict[str, int]
    """Reroutes, hedges, links found down and up again, duplicates suppressed, packets kept."""
    outage_known_ms: DetectionDelays = DetectionDelays()
    """Simulated runs only."""
    missing: dict[str, int] = {}
    """Deliveries that were expected and did not come, by the last that was heard of them; simulated runs only."""
    trace_sha256: str
    wall_s: float

    @property
    def control_packets(self) -> int:
        return sum(self.control.values())
