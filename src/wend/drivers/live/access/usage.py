"""The usage of a peer by a client or a group, and the limits on it.

Usage outlives connections, so that a client gains nothing by connecting again. With a limit of bytes, retained events
count for as long as the peer retains them, until it restarts. Every refusal is a `Refused`, and its code names the
operator's counter.
"""

from typing import Protocol

from wend.drivers.live.access.grants import UsageLimits
from wend.model.errors import Refused
from wend.model.events import Event, Value
from wend.security.token_buckets import TokenBucket

RETAINED, DURABLE = "retained", "durable"
KeptKey = tuple[str, str, Value]
"""Names a retained event by its attribute and value, or a durable subscription by its name."""
MAX_KEPT = 20_000
"""With more entries than this, entries that the peer no longer keeps are removed."""
CHECK_S = 1.0
"""The shortest time between two such removals."""


class PeerStorage(Protocol):
    """A store of events and subscriptions for clients: the peer."""

    def retained_event(self, attribute: str, value: Value) -> Event | None:
        """The event that it retains for a value of an attribute."""
        ...

    def has_durable(self, name: str) -> bool:
        """Whether it has a durable subscription of this name."""
        ...


class Usage:
    """The usage of a peer by a client or a group, and its limits."""

    def __init__(self, who: str, limits: UsageLimits, now_s: float) -> None:
        self.who = who
        """The client or group, as the subject of a sentence."""
        self.limits = limits
        self.connections = 0
        self.subscriptions = 0
        self._kept: dict[KeptKey, int] = {}
        """Bytes of durable subscriptions, as their limits reserve them, and of retained events."""
        self._kept_bytes = 0
        self._looked_s = now_s - CHECK_S
        self.events = _make_bucket(limits.events_per_s, now_s)
        self.bytes = _make_bucket(limits.bytes_per_s, now_s)

    def change_limits(self, limits: UsageLimits, now_s: float) -> None:
        """Use other limits. Earlier usage still counts."""
        if limits != self.limits:
            self.limits = limits
            self.events = _change_rate(self.events, limits.events_per_s, now_s)
            self.bytes = _change_rate(self.bytes, limits.bytes_per_s, now_s)

    def is_idle(self, now_s: float) -> bool:
        """Whether this can be dropped without losing information."""
        buckets = (self.events, self.bytes)
        return not (self.connections or self.subscriptions or self._kept) and all(
            bucket is None or bucket.is_full(now_s) for bucket in buckets
        )

    def check_connection(self) -> None:
        limit = self.limits.connections
        if limit is not None and self.connections >= limit:
            raise Refused(f"{self.who} may have {limit} connections", code="connections-refused")

    def check_subscription(self) -> None:
        limit = self.limits.subscriptions
        if limit is not None and self.subscriptions >= limit:
            raise Refused(f"{self.who} may have {limit} subscriptions", code="subscriptions-refused")

    def check_rate(self, now_s: float, size: int) -> None:
        limits = self.limits
        if self.events is not None and not self.events.has_tokens(now_s, 1.0):
            raise Refused(f"{self.who} may publish {limits.events_per_s:g} events a second", code="rate-refused")
        if self.bytes is not None and not self.bytes.has_tokens(now_s, size):
            raise Refused(f"{self.who} may publish {limits.bytes_per_s:g} bytes a second", code="rate-refused")

    def count_publication(self, size: int) -> None:
        if self.events is not None:
            self.events.spend(1.0)
        if self.bytes is not None:
            self.bytes.spend(size)

    # ---------------------------------------------------------------- what the peer keeps

    def count_kept(self, key: KeptKey, size: int) -> None:
        """Count the bytes kept under this key. Without a limit, retained events are not counted, to save memory."""
        if key[0] == DURABLE or self.limits.kept_bytes is not None:
            self.release_kept(key)
            self._kept[key] = size
            self._kept_bytes += size

    def release_kept(self, key: KeptKey) -> None:
        self._kept_bytes -= self._kept.pop(key, 0)

    def available_bytes(self, key: KeptKey, size: int, keeper: PeerStorage, now_s: float) -> int | None:
        """The number of bytes that may be kept under this key, for a request of this size; None for any number. Raises
        `Refused` if there is no room."""
        limit = self.limits.kept_bytes
        if limit is None:
            return None
        if (
            self._remaining_bytes(limit, key) < size or len(self._kept) > MAX_KEPT
        ) and now_s >= self._looked_s + CHECK_S:
            self._looked_s = now_s
            self._release_removed(keeper)
        left = self._remaining_bytes(limit, key)
        if left <= 0:
            raise Refused(f"{self.who} may keep {limit} bytes, and they are in use", code="kept-refused")
        return left

    def _release_removed(self, keeper: PeerStorage) -> None:
        """Release entries that the peer has dropped, that have expired, or that another client has removed."""
        for key in list(self._kept):
            kind, name, value = key
            is_kept = keeper.has_durable(name) if kind == DURABLE else keeper.retained_event(name, value) is not None
            if not is_kept:
                self.release_kept(key)

    def _remaining_bytes(self, limit: int, key: KeptKey) -> int:
        return limit - self._kept_bytes + self._kept.get(key, 0)


def _make_bucket(rate_per_s: float | None, now_s: float) -> TokenBucket | None:
    return None if rate_per_s is None else TokenBucket(rate_per_s, _burst_size(rate_per_s), now_s)


def _burst_size(rate_per_s: float) -> float:
    return max(1.0, rate_per_s) if rate_per_s else 0.0


def _change_rate(bucket: TokenBucket | None, rate_per_s: float | None, now_s: float) -> TokenBucket | None:
    """The bucket with another rate. It keeps its level, so alternating between two certificates gains nothing."""
    if bucket is None or rate_per_s is None:
        return _make_bucket(rate_per_s, now_s)
    bucket.set_limits(rate_per_s, _burst_size(rate_per_s), now_s)
    return bucket
