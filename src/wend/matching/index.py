"""The filter index of a peer: the keys of the filters that match an event, sorted.

Filters of the form `topic = '…'` are in a dictionary. A few other filters are tried one by one, which is faster than
any index; many are in a bitmap index.
"""

from typing import Any, Generic, Protocol, TypeVar

from wend.matching.filters import Filter
from wend.matching.peer_bitmaps import PeerBitmapIndex
from wend.matching.sides import Sides, fits
from wend.model.events import Attributes, Range


class Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


MANY = 48
"""With more filters than this a bitmap index is faster than trying one after the other, as measured."""


class Index(Generic[K]):
    """An exact, dynamic index of filters."""

    def __init__(self) -> None:
        self._filters: dict[K, Filter] = {}
        self._by_topic: dict[str, tuple[K, ...]] = {}
        self._others: dict[K, Sides | None] = {}
        """The filters of another form, by their sides."""
        self._bitmaps: PeerBitmapIndex[K] | None = None
        """Holds `_others` while they are many."""

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def by_topic(self) -> bool:
        """Whether all filters have the form `topic = '…'`."""
        return not self._others

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        self._filters[key] = wanted
        topic = wanted.topic
        if topic is None:
            self._others[key] = wanted.sides
            if self._bitmaps is not None:
                self._bitmaps.add(key, wanted)
            elif len(self._others) > MANY:
                self._bitmaps = PeerBitmapIndex([(each, self._filters[each]) for each in self._others])
        else:
            self._by_topic[topic] = tuple(sorted((*self._by_topic.get(topic, ()), key)))

    def discard(self, key: K) -> None:
        wanted = self._filters.pop(key, None)
        if wanted is None:
            return
        topic = wanted.topic
        if topic is None:
            del self._others[key]
            if self._bitmaps is not None:
                self._bitmaps.discard(key)
                if len(self._others) <= MANY // 2:
                    self._bitmaps = None
            return
        rest = tuple(k for k in self._by_topic[topic] if k != key)
        if rest:
            self._by_topic[topic] = rest
        else:
            del self._by_topic[topic]

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        topic = attributes.get("topic")
        if isinstance(topic, Range):
            return tuple(sorted(key for key, wanted in self._filters.items() if wanted.matches(attributes)))
        exact = self._by_topic.get(topic, ()) if isinstance(topic, str) else ()
        if not self._others:
            return exact
        if self._bitmaps is not None:
            found = self._bitmaps.match(attributes)
            return tuple(sorted((*exact, *found))) if exact else found
        tried = [
            key
            for key, sides in self._others.items()
            if (self._filters[key].matches(attributes) if sides is None else fits(sides, attributes))
        ]
        return tuple(sorted((*exact, *tried))) if tried else exact

    def intersecting(self, offer: Filter) -> tuple[K, ...]:
        """The keys of the filters that intersect this one."""
        topic = offer.topic
        if topic is None:
            # All filters of one topic are equal, so one test is enough for all.
            met = [keys for keys in self._by_topic.values() if self._filters[keys[0]].intersects(offer)]
            exact = tuple(key for keys in met for key in keys)
        else:
            exact = self._by_topic.get(topic, ())
        if not self._others:
            return exact if topic is not None else tuple(sorted(exact))
        if self._bitmaps is not None:
            return tuple(sorted((*exact, *self._bitmaps.intersecting(offer))))
        return tuple(sorted((*exact, *(key for key in self._others if self._filters[key].intersects(offer)))))
