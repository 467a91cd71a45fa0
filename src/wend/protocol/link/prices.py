"""Prices of links: what makes routes avoid links that are full.

A link whose load comes near to what it can carry gets a price, in nanoseconds that routing adds to its delay. The price
follows the load, smoothed a little: that of a full link is about the delay of a detour. It does not follow the length
of the queue, which tells only too late that a link is full, and stays long when it is not any more. Peers tell prices
with their link states. How routing follows them without sending everything to and fro is `routing/spread_trees.py`.
Where nothing waits, there are no prices, and no timer runs.
"""

from collections.abc import Callable
from typing import Final

from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.protocol.link.link import Link
from wend.protocol.timers import Effects, Timers

PERIOD_NS: Final = 100 * MS
"""The time between two looks at links, at first."""
LONGEST_NS: Final = 300 * MS
"""The same after a while."""
SLOWER: Final = 1.03
"""The growth of that time."""
GOOD_LOAD: Final = 0.7
"""The load, as a share of what a link can carry, up to which the link has no price."""
FULL_NS: Final = 90 * MS
"""The price of a link that is offered just what it can carry."""
HIGHEST_NS: Final = 1000 * MS


class LinkPrices:
    __slots__ = ("_changed", "_links", "_loaded", "_period_ns", "_timers", "runs")

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
        self._period_ns = PERIOD_NS
        self.runs = False
        """Whether packets had to wait for links lately."""

    def crowded(self, now: Nanos) -> None:
        """A packet has to wait for a link."""
        if not self.runs:
            self.runs = True
            self._loaded(True)
            for link in self._links.values():
                if link.sender is not None:
                    link.sender.begin_periods()
            self._period_ns = PERIOD_NS
            self._timers.at(now + PERIOD_NS, self._look, None)

    def _look(self, now: Nanos, _: None, effects: Effects) -> None:
        changed = active = False
        for link in self._links.values():
            sender = link.sender
            if sender is None:
                continue
            before = sender.price_ns
            sender.end_period(self._period_ns)
            if sender.capacity:
                price = (sender.load - GOOD_LOAD) / (1.0 - GOOD_LOAD) * FULL_NS
                sender.set_price(int(max(0.0, min(price, HIGHEST_NS))))
            changed = changed or sender.price_ns != before
            active = active or sender.price_ns > 0 or sender.waited
        self.runs = active
        if active:
            self._period_ns = min(int(SLOWER * self._period_ns), LONGEST_NS)
            self._timers.at(now + self._period_ns, self._look, None)
        else:
            self._loaded(False)
        if changed or not active:
            self._changed(now, effects)
