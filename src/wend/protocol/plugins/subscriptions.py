"""The queries of a peer about its own subscriptions, and about known subscriptions of other peers."""

from typing import Protocol

from wend.model.events import Event, PeerId, SubscriptionId
from wend.model.units import Nanos
from wend.protocol.plugins.view import GraphView, View
from wend.protocol.ports import LocalSubscription

Notify = tuple[tuple[SubscriptionId, Nanos | None], ...]
"""Local subscriptions, each with its deadline."""


class SubscriptionQueries(Protocol):
    """The table of subscriptions of an interest. `strategies/subscriptions` contains an implementation."""

    def targets(self, event: Event) -> tuple[PeerId, ...]:
        """The peers that want the event, sorted, as far as this peer knows."""
        ...

    def local(self, event: Event, view: View) -> Notify:
        """This peer's subscriptions that want the event, each with its deadline."""
        ...

    def widened(self, event: Event) -> bool:
        """Whether this peer asked for a wider set of events than its subscriptions want, and this event is in it."""
        ...

    def members(self, event: Event) -> dict[str, tuple[PeerId, ...]]:
        """The peers with members, sorted, for each queue group that wants the event."""
        ...

    def ordered(self, event: Event) -> tuple[PeerId, ...]:
        """The peers with subscriptions that want the event in publisher order, sorted."""
        ...

    def expiry_ns(self, event: Event, subscriber: PeerId, graph: GraphView) -> Nanos | None:
        """The age from which no subscription of a peer wants the event; None: never."""
        ...

    def stayed_away(self, peer: PeerId, now: Nanos) -> bool:
        """Whether a stopped peer is away for longer than it announced, so that no events are stored for it."""
        ...

    def knows(self, peers: tuple[PeerId, ...]) -> bool:
        """Whether each of these peers has announced its interest."""
        ...

    @property
    def origins(self) -> frozenset[PeerId]:
        """The peers that have announced their interest."""
        ...

    def subscribe(self, wanted: LocalSubscription, me: PeerId) -> None:
        """Raises FilterError. `SubscriptionsChanged` follows."""
        ...

    def unsubscribe(self, number: int) -> None: ...

    def advertise(self, text: str) -> None:
        """Raises FilterError. `SubscriptionsChanged` follows."""

    def advertises(self, event: Event) -> bool:
        """Whether this peer has advertised such events."""
        ...

    @property
    def advertised(self) -> tuple[int, int]:
        """How many advertisements this peer has, and how many characters they take."""
        ...

    def withdraw(self) -> None:
        """Forget all subscriptions and advertisements of this peer."""
        ...

    def will_be_back(self, away_ns: Nanos) -> None:
        """Include in the next announcement that this peer stops and will be back within this time, if others can use
        that."""

    # ---------------------------------------------------------------- for other plug-ins

    @property
    def filters(self) -> dict[str, float]:
        """The filters of this peer's subscriptions, each with the reliability that it needs."""
        ...

    def need(self, event: Event) -> float:
        """The highest reliability that any known subscriber of the event needs."""
        ...

    def pairs(self, graph: GraphView) -> dict[tuple[PeerId, PeerId], Nanos | None]:
        """The deadline, or None, by (publisher, subscriber)."""
        ...

    def deadline_ns(self, event: Event, subscriber: PeerId, graph: GraphView) -> Nanos | None:
        """The tightest deadline of a peer's subscriptions that want the event; None if there is none."""
        ...
