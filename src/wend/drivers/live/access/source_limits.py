"""Limits on connections, by the address that they come from.

A client that has not shown who it is yet may cost a peer little. The number of such connections and their rate are
limited, in all and for each source. Memory is bounded, too: the peer remembers only the latest sources. Loopback has no
limits, since its users are on this machine.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from wend.model.errors import Refused
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
MAX_CLIENTS: Final = 1_000
"""The most clients of a peer. One source cannot take the last quarter of them."""


class ClientSlots:
    """The clients of a peer, by source. Loopback counts as one source here."""

    def __init__(self, most: int = MAX_CLIENTS) -> None:
        self.most = most
        self._by_source: Counter[str] = Counter()
        self._taken = 0

    def take_slot(self, source: str) -> None:
        """Count a client. Raises `Refused` if there is no room for it."""
        if self._taken >= self.most:
            raise Refused(f"this peer accepts at most {self.most} clients", code="too-many-clients")
        share = max(1, self.most // 4)
        if self.most - self._taken <= share and self._by_source[source] >= share:
            sentence = f"this peer keeps its last {share} connections for clients from other addresses"
            raise Refused(sentence, code="too-many-clients")
        self._taken += 1
        self._by_source[source] += 1

    def release_slot(self, source: str) -> None:
        """Stop counting a client of this source."""
        self._taken -= 1
        self._by_source[source] -= 1
        if not self._by_source[source]:
            del self._by_source[source]


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
