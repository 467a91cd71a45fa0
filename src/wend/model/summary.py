"""The figures of one run, as the console prints them and sweeps store them."""

import msgspec


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
    """`acks`, `probes`, `link_state`, `subscriptions`, `expectations`: a count each."""
    late_within: dict[str, float]
    """Of the late packets, the share within 1.25, 1.5 and 1.75 times the deadline."""
    delay_ms: dict[str, float]
    """`p50`, `p99` and `mean` over what was delivered."""
    drops: dict[str, int]
    """Destinations given up, by reason. What a full queue dropped is here too, and once more if its sender gives up."""
    notices: dict[str, int]
    """Reroutes, hedges, links found down and up again, duplicates suppressed, packets kept."""
    outage_known_ms: dict[str, float] = {}
    """How soon an end of a link knew of an outage: `mean`, `p50`, `p95`; the share `unnoticed`. Simulated runs only."""
    missing: dict[str, int] = {}
    """Deliveries that were expected and did not come, by the last that was heard of them; simulated runs only."""
    trace_sha256: str
    wall_s: float
