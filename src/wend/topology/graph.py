"""Overlay graphs: peers numbered from 0, and undirected links with a delay, a loss rate and capacities."""

from collections.abc import Iterable
from functools import cached_property
from math import inf, nan

import msgspec
import numpy as np
from numpy.typing import NDArray

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.rates import Capacity
from wend.model.units import Nanos
from wend.topology.underlay import find_components


class OverlayLink(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A link between two peers, `a` < `b`.

    Delay and loss hold in both directions; each direction has the capacities for itself. Files leave out
    defaults, because JSON has no infinity."""

    a: PeerId
    b: PeerId
    delay_ns: Nanos
    loss: float = 0.0
    capacity_msgs: float = inf
    """Messages per second; infinite if the topology states none."""
    capacity_bps: float = inf
    """Bits per second."""


class Overlay:
    """The peers and the links between them. A link's index is its position in `links`."""

    def __init__(
        self,
        peers: int,
        links: Iterable[OverlayLink],
        names: tuple[str, ...] = (),
        capacities: tuple[Capacity, ...] = (),
        positions: tuple[tuple[float, float], ...] = (),
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.peers = peers
        self.links = tuple(links)
        self.names = names or tuple(str(p) for p in range(peers))
        self.capacities = capacities or ((inf, inf),) * peers
        """How much each peer can receive, as its topology states it."""
        self.positions = positions or ((nan, nan),) * peers
        """Where to draw each peer, as its map states it (`layout.py`). Only drawings use it."""
        self.remarks = remarks
        """One sentence for each fact that the map does not state and Wend had to choose. The console prints them."""
        self._index: dict[tuple[PeerId, PeerId], int] = {}
        for i, link in enumerate(self.links):
            if not 0 <= link.a < link.b < peers or (link.a, link.b) in self._index:
                raise ConfigError(
                    f"link {link.a}-{link.b} is a loop, a duplicate, or not ordered between peers 0 to {peers - 1}"
                )
            self._index[link.a, link.b] = self._index[link.b, link.a] = i

    @cached_property
    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lower and the higher peer of each link."""
        a, b = np.array([(link.a, link.b) for link in self.links], dtype=np.int64).reshape(-1, 2).T.copy()
        return a, b

    @cached_property
    def _neighbours(self) -> tuple[tuple[PeerId, ...], ...]:
        neighbours: list[list[PeerId]] = [[] for _ in range(self.peers)]
        for link in self.links:
            neighbours[link.a].append(link.b)
            neighbours[link.b].append(link.a)
        return tuple(tuple(sorted(f)) for f in neighbours)

    def neighbours(self, peer: PeerId) -> tuple[PeerId, ...]:
        return self._neighbours[peer]

    def link(self, a: PeerId, b: PeerId) -> int:
        """The index of the link between two neighbours."""
        return self._index[a, b]

    def is_connected(self) -> bool:
        """Whether every peer has a route to every other."""
        return find_components(self.peers, np.column_stack(self.ends))[0] == 1
