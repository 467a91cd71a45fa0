"""The filter index of a peer: the keys of the filters that match an event, sorted.

A dictionary holds the filters that require one topic (`topic = '…'`), alone or with other predicates. While the filters
with other predicates, or those without a topic, are few, they are tried one by one, which is faster than any index.
When they are many, a bitmap index holds them (`peer_bitmaps.py`). The index stores no filters, only what it needs to
match: there may be very many.
"""

from typing import Any, Generic, Protocol, TypeVar

from wend.matching.boxes import Compact, compact, conjunction_of, fits
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.peer_bitmaps import PeerBitmapIndex
from wend.matching.values import Values
from wend.model.events import Attributes, Range


class Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


MANY = 48
"""With more filters than this a bitmap index is faster than trying one after the other, as measured."""
TOPIC = "topic"


class FewFilters(Generic[K]):
    """A few filters, which are tried one by one."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: tuple[Any, ...] = ()
        """Key, filter, key, filter, …; sorted by key. A filter of one conjunction is stored as that conjunction."""

    def __len__(self) -> int:
        return len(self._entries) // 2

    def __contains__(self, key: K) -> bool:
        return key in self._entries[::2]

    def conjunctions(self, key: K) -> list[Compact]:
        one = self._entries[2 * self._entries[::2].index(key) + 1]
        return [compact(each) for each in one.conjunctions] if isinstance(one, Filter) else [one]

    def items(self) -> list[tuple[K, list[Compact]]]:
        return [(key, self.conjunctions(key)) for key in self._entries[::2]]

    def add(self, key: K, ones: list[Compact]) -> None:
        """Add a filter of these conjunctions under a new key."""
        one = ones[0] if len(ones) == 1 else Filter(tuple([conjunction_of(each) for each in ones]))
        at = 0
        while at < len(self._entries) and self._entries[at] < key:
            at += 2
        self._entries = (*self._entries[:at], key, one, *self._entries[at:])

    def discard(self, key: K) -> None:
        at = 2 * self._entries[::2].index(key)
        self._entries = (*self._entries[:at], *self._entries[at + 2 :])

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        entries = self._entries
        keys = [entries[at] for at in range(0, len(entries), 2) if fits(entries[at + 1], attributes)]
        return tuple(keys)


class Index(Generic[K]):
    """An exact, dynamic index of filters."""

    __slots__ = ("_by_topic", "_narrower", "_others", "_topics")

    def __init__(self) -> None:
        self._topics: dict[K, str] = {}
        """By key: the topic, if the filter requires one."""
        self._by_topic: dict[str, tuple[K, ...]] = {}
        """The keys of filters that require a topic and nothing else."""
        self._narrower: dict[str, FewFilters[K] | PeerBitmapIndex[K]] = {}
        """Filters that require a topic and more, without the topic."""
        self._others: FewFilters[K] | PeerBitmapIndex[K] = FewFilters()
        """Filters that do not require a topic."""

    def __len__(self) -> int:
        return len(self._topics) + len(self._others)

    @property
    def by_topic(self) -> bool:
        """Whether all filters have the form `topic = '…'`."""
        return not self._narrower and not len(self._others)

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        topic, ones = _split(wanted)
        if topic is None:
            self._others = _added(self._others, key, ones)
            return
        self._topics[key] = topic
        if ones == [()]:
            self._by_topic[topic] = tuple(sorted((*self._by_topic.get(topic, ()), key)))
        else:
            self._narrower[topic] = _added(self._narrower.get(topic) or FewFilters(), key, ones)

    def discard(self, key: K) -> None:
        topic = self._topics.pop(key, None)
        if topic is None:
            if key in self._others:
                self._others = _removed(self._others, key)
            return
        narrower = self._narrower.get(topic)
        if narrower is not None and key in narrower:
            self._narrower[topic] = rest = _removed(narrower, key)
            if not len(rest):
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
            return Filter(tuple([conjunction_of(one) for one in self._others.conjunctions(key)]))
        sides: tuple[tuple[str, Values], ...] = ((TOPIC, _one_topic(topic)),)
        narrower = self._narrower.get(topic)
        if narrower is not None and key in narrower:
            (rest,) = narrower.conjunctions(key)
            sides = tuple(sorted((*sides, *conjunction_of(rest).values)))
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
        others = self._others.match(attributes)
        if not keys or not others:
            return keys or others
        return tuple(sorted((*keys, *others)))

    def _match_range(self, topics: Range, attributes: Attributes) -> tuple[K, ...]:
        """An event with a range of topics matches the filters of all of them."""
        keys = list(self._others.match(attributes))
        for topic, exact in self._by_topic.items():
            if _one_topic(topic).allows(topics):
                keys += exact
        for topic, narrower in self._narrower.items():
            if _one_topic(topic).allows(topics):
                keys += narrower.match(attributes)
        return tuple(sorted(keys))


def _added(
    index: FewFilters[K] | PeerBitmapIndex[K], key: K, ones: list[Compact]
) -> FewFilters[K] | PeerBitmapIndex[K]:
    """Add a filter. Return the index that holds it: another kind if there are many filters now."""
    index.add(key, ones)
    if isinstance(index, PeerBitmapIndex) or len(index) <= MANY:
        return index
    many: PeerBitmapIndex[K] = PeerBitmapIndex()
    for each, conjunctions in index.items():
        many.add(each, conjunctions)
    return many


def _removed(index: FewFilters[K] | PeerBitmapIndex[K], key: K) -> FewFilters[K] | PeerBitmapIndex[K]:
    """Remove a filter. Return the index that holds the others: another kind if they are few now."""
    index.discard(key)
    if isinstance(index, FewFilters) or len(index) > MANY // 2:
        return index
    few: FewFilters[K] = FewFilters()
    for each, conjunctions in index.items():
        few.add(each, conjunctions)
    return few


def _split(wanted: Filter) -> tuple[str | None, list[Compact]]:
    """The topic that a filter requires, if it is one conjunction that does, and the remaining conjunctions."""
    conjunctions = wanted.conjunctions
    if len(conjunctions) == 1 and not conjunctions[0].bindings:
        for at, (name, values) in enumerate(conjunctions[0].values):
            if name == TOPIC:
                cuts = values.strings
                if len(cuts) == 2 and not values.numbers and cuts[1] == cuts[0] + "\0":
                    sides = conjunctions[0].values
                    return cuts[0], [compact(Conjunction((*sides[:at], *sides[at + 1 :])))]
    return None, [compact(one) for one in conjunctions]


def _one_topic(topic: str) -> Values:
    return Values(strings=(topic, topic + "\0"))
