"""Small networks and workloads for the tests of planning."""

import numpy as np
from hypothesis import strategies as st

from wend.model.rates import Rate
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import Flow, FlowWorkload, make_workload
from wend.topology.graph import Overlay, OverlayLink


def overlay(peers: int, links: list[tuple[int, int, int, float]]) -> Overlay:
    """Links as (a, b, delay_ns, capacity in messages/s)."""
    return Overlay(peers, [OverlayLink(min(a, b), max(a, b), delay, 0.0, capacity) for a, b, delay, capacity in links])


@st.composite
def networks(draw: st.DrawFn, most: int = 7, delays: int = 4, capacities: int = 3) -> FlowNetwork:
    """Connected networks with few distinct delays and capacities, so that ties are common."""
    peers = draw(st.integers(2, most))
    rng = np.random.Generator(np.random.PCG64(draw(st.integers(0, 2**32))))
    order = rng.permutation(peers)
    pairs = {tuple(sorted((int(order[i]), int(order[rng.integers(i)])))) for i in range(1, peers)}
    for _ in range(draw(st.integers(0, 2 * peers))):
        a, b = rng.integers(peers, size=2).tolist()
        if a != b:
            pairs.add((min(a, b), max(a, b)))
    links = [
        (a, b, int(rng.integers(1, delays + 1)), 10.0 * int(rng.integers(1, capacities + 1))) for a, b in sorted(pairs)
    ]
    return FlowNetwork(overlay(peers, links), link=Rate(10.0))


def workload(network: FlowNetwork, rng: np.random.Generator, flows: int, rates: int = 5) -> FlowWorkload:
    """A workload with integral rates, so that the optimal model can count messages."""
    made = []
    for _ in range(flows):
        publisher = int(rng.integers(network.peers))
        others = [p for p in range(network.peers) if p != publisher]
        receivers = rng.choice(others, int(rng.integers(1, len(others) + 1)), replace=False).tolist()
        made.append(Flow(publisher, receivers, int(rng.integers(1, rates + 1)), 100, int(rng.integers(1, 4))))
    return make_workload(made, network.names)


def random_network(rng: np.random.Generator, peers: int, more: int, kind: str, capacities: int = 4) -> FlowNetwork:
    """A random tree and `more` links; `kind` tells what has capacities: link, peer, or both."""
    pairs = {(int(rng.integers(i)), i) for i in range(1, peers)}
    for _ in range(more):
        a, b = sorted(rng.choice(peers, 2, replace=False).tolist())
        pairs.add((a, b))
    links = []
    for a, b in sorted(pairs):
        capacity = 5.0 * int(rng.integers(1, capacities + 1))
        delay = int(rng.integers(1, 9))
        match kind:
            case "link":
                links.append(OverlayLink(a, b, delay, 0.0, capacity))
            case "peer":
                links.append(OverlayLink(a, b, delay))
            case _:
                links.append(OverlayLink(a, b, delay, 0.0, capacity_bps=800 * capacity))
    peer = None if kind == "link" else Rate(5.0 * int(rng.integers(2, 2 * capacities)))
    return FlowNetwork(Overlay(peers, links), peer=peer)
