"""The figures of one run, as the console prints them and sweeps store them."""

import msgspec

LATE = (1.25, 1.5, 1.75)
"""Multiples of the deadline within which late packets are counted."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Ratios are of `expected`: one per published event and interested subscriber."""

    delivery: float
    on_time: float
    packets_per_subscriber: dict[str, float]
    """`shared`: data packets put on links; `unicast`: the same with one packet per destination carried."""
    publications: int
    expected: int
    delivered: int
    delivered_on_time: int
    transmissions: int
    """Data packets put on a link, retransmissions included, ACKs and control not."""
    transmissions_unicast: int
    control: dict[str, int]
    """`acks`, `probes`, `link_state`, `subscriptions`, `expectations`, `trees`, `overlay`: a count each."""
    late_within: dict[str, float | None]
    """Of the late packets, the share within 1.25, 1.5 and 1.75 times the deadline; None where none was late."""
    delay_ms: dict[str, float | None]
    """`p50`, `p99` and `mean` over what was delivered; None where nothing was."""
    drops: dict[str, int]
    """Destinations given up, by reason. What a full queue dropped is here too, and once more if its sender gives up."""
    notices: dict[str, int]
    """Reroutes, hedges, links found down and up again, duplicates suppressed, packets kept."""
    outage_known_ms: dict[str, float] = {}
    """How soon an end of a link knew of an outage: `mean`, `p50`, `p95`; the share `unnoticed`, alone where that is
    all of them. Simulated runs only."""
    missing: dict[str, int] = {}
    """Deliveries that were expected and did not come, by the last that was heard of them; simulated runs only."""
    trace_sha256: str
    wall_s: float
