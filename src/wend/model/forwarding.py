"""The forwarding tables of a plan: the delivery graphs of each flow, and the next hops of each peer on them.

The table of hops holds the next hops of a graph. The receivers behind each next hop follow from the whole graph; a peer
computes them once for each graph that passes it. All peers of a simulation share one `Forwarding`; a live peer holds
only the graphs that pass it.
"""

from pathlib import Path

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.plan import OwnFlow, Plan, read_plan
from wend.model.plan_slice import PlanSlice, hop_columns

_MOST = 1 << 31

Hops = dict[PeerId, PeerId]
"""Receiver -> next hop."""


class Forwarding:
    """The forwarding tables of all peers, or of one."""

    def __init__(self, plan: Plan | PlanSlice, peer: PeerId | None = None) -> None:
        """With `peer`, hold only the tables of this peer. A `PlanSlice` has no others."""
        self.id = plan.id
        if isinstance(plan, PlanSlice):
            self.topology, self.peers = plan.topology, plan.peers
            self._graph, self._tail, self._head = hop_columns(plan)
            self._publishes = {plan.peer: plan.flows}
            return
        self.topology = plan.head.topology
        self.peers = plan.head.peers
        graph, tail, head = plan.hops["graph"], plan.hops["peer"], plan.hops["next"]
        if peer is not None:
            own = np.isin(graph, graph[tail == peer])
            graph, tail, head = graph[own], tail[own], head[own]
        order = np.argsort(graph, kind="stable")  # hops are sorted by peer, and stay so within each graph
        self._graph, self._tail, self._head = graph[order], tail[order], head[order]
        publishers = range(self.peers) if peer is None else (peer,)
        publishing = set(np.unique(plan.flows["publisher"]).tolist())
        self._publishes = {p: plan.published_flows(p) for p in publishers if p in publishing}

    def published_flows(self, peer: PeerId) -> tuple[OwnFlow, ...]:
        return self._publishes.get(peer, ())

    def neighbours(self, peer: PeerId) -> tuple[PeerId, ...]:
        """The next hops of a peer on all graphs."""
        return tuple(np.unique(self._head[self._tail == peer]).tolist())

    def edges(self, graph: int) -> frozenset[tuple[PeerId, PeerId]]:
        """The links of a delivery graph, each with the lower id first."""
        first, last = np.searchsorted(self._graph, [graph, graph + 1])
        ends = zip(self._tail[first:last].tolist(), self._head[first:last].tolist(), strict=True)
        return frozenset((min(a, b), max(a, b)) for a, b in ends)

    def hops(self, peer: PeerId, graph: int) -> Hops:
        """The next hop to every peer behind this one on a delivery graph. Empty if the graph ends here or is
        unknown."""
        if not 0 <= graph < _MOST:  # the number came over the network
            return {}
        first, last = np.searchsorted(self._graph, [graph, graph + 1])
        following: dict[PeerId, list[PeerId]] = {}
        for tail, head in zip(self._tail[first:last].tolist(), self._head[first:last].tolist(), strict=True):
            following.setdefault(tail, []).append(head)
        hops: Hops = {}
        for hop in following.get(peer, ()):
            waiting = [hop]
            while waiting:
                here = waiting.pop()
                if here not in hops:
                    hops[here] = hop
                    waiting += following.get(here, ())
        return hops


def read_forwarding(folder: Path, topology: str | None = None, peer: PeerId | None = None) -> Forwarding:
    """Read the forwarding tables of a plan. If `topology`, the fingerprint of the network, is given, it must match."""
    plan = read_plan(folder)
    if plan.content_hash != plan.head.content:
        raise ConfigError(f"{folder} is damaged: its tables are not those that were planned")
    if topology is not None and plan.head.topology != topology:
        raise ConfigError(
            f"{folder} is a plan for another topology ({plan.head.topology[:12]}, this one is {topology[:12]})"
        )
    if peer is not None and not 0 <= peer < plan.head.peers:
        raise ConfigError(f"{folder} is a plan for {plan.head.peers} peers, and {peer} is not one of them")
    return Forwarding(plan, peer)
