"""A plan as peers follow it: which delivery graph an event takes, and which neighbours lead to whom on it.

The table of hops says where a graph goes next; which receivers lie behind each next hop is worked out from the whole
graph, once for each graph that a peer carries. A simulation shares one `Forwarding` among all its peers; a live peer
keeps only the graphs that leave it.
"""

from pathlib import Path

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.plan import OwnFlow, Plan, read_plan

_MOST = 1 << 31

Hops = dict[PeerId, PeerId]
"""Receiver -> the neighbour that leads to it."""


class Forwarding:
    def __init__(self, plan: Plan, peer: PeerId | None = None) -> None:
        """`peer`: only what this one needs."""
        self.id = plan.id
        self.topology = plan.head.topology
        self.peers = plan.head.peers
        graph, tail, head = plan.hops["graph"], plan.hops["peer"], plan.hops["next"]
        if peer is not None:
            kept = np.isin(graph, graph[tail == peer])
            graph, tail, head = graph[kept], tail[kept], head[kept]
        order = np.argsort(graph, kind="stable")  # hops are sorted by peer, so each graph's are too
        self._graph, self._tail, self._head = graph[order], tail[order], head[order]
        wanted = range(self.peers) if peer is None else (peer,)
        publishing = set(np.unique(plan.flows["publisher"]).tolist())
        self._publishes = {p: plan.publishes(p) for p in wanted if p in publishing}

    def publishes(self, peer: PeerId) -> tuple[OwnFlow, ...]:
        return self._publishes.get(peer, ())

    def neighbours(self, peer: PeerId) -> tuple[PeerId, ...]:
        """To whom the plan sends from here."""
        return tuple(np.unique(self._head[self._tail == peer]).tolist())

    def hops(self, peer: PeerId, graph: int) -> Hops:
        """Everyone behind this peer on a delivery graph, receiver or not; nobody where the graph ends or is unknown."""
        if not 0 <= graph < _MOST:  # a label may come from anywhere
            return {}
        first, last = np.searchsorted(self._graph, [graph, graph + 1])
        following: dict[PeerId, list[PeerId]] = {}
        for tail, head in zip(self._tail[first:last].tolist(), self._head[first:last].tolist(), strict=True):
            following.setdefault(tail, []).append(head)
        found: Hops = {}
        for hop in following.get(peer, ()):
            todo = [hop]
            while todo:
                here = todo.pop()
                if here not in found:
                    found[here] = hop
                    todo += following.get(here, ())
        return found


def read_forwarding(folder: Path, topology: str | None = None, peer: PeerId | None = None) -> Forwarding:
    """From a plan's files; `topology` is the fingerprint of the network that it is to run on, if that is known."""
    plan = read_plan(folder)
    if plan.content != plan.head.content:
        raise ConfigError(f"{folder} is damaged: its tables are not those that were planned")
    if topology is not None and plan.head.topology != topology:
        raise ConfigError(
            f"{folder} is a plan for another topology ({plan.head.topology[:12]}, this one is {topology[:12]})"
        )
    if peer is not None and not 0 <= peer < plan.head.peers:
        raise ConfigError(f"{folder} is a plan for {plan.head.peers} peers, and {peer} is none of them")
    return Forwarding(plan, peer)
