"""Observers of a live peer: a broker that serves clients, telemetry, a meter, a test."""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Data
from wend.protocol.ports import Deliver, Input, Missed, Notice, Receipt


class Observer:
    """Is told what happens at a live peer. A subclass overrides the methods that it needs; the others cost nothing.

    The peer calls them while it carries out effects, so they must not block. If one raises an exception, the peer
    counts it and goes on.
    """

    def asked(self, event: Input) -> None:
        """The peer has handled what its application asked for: it started, published, subscribed. Called before its
        effects are carried out."""

    def arrived(self, sender: PeerId, data: Data, waited_ns: Nanos) -> None:
        """A packet with an event came, after it waited in a queue of this host. The peer has not handled it yet."""

    def delivered(self, effect: Deliver) -> None:
        """An event reached a local subscription."""

    def missed(self, effect: Missed) -> None:
        """A local subscription will not get some events."""

    def published(self, receipt: Receipt) -> None:
        """An event was published here; called before its first packet leaves."""

    def noticed(self, notice: Notice) -> None:
        """The peer counted a notice."""

    def link_changed(self, neighbour: PeerId, up: bool) -> None:
        """A link was made or came up, or went down or was removed."""


class Observers:
    """The observers of one peer: for each method of `Observer`, the ones that override it."""

    def __init__(self) -> None:
        self._all: list[Observer] = []
        self.asked: tuple[Callable[[Input], None], ...] = ()
        self.arrived: tuple[Callable[[PeerId, Data, Nanos], None], ...] = ()
        self.delivered: tuple[Callable[[Deliver], None], ...] = ()
        self.missed: tuple[Callable[[Missed], None], ...] = ()
        self.published: tuple[Callable[[Receipt], None], ...] = ()
        self.noticed: tuple[Callable[[Notice], None], ...] = ()
        self.link_changed: tuple[Callable[[PeerId, bool], None], ...] = ()

    def add(self, observer: Observer) -> None:
        self._all.append(observer)
        self._sort()

    def remove(self, observer: Observer) -> None:
        self._all.remove(observer)
        self._sort()

    def _sort(self) -> None:
        self.asked = tuple(one.asked for one in self._all if type(one).asked is not Observer.asked)
        self.arrived = tuple(one.arrived for one in self._all if type(one).arrived is not Observer.arrived)
        self.delivered = tuple(one.delivered for one in self._all if type(one).delivered is not Observer.delivered)
        self.missed = tuple(one.missed for one in self._all if type(one).missed is not Observer.missed)
        self.published = tuple(one.published for one in self._all if type(one).published is not Observer.published)
        self.noticed = tuple(one.noticed for one in self._all if type(one).noticed is not Observer.noticed)
        self.link_changed = tuple(
            one.link_changed for one in self._all if type(one).link_changed is not Observer.link_changed
        )
