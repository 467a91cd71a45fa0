"""The filter index of a peer: the keys of the filters that match an event, sorted.

A dictionary holds the filters that require one topic (`topic = '…'`), alone or with other predicates. While the filters
with other predicates, or those without a topic, are few, they are tried one by one, which is faster than any index.
When they are many, a bitmap index holds them. The index stores no filters, only what it needs to match: there may be
very many.
"""

from typing import Any, Generic, Protocol, TypeVar

from wend.matching.boxes import Compact, compact, conjunction_of
from wend.matching.boxes import fits as in_box
from wend.matching.conjunctions import Conjunction
from wend.matching.filters import Filter
from wend.matching.peer_bitmaps import PeerBitmapIndex
from wend.matching.sides import Sides, fits
from wend.matching.values import Values
from wend.model.events import Attributes, Range


class Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


MANY = 48
"""With more filters than this a bitmap index is faster than trying one after the other, as measured."""
TOPIC = "topic"


class Index(Generic[K]):
    """An exact, dynamic index of filters."""

    __slots__ = ("_bitmaps", "_by_topic", "_narrower", "_others", "_topics")

    def __init__(self) -> None:
        self._topics: dict[K, str] = {}
        """By key: the topic, if the filter requires one."""
        self._by_topic: dict[str, tuple[K, ...]] = {}
        """The keys of filters that require a topic and nothing else."""
        self._narrower: dict[str, FewFilters[K] | PeerBitmapIndex[K]] | None = None
        """Filters that require a topic and more, without the topic; None while there are none."""
        self._others: dict[K, tuple[Filter, Sides | None]] = {}
        """A few filters that do not require a topic, with their sides."""
        self._bitmaps: PeerBitmapIndex[K] | None = None
        """Holds these filters instead while they are many."""

    def __len__(self) -> int:
        return len(self._topics) + len(self._others) + (0 if self._bitmaps is None else len(self._bitmaps))

    @property
    def by_topic(self) -> bool:
        """Whether all filters have the form `topic = '…'`."""
        return not self._narrower and not self._others and self._bitmaps is None

    def add(self, key: K, wanted: Filter) -> None:
        self.discard(key)
        topic, rest = _split(wanted)
        if topic is None:
            self._add_other(key, wanted, rest)
            return
        self._topics[key] = topic
        if rest == [()]:
            self._by_topic[topic] = tuple(sorted((*self._by_topic.get(topic, ()), key)))
        else:
            if self._narrower is None:
                self._narrower = {}
            self._narrower[topic] = _added(self._narrower.get(topic) or FewFilters(), key, rest[0])

    def discard(self, key: K) -> None:
        topic = self._topics.pop(key, None)
        if topic is None:
            self._discard_other(key)
            return
        narrower = self._under(topic)
        if self._narrower is not None and narrower is not None and key in narrower:
            left = _removed(narrower, key)
            if len(left):
                self._narrower[topic] = left
            else:
                del self._narrower[topic]
            return
        rest = tuple([k for k in self._by_topic[topic] if k != key])
        if rest:
            self._by_topic[topic] = rest
        else:
            del self._by_topic[topic]

    def _under(self, topic: str) -> "FewFilters[K] | PeerBitmapIndex[K] | None":
        return None if self._narrower is None else self._narrower.get(topic)

    def _add_other(self, key: K, wanted: Filter, conjunctions: list[Compact]) -> None:
        if self._bitmaps is not None:
            self._bitmaps.add_conjunctions(key, conjunctions)
            return
        self._others[key] = (wanted, wanted.sides)
        if len(self._others) > MANY:
            self._bitmaps = PeerBitmapIndex([(each, one) for each, (one, _) in self._others.items()])
            self._others = {}

    def _discard_other(self, key: K) -> None:
        if self._bitmaps is None:
            self._others.pop(key, None)
        elif key in self._bitmaps:
            self._bitmaps.discard(key)
            if len(self._bitmaps) <= MANY // 2:
                few, self._bitmaps = self._bitmaps.items(), None
                for each, ones in few:
                    self._add_other(each, Filter(tuple([conjunction_of(one) for one in ones])), ones)

    def filter(self, key: K) -> Filter:
        """The filter with this key. The index does not hold it, so it is built again."""
        topic = self._topics.get(key)
        if topic is None:
            if self._bitmaps is None:
                return self._others[key][0]
            return Filter(tuple([conjunction_of(one) for one in self._bitmaps.conjunctions(key)]))
        sides: tuple[tuple[str, Values], ...] = ((TOPIC, _one_topic(topic)),)
        narrower = self._under(topic)
        if narrower is not None and key in narrower:
            (rest,) = narrower.conjunctions(key)
            sides = tuple(sorted((*sides, *conjunction_of(rest).values)))
        return Filter((Conjunction(sides),))

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        topic: Any = attributes.get(TOPIC)
        if isinstance(topic, Range):
            return self._match_range(topic, attributes)
        exact = self._by_topic.get(topic, ()) if isinstance(topic, str) else ()
        if self._narrower:
            narrower = self._narrower.get(topic) if isinstance(topic, str) else None
            if narrower is not None:
                found = narrower.match(attributes)
                exact = tuple(sorted((*exact, *found))) if exact else found
        others = self._match_others(attributes)
        if not exact or not others:
            return exact or others
        return tuple(sorted((*exact, *others)))

    def _match_others(self, attributes: Attributes) -> tuple[K, ...]:
        if self._bitmaps is not None:
            return self._bitmaps.match(attributes)
        if not self._others:
            return ()
        tried = [
            key
            for key, (wanted, sides) in self._others.items()
            if (wanted.matches(attributes) if sides is None else fits(sides, attributes))
        ]
        tried.sort()
        return tuple(tried)

    def _match_range(self, topics: Range, attributes: Attributes) -> tuple[K, ...]:
        """An event with a range of topics matches the filters of all of them."""
        keys_found = list(self._match_others(attributes))
        for topic, keys in self._by_topic.items():
            if _one_topic(topic).allows(topics):
                keys_found += keys
        for topic, narrower in (self._narrower or {}).items():
            if _one_topic(topic).allows(topics):
                keys_found += narrower.match(attributes)
        return tuple(sorted(keys_found))

    def intersecting(self, offer: Filter) -> tuple[K, ...]:
        """The keys of the filters that intersect this one."""
        topic = offer.topic
        if self._bitmaps is not None:
            keys = list(self._bitmaps.intersecting(offer))
        else:
            keys = [key for key, (wanted, _) in self._others.items() if wanted.intersects(offer)]
        if topic is not None:
            keys += self._by_topic.get(topic, ())
            narrower = self._under(topic)
            if narrower is not None:
                keys += narrower.intersecting(Filter((Conjunction(()),)))
            return tuple(sorted(keys))
        for one_topic in {**self._by_topic, **(self._narrower or {})}:
            met = _with_topic(offer, one_topic)
            if met.conjunctions:
                keys += self._by_topic.get(one_topic, ())
                narrower = self._under(one_topic)
                if narrower is not None:
                    keys += narrower.intersecting(met)
        return tuple(sorted(keys))


class FewFilters(Generic[K]):
    """A few filters of one conjunction each, which are tried one by one."""

    __slots__ = ("_ones",)

    def __init__(self) -> None:
        self._ones: tuple[Any, ...] = ()
        """Key, conjunction, key, conjunction, …; sorted by key."""

    def __len__(self) -> int:
        return len(self._ones) // 2

    def __contains__(self, key: K) -> bool:
        return key in self._ones[::2]

    def conjunctions(self, key: K) -> list[Compact]:
        return [self._ones[2 * self._ones[::2].index(key) + 1]]

    def items(self) -> list[tuple[K, list[Compact]]]:
        ones = self._ones
        return [(ones[at], [ones[at + 1]]) for at in range(0, len(ones), 2)]

    def add(self, key: K, one: Compact) -> None:
        at = 0
        while at < len(self._ones) and self._ones[at] < key:
            at += 2
        self._ones = (*self._ones[:at], key, one, *self._ones[at:])

    def discard(self, key: K) -> None:
        at = 2 * self._ones[::2].index(key)
        self._ones = (*self._ones[:at], *self._ones[at + 2 :])

    def match(self, attributes: Attributes) -> tuple[K, ...]:
        ones = self._ones
        found = [ones[at] for at in range(0, len(ones), 2) if in_box(ones[at + 1], attributes)]
        return tuple(found)

    def intersecting(self, offer: Filter) -> tuple[K, ...]:
        keys = [key for key, (one,) in self.items() if Filter((conjunction_of(one),)).intersects(offer)]
        return tuple(keys)


def _added(index: FewFilters[K] | PeerBitmapIndex[K], key: K, one: Compact) -> FewFilters[K] | PeerBitmapIndex[K]:
    """Add a filter. Returns the index that holds it now: another kind if there are many filters by now."""
    if isinstance(index, PeerBitmapIndex):
        index.add_conjunctions(key, [one])
        return index
    index.add(key, one)
    if len(index) <= MANY:
        return index
    many: PeerBitmapIndex[K] = PeerBitmapIndex()
    for each, ones in index.items():
        many.add_conjunctions(each, ones)
    return many


def _removed(index: FewFilters[K] | PeerBitmapIndex[K], key: K) -> FewFilters[K] | PeerBitmapIndex[K]:
    """Remove a filter. Returns the index that holds the others: another kind if they are few by now."""
    index.discard(key)
    if isinstance(index, FewFilters) or len(index) > MANY // 2:
        return index
    few: FewFilters[K] = FewFilters()
    for each, (one,) in index.items():
        few.add(each, one)
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


def _with_topic(offer: Filter, topic: str) -> Filter:
    """The conjunctions of an offer that allow a topic, without their constraint on it."""
    conjunctions = []
    for one in offer.conjunctions:
        allowed = one.allowed() if one.bindings else dict(one.values)
        if TOPIC not in allowed or allowed[TOPIC].allows(topic):
            sides = tuple([(name, values) for name, values in one.values if name != TOPIC])
            conjunctions.append(Conjunction(sides, one.bindings))
    return Filter(tuple(conjunctions))
