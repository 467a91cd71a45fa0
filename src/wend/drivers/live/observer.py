"""Observers of a live peer: telemetry, a meter, a test. They see what happens and take no part in it."""

from collections.abc import Callable
from typing import Any

from wend.drivers.live.counters import FailureCode
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Data
from wend.protocol.ports import Deliver, Effect, Input, Notice, Receipt


class Observer:
    """Hears what happens at a live peer. A subclass overrides the methods that it needs; the others cost nothing.

    The peer calls them while it carries out effects, so they must not block. If one raises an exception, the peer
    counts it and goes on.
    """

    def asked(self, event: Input) -> None:
        """The peer has handled an input of its application: it started, published, subscribed. Called before its
        effects are carried out."""

    def arrived(self, sender: PeerId, data: Data, waited_ns: Nanos) -> None:
        """A packet with an event came, after it waited in a queue of this host. The peer has not handled it yet."""

    def delivered(self, effect: Deliver) -> None:
        """An event reached a local subscription."""

    def published(self, receipt: Receipt) -> None:
        """An event was published here; called before its first packet leaves."""

    def noticed(self, notice: Notice) -> None:
        """The peer counted a notice."""

    def link_changed(self, neighbour: PeerId, up: bool) -> None:
        """A link was made or came up, or went down or was removed."""


Hooks = tuple[Callable[..., None], ...]


class Observers:
    """The observers of one peer: for each method of `Observer`, those that override it."""

    def __init__(self, failed: Callable[[FailureCode, Input | Effect], None]) -> None:
        """`failed` counts a mistake of an observer, with the input or effect that it heard of."""
        self._failed = failed
        self._all: list[Observer] = []
        self.asked: Hooks = ()
        self.arrived: Hooks = ()
        self.delivered: Hooks = ()
        self.published: Hooks = ()
        self.noticed: Hooks = ()
        self.link_changed: Hooks = ()

    def add(self, observer: Observer) -> None:
        self._all.append(observer)
        self._sort()

    def remove(self, observer: Observer) -> None:
        self._all.remove(observer)
        self._sort()

    def tell(self, hooks: Hooks, about: Input | Effect, *arguments: Any) -> None:
        """Call the hooks with these arguments, and count their mistakes."""
        for hook in hooks:
            try:
                hook(*arguments)
            except Exception:
                self._failed("tell-observer", about)

    def _sort(self) -> None:
        self.asked = self._overrides("asked")
        self.arrived = self._overrides("arrived")
        self.delivered = self._overrides("delivered")
        self.published = self._overrides("published")
        self.noticed = self._overrides("noticed")
        self.link_changed = self._overrides("link_changed")

    def _overrides(self, name: str) -> Hooks:
        default = getattr(Observer, name)
        return tuple(getattr(each, name) for each in self._all if getattr(type(each), name) is not default)
