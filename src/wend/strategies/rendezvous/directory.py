"""The regions that this peer knows from their owners, so that messages need not travel hop by hop.

The directory may be wrong: owners correct it.
"""

from collections.abc import Collection, Iterator

from wend.matching.order_cells import Interval
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.rendezvous.messages import UNKNOWN_OWNER
from wend.strategies.rendezvous.regions import RegionId, halves, meets

MAX_NAMES = 4096
"""How many names of regions a peer remembers, besides those of its own entries."""


class RegionCache:
    """The regions of one name, with their owners."""

    __slots__ = ("_updated_ns", "owners")

    def __init__(self) -> None:
        self.owners: dict[str, PeerId] = {}
        self._updated_ns: dict[str, Nanos] = {}

    def adopt(self, now: Nanos, regions: tuple[tuple[str, PeerId], ...]) -> bool:
        """Adopt regions, and forget those that overlap them. Return whether the codes changed.

        A message without an owner only confirms that the region exists: the known owners of its parts may be right.
        """
        before = set(self.owners)
        for code, owner in regions:
            parts = [other for other in self.owners if other.startswith(code) and other != code]
            if owner < 0 and (parts or code in self.owners):
                parts = []
            else:
                self.owners[code] = owner
                self._updated_ns[code] = now
            for other in (*parts, *[other for other in self.owners if code.startswith(other) and other != code]):
                del self.owners[other], self._updated_ns[other]
        return before != self.owners.keys()

    def forget(self, peer: PeerId) -> None:
        for code, owner in self.owners.items():
            if owner == peer:
                self.owners[code] = UNKNOWN_OWNER

    def age_ns(self, code: str, now: Nanos) -> Nanos:
        """The time since the region was last updated."""
        return now - self._updated_ns[code]

    def regions_at(self, cells: list[Interval]) -> list[tuple[str, PeerId]]:
        """The regions that these cells are in. If a part of a region is known, the region is split, and its other
        parts exist, too."""
        return list(self._known_parts("", list(self.owners), cells))

    def _known_parts(self, code: str, codes: list[str], cells: list[Interval]) -> Iterator[tuple[str, PeerId]]:
        if not meets(code, cells):
            return
        if code in self.owners or not codes:
            yield code, self.owners.get(code, UNKNOWN_OWNER)
            return
        for half in halves(code):
            yield from self._known_parts(half, [other for other in codes if other.startswith(half)], cells)


class RegionDirectory:
    """The caches of regions by name."""

    def __init__(self, beacon_ns: Nanos) -> None:
        self._beacon_ns = beacon_ns
        self.caches: dict[str, RegionCache] = {}

    def __len__(self) -> int:
        """The number of regions."""
        return sum(len(cache.owners) for cache in self.caches.values())

    def open(self, name: str, in_use: Collection[str]) -> None:
        """Create a cache, and drop another one if there are too many. Caches in use stay."""
        self.caches[name] = RegionCache()
        if len(self.caches) > MAX_NAMES + len(in_use):  # there is no limit to new topics
            del self.caches[next(other for other in self.caches if other not in in_use)]

    def forget(self, peer: PeerId) -> None:
        """Forget a peer that does not answer, because its regions may have other owners."""
        for cache in self.caches.values():
            cache.forget(peer)

    def codes(self, name: str, cells: list[Interval]) -> list[str]:
        """The codes of the regions of this name that some cells are in."""
        cache = self.caches.get(name)
        return [""] if cache is None else [code for code, _ in cache.regions_at(cells)]

    def owners(self, now: Nanos, name: str, cells: Interval) -> list[tuple[str, PeerId, bool]]:
        """The regions of this name that some cells are in: each code, the owner if it is known and not outdated, and
        whether to ask the owner for its regions again."""
        cache = self.caches.get(name)
        if cache is None:
            return [("", UNKNOWN_OWNER, True)]
        regions = []
        for code, owner in cache.regions_at([cells]):
            age_ns = 0 if owner == UNKNOWN_OWNER else cache.age_ns(code, now)
            regions.append((code, owner if self._is_fresh(age_ns) else UNKNOWN_OWNER, age_ns > self._beacon_ns // 2))
        return regions

    def owner(self, now: Nanos, region: RegionId) -> PeerId:
        """The owner of a region if it is known and not outdated."""
        name, code = region
        cache = self.caches.get(name)
        if cache is None or code not in cache.owners or not self._is_fresh(cache.age_ns(code, now)):
            return UNKNOWN_OWNER
        return cache.owners[code]

    def _is_fresh(self, age_ns: Nanos) -> bool:
        return age_ns < self._beacon_ns * 3 // 2
