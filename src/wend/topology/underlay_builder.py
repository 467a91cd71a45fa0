"""A builder of underlays, and random delays and choices, for generators and readers."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from wend.model.errors import ConfigError
from wend.model.rates import Capacity
from wend.model.units import Nanos, millis
from wend.topology.underlay import Floats, LinkKind, RouterKind, Underlay, find_components


class UnderlayBuilder:
    """Builds an underlay: callers add routers and links one by one, and `build` checks and sorts them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._routers: list[tuple[int, int, float, float, str, Capacity]] = []
        self._links: dict[tuple[int, int], tuple[int, int, Capacity]] = {}
        self.remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._routers)

    def add_router(
        self, kind: RouterKind, domain: int, x: float = np.nan, y: float = np.nan, name: str = "",
        capacity: Capacity = (inf, inf),
    ) -> int:  # fmt: skip
        self._routers.append((int(kind), domain, float(x), float(y), name or str(len(self._routers)), capacity))
        return len(self._routers) - 1

    def add_link(self, a: int, b: int, kind: LinkKind, delay_ns: int, capacity: Capacity = (inf, inf)) -> bool:
        """Add a link, unless it is a loop or a duplicate. Return whether it was added."""
        pair = (min(a, b), max(a, b))
        if a == b or pair in self._links:
            return False
        self._links[pair] = (int(kind), delay_ns, capacity)
        return True

    def has_link(self, a: int, b: int) -> bool:
        return (min(a, b), max(a, b)) in self._links

    def build(self) -> Underlay:
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
        if underlay.routers < 2 or find_components(underlay.routers, underlay.ends)[0] > 1:
            raise ConfigError(f"{self.name} is not a connected network of two routers or more")
        if (underlay.delay_ns <= 0).any():
            a, b = underlay.ends[int(np.argmin(underlay.delay_ns))]
            raise ConfigError(f"{self.name}: link {underlay.names[a]}-{underlay.names[b]} has no delay")
        return underlay


def weighted_choice(rng: np.random.Generator, weights: Floats | Sequence[float]) -> int:
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
