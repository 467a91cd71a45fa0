"""Token buckets: they limit a rate and a burst, for one source or for all.

The table of sources has a fixed size and keeps the most recent ones. So strangers cost constant memory, no matter how
many addresses they use.
"""

import ipaddress
from collections import OrderedDict
from functools import lru_cache
from typing import Final

MAX_SOURCES: Final = 4096
LOOPBACK: Final = "loopback"
_IPV6_SITE_BITS: Final = 64


class TokenBucket:
    """Permits `rate_per_s` on average, and up to `burst` at once."""

    __slots__ = ("_at_s", "_left", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, now_s: float = 0.0) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._left = burst
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Take one token. False if there is none."""
        if not self.has_tokens(now_s, 1.0):
            return False
        self.spend(1.0)
        return True

    def has_tokens(self, now_s: float, amount: float) -> bool:
        """Whether this amount may be spent. A full bucket may spend more than a burst, on credit."""
        self._left = min(self.burst, self._left + (now_s - self._at_s) * self.rate_per_s)
        self._at_s = now_s
        return self.burst > 0 and self._left >= min(amount, self.burst)

    def spend(self, amount: float) -> None:
        self._left -= amount

    def set_limits(self, rate_per_s: float, burst: float, now_s: float) -> None:
        """Change the rate and the burst. Tokens that were spent stay spent."""
        self.has_tokens(now_s, 0.0)
        self._left -= self.burst - burst
        self.rate_per_s, self.burst = rate_per_s, burst

    def is_full(self, now_s: float) -> bool:
        return self._left + (now_s - self._at_s) * self.rate_per_s >= self.burst


class SourceBuckets:
    """A bucket for each of the sources that were seen last."""

    def __init__(self, rate_per_s: float, burst: float, most: int = MAX_SOURCES) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._most = most
        self._sources: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, source: str, now_s: float) -> bool:
        bucket = self._sources.pop(source, None) or TokenBucket(self._rate_per_s, self._burst, now_s)
        self._sources[source] = bucket
        if len(self._sources) > self._most:
            self._sources.popitem(last=False)
        return bucket.take(now_s)


@lru_cache(MAX_SOURCES)
def source_network(host: str) -> str:
    """The source of a host: its IPv4 address, or the /64 network of its IPv6 address, which belongs to one site. A
    socket for both families shows IPv4 addresses inside IPv6 ones."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return LOOPBACK
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, _IPV6_SITE_BITS), strict=False))
