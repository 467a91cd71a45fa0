"""The network and the workload that telemetry has measured, as `wend plan` takes them.

A plan numbers peers from 0, and a live peer's place in it is its id. So all ids up to the highest are peers of the
network, with links or without.

A link that loses packets, or is down at times, carries less than its capacity: a plan counts on `capacity x
availability x (1 - loss)`. No link is left out, however bad it was, because peers take only plans for all links that
they have. One whose delay was never measured counts as long as the longest.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import Any

import pyarrow as pa

from wend.drivers.recorded import RecordedFlow
from wend.model.errors import ConfigError
from wend.model.flows import Flow
from wend.model.rates import Rate
from wend.pipeline.telemetry.recordings import one_way_loss
from wend.topology.graph import Overlay, OverlayLink

MOST_PEERS = 10_000
LEAST = 1e-3
"""Of its capacity: what a plan counts on where a link never worked."""


def measured_overlay(links: pa.Table, capacity: Rate | None = None, since_ns: int = 0) -> Overlay:
    """The links of all windows that begin at `since_ns` or later: the mean of delays, losses and availabilities, and
    the highest capacity that was measured, of the narrower direction, or `capacity` where none was."""
    rows: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in links.to_pylist():
        if (row.get("begin_ns") or 0) >= since_ns:
            rows[row["a"], row["b"]].append(row)
    delays = {link: _mean(windows, "delay_mean_ns") for link, windows in rows.items()}
    longest = max((delay for delay in delays.values() if delay), default=None)
    if longest is None:
        raise ConfigError("the table of links has no delays: there is no network to plan for")
    peers = max(b for _, b in rows) + 1
    if peers > MOST_PEERS:
        raise ConfigError(f"a plan is for peers with ids below {MOST_PEERS}, and there is a peer {peers - 1}")
    found = []
    for (a, b), windows in sorted(rows.items()):
        loss = _mean([row | {"loss": one_way_loss(row)} for row in windows], "loss") or 0.0
        availability = _mean(windows, "availability")
        works = min(1.0, max(LEAST, (1.0 if availability is None else availability) * (1.0 - loss)))
        most = [max(row.get(f"capacity_{one}_bps") or 0.0 for row in windows) for one in ("ab", "ba")]
        measured = min((each for each in most if each > 0), default=None)
        known = Rate(measured, bits=True) if measured is not None else capacity
        msgs = known.value * works if known is not None and not known.bits else inf
        bits = known.value * works if known is not None and known.bits else inf
        found.append(OverlayLink(a, b, max(1, round(delays[a, b] or longest)), loss, msgs, bits))
    return Overlay(peers, found)


def _mean(rows: list[dict[str, Any]], name: str) -> float | None:
    """The mean of a column by the number of samples; None if no row has a value."""
    known = [(float(row[name]), max(1, row.get("samples") or 0)) for row in rows if row.get(name) is not None]
    weight = sum(each for _, each in known)
    return sum(value * each for value, each in known) / weight if known else None


def measured_flows(flows: Iterable[RecordedFlow]) -> list[Flow]:
    """The flows of a workload. Peers are numbers, which are their names in the network."""
    return [Flow(one.publisher, [*one.receivers], one.rate_msgs, one.size_bytes, one.weight) for one in flows]
