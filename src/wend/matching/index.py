"""Which of many filters match an event. Results come in a chosen order: sorted by key."""

from typing import Any, Generic, Protocol, TypeVar

from wend.matching.filters import Filter
from wend.model.events import Attributes


class Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


class Index(Generic[K]):
    """Dynamic: filters come and go at any time. By topic, since topics are all that filters know today."""

    def __init__(self) -> None:
        self._filters: dict[K, Filter] = {}
        self._by_topic: dict[str, tuple[K, ...]] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        self._filters[key] = wanted
        self._by_topic[wanted.topic] = tuple(sorted((*self._by_topic.get(wanted.topic, ()), key)))

    def discard(self, key: K) -> None:
        wanted = self._filters.pop(key, None)
        if wanted is None:
            return
        rest = tuple(k for k in self._by_topic[wanted.topic] if k != key)
        if rest:
            self._by_topic[wanted.topic] = rest
        else:
            del self._by_topic[wanted.topic]

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        topic = attributes.get("topic")
        return self._by_topic.get(topic, ()) if isinstance(topic, str) else ()

    def intersecting(self, offer: Filter) -> tuple[K, ...]:
        """The filters that some event of the offer could match."""
        return self._by_topic.get(offer.topic, ())
