"""Prices of links: costs that make routes avoid congested links.

A link whose load approaches its capacity gets a price, in nanoseconds that routing adds to its delay. The price follows
the smoothed load. The price of a full link is about the delay of a detour. The price does not follow the length of the
queue, which grows only after the link is full and stays long after the congestion has ended. Peers announce prices with
their link states. `routing/spread_trees.py` explains how routing follows prices without oscillating. While no packet
waits for a link, there are no prices and no timer runs.
"""

from collections.abc import Callable
from typing import Final

from wend.model.events import PeerId
from wend.model.units import MS, Nanos
from wend.protocol.link.link import Link
from wend.protocol.timers import Effects, Timers

PERIOD_NS: Final = 100 * MS
"""The first period between updates of prices."""
LONGEST_NS: Final = 300 * MS
"""The longest period between updates of prices."""
SLOWER: Final = 1.03
"""The factor by which the period grows at each update."""
GOOD_LOAD: Final = 0.7
"""The load, as a share of the capacity, up to which a link has no price."""
FULL_NS: Final = 90 * MS
"""The price of a link whose load equals its capacity."""
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
        """`changed` is called when prices change; `loaded` when packets begin or cease to wait for links."""
        self._links = links
        self._timers = timers
        self._changed = changed
        self._loaded = loaded
        self._period_ns = PERIOD_NS
        self.runs = False
        """Whether packets recently had to wait for links."""

    def on_packet_waiting(self, now: Nanos) -> None:
        """Start to measure loads and set prices, since a packet has to wait for a link."""
        if not self.runs:
            self.runs = True
            self._loaded(True)
            for link in self._links.values():
                if link.sender is not None:
                    link.sender.begin_periods()
            self._period_ns = PERIOD_NS
            self._timers.set_timer(now + PERIOD_NS, self._update_prices, None)

    def _update_prices(self, now: Nanos, _: None, effects: Effects) -> None:
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
            self._timers.set_timer(now + self._period_ns, self._update_prices, None)
        else:
            self._loaded(False)
        if changed or not active:
            self._changed(now, effects)
