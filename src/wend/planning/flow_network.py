"""A flow network: the topology with capacities, as the arrays that planning needs.

A link has its capacity in each direction, so an overlay link is two arcs here. A capacity is in messages per second, in
bits per second, or both; without a statement it is infinite. A peer's capacity limits the load that it receives over
its links. Its own events do not count.
"""

from copy import copy
from typing import NamedTuple

import numpy as np

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.plan import fingerprint
from wend.model.rates import Rate
from wend.planning.arrays import Floats, Ints, Longs
from wend.topology.graph import Overlay

AGGREGATE = "links"
"""As a peer's capacity: the sum of its incoming link capacities (the thesis's aggregate incoming capacity)."""


class CsrGraph(NamedTuple):
    """A directed graph in compressed sparse rows, for compiled code and for Spark tasks.

    Arcs are sorted by (tail, head); those of tail `v` are `ptr[v]` to `ptr[v + 1]`.
    """

    ptr: Ints
    tail: Ints
    head: Ints
    back: Ints
    """The arc in the other direction."""
    delay: Longs
    """Nanoseconds, at least one: with delays of 0 a shortest path could contain a cycle."""
    width: Floats
    """The capacity of the arc for the search for bottlenecks."""

    def arc(self, a: PeerId, b: PeerId) -> int:
        """The index of the arc from a to its neighbour b."""
        first, last = self.ptr[a : a + 2]
        return int(first + np.searchsorted(self.head[first:last], b))


class FlowNetwork:
    """An overlay and its capacities, per link and per peer, in messages/s and bit/s."""

    def __init__(self, overlay: Overlay, *, link: Rate | None = None, peer: Rate | str | None = None) -> None:
        """`link` is the capacity of links that state none. `peer` is that of such peers, or `links`."""
        self.overlay = overlay
        self.names = overlay.names
        self.peers = overlay.peers
        self.fingerprint = fingerprint(overlay.peers, [(each.a, each.b) for each in overlay.links])
        ends = sorted((x, y, i) for i, e in enumerate(overlay.links) for x, y in ((e.a, e.b), (e.b, e.a)))
        tail, head, link_of = np.array(ends, dtype=np.int32).reshape(-1, 3).T.copy()
        self.arc_capacity = self._link_capacities(link)[:, link_of]
        """By unit (0 messages, 1 bits) and arc."""
        self.peer_capacity = self._peer_capacities(peer, head)
        """By unit and peer."""
        if not (np.isfinite(self.arc_capacity).any() or np.isfinite(self.peer_capacity).any()):
            raise ConfigError("no link or peer has a capacity: state one, or use a topology that states capacities")
        place = {(x, y): i for i, (x, y, _) in enumerate(ends)}
        self.graph = CsrGraph(
            ptr=np.searchsorted(tail, np.arange(self.peers + 1)).astype(np.int32),
            tail=tail,
            head=head,
            back=np.array([place[y, x] for x, y, _ in ends], dtype=np.int32),
            delay=np.array([max(overlay.links[i].delay_ns, 1) for i in link_of], dtype=np.int64),
            width=self.widths(tail),
        )

    def remove_link(self, a: PeerId, b: PeerId) -> tuple["FlowNetwork", Longs]:
        """The network after the failure of a link, and the numbers of its arcs in this one. Peers keep their
        capacities."""
        graph = self.graph
        kept = ~(((graph.tail == a) & (graph.head == b)) | ((graph.tail == b) & (graph.head == a)))
        arcs = np.flatnonzero(kept)
        place = np.cumsum(kept) - 1
        tail = graph.tail[arcs]
        left = copy(self)
        left.arc_capacity = self.arc_capacity[:, arcs]
        left.graph = CsrGraph(
            ptr=np.searchsorted(tail, np.arange(self.peers + 1)).astype(np.int32),
            tail=tail,
            head=graph.head[arcs],
            back=place[graph.back[arcs]].astype(np.int32),
            delay=graph.delay[arcs],
            width=left.widths(tail),
        )
        return left, arcs

    def scale(self, factor: float) -> "FlowNetwork":
        """The network with a share of all capacities."""
        smaller = copy(self)
        smaller.arc_capacity, smaller.peer_capacity = self.arc_capacity * factor, self.peer_capacity * factor
        return smaller

    def _link_capacities(self, link: Rate | None) -> Floats:
        stated = np.array([(e.capacity_msgs, e.capacity_bps) for e in self.overlay.links], dtype=float).reshape(-1, 2).T
        if link is not None:
            stated[int(link.bits), ~np.isfinite(stated).any(axis=0)] = link.value
        for e, least in zip(self.overlay.links, stated.min(axis=0).tolist(), strict=True):
            if not least > 0:
                where = f"{self.names[e.a]}-{self.names[e.b]}"
                raise ConfigError(f"link {where} needs a capacity above 0, got {least:g}")
        return stated

    def _peer_capacities(self, peer: Rate | str | None, head: Ints) -> Floats:
        capacities = np.array(self.overlay.capacities, dtype=float).reshape(-1, 2).T.copy()
        silent = ~np.isfinite(capacities).any(axis=0)
        if isinstance(peer, Rate):
            if not peer.value > 0:
                raise ConfigError(f"a peer needs a capacity above 0, got {peer}")
            capacities[int(peer.bits), silent] = peer.value
        elif peer == AGGREGATE:
            for unit in range(2):
                links = np.bincount(head, weights=self.arc_capacity[unit], minlength=self.peers)
                capacities[unit, silent] = links[silent]
        elif peer is not None:
            raise ConfigError(f"a peer's capacity must be a rate or {AGGREGATE!r}, got {peer!r}")
        for name, least in zip(self.names, capacities.min(axis=0).tolist(), strict=True):
            if not least > 0:
                raise ConfigError(f"peer {name} needs a capacity above 0, got {least:g}")
        return capacities

    def widths(self, tail: Ints) -> Floats:
        """The link capacities, if they differ. If all are equal, every link would be a bottleneck. Then the width of an
        arc is the number of arcs of its tail, which is how the thesis states its own input (Appendix A)."""
        for width in self.arc_capacity:
            if np.isfinite(width).any() and (width != width[0]).any():
                return np.array(width)
        return np.bincount(tail, minlength=self.peers)[tail].astype(float)
