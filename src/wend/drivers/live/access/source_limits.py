"""Limits on strangers, by their address.

A client that has not shown who it is yet may cost a peer little. The number of such connections and their rate are
limited, in all and for each source. Memory is bounded, too: the peer remembers only the latest sources. Loopback has no
limits, since its users are on this machine.
"""

from collections.abc import Callable
from typing import Final

from wend.security.token_buckets import LOOPBACK, SourceBuckets, TokenBucket, source_network

MAX_WAITING: Final = 256
"""The most connections of strangers, from all sources."""
MAX_WAITING_PER_SOURCE: Final = 32
RATE_PER_S: Final = 100.0
"""New connections from all sources, after a burst of `BURST`. A TLS handshake takes about 3 ms of a core."""
BURST: Final = 300.0
SOURCE_RATE_PER_S: Final = 20.0
SOURCE_BURST: Final = 60.0
STATUS_PER_S: Final = 10.0
"""The rate of status calls of a client with keys, over all its connections. A burst has five seconds of calls."""
STATUS_PER_SOURCE_S: Final = 50.0


class StrangerLimits:
    """Decides which strangers may connect."""

    def __init__(self, clock_s: Callable[[], float], *, exempt_loopback: bool = True) -> None:
        self._clock_s = clock_s
        self._exempt_loopback = exempt_loopback
        self._all = TokenBucket(RATE_PER_S, BURST, clock_s())
        self._sources = SourceBuckets(SOURCE_RATE_PER_S, SOURCE_BURST)
        self._waiting: dict[str, int] = {}
        """By source: the number of connections of strangers. It has at most `MAX_WAITING` entries."""
        self.waiting = 0

    def __len__(self) -> int:
        """The number of remembered sources."""
        return len(self._sources)

    def admit(self, host: str) -> str | None:
        """The source of a new connection, to be passed to `release` later; None if it may not connect."""
        source = source_network(host)
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

    def release(self, source: str) -> None:
        """Stop counting a connection as one of a stranger: its client is identified, or it has ended."""
        if self._exempt_loopback and source == LOOPBACK:
            return
        left = self._waiting[source] - 1
        self.waiting -= 1
        if left:
            self._waiting[source] = left
        else:
            del self._waiting[source]
