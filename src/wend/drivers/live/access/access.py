"""Access: what a connection may do, under the grants and limits of its client and of the client's groups.

Limits bound the usage of this peer (`usage.py`): by a client over all of its connections, and by a group over all of
its clients. Every refusal is a `Refused`, and its code names the operator's counter.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from wend.drivers.live.access.grants import Rights, check_inbox, is_inbox
from wend.drivers.live.access.usage import DURABLE, RETAINED, KeptKey, PeerStorage, Usage
from wend.drivers.live.broker.retained import REPLY_TO
from wend.drivers.live.frames import DurableStatus
from wend.model.errors import Refused
from wend.model.events import Attributes, DurableOptions, Event, PeerId, Value, event_bytes

SEPARATOR = "/"
"""Separates the name of a client from the name of its durable subscription."""
MAX_REQUESTS = 4096
"""The most requests that a client has received and may still answer."""


class Access:
    """The access of one connection of a client."""

    def __init__(
        self, name: str, rights: Rights, usages: tuple[Usage, ...], clock_s: Callable[[], float], keeper: PeerStorage
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

    def count_publication(self, size: int) -> None:
        """Count a publication of this size, and check the rate."""
        now_s = self._clock_s()
        for usage in self._usages:
            usage.check_rate(now_s, size)
        for usage in self._usages:
            usage.count_publication(size)

    def check_retained(self, attribute: str, value: Value, size: int) -> None:
        """Check that an event of this size may be retained for this value."""
        self.check_replacement(attribute, value)
        for usage in self._usages:
            room = usage.available_bytes((RETAINED, attribute, value), size, self._keeper, self._clock_s())
            if room is not None and size > room:
                raise Refused(f"{usage.who} may keep {usage.limits.kept_bytes} bytes", code="kept-refused")

    def check_replacement(self, attribute: str, value: Value) -> None:
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
                usage.count_kept((RETAINED, attribute, value), event_bytes(event))

    def release_retained(self, attribute: str, value: Value) -> None:
        for usage in self._usages:
            usage.release_kept((RETAINED, attribute, value))

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
            usage.available_bytes(_backlog_key(name), durable.max_bytes, self._keeper, now_s) for usage in self._usages
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
            usage.count_kept(_backlog_key(durable.name), durable.max_bytes)

    def release_subscription(self, handle: int) -> None:
        if handle in self._handles:
            self._handles.discard(handle)
            for usage in self._usages:
                usage.subscriptions -= 1

    def release_durable(self, name: str) -> None:
        """Stop counting a durable subscription that is removed."""
        for usage in self._usages:
            usage.release_kept(_backlog_key(name))

    def full_name(self, name: str) -> str:
        """The full name of a durable subscription. It has the client's name, so no other client can take it over."""
        return f"{self.name}{SEPARATOR}{name}"

    def removable_name(self, name: str) -> str:
        """The durable subscription that the client may remove: its own, or as an administrator any by its full name."""
        return name if self.rights.admin and SEPARATOR in name else self.full_name(name)

    def visible_subscriptions(self, durable: Iterable[DurableStatus]) -> tuple[DurableStatus, ...]:
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


def _backlog_key(name: str) -> KeptKey:
    return (DURABLE, name, "")
