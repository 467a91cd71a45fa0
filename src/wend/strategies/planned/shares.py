"""The shares of a flow: how a publisher assigns events to delivery graphs, and which graphs remain after a failure."""

from typing import TYPE_CHECKING

from wend.model.events import PeerId

if TYPE_CHECKING:  # a plan is arrays in files; most peers read none
    from wend.model.forwarding import Forwarding
    from wend.model.plan import OwnFlow

Edge = tuple[PeerId, PeerId]
"""A link of two peers; lower id first."""
Shares = tuple[tuple[int, float], ...]


def make_edge(a: PeerId, b: PeerId) -> Edge:
    return (a, b) if a < b else (b, a)


class ShareScheduler:
    """Assigns a flow's events to its graphs by their shares; None stands for the share that no graph carries.

    After every event the count of each graph differs from its share by less than one (Tijdeman's chairman assignment).
    """

    def __init__(self, shares: Shares) -> None:
        refused = 1.0 - sum(share for _, share in shares)
        self._shares: list[tuple[int | None, float]] = [(graph, share) for graph, share in shares if share > 0]
        if refused > 1e-9 or not self._shares:
            self._shares.append((None, refused))
        self._counts = [0] * len(self._shares)
        self._events = 0
        self._least = 1 / (2 * len(self._shares) - 2) if len(self._shares) > 1 else 0.0

    def choose_graph(self) -> int | None:
        self._events += 1
        lag = [share * self._events - count for (_, share), count in zip(self._shares, self._counts, strict=True)]
        # among the graphs that lag enough, choose the one that would lag by a whole event first
        due = [
            ((1 - self._least - lag[i]) / share, i)
            for i, (_, share) in enumerate(self._shares)
            if lag[i] >= self._least
        ]
        chosen = min(due)[1] if due else max(range(len(lag)), key=lag.__getitem__)
        self._counts[chosen] += 1
        return self._shares[chosen][0]


def shares_without(plan: "Forwarding", flow: "OwnFlow", down: frozenset[Edge]) -> Shares | None:
    """The shares of a flow's graphs while links are down; None if no planned route avoids them all."""

    def avoids(graph: int) -> bool:
        return not plan.edges(graph) & down

    backups = [shares for a, b, shares in sorted(flow.backups) if (a, b) in down]
    if len(down) == 1 and backups:
        return backups[0]
    for shares in (flow.shares, *backups):
        if all(avoids(graph) for graph, _ in shares):
            return shares
    remaining = [(graph, share) for graph, share in flow.shares if avoids(graph)]
    whole, rest = sum(share for _, share in flow.shares), sum(share for _, share in remaining)
    return tuple((graph, share * whole / rest) for graph, share in remaining) if rest else None
