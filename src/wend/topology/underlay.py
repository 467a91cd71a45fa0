"""An underlay: the routers and physical links that an overlay runs over.

Overlay links that look independent may run through one router and fail with it, so Wend models the underlay as a
network of its own. The reliability of routers and links depends on their kinds (quist, Table 7.1), and peers cluster by
the domains of routers. The data is in columns, for the compiled code that walks over all pairs.
"""

from collections.abc import Sequence
from enum import IntEnum
from math import inf
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from wend.model.errors import ConfigError
from wend.model.rates import Capacity
from wend.model.units import Nanos, millis

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


class Draft:
    """Builds an underlay: callers add routers and links one by one, `done` checks and sorts them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._routers: list[tuple[int, int, float, float, str, Capacity]] = []
        self._links: dict[tuple[int, int], tuple[int, int, Capacity]] = {}
        self.remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._routers)

    def router(
        self, kind: RouterKind, domain: int, x: float = np.nan, y: float = np.nan, name: str = "",
        capacity: Capacity = (inf, inf),
    ) -> int:  # fmt: skip
        self._routers.append((int(kind), domain, float(x), float(y), name or str(len(self._routers)), capacity))
        return len(self._routers) - 1

    def link(self, a: int, b: int, kind: LinkKind, delay_ns: int, capacity: Capacity = (inf, inf)) -> bool:
        """Add a link, unless it is a loop or a duplicate; whether it was added."""
        pair = (min(a, b), max(a, b))
        if a == b or pair in self._links:
            return False
        self._links[pair] = (int(kind), delay_ns, capacity)
        return True

    def linked(self, a: int, b: int) -> bool:
        return (min(a, b), max(a, b)) in self._links

    def done(self) -> Underlay:
        links = sorted(self._links.items())
        underlay = Underlay(
            self.name,
            router_kind=np.array([r[0] for r in self._routers], dtype=np.int8),
            domain=np.array([r[1] for r in self._routers], dtype=np.int64),
            position=np.array([r[2:4] for r in self._routers], dtype=np.float64).reshape(-1, 2),
            ends=np.array([pair for pair, _ in links], dtype=np.int64).reshape(-1, 2),
            link_kind=np.array([kind for _, (kind, *_) in links], dtype=np.int8),
            delay_ns=np.array([delay for _, (_, delay, _) in links], dtype=np.int64),
            names=tuple(r[4] for r in self._routers),
            router_capacity=tuple(r[5] for r in self._routers),
            link_capacity=tuple(capacity for _, (*_, capacity) in links),
            remarks=self.remarks,
        )
        if underlay.routers < 2 or components(underlay.routers, underlay.ends)[0] > 1:
            raise ConfigError(f"{self.name} is not a connected network of two routers or more")
        if (underlay.delay_ns <= 0).any():
            a, b = underlay.ends[int(np.argmin(underlay.delay_ns))]
            raise ConfigError(f"{self.name}: link {underlay.names[a]}-{underlay.names[b]} has no delay")
        return underlay


def components(routers: int, ends: Ints) -> tuple[int, Ints]:
    """The number of connected components of a network, and the one of each router."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    matrix = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(routers, routers))
    count, label = connected_components(matrix, directed=False)
    return int(count), label.astype(np.int64)


def choose(rng: np.random.Generator, weights: Floats | Sequence[float]) -> int:
    """A random index, with a probability proportional to its weight."""
    sums = np.cumsum(np.asarray(weights, dtype=np.float64))
    return min(int(np.searchsorted(sums, rng.random() * sums[-1], side="right")), len(sums) - 1)


def draw_delay(rng: np.random.Generator, range_ms: tuple[float, float]) -> Nanos:
    return int(rng.integers(millis(range_ms[0]), millis(range_ms[1]), endpoint=True))


def check_ranges(what: str, shape: Any, fields: Sequence[str]) -> None:
    """Raise ConfigError unless these fields of a network's parameters are ranges of positive delays."""
    for field in fields:
        low, high = getattr(shape, field)
        if not 0 < low <= high:
            raise ConfigError(f"{what}: {field} must be a range of positive delays, got {low:g}-{high:g}")


def summary(underlay: Underlay) -> dict[str, Any]:
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
