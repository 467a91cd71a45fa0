"""An underlay: the routers and physical links that an overlay runs over.

Overlay links that look independent may run through one router and fail with it, so Wend models the underlay as a
network of its own. The reliability of routers and links depends on their kinds (quist, Table 7.1), and peers cluster by
the domains of routers. The data is in columns, for the compiled code that walks over all pairs.
"""

from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from wend.model.rates import Capacity

Ints = NDArray[np.int64]
Index = NDArray[np.int32]
Bytes = NDArray[np.int8]
Floats = NDArray[np.float64]


class RouterKind(IntEnum):
    ACCESS = 0
    """In a stub domain or an AS: peers are attached here."""
    TRANSIT = 1


class LinkKind(IntEnum):
    INNER = 0
    """Within a stub domain or an AS."""
    BORDER = 1
    """From a stub to its transit router, or between two AS."""
    TRANSIT = 2
    """Within and between transit domains."""


class Underlay(msgspec.Struct, frozen=True, eq=False):
    """A network of routers, numbered from 0, and links, numbered by their position in `ends`.

    Delays hold in both directions."""

    name: str
    router_kind: Bytes
    domain: Ints
    position: Floats
    """(routers, 2): where to draw each router; nan if the map has no position for it."""
    ends: Ints
    """(links, 2): sorted, the lower router first, without loops and duplicates."""
    link_kind: Bytes
    delay_ns: Ints
    names: tuple[str, ...]
    router_capacity: tuple[Capacity, ...]
    """As the map states it; infinite if it states none. Plans respect it, routing does not."""
    link_capacity: tuple[Capacity, ...]
    remarks: tuple[str, ...] = ()
    """One sentence for each fact that the map does not state and Wend had to choose. The console prints them."""

    @property
    def routers(self) -> int:
        return len(self.router_kind)

    @property
    def links(self) -> int:
        return len(self.ends)

    def access(self) -> Ints:
        """The routers that peers may be attached to."""
        return np.flatnonzero(self.router_kind == RouterKind.ACCESS)

    def degrees(self) -> Ints:
        return np.bincount(self.ends.ravel(), minlength=self.routers)


def find_components(routers: int, ends: Ints) -> tuple[int, Ints]:
    """The number of connected components of a network, and the one of each router."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    matrix = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(routers, routers))
    count, label = connected_components(matrix, directed=False)
    return int(count), label.astype(np.int64)


def summarise_underlay(underlay: Underlay) -> dict[str, Any]:
    """The size and degrees of a network."""
    degrees = underlay.degrees()
    return {
        "routers": underlay.routers,
        "edges": underlay.links,
        "domains": len(np.unique(underlay.domain)),
        "access_routers": len(underlay.access()),
        "mean_degree": float(degrees.mean()),
        "most_links": int(degrees.max()),
    }
