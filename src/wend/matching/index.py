"""The filter index of a peer: the keys of the filters that match an event, sorted.

A dictionary holds the filters that require one topic (`topic = '…'`), alone or with other predicates. Other predicates,
and filters without a topic, are in `PeerBitmapIndex`. The index stores no filters, only what it needs to match: there
may be very many.
"""

from typing import Any, Generic, Protocol, TypeVar

from wend.matching.boxes import Compact, compact_conjunction, expand_box
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.peer_bitmaps import PeerBitmapIndex
from wend.matching.values import Values
from wend.model.events import Attributes, Range


class Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


TOPIC = "topic"


class Index(Generic[K]):
    """An exact, dynamic index of filters."""

    __slots__ = ("_by_topic", "_narrower", "_others", "_topics")

    def __init__(self) -> None:
        self._topics: dict[K, str] = {}
        """By key: the topic, if the filter requires one."""
        self._by_topic: dict[str, tuple[K, ...]] = {}
        """The keys of filters that require a topic and nothing else."""
        self._narrower: dict[str, PeerBitmapIndex[K]] = {}
        """Filters that require a topic and more, without the topic."""
        self._others: PeerBitmapIndex[K] | None = None
        """Filters that do not require a topic; None before the first one."""

    def __len__(self) -> int:
        return len(self._topics) + (0 if self._others is None else len(self._others))

    @property
    def has_only_topics(self) -> bool:
        """Whether all filters have the form `topic = '…'`."""
        return not self._narrower and not self._others

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        topic, ones = _split_by_topic(wanted)
        if topic is None:
            if self._others is None:
                self._others = PeerBitmapIndex()
            self._others.add(key, ones)
            return
        self._topics[key] = topic
        if ones == [()]:
            self._by_topic[topic] = tuple(sorted((*self._by_topic.get(topic, ()), key)))
        else:
            self._narrower.setdefault(topic, PeerBitmapIndex()).add(key, ones)

    def discard(self, key: K) -> None:
        topic = self._topics.pop(key, None)
        if topic is None:
            if self._others is not None:
                self._others.discard(key)
            return
        narrower = self._narrower.get(topic)
        if narrower is not None and key in narrower:
            narrower.discard(key)
            if not narrower:
                del self._narrower[topic]
            return
        keys = tuple([each for each in self._by_topic[topic] if each != key])
        if keys:
            self._by_topic[topic] = keys
        else:
            del self._by_topic[topic]

    def filter(self, key: K) -> Filter:
        """The filter with this key. The index does not hold it, so it is built again."""
        topic = self._topics.get(key)
        if topic is None:
            ones = () if self._others is None else self._others.conjunctions(key)
            return Filter(tuple([expand_box(one) for one in ones]))
        sides: tuple[tuple[str, Values], ...] = ((TOPIC, _topic_values(topic)),)
        narrower = self._narrower.get(topic)
        if narrower is not None and key in narrower:
            (rest,) = narrower.conjunctions(key)
            sides = tuple(sorted((*sides, *expand_box(rest).values)))
        return Filter((Conjunction(sides),))

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        """The keys of the filters that match an event, sorted."""
        topic: Any = attributes.get(TOPIC)
        if isinstance(topic, Range):
            return self._match_range(topic, attributes)
        keys = self._by_topic.get(topic, ()) if isinstance(topic, str) else ()
        if self._narrower and isinstance(topic, str):
            narrower = self._narrower.get(topic)
            if narrower is not None:
                more = narrower.match(attributes)
                keys = tuple(sorted((*keys, *more))) if keys else more
        if self._others is None:
            return keys
        others = self._others.match(attributes)
        return tuple(sorted((*keys, *others))) if keys and others else keys or others

    def _match_range(self, topics: Range, attributes: Attributes) -> tuple[K, ...]:
        """The keys of the filters that match an event with a range of topics: those of all topics in it."""
        keys = [] if self._others is None else list(self._others.match(attributes))
        for topic, exact in self._by_topic.items():
            if _topic_values(topic).allows(topics):
                keys += exact
        for topic, narrower in self._narrower.items():
            if _topic_values(topic).allows(topics):
                keys += narrower.match(attributes)
        return tuple(sorted(keys))


def _split_by_topic(wanted: Filter) -> tuple[str | None, list[Compact]]:
    """The topic that a filter requires, if it is one conjunction that does, and the remaining conjunctions."""
    conjunctions = wanted.conjunctions
    if len(conjunctions) == 1 and not conjunctions[0].bindings:
        for at, (name, values) in enumerate(conjunctions[0].values):
            if name == TOPIC:
                cuts = values.strings
                if len(cuts) == 2 and not values.numbers and cuts[1] == cuts[0] + "\0":
                    sides = conjunctions[0].values
                    return cuts[0], [compact_conjunction(Conjunction((*sides[:at], *sides[at + 1 :])))]
    return None, [compact_conjunction(one) for one in conjunctions]


def _topic_values(topic: str) -> Values:
    return Values(strings=(topic, topic + "\0"))
