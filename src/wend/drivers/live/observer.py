"""Observers of a live peer: a broker that serves clients, telemetry, a meter, a test."""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Data
from wend.protocol.notices import LINK_DOWN, LINK_UP
from wend.protocol.ports import Deliver, Effect, Input, Missed, Notice, Receipt, Received


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


class Observers(Observer):
    """The observers of one peer, as one: each method tells those that override it, and survives their mistakes."""

    def __init__(self, failed: Callable[[str, Input | Effect], None]) -> None:
        """`failed` counts a mistake of an observer, with what it was told of."""
        self._failed = failed
        self._all: list[Observer] = []
        self._asked: tuple[Callable[[Input], None], ...] = ()
        self._arrived: tuple[Callable[[PeerId, Data, Nanos], None], ...] = ()
        self._delivered: tuple[Callable[[Deliver], None], ...] = ()
        self._missed: tuple[Callable[[Missed], None], ...] = ()
        self._published: tuple[Callable[[Receipt], None], ...] = ()
        self._noticed: tuple[Callable[[Notice], None], ...] = ()
        self._link_changed: tuple[Callable[[PeerId, bool], None], ...] = ()
        self.see_packets = False
        """Whether any wants to know of packets that arrive."""

    def add(self, observer: Observer) -> None:
        self._all.append(observer)
        self._sort()

    def remove(self, observer: Observer) -> None:
        self._all.remove(observer)
        self._sort()

    def asked(self, event: Input) -> None:
        for asked in self._asked:
            try:
                asked(event)
            except Exception:
                self._failed("observe", event)

    def arrived(self, sender: PeerId, data: Data, waited_ns: Nanos) -> None:
        for arrived in self._arrived:
            try:
                arrived(sender, data, waited_ns)
            except Exception:
                self._failed("observe", Received(sender, data))

    def delivered(self, effect: Deliver) -> None:
        for delivered in self._delivered:
            try:
                delivered(effect)
            except Exception:
                self._failed("observe", effect)

    def missed(self, effect: Missed) -> None:
        for missed in self._missed:
            try:
                missed(effect)
            except Exception:
                self._failed("observe", effect)

    def published(self, receipt: Receipt) -> None:
        for published in self._published:
            try:
                published(receipt)
            except Exception:
                self._failed("observe", receipt)

    def noticed(self, notice: Notice) -> None:
        for noticed in self._noticed:
            try:
                noticed(notice)
            except Exception:
                self._failed("observe", notice)

    def link_changed(self, neighbour: PeerId, up: bool) -> None:
        for link_changed in self._link_changed:
            try:
                link_changed(neighbour, up)
            except Exception:
                self._failed("observe", Notice(LINK_UP if up else LINK_DOWN, neighbour))

    def _sort(self) -> None:
        every = self._all
        self._asked = tuple(one.asked for one in every if type(one).asked is not Observer.asked)
        self._arrived = tuple(one.arrived for one in every if type(one).arrived is not Observer.arrived)
        self._delivered = tuple(one.delivered for one in every if type(one).delivered is not Observer.delivered)
        self._missed = tuple(one.missed for one in every if type(one).missed is not Observer.missed)
        self._published = tuple(one.published for one in every if type(one).published is not Observer.published)
        self._noticed = tuple(one.noticed for one in every if type(one).noticed is not Observer.noticed)
        changed = [one for one in every if type(one).link_changed is not Observer.link_changed]
        self._link_changed = tuple(one.link_changed for one in changed)
        self.see_packets = bool(self._arrived)
