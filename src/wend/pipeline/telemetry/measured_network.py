"""The network and the workload that telemetry has measured, as `wend plan` takes them.

A plan numbers peers from 0, and a live peer's place in it is its id. So all ids up to the highest are peers of the
network, whether they have links or not.

A link that loses packets, or is down at times, carries less than its capacity: a plan counts on `capacity x
availability x (1 - loss)`. No link is left out, however bad it was, because peers take only plans for all links that
they have. A link whose delay was never measured gets the longest delay of all.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

import pyarrow as pa

from wend.drivers.recorded import RecordedFlow
from wend.model.errors import ConfigError
from wend.model.flows import Flow
from wend.model.rates import Rate
from wend.pipeline.telemetry.recordings import Row, one_way_loss
from wend.topology.graph import Overlay, OverlayLink

MAX_PEERS = 10_000
MIN_SHARE = 1e-3
"""The share of its capacity that a plan counts on if a link never worked."""


def measured_overlay(links: pa.Table, capacity: Rate | None = None, since_ns: int = 0) -> Overlay:
    """The links of all windows that begin at `since_ns` or later: the mean of delays, losses and availabilities, and
    the highest capacity that was measured, of the narrower direction, or `capacity` if none was."""
    rows: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in links.to_pylist():
        if (row.get("begin_ns") or 0) >= since_ns:
            rows[row["a"], row["b"]].append(row)
    delays = {link: _mean_by_samples(windows, "delay_mean_ns") for link, windows in rows.items()}
    longest = max((delay for delay in delays.values() if delay), default=None)
    if longest is None:
        raise ConfigError("the table of links has no delays: there is no network to plan for")
    peers = max(b for _, b in rows) + 1
    if peers > MAX_PEERS:
        raise ConfigError(f"a plan is for peers with ids below {MAX_PEERS}, and there is a peer {peers - 1}")
    return Overlay(
        peers,
        [_measured_link(a, b, windows, delays[a, b] or longest, capacity) for (a, b), windows in sorted(rows.items())],
    )


def _measured_link(a: int, b: int, windows: list[Row], delay_ns: float, capacity: Rate | None) -> OverlayLink:
    loss = _mean_by_samples([row | {"loss": one_way_loss(row)} for row in windows], "loss") or 0.0
    availability = _mean_by_samples(windows, "availability")
    works = min(1.0, max(MIN_SHARE, (1.0 if availability is None else availability) * (1.0 - loss)))
    highest = [max(row.get(f"capacity_{direction}_bps") or 0.0 for row in windows) for direction in ("ab", "ba")]
    if any(highest):
        capacity = Rate(min(bps for bps in highest if bps > 0), bits=True)
    msgs, bits = inf, inf
    if capacity is not None and capacity.bits:
        bits = capacity.value * works
    elif capacity is not None:
        msgs = capacity.value * works
    return OverlayLink(a, b, max(1, round(delay_ns)), loss, msgs, bits)


def _mean_by_samples(rows: list[Row], name: str) -> float | None:
    """The mean of a column by the number of samples; None if no row has a value."""
    values = [(float(row[name]), max(1, row.get("samples") or 0)) for row in rows if row.get(name) is not None]
    total = sum(samples for _, samples in values)
    return sum(value * samples for value, samples in values) / total if values else None


def measured_flows(flows: Iterable[RecordedFlow]) -> list[Flow]:
    """The flows of a workload. Peers are numbers, which are their names in the network."""
    return [Flow(one.publisher, [*one.receivers], one.rate_msgs, one.size_bytes, one.weight) for one in flows]
