"""Checks of the delays and deadlines that a plan states, from its files alone."""

from collections.abc import Iterator

import numpy as np

from wend.model.plan import Plan
from wend.planning.arrays import TOLERANCE, Floats


def find_delay_faults(plan: Plan) -> Iterator[str]:
    if not ((plan.flows["deadline_s"] > 0) & (plan.flows["deadline_factor"] > 0)).all():
        yield "a flow has a deadline that is not above 0"
        return
    arrival = _compute_arrivals(plan)
    ptr = plan.flows["receivers_ptr"]
    total = count = 0.0
    late = np.zeros(plan.head.flows, dtype=np.int64)
    shortest: dict[int, Floats] = {}
    for number, flow in enumerate(plan.graphs["flow"].tolist()):
        share, publisher = float(plan.graphs["share"][number]), int(plan.flows["publisher"][flow])
        receivers = plan.flows["receivers"][ptr[flow] : ptr[flow + 1]]
        delays = arrival[number][receivers]
        if not share:
            continue
        limit = np.full(len(receivers), plan.flows["deadline_s"][flow])
        if np.isfinite(plan.flows["deadline_factor"][flow]):
            if publisher not in shortest:
                shortest[publisher] = _shortest_delays(plan, publisher)
            limit = np.minimum(limit, plan.flows["deadline_factor"][flow] * shortest[publisher][receivers])
        reached = np.isfinite(delays)
        late[flow] = max(late[flow], int((delays[reached] > limit[reached] * (1 + TOLERANCE / 10)).sum()))
        total += share * plan.flows["rate_msgs"][flow] * delays[reached].sum()
        count += share * plan.flows["rate_msgs"][flow] * reached.sum()
    if plan.head.late != late.sum():
        yield f"plan.json states that {plan.head.late} receivers are late, but {late.sum()} are"
    # An older plan states no delay.
    if plan.head.delay_ms and not np.isclose(plan.head.delay_ms, 1000 * total / (count or 1.0), rtol=TOLERANCE):
        yield f"plan.json states that the delay is {plan.head.delay_ms:g} ms, but it is {1000 * total / count:g} ms"


def _compute_arrivals(plan: Plan) -> Floats:
    """For each graph when a message reaches each peer on idle links, in seconds; infinite if it does not."""
    peers = plan.head.peers
    arcs = plan.arcs["a"].astype(np.int64) * peers + plan.arcs["b"]
    tail, graph, head = plan.hops["peer"], plan.hops["graph"], plan.hops["next"]
    arc = np.searchsorted(arcs, tail.astype(np.int64) * peers + head)
    flow = plan.graphs["flow"][graph]
    bits = plan.flows["rate_bps"][flow] / plan.flows["rate_msgs"][flow]
    times = plan.arcs["delay_ns"][arc] / 1e9
    for table, where in ((plan.arcs, arc), (plan.peers, head)):
        times = times + np.maximum(1 / table["capacity_msgs"][where], bits / table["capacity_bps"][where])
    arrival = np.full((plan.head.graphs, peers), np.inf)
    arrival[np.arange(plan.head.graphs), plan.flows["publisher"][plan.graphs["flow"]]] = 0.0
    while True:
        later = arrival[graph, tail] + times
        if np.array_equal(later, arrival[graph, head]):
            return arrival
        arrival[graph, head] = later


def _shortest_delays(plan: Plan, source: int) -> Floats:
    """The shortest delay of links from a peer to each peer, in seconds."""
    shortest = np.full(plan.head.peers, np.inf)
    shortest[source] = 0.0
    while True:
        before = shortest.copy()
        np.minimum.at(shortest, plan.arcs["b"], shortest[plan.arcs["a"]] + plan.arcs["delay_ns"] / 1e9)
        if np.array_equal(before, shortest):
            return shortest
