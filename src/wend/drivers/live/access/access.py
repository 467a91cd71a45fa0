"""Access: what a connection may do, under the grants and limits of its client and of the client's groups.

Limits bound the usage of this peer: by a client over all of its connections, and by a group over all of its clients.
Usage outlives connections, so that a client gains nothing by connecting again. With a limit of bytes, retained events
count for as long as the peer retains them, until it restarts. Every refusal is a `Refused`, and its code names the
operator's counter.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from wend.drivers.live.access.grants import Rights, UsageLimits, check_inbox, is_inbox
from wend.drivers.live.broker.retained import REPLY_TO
from wend.drivers.live.frames import DurableStatus
from wend.model.errors import Refused
from wend.model.events import Attributes, DurableOptions, Event, PeerId, Value, event_bytes
from wend.security.token_buckets import TokenBucket

SEPARATOR = "/"
"""Separates the name of a client from the name of its durable subscription."""
MAX_REQUESTS = 4096
"""The most requests that a client has received and may still answer."""
_RETAINED, _DURABLE = "retained", "durable"
KeptKey = tuple[str, str, Value]
"""Names a retained event by its attribute and value, or a durable subscription by its name."""
MAX_KEPT = 20_000
"""With more entries than this, entries that the peer no longer keeps are removed."""
LOOK_S = 1.0
"""The shortest time between two such removals."""


class Keeper(Protocol):
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
        self._looked_s = now_s - LOOK_S
        self.events = _bucket(limits.events_per_s, now_s)
        self.bytes = _bucket(limits.bytes_per_s, now_s)

    def change(self, limits: UsageLimits, now_s: float) -> None:
        """Use other limits. Earlier usage still counts."""
        if limits != self.limits:
            self.limits = limits
            self.events = _with_rate(self.events, limits.events_per_s, now_s)
            self.bytes = _with_rate(self.bytes, limits.bytes_per_s, now_s)

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

    def spend(self, size: int) -> None:
        if self.events is not None:
            self.events.spend(1.0)
        if self.bytes is not None:
            self.bytes.spend(size)

    # ---------------------------------------------------------------- what the peer keeps

    def keep(self, key: KeptKey, size: int) -> None:
        """Count the bytes kept under this key. Without a limit, retained events are not counted, to save memory."""
        if key[0] == _DURABLE or self.limits.kept_bytes is not None:
            self.release(key)
            self._kept[key] = size
            self._kept_bytes += size

    def release(self, key: KeptKey) -> None:
        self._kept_bytes -= self._kept.pop(key, 0)

    def available_bytes(self, key: KeptKey, size: int, keeper: Keeper, now_s: float) -> int | None:
        """The number of bytes that may be kept under this key, for a request of this size; None for any number. Raises
        `Refused` if there is no room."""
        limit = self.limits.kept_bytes
        if limit is None:
            return None
        if (
            self._remaining_bytes(limit, key) < size or len(self._kept) > MAX_KEPT
        ) and now_s >= self._looked_s + LOOK_S:
            self._looked_s = now_s
            self._release_removed(keeper)
        left = self._remaining_bytes(limit, key)
        if left <= 0:
            raise Refused(f"{self.who} may keep {limit} bytes, and they are in use", code="kept-refused")
        return left

    def _release_removed(self, keeper: Keeper) -> None:
        """Release entries that the peer has dropped, that have expired, or that another client has removed."""
        for key in list(self._kept):
            kind, name, value = key
            is_kept = keeper.has_durable(name) if kind == _DURABLE else keeper.retained_event(name, value) is not None
            if not is_kept:
                self.release(key)

    def _remaining_bytes(self, limit: int, key: KeptKey) -> int:
        return limit - self._kept_bytes + self._kept.get(key, 0)


def _bucket(rate_per_s: float | None, now_s: float) -> TokenBucket | None:
    return None if rate_per_s is None else TokenBucket(rate_per_s, _burst(rate_per_s), now_s)


def _burst(rate_per_s: float) -> float:
    return max(1.0, rate_per_s) if rate_per_s else 0.0


def _with_rate(bucket: TokenBucket | None, rate_per_s: float | None, now_s: float) -> TokenBucket | None:
    """The bucket with another rate. It keeps its level, so alternating between two certificates gains nothing."""
    if bucket is None or rate_per_s is None:
        return _bucket(rate_per_s, now_s)
    bucket.change(rate_per_s, _burst(rate_per_s), now_s)
    return bucket


class Access:
    """The access of one connection of a client."""

    def __init__(
        self, name: str, rights: Rights, usages: tuple[Usage, ...], clock_s: Callable[[], float], keeper: Keeper
    ) -> None:
        self.name = name
        self._keeper = keeper
        self.rights = rights
        self._usages = usages
        self._clock_s = clock_s
        self._handles: set[int] = set()
        self._requests: OrderedDict[tuple[str, PeerId], None] = OrderedDict()
        """The inboxes of received requests, with their peers, oldest first."""
        self._closed = False
        for usage in usages:
            usage.check_connection()
        for usage in usages:
            usage.connections += 1

    def close(self) -> None:
        """Release the usage of a connection that has ended. Durable subscriptions and retained events stay."""
        if self._closed:
            return
        self._closed = True
        for usage in self._usages:
            usage.connections -= 1
            usage.subscriptions -= len(self._handles)
        self._handles.clear()

    def check_admin(self) -> None:
        if not self.rights.admin:
            raise Refused("this client may not administer the peer", code="admin-refused")

    # ---------------------------------------------------------------- publications

    def check_publication(self, attributes: Attributes) -> None:
        """Check an event for all subscribers."""
        self.rights.check_publication(attributes)

    def check_reply(self, topic: Value | None, to: PeerId) -> None:
        """Check an event addressed to one peer, which must be a reply."""
        if not isinstance(topic, str) or (topic, to) not in self._requests:
            raise Refused("this client may reply only to requests that it has received", code="reply-refused")

    def spend(self, size: int) -> None:
        """Count a publication of this size, and check the rate."""
        now_s = self._clock_s()
        for usage in self._usages:
            usage.check_rate(now_s, size)
        for usage in self._usages:
            usage.spend(size)

    def check_retained(self, attribute: str, value: Value, size: int) -> None:
        """Check that an event of this size may be retained for this value."""
        self.check_replace(attribute, value)
        for usage in self._usages:
            room = usage.available_bytes((_RETAINED, attribute, value), size, self._keeper, self._clock_s())
            if room is not None and size > room:
                raise Refused(f"{usage.who} may keep {usage.limits.kept_bytes} bytes", code="kept-refused")

    def check_replace(self, attribute: str, value: Value) -> None:
        """Check that this client may replace or remove the event that is retained for a value."""
        former = self._keeper.retained_event(attribute, value)
        if former is not None and not self.rights.admin and not self.rights.may_publish(former.attributes):
            raise Refused(
                "the event that is retained for this value is not this client's to change", code="publish-refused"
            )

    def record_retained(self, attribute: str, value: Value) -> None:
        """Count an event of this client that the peer retains."""
        event = self._keeper.retained_event(attribute, value)
        if event is not None:
            for usage in self._usages:
                usage.keep((_RETAINED, attribute, value), event_bytes(event))

    def record_removed(self, attribute: str, value: Value) -> None:
        for usage in self._usages:
            usage.release((_RETAINED, attribute, value))

    # ---------------------------------------------------------------- subscriptions

    def grant_subscription(
        self, text: str, durable: DurableOptions | None, announced: bool
    ) -> tuple[str, DurableOptions | None]:
        """Restrict a requested subscription to the client's grants, and return it. Raises `Refused` or
        `FilterError`."""
        for usage in self._usages:
            usage.check_subscription()
        if not announced:
            check_inbox(text)
            return text, durable
        granted = self.rights.granted_filter(text)
        if durable is None:
            return granted, None
        name = self.full_name(durable.name)
        now_s = self._clock_s()
        rooms = [
            usage.available_bytes(_backlog(name), durable.max_bytes, self._keeper, now_s) for usage in self._usages
        ]
        size = min([durable.max_bytes, *(room for room in rooms if room is not None)])
        return granted, msgspec.structs.replace(durable, name=name, max_bytes=size)

    def record_subscription(self, handle: int, durable: DurableOptions | None) -> None:
        """Count a subscription that the broker has made."""
        self._handles.add(handle)
        for usage in self._usages:
            usage.subscriptions += 1
        if durable is not None:
            self.record_durable(durable)

    def record_durable(self, durable: DurableOptions) -> None:
        """Count the backlog of a durable subscription of the client."""
        for usage in self._usages:
            usage.keep(_backlog(durable.name), durable.max_bytes)

    def end_subscription(self, handle: int) -> None:
        if handle in self._handles:
            self._handles.discard(handle)
            for usage in self._usages:
                usage.subscriptions -= 1

    def remove_durable(self, name: str) -> None:
        """Stop counting a durable subscription that is removed."""
        for usage in self._usages:
            usage.release(_backlog(name))

    def full_name(self, name: str) -> str:
        """The full name of a durable subscription. It has the client's name, so no other client can take it over."""
        return f"{self.name}{SEPARATOR}{name}"

    def removable_name(self, name: str) -> str:
        """The durable subscription that the client may remove: its own, or as an administrator any by its full name."""
        return name if self.rights.admin and SEPARATOR in name else self.full_name(name)

    def visible(self, durable: Iterable[DurableStatus]) -> tuple[DurableStatus, ...]:
        """The durable subscriptions that the client may see: its own, or as an administrator all."""
        if self.rights.admin:
            return tuple(durable)
        prefix = self.full_name("")
        return tuple(
            msgspec.structs.replace(one, name=one.name.removeprefix(prefix))
            for one in durable
            if one.name.startswith(prefix)
        )

    # ---------------------------------------------------------------- deliveries

    def may_receive(self, event: Event, durable: bool) -> bool:
        """Whether an event may be delivered. A backlog may have events that are no longer granted. It remembers
        requests, so that the client may answer them."""
        if durable and not self.rights.may_receive(event.attributes):
            return False
        inbox, slash, _ = event.headers.get(REPLY_TO, "").rpartition("/") if event.headers else ("", "", "")
        if slash and is_inbox(inbox):
            request = inbox, (event.origin or event.id).publisher
            self._requests[request] = None
            self._requests.move_to_end(request)
            if len(self._requests) > MAX_REQUESTS:
                self._requests.popitem(last=False)
        return True


def _backlog(name: str) -> KeptKey:
    return (_DURABLE, name, "")
