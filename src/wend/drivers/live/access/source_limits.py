"""Limits on strangers, by the address that they come from.

Before a client has shown who it is, it may cost a peer little: few connections wait at a time, in all and from each
source, and new ones come at a bounded rate. The memory for all this is bounded, whatever number of sources there is:
the sources that were seen last are remembered. Loopback has no limits, since its users are on this machine.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final

MAX_SOURCES: Final = 4096
MAX_WAITING: Final = 256
"""Connections that have not shown who they are, from all sources."""
MAX_WAITING_PER_SOURCE: Final = 32
RATE_PER_S: Final = 100.0
"""New connections from all sources, after a burst of `BURST`. A TLS handshake takes about 3 ms of a core."""
BURST: Final = 300.0
SOURCE_RATE_PER_S: Final = 20.0
SOURCE_BURST: Final = 60.0
STATUS_PER_S: Final = 10.0
"""Status calls of a client that shows keys, over all its connections; five times as many at once."""
STATUS_PER_SOURCE_S: Final = 50.0
_IPV6_SITE_BITS = 64


class RateBudget:
    """Permits `rate_per_s` on average, and up to `burst` at once."""

    __slots__ = ("_at_s", "_left", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, now_s: float) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._left = burst
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Take one, or nothing where there is none."""
        if not self.has(now_s, 1.0):
            return False
        self.spend(1.0)
        return True

    def has(self, now_s: float, amount: float) -> bool:
        """Whether so much may be spent. What is more than a burst may be spent on credit, by who has all of a burst."""
        self._left = min(self.burst, self._left + (now_s - self._at_s) * self.rate_per_s)
        self._at_s = now_s
        return self.burst > 0 and self._left >= min(amount, self.burst)

    def spend(self, amount: float) -> None:
        self._left -= amount

    def is_full(self, now_s: float) -> bool:
        return self._left + (now_s - self._at_s) * self.rate_per_s >= self.burst


class SourceBudgets:
    """A budget for each source. The sources that were seen last are remembered."""

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._sources: OrderedDict[str, RateBudget] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, source: str, now_s: float) -> bool:
        budget = self._sources.pop(source, None) or RateBudget(self._rate_per_s, self._burst, now_s)
        self._sources[source] = budget
        if len(self._sources) > MAX_SOURCES:
            self._sources.popitem(last=False)
        return budget.take(now_s)


class StrangerLimits:
    """Decides which strangers may connect."""

    def __init__(self, clock_s: Callable[[], float], *, exempt_loopback: bool = True) -> None:
        self._clock_s = clock_s
        self._exempt_loopback = exempt_loopback
        self._all = RateBudget(RATE_PER_S, BURST, clock_s())
        self._sources = SourceBudgets(SOURCE_RATE_PER_S, SOURCE_BURST)
        self._waiting: dict[str, int] = {}
        """By source: connections that have not shown who they are. It has at most `MAX_WAITING` entries."""
        self.waiting = 0

    def __len__(self) -> int:
        """How many sources are remembered."""
        return len(self._sources)

    def admit(self, host: str) -> str | None:
        """The source of a connection that may be made, which `known` forgets; None: it may not."""
        source = source_of(host)
        if self._exempt_loopback and source == LOOPBACK:
            return source
        now_s = self._clock_s()
        if self.waiting >= MAX_WAITING or self._waiting.get(source, 0) >= MAX_WAITING_PER_SOURCE:
            return None
        if not self._sources.take(source, now_s) or not self._all.take(now_s):
            return None
        self._waiting[source] = self._waiting.get(source, 0) + 1
        self.waiting += 1
        return source

    def known(self, source: str) -> None:
        """A connection has shown who it is, or has ended."""
        if self._exempt_loopback and source == LOOPBACK:
            return
        left = self._waiting[source] - 1
        self.waiting -= 1
        if left:
            self._waiting[source] = left
        else:
            del self._waiting[source]


LOOPBACK: Final = "loopback"


@lru_cache(MAX_SOURCES)
def source_of(host: str) -> str:
    """What counts as one source: an IPv4 address, or the /64 network of an IPv6 address, which one site has."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return LOOPBACK
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, _IPV6_SITE_BITS), strict=False))
