"""Prices of links: what makes routes avoid links that are full.

A link whose load exceeds what it can carry gets a price, in nanoseconds that routing adds to its delay. The price rises
while the load is too high and falls while there is room, so it settles where the load fits, and the queue is short
then. A price that followed the length of the queue instead would send everything to and fro. Peers tell prices with
their link states. Where nothing waits, there are no prices, and no timer runs.
"""

from collections.abc import Callable
from typing import Final

from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.link.link import Link
from wend.protocol.timers import Effects, Timers

PERIOD_NS: Final = SECOND // 2
GOOD_LOAD: Final = 0.8
"""The load, as a share of what a link can carry, at which its price stays as it is."""
STEP_NS: Final = 8 * MS
"""How much a price rises in a period for a load that is too high by the capacity of the link."""
MOST_STEPS: Final = 2.0
HIGHEST_NS: Final = 90 * MS
"""Below what timely delivery is worth to most events (`routing/load_spreading.py`): where no route has room, the send
queue decides by deadline what is in time, and not the price."""


class LinkPrices:
    __slots__ = ("_changed", "_links", "_loaded", "_timers", "runs")

    def __init__(
        self,
        links: dict[PeerId, Link],
        timers: Timers,
        changed: Callable[[Nanos, Effects], None],
        loaded: Callable[[bool], None],
    ) -> None:
        """`changed` hears that prices are others; `loaded`, whether packets had to wait for links lately."""
        self._links = links
        self._timers = timers
        self._changed = changed
        self._loaded = loaded
        self.runs = False
        """Whether packets had to wait for links lately."""

    def crowded(self, now: Nanos) -> None:
        """A packet has to wait for a link."""
        if not self.runs:
            self.runs = True
            self._loaded(True)
            self._timers.at(now + PERIOD_NS, self._look, None)

    def _look(self, now: Nanos, _: None, effects: Effects) -> None:
        changed = active = False
        for link in self._links.values():
            sender = link.sender
            if sender is None:
                continue
            before = sender.price_ns
            sender.end_period(PERIOD_NS)
            if sender.capacity:
                step = (sender.offered_rate / sender.capacity - GOOD_LOAD) * STEP_NS
                step = max(-MOST_STEPS * STEP_NS, min(step, MOST_STEPS * STEP_NS))
                sender.price_ns = int(max(0.0, min(sender.price_ns + step, HIGHEST_NS)))
            changed = changed or sender.price_ns != before
            active = active or sender.price_ns > 0 or sender.waited
        self.runs = active
        if active:
            self._timers.at(now + PERIOD_NS, self._look, None)
        else:
            self._loaded(False)
        if changed or not active:
            self._changed(now, effects)
