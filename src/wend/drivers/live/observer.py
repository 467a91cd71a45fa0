"""Observers of a live peer: telemetry, a meter, a test. They see what happens and take no part in it."""

from collections.abc import Callable
from typing import Any

from wend.drivers.live.counters import FailureCode
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.messages import Data
from wend.protocol.ports import Deliver, Effect, Input, Notice, Receipt


class Observer:
    """Is notified of events at a live peer. A subclass overrides the methods that it needs; the others cost nothing.

    The peer calls them while it carries out effects, so they must not block. If one raises an exception, the peer
    counts it and goes on.
    """

    def on_input(self, event: Input) -> None:
        """Called after the peer has handled an input of its application (it started, published, subscribed), before the
        effects are carried out."""

    def on_packet(self, sender: PeerId, data: Data, waited_ns: Nanos) -> None:
        """Called before the peer handles a packet with an event, which has waited in a queue of this host."""

    def on_delivered(self, effect: Deliver) -> None:
        """Called when an event has reached a local subscription."""

    def on_published(self, receipt: Receipt) -> None:
        """Called when an event was published here, before its first packet leaves."""

    def on_notice(self, notice: Notice) -> None:
        """Called when the peer has counted a notice."""

    def on_link_change(self, neighbour: PeerId, up: bool) -> None:
        """Called when a link was made or came up (`up`), or went down or was removed."""


Hooks = tuple[Callable[..., None], ...]


class Observers:
    """The observers of one peer: for each method of `Observer`, those that override it."""

    def __init__(self, failed: Callable[[FailureCode, Input | Effect], None]) -> None:
        """`failed` counts an exception of an observer, with the input or effect that it was notified of."""
        self._failed = failed
        self._all: list[Observer] = []
        self.on_input: Hooks = ()
        self.on_packet: Hooks = ()
        self.on_delivered: Hooks = ()
        self.on_published: Hooks = ()
        self.on_notice: Hooks = ()
        self.on_link_change: Hooks = ()

    def add(self, observer: Observer) -> None:
        self._all.append(observer)
        self._sort_hooks()

    def remove(self, observer: Observer) -> None:
        self._all.remove(observer)
        self._sort_hooks()

    def notify(self, hooks: Hooks, about: Input | Effect, *arguments: Any) -> None:
        """Call the hooks with these arguments, and count their exceptions."""
        for hook in hooks:
            try:
                hook(*arguments)
            except Exception:
                self._failed("tell-observer", about)

    def _sort_hooks(self) -> None:
        self.on_input = self._overrides("on_input")
        self.on_packet = self._overrides("on_packet")
        self.on_delivered = self._overrides("on_delivered")
        self.on_published = self._overrides("on_published")
        self.on_notice = self._overrides("on_notice")
        self.on_link_change = self._overrides("on_link_change")

    def _overrides(self, name: str) -> Hooks:
        default = getattr(Observer, name)
        return tuple(getattr(each, name) for each in self._all if getattr(type(each), name) is not default)
