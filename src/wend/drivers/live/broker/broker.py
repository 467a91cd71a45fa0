"""The broker of a live peer: local subscriptions of clients, fan-out of deliveries, publications.

The broker knows no connections. A listener (`listener.py` for `wend://`) translates between its clients and the broker.
Clients with the same filter and quality of service share one subscription of the peer, so the interest that the overlay
learns does not grow with the number of clients.
"""

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import msgspec

from wend.drivers.live.addressing.given_links import GivenLinks
from wend.drivers.live.broker.administration import Administration
from wend.drivers.live.broker.durable_attachments import DurableAttachments, Window
from wend.drivers.live.broker.fair_scheduler import FairScheduler
from wend.drivers.live.broker.log_readers import LogReaders
from wend.drivers.live.broker.retained import RetainedExchange
from wend.drivers.live.broker.signed_events import SignedEvents
from wend.drivers.live.clock import monotonic
from wend.drivers.live.logs.peer_logs import PeerLogs
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.plans.followed_plan import FollowedPlan
from wend.drivers.live.status import StatusSnapshot
from wend.matching.filters import parse
from wend.model.errors import Refused, WendError
from wend.model.events import (
    KEY_HEADER,
    MAX_DEADLINE_NS,
    MAX_FACTOR,
    MAX_GROUP_CHARS,
    DurableOptions,
    Event,
    EventId,
    Qos,
    Value,
    event_bytes,
)
from wend.model.publication import Publication
from wend.model.units import SECOND, Nanos
from wend.protocol.delivery.queue_groups import group_bytes
from wend.protocol.notices import MissedCode
from wend.protocol.ports import (
    Confirmed,
    Deliver,
    LocalSubscription,
    Missed,
    Receipt,
    StandbyChanged,
    Subscribed,
    Unsubscribed,
)

if TYPE_CHECKING:  # only peers with keys need ciphers
    from wend.drivers.live.access.access import Access
    from wend.drivers.live.access.key_files import KeyFolder

log = logging.getLogger("wend.clients")

MAX_HANDLES = 100_000
MAX_GROUPS_BYTES = 8 * 1024
"""The limit for the names of all queue groups at one peer, because events carry the names of groups."""
_UNNAMED = "this peer's strategy does not name the destinations of events, so {}"

USUAL = Qos()
SharedKey = str | tuple[str, Qos, bool]
"""The key under which clients share a subscription: the filter, with the quality of service and whether it is announced
if these are not the usual ones. There may be very many keys, so the usual ones are small."""
Subscriber = tuple["BrokerClient", int]
"""A client, and its handle for the subscription."""


class BrokerClient(Protocol):
    """A client of the broker: a connection of a listener."""

    @property
    def is_stalled(self) -> bool:
        """Whether deliveries come faster than the client takes them."""
        ...

    def deliver(self, handle: int, effect: Deliver) -> None:
        """Receive an event for the subscription `handle`. Must not block or raise."""
        ...

    def on_missed(self, handle: int, counts: dict[MissedCode, int]) -> None:
        """Called when the subscription will not get some events, with their number by reason."""
        ...

    def on_replaced(self, handle: int) -> None:
        """Called when another client has attached to the durable subscription."""
        ...


class Departure:
    """A client that has left, with the subscriptions that it still has."""

    def __init__(self, broker: "Broker", client: BrokerClient, handles: list[int]) -> None:
        self._broker = broker
        self._client = client
        self._handles = handles

    def work(self, until: float) -> bool:
        """End subscriptions until this time. Returns whether some are left (`FairScheduler`)."""
        while self._handles:
            self._broker.unsubscribe(self._client, self._handles.pop())
            if time.monotonic() >= until:
                return True
        self._broker.forget_client(self._client)
        return False


class Broker:
    """Serves the clients of one live peer."""

    def __init__(
        self,
        peer: LivePeer,
        *,
        experiments: bool = False,
        plan: FollowedPlan | None = None,
        links: GivenLinks | None = None,
        keys: "KeyFolder | None" = None,
        signs: bool = False,
        logs: PeerLogs | None = None,
    ) -> None:
        """`signs`: whether it signs the events of its clients with the peer's `keys`. `logs`: what clients may read."""
        self.peer = peer
        self.scheduler = FairScheduler()
        self.counts: Counter[str] = Counter()
        """Counters about clients. `now` is the number of connected clients."""
        self.signatures = SignedEvents(self.counts, keys, signs=signs)
        self.administration = Administration(peer, plan, links, experiments=experiments)
        self.durable = DurableAttachments(peer)
        self.logs = logs
        self.readers = LogReaders(logs, self.scheduler, self.signatures)
        self.stopping = False
        self._handles: dict[BrokerClient, dict[int, SharedKey | int]] = {}
        """By client and handle: the key of a shared subscription, or the number of a durable subscription."""
        self._numbers: dict[SharedKey, int] = {}
        self._subscribers: dict[int, Subscriber | dict[Subscriber, None]] = {}
        """By number: all subscribers, or the only one, which is what most subscriptions have."""
        self._group_of: dict[int, str] = {}
        """By number: the queue group of a subscription."""
        self._groups: Counter[str] = Counter()
        """The number of subscriptions of each queue group."""
        self._next_number = 1
        self.retained = RetainedExchange(self)
        peer.serve(self)

    def restore_durable(self) -> None:
        """Take over the durable subscriptions from the peer's store. Call it once the peer runs."""
        self._next_number = max(self._next_number, self.durable.restore() + 1)
        if len(self.peer.peer.retained):
            self.retained.announce()

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The filters that the peer subscribes to for clients."""
        return tuple(key if isinstance(key, str) else key[0] for key in self._numbers)

    def status(self) -> StatusSnapshot:
        return msgspec.structs.replace(
            self.peer.status(),
            clients=dict(self.counts),
            subscriptions=len(self._numbers),
            plan=self.administration.plan_status(),
            logs={} if self.logs is None else self.logs.status(),
        )

    # ---------------------------------------------------------------- subscriptions of clients

    def subscribe(
        self,
        client: BrokerClient,
        handle: int,
        filter: str,
        qos: Qos,
        durable: DurableOptions | None = None,
        window: Window = Window(1),  # noqa: B008
        announced: bool = True,
    ) -> None:
        """Subscribe a client. It chooses the handle. Raises `FilterError` or `Refused`."""
        handles = self._handles.get(client, {})
        if handle in handles:
            raise Refused(f"subscription {handle} exists already", code="invalid-subscription")
        if len(handles) >= MAX_HANDLES:
            raise Refused(f"a client may have {MAX_HANDLES} subscriptions", code="too-many-subscriptions")
        _check_qos(qos)
        if qos.factor is not None:
            self._check_knows_all_subscribers("it cannot resolve a relative deadline")
        if qos.order:
            self._check_knows_all_subscribers("it cannot keep their order")
        if qos.group:
            self._check_group(qos, durable)
        if not announced:
            self._check_knows_all_subscribers("nobody can reply to a client")
            if durable is not None or qos.group:
                sentence = "a subscription that is not announced is for replies: it has no name and no queue group"
                raise Refused(sentence, code="invalid-subscription")
        if durable is not None:
            self._attach_durable(client, handle, LocalSubscription(self._next_number, filter, qos, durable), window)
            return
        key = filter if qos == USUAL and announced else (filter, qos, announced)
        number = self._numbers.get(key)
        if number is None:
            self._subscribers[self._subscribe_peer(key)] = (client, handle)
        else:
            others = self._subscribers[number]
            if isinstance(others, tuple):
                self._subscribers[number] = others = {others: None}
            others[client, handle] = None
        self._handles.setdefault(client, {})[handle] = key

    def _check_knows_all_subscribers(self, otherwise: str) -> None:
        if not self.peer.peer.knows_all_subscribers:
            raise Refused(_UNNAMED.format(otherwise), code="not-supported")

    def _check_group(self, qos: Qos, durable: DurableOptions | None) -> None:
        self._check_knows_all_subscribers("queue groups cannot share them")
        if len(qos.group) > MAX_GROUP_CHARS:
            raise Refused(
                f"the name of a queue group may have {MAX_GROUP_CHARS} characters", code="invalid-subscription"
            )
        if durable is not None or qos.order:
            what = "ordered" if durable is None else "durable"
            raise Refused(
                f"a member of a queue group gets some of the events, so it cannot be {what}",
                code="invalid-subscription",
            )
        if qos.group not in self._groups and sum(map(group_bytes, (*self._groups, qos.group))) > MAX_GROUPS_BYTES:
            sentence = f"the names of all queue groups of a peer may have {MAX_GROUPS_BYTES} bytes"
            raise Refused(sentence, code="too-many-subscriptions")

    def _subscribe_peer(self, key: SharedKey) -> int:
        text, qos, announced = (key, USUAL, True) if isinstance(key, str) else key
        parse(text)
        number = self._next_number
        self.peer.ask(Subscribed(LocalSubscription(number, text, qos, announced=announced)))
        self._next_number += 1
        self._numbers[key] = number
        if qos.group:
            self._group_of[number] = qos.group
            self._groups[qos.group] += 1
        return number

    def _attach_durable(self, client: BrokerClient, handle: int, request: LocalSubscription, window: Window) -> None:
        """Attach a client to a durable subscription, and make or change the subscription if necessary."""
        number = self.durable.make_or_change(request)
        self._next_number = max(self._next_number, number + 1)
        self._replace_client(number)
        self._handles.setdefault(client, {})[handle] = number
        self.durable.attach(number, (client, handle), window)

    def _replace_client(self, number: int) -> None:
        """Detach the client of a durable subscription, and notify it."""
        attached = self.durable.find_subscriber(number)
        if attached is not None:
            client, handle = attached
            self.unsubscribe(client, handle)
            client.on_replaced(handle)

    def unsubscribe(self, client: BrokerClient, handle: int) -> None:
        """End a subscription of a client, if the client has it."""
        self.readers.end(client, handle)
        key = self._handles.get(client, {}).pop(handle, None)
        if key is None:
            return
        self.retained.on_ended(client, handle)
        if isinstance(key, int):
            self.durable.detach(client, key)
            return
        number = self._numbers[key]
        others = self._subscribers[number]
        if isinstance(others, dict):
            del others[client, handle]
        if isinstance(others, tuple) or not others:
            del self._numbers[key], self._subscribers[number]
            self._leave_group(number)
            try:
                self.peer.ask(Unsubscribed(number))
            except WendError as error:
                log.info("cannot unsubscribe from a peer that is closed: %s", error)

    def _leave_group(self, number: int) -> None:
        group = self._group_of.pop(number, None)
        if group is not None:
            self._groups[group] -= 1
            if not self._groups[group]:
                del self._groups[group]

    def disconnect(self, client: BrokerClient) -> None:
        """End all subscriptions of a client that has left: at once those whose events others may get, and the rest in
        turn with the requests of other clients. While the peer stops they stay: the peer decides which ones it
        withdraws."""
        self.readers.disconnect(client)
        if self.stopping:
            return
        left: list[int] = []
        for handle, key in list(self._handles.get(client, {}).items()):
            if isinstance(key, int) or self._numbers[key] in self._group_of:
                self.unsubscribe(client, handle)
            else:
                left.append(handle)
        self.scheduler.add(Departure(self, client, left))

    def forget_client(self, client: BrokerClient) -> None:
        """Forget a client without subscriptions."""
        self._handles.pop(client, None)

    def confirm_deliveries(
        self, client: BrokerClient, handle: int, positions: tuple[int, ...], ids: tuple[EventId, ...] = ()
    ) -> None:
        """Confirm deliveries of a durable subscription, if the client is still attached to it."""
        number = self._handles.get(client, {}).get(handle)
        if isinstance(number, int):
            self.peer.tell(Confirmed(number, positions, ids))

    def stand_by(self, client: BrokerClient, handle: int, standby_ns: Nanos) -> None:
        """Deliver events from this age on, if the client is attached to the durable subscription."""
        number = self._handles.get(client, {}).get(handle)
        if isinstance(number, int):
            self.peer.tell(StandbyChanged(number, standby_ns))

    def remove_durable(self, name: str) -> None:
        """Remove a durable subscription, with the events that wait for it."""
        self._replace_client(self.durable.find_number(name))
        self.durable.remove(name)

    # ---------------------------------------------------------------- what the peer hands over (`LocalSubscribers`)

    def deliver(self, delivery: Deliver) -> None:
        """Hand an event to every client whose subscription it reached."""
        number = delivery.subscription.number
        if delivery.position:
            attached = self.durable.find_subscriber(number)
            if attached is not None:
                self._hand_to_clients(*attached, delivery)
            return
        if number in self._group_of:
            self._hand_to_clients(*self._choose_member(number), delivery)
            return
        for client, handle in self._find_subscribers(number):
            self._hand_to_clients(client, handle, delivery)
            self.retained.on_delivered(client, handle, delivery.event.id)

    def _hand_to_clients(self, client: BrokerClient, handle: int, delivery: Deliver) -> None:
        """Hand an event to a client, with the name of its signer. An answer about a retained event carries the
        signature of that event, which is verified later."""
        if delivery.event.headers and client is not self.retained:
            event = self.signatures.verify(delivery.event, monotonic())
            delivery = delivery if event is delivery.event else delivery.with_event(event)
        client.deliver(handle, delivery)

    def _find_subscribers(self, number: int) -> tuple[Subscriber, ...]:
        subscribers = self._subscribers.get(number)
        if subscribers is None:
            return ()
        return (subscribers,) if isinstance(subscribers, tuple) else tuple(subscribers)

    def _choose_member(self, number: int) -> Subscriber:
        """Choose the next member of a queue group in turn. Members that read too slowly are skipped, unless all do."""
        members = self._subscribers[number]
        if isinstance(members, tuple):
            return members
        waiting = list(members)
        chosen = next((member for member in waiting if not member[0].is_stalled), waiting[0])
        del members[chosen]
        members[chosen] = None
        return chosen

    def report_missed(self, missed: Missed) -> None:
        """Notify the clients of a subscription of the events that it misses."""
        number = missed.subscription.number
        attached = self.durable.find_subscriber(number)
        for client, handle in (*([] if attached is None else [attached]), *self._find_subscribers(number)):
            client.on_missed(handle, missed.counts)

    # ---------------------------------------------------------------- publications

    def publish(self, publication: Publication, access: "Access | None" = None) -> Receipt:
        """Publish for a client. Without `access` the client may do everything. Raises `WendError` if the event is
        refused."""
        if access is not None:
            _check_access(publication, access)
            if KEY_HEADER in publication.headers:
                publication = _add_client_to_key(publication, access.name)
        if publication.retain:
            self._check_retained(publication)
            self.retained.announce()
        if publication.headers or self.signatures.is_signing:
            publication = self.signatures.sign(self.peer.peer.next_id, publication)
        receipt = self.peer.publish(publication)
        if access is not None and publication.retain:
            access.record_retained(publication.retain, publication.attributes[publication.retain])
        return receipt

    def _check_retained(self, publication: Publication) -> None:
        if publication.to is not None:
            raise Refused("an event for one peer alone cannot be retained", code="invalid-event")
        self._check_knows_all_subscribers("nobody could ask for events that it retains")
        attribute = publication.retain
        if attribute not in publication.attributes:
            sentence = f"the event is to be retained by its attribute {attribute!r}, which it does not have"
            raise Refused(sentence, code="invalid-event")

    # ---------------------------------------------------------------- what the peer keeps (`PeerStorage`)

    def retained_event(self, attribute: str, value: Value) -> Event | None:
        """The event that the peer retains for this value of an attribute."""
        return self.peer.retained_event(attribute, value)

    def has_durable(self, name: str) -> bool:
        return name in self.durable


def _check_qos(qos: Qos) -> None:
    if qos.deadline_ns is not None and not 0 < qos.deadline_ns <= MAX_DEADLINE_NS:
        raise Refused(
            f"a deadline must be above 0 and up to {MAX_DEADLINE_NS // SECOND} s", code="invalid-subscription"
        )
    if qos.factor is not None and not 1.0 <= qos.factor <= MAX_FACTOR:
        raise Refused(
            f"a deadline is at least 1 x the shortest delay, and up to {MAX_FACTOR:g} x", code="invalid-subscription"
        )
    if qos.reliability is not None and not 0.0 < qos.reliability <= 1.0:
        raise Refused("a reliability must lie above 0 and up to 1", code="invalid-subscription")


def _add_client_to_key(publication: Publication, client: str) -> Publication:
    """Keep the keys of clients apart, so that none suppresses the events of another."""
    headers = {**publication.headers, KEY_HEADER: f"{client}/{publication.headers[KEY_HEADER]}"}
    return msgspec.structs.replace(publication, headers=headers)


def _check_access(publication: Publication, access: "Access") -> None:
    """Check an event against the client's grants and limits, and count it. Raises `Refused`."""
    attributes, retain = publication.attributes, publication.retain
    if publication.to is None:
        access.check_publication(attributes)
    else:
        access.check_reply(attributes.get("topic"), publication.to)
    size = event_bytes(publication)
    access.count_publication(size)
    if retain and retain in attributes:
        access.check_retained(retain, attributes[retain], size)
