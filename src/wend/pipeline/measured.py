"""The network and the workload that telemetry has measured, as `wend plan` takes them.

A plan numbers peers from 0, and a live peer's place in it is its id. So all ids up to the highest are peers of the
network, with links or without.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

import pyarrow as pa

from wend.drivers.recorded import RecordedFlow
from wend.model.errors import ConfigError
from wend.model.flows import Flow
from wend.pipeline.recordings import one_way_loss
from wend.topology.graph import Overlay, OverlayLink

MOST_PEERS = 10_000


def measured_overlay(links: pa.Table) -> Overlay:
    """The links of all windows: the mean of delays and losses, and the highest capacity that was measured."""
    rows: dict[tuple[int, int], list[dict[str, float]]] = defaultdict(list)
    for row in links.to_pylist():
        if row["delay_mean_ns"]:
            rows[row["a"], row["b"]].append(row)
    if not rows:
        raise ConfigError("the table of links has no delays: there is no network to plan for")
    peers = max(b for _, b in rows) + 1
    if peers > MOST_PEERS:
        raise ConfigError(f"a plan is for peers with ids below {MOST_PEERS}, and there is a peer {peers - 1}")
    found = []
    for (a, b), windows in sorted(rows.items()):
        weights = [max(1, row["samples"]) for row in windows]
        total = sum(weights)
        delay = sum(row["delay_mean_ns"] * weight for row, weight in zip(windows, weights, strict=True)) / total
        loss = sum(one_way_loss(row) * weight for row, weight in zip(windows, weights, strict=True)) / total
        capacity = max((row.get("capacity_bps") or 0.0 for row in windows), default=0.0)
        found.append(OverlayLink(a, b, round(delay), loss, capacity_bps=capacity if capacity > 0 else inf))
    return Overlay(peers, found)


def measured_flows(flows: Iterable[RecordedFlow]) -> list[Flow]:
    """The flows of a workload. Peers are numbers, which are their names in the network."""
    return [Flow(one.publisher, [*one.receivers], one.rate_msgs, one.size_bytes, one.weight) for one in flows]
