"""The subscriptions of this peer's own applications: an exact index of them, and the summary that the peer announces.

There may be very many, so the peer stores little of each: the text of the filter, its place in the index, and the
quality of service unless it is the default.
"""

from collections.abc import Iterator

from wend.matching.filters import parse
from wend.matching.index import Index
from wend.model.events import Attributes, PeerId, Qos, Subscription, SubscriptionId
from wend.strategies.subscriptions.summary import FilterSummary, Member

DEFAULT_QOS = Qos()


class LocalSubscriptions:
    """The subscriptions of one peer, by number."""

    __slots__ = (
        "_group_count",
        "_index",
        "_me",
        "_qos",
        "_texts",
        "_unannounced",
        "has_only_topics",
        "is_plain",
        "summary",
    )

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._texts: dict[int, str] = {}
        self._qos: dict[int, Qos] = {}
        """The quality of service by number, unless it is the default."""
        self._group_count = 0
        self._unannounced: dict[int, None] = {}
        self._index: Index[int] = Index()
        self.has_only_topics = True
        """Whether all filters have the form `topic = '…'`."""
        self.is_plain = True
        """Whether all subscriptions are announced, and none belongs to a queue group."""
        self.summary = FilterSummary(self._members)

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[Subscription]:
        """All subscriptions, by number."""
        for number in sorted(self._texts):
            yield self._subscription(number)

    def get(self, number: int) -> Subscription | None:
        return self._subscription(number) if number in self._texts else None

    def qos(self, number: int) -> Qos:
        return self._qos.get(number, DEFAULT_QOS)

    @property
    def has_groups(self) -> bool:
        """Whether some subscription belongs to a queue group."""
        return self._group_count > 0

    def add(self, number: int, text: str, qos: Qos, announced: bool = True) -> None:
        """Add a subscription, or replace the one with this number. Raises FilterError."""
        filter_ = parse(text)
        self.discard(number)
        self._texts[number] = text
        if qos != DEFAULT_QOS:
            self._qos[number] = qos
            self._group_count += bool(qos.group)
        self._index.add(number, filter_)
        if announced:
            self.summary.add(number, text, filter_, qos)
        else:
            self._unannounced[number] = None
        self._update_properties()

    def is_announced(self, number: int) -> bool:
        return number not in self._unannounced

    def discard(self, number: int) -> None:
        text = self._texts.pop(number, None)
        if text is None:
            return
        filter_ = self._index.filter(number)
        self._index.discard(number)
        qos = self._qos.pop(number, DEFAULT_QOS)
        self._group_count -= bool(qos.group)
        if number in self._unannounced:
            del self._unannounced[number]
        else:
            self.summary.discard(number, filter_, qos)
        self._update_properties()

    def clear(self) -> None:
        self._texts.clear()
        self._qos.clear()
        self._group_count = 0
        self._unannounced.clear()
        self._index = Index()
        self.summary.clear()
        self._update_properties()

    def _update_properties(self) -> None:
        """Update the properties that are read for every event."""
        self.has_only_topics = self._index.has_only_topics
        self.is_plain = not self._unannounced and not self._group_count

    def match(self, attributes: Attributes) -> tuple[int, ...]:
        """The numbers of the subscriptions that match, sorted."""
        return self._index.match(attributes)

    def _subscription(self, number: int) -> Subscription:
        return Subscription(SubscriptionId(self._me, number), self._texts[number], self.qos(number))

    def _members(self) -> Iterator[Member]:
        for number, text in self._texts.items():
            if number not in self._unannounced:
                yield number, text, self._index.filter(number), self.qos(number)
