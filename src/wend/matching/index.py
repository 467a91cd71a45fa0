"""Which of many filters match an event. Results come in a chosen order: sorted by key."""

from typing import Any, Generic, Protocol, TypeVar

from wend.matching.filters import Filter
from wend.model.events import Attributes, Range


class Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


class Index(Generic[K]):
    """Dynamic: filters come and go at any time. Exact. Filters that name one topic are looked up, others scanned."""

    def __init__(self) -> None:
        self._filters: dict[K, Filter] = {}
        self._by_topic: dict[str, tuple[K, ...]] = {}
        self._others: dict[K, Filter] = {}

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def by_topic(self) -> bool:
        """Whether an event's topic alone decides who gets it."""
        return not self._others

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        self._filters[key] = wanted
        topic = wanted.topic
        if topic is None:
            self._others[key] = wanted
        else:
            self._by_topic[topic] = tuple(sorted((*self._by_topic.get(topic, ()), key)))

    def discard(self, key: K) -> None:
        wanted = self._filters.pop(key, None)
        if wanted is None:
            return
        topic = wanted.topic
        if topic is None:
            del self._others[key]
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
        return tuple(sorted((*exact, *(key for key, wanted in self._others.items() if wanted.matches(attributes)))))

    def intersecting(self, offer: Filter) -> tuple[K, ...]:
        """The filters that some event of the offer could match."""
        topic = offer.topic
        if topic is None:
            return tuple(sorted(key for key, wanted in self._filters.items() if wanted.intersects(offer)))
        exact = self._by_topic.get(topic, ())
        if not self._others:
            return exact
        return tuple(sorted((*exact, *(key for key, wanted in self._others.items() if wanted.intersects(offer)))))
