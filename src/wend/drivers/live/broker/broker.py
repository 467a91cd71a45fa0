"""The broker of a live peer: local subscriptions of clients, fan-out of deliveries, requests to the peer.

It knows nothing of connections. A listener (`listener.py` for `wend://`) translates between its clients and the
broker; several listeners can share one broker. Clients that want the same filter with the same quality of service share
one subscription of the peer, so the interest that the overlay learns does not grow with their number. A durable
subscription belongs to no client: a client attaches to it by its name, and takes it over from one that was attached.
"""

import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import msgspec

from wend.drivers.live import frames
from wend.drivers.live.addressing.given_links import GivenLinks
from wend.drivers.live.broker.fair_scheduler import FairScheduler
from wend.drivers.live.broker.retained import RetainedExchange
from wend.drivers.live.broker.signed_events import SignedEvents
from wend.drivers.live.client.subscribe_options import check_durable
from wend.drivers.live.clock import monotonic
from wend.drivers.live.config import NeighbourEntry
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.plans.followed_plan import FollowedPlan
from wend.drivers.live.status import StatusSnapshot
from wend.matching.filters import parse
from wend.model.errors import ClientError, ConfigError, Refused, WendError
from wend.model.events import (
    MAX_DEADLINE_NS,
    MAX_GROUP_CHARS,
    Attributes,
    DurableOptions,
    Event,
    Headers,
    PeerId,
    Qos,
    Value,
)
from wend.model.units import SECOND, Nanos
from wend.protocol.delivery.durable import Backlog
from wend.protocol.delivery.queue_groups import group_bytes
from wend.protocol.notices import MissedReason
from wend.protocol.ports import (
    Attached,
    Confirmed,
    Deliver,
    Detached,
    LocalSubscription,
    Missed,
    Receipt,
    Subscribed,
    Unsubscribed,
)

if TYPE_CHECKING:  # only peers with keys need ciphers
    from wend.drivers.live.access.key_files import KeyFolder

log = logging.getLogger("wend.clients")

MAX_HANDLES = 100_000
MAX_DURABLE = 10_000
MAX_WINDOW = 10_000
MAX_GROUPS_BYTES = 8 * 1024
"""The names of all queue groups at one peer. Events carry the names of all groups that want them."""
_UNNAMED = "this peer's strategy does not name the destinations of events, so {}"

USUAL = Qos()
Wanted = str | tuple[str, Qos, bool]
"""A filter; with the quality of service and whether it is announced, where these are not the usual ones. There may be
very many."""
Subscriber = tuple["BrokerClient", int]
"""A client, and its handle for the subscription."""


class BrokerClient(Protocol):
    """A client of the broker: a connection of a listener."""

    @property
    def stalled(self) -> bool:
        """Whether it takes deliveries more slowly than they come."""
        ...

    def deliver(self, handle: int, effect: Deliver) -> None:
        """Take an event for the subscription that this client made as `handle`. It must not block or raise."""
        ...

    def missed(self, handle: int, counts: dict[MissedReason, int]) -> None:
        """The subscription will not get some events."""
        ...

    def replaced(self, handle: int) -> None:
        """Another client attached to the durable subscription."""
        ...


class Broker(Observer):
    """Between one live peer and the clients of all its listeners."""

    def __init__(
        self,
        peer: LivePeer,
        *,
        experiments: bool = False,
        plan: FollowedPlan | None = None,
        links: GivenLinks | None = None,
        keys: "KeyFolder | None" = None,
        signs: bool = False,
    ) -> None:
        """`signs`: whether it signs what its clients publish, with the peer's `keys`."""
        self.peer = peer
        self.scheduler = FairScheduler()
        self.counts: Counter[str] = Counter()
        """Of clients, by all listeners. `now` is how many are connected."""
        self.signatures = SignedEvents(self.counts, keys, signs=signs)
        self.stopping = False
        self._experiments = experiments
        self.plan = plan
        self._links = links
        self._handles: dict[BrokerClient, dict[int, Wanted | int]] = {}
        """By client and handle: what it wants, or the number of a durable subscription."""
        self._numbers: dict[Wanted, int] = {}
        self._subscribers: dict[int, Subscriber | dict[Subscriber, None]] = {}
        """By number: the only subscriber, which most subscriptions have, or all of them."""
        self._shared: dict[int, str] = {}
        """The numbers of subscriptions of queue groups, and the groups."""
        self._groups: Counter[str] = Counter()
        """How many such subscriptions each group has."""
        self._next_number = 1
        self._durable: dict[str, int] = {}
        """By name: the number of the durable subscription."""
        self._attached: dict[int, tuple[BrokerClient, int]] = {}
        """By number of a durable subscription: its client."""
        self.retained = RetainedExchange(self)
        peer.observe(self)

    def begin(self) -> None:
        """Take over the durable subscriptions that the peer found in its store; to be called once it runs."""
        for number, backlog in self.peer.peer.durable.items():
            self._durable[backlog.options.name] = number
            self._next_number = max(self._next_number, number + 1)
        if len(self.peer.peer.retained):
            self.retained.offer()

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The filters that the peer subscribes to for clients."""
        return tuple(wanted if isinstance(wanted, str) else wanted[0] for wanted in self._numbers)

    # ---------------------------------------------------------------- subscriptions

    def subscribe(
        self,
        client: BrokerClient,
        handle: int,
        filter: str,
        qos: Qos,
        durable: DurableOptions | None = None,
        window: int = 1,
        announced: bool = True,
    ) -> None:
        """Subscribe a client, which numbers its subscriptions by handles. Raises `FilterError` or `Refused`."""
        handles = self._handles.get(client, {})
        if handle in handles:
            raise Refused(f"subscription {handle} exists already")
        if len(handles) >= MAX_HANDLES:
            raise Refused(f"a client may have {MAX_HANDLES} subscriptions")
        if qos.deadline_ns is not None and not 0 < qos.deadline_ns <= MAX_DEADLINE_NS:
            raise Refused(f"a deadline must be above 0 and up to {MAX_DEADLINE_NS // SECOND} s")
        if qos.reliability is not None and not 0.0 < qos.reliability <= 1.0:
            raise Refused("a reliability must lie above 0 and up to 1")
        if qos.order and not self.peer.peer.names_everyone:
            raise Refused(_UNNAMED.format("it cannot keep their order"))
        if qos.group:
            self._check_group(qos, durable)
        if not announced:
            if not self.peer.peer.names_everyone:
                raise Refused(_UNNAMED.format("nobody can reply to a client"))
            if durable is not None or qos.group:
                raise Refused("a subscription that is not announced is for replies: it has no name and no queue group")
        if durable is not None:
            self._attach(client, handle, LocalSubscription(0, filter, qos, durable), window)
            return
        wanted = filter if qos == USUAL and announced else (filter, qos, announced)
        number = self._numbers.get(wanted)
        if number is None:
            number = self._subscribe_peer(wanted)
            self._subscribers[number] = (client, handle)
        else:
            others = self._subscribers[number]
            if isinstance(others, tuple):
                self._subscribers[number] = others = {others: None}
            others[client, handle] = None
        self._handles.setdefault(client, {})[handle] = wanted

    def _check_group(self, qos: Qos, durable: DurableOptions | None) -> None:
        if not self.peer.peer.names_everyone:
            raise Refused(_UNNAMED.format("queue groups cannot share them"))
        if len(qos.group) > MAX_GROUP_CHARS:
            raise Refused(f"the name of a queue group may have {MAX_GROUP_CHARS} characters")
        if durable is not None or qos.order:
            what = "ordered" if durable is None else "durable"
            raise Refused(f"a member of a queue group gets some of the events, so it cannot be {what}")
        if qos.group not in self._groups and sum(map(group_bytes, (*self._groups, qos.group))) > MAX_GROUPS_BYTES:
            raise Refused(f"the names of all queue groups of a peer may have {MAX_GROUPS_BYTES} bytes")

    def unsubscribe(self, client: BrokerClient, handle: int) -> None:
        """End a subscription of a client; one that it does not have is no mistake."""
        wanted = self._handles.get(client, {}).pop(handle, None)
        if wanted is None:
            return
        self.retained.ended(client, handle)
        if isinstance(wanted, int):
            self._detach(client, wanted)
            return
        number = self._numbers[wanted]
        others = self._subscribers[number]
        if isinstance(others, dict):
            del others[client, handle]
        if isinstance(others, tuple) or not others:
            del self._numbers[wanted], self._subscribers[number]
            self._leave_group(number)
            try:
                self.peer.ask(Unsubscribed(number))
            except WendError as error:
                log.info("cannot unsubscribe from a peer that is closed: %s", error)

    def _leave_group(self, number: int) -> None:
        group = self._shared.pop(number, None)
        if group is not None:
            self._groups[group] -= 1
            if not self._groups[group]:
                del self._groups[group]

    def disconnect(self, client: BrokerClient) -> None:
        """End all subscriptions of a client that is gone.

        While the peer stops they stay: the peer decides which ones it withdraws.
        """
        if self.stopping:
            return
        for handle in list(self._handles.get(client, ())):
            self.unsubscribe(client, handle)
        self._handles.pop(client, None)

    # ---------------------------------------------------------------- durable subscriptions

    def _attach(self, client: BrokerClient, handle: int, wanted: LocalSubscription, window: int) -> None:
        """Attach a client to the durable subscription of that name, which is made or changed if need be."""
        assert wanted.durable is not None
        parse(wanted.filter)
        name = wanted.durable.name
        try:
            check_durable(wanted.durable)
        except ClientError as error:
            raise Refused(str(error)) from None
        number = self._durable.get(name)
        if number is None:
            if len(self._durable) >= MAX_DURABLE:
                raise Refused(f"this peer has {MAX_DURABLE} durable subscriptions and takes no more")
            number, self._next_number = self._next_number, self._next_number + 1
        self.peer.ask(Subscribed(LocalSubscription(number, wanted.filter, wanted.qos, wanted.durable)))
        self._durable[name] = number
        if number in self._attached:
            other, its_handle = self._attached[number]
            self.unsubscribe(other, its_handle)
            other.replaced(its_handle)
        self._attached[number] = (client, handle)
        self._handles.setdefault(client, {})[handle] = number
        self.peer.ask(Attached(number, min(window, MAX_WINDOW)))

    def _detach(self, client: BrokerClient, number: int) -> None:
        attached = self._attached.get(number)
        if attached is not None and attached[0] is client:
            del self._attached[number]
            self.peer.tell(Detached(number))

    def confirm(self, client: BrokerClient, handle: int, positions: tuple[int, ...]) -> None:
        """A client has processed deliveries. One that is not attached any more confirms nothing."""
        number = self._handles.get(client, {}).get(handle)
        if isinstance(number, int):
            self.peer.tell(Confirmed(number, positions))

    def has_durable(self, name: str) -> bool:
        return name in self._durable

    def durable(self) -> tuple[frames.DurableStatus, ...]:
        """The durable subscriptions, by name."""
        known = self.peer.peer.durable
        return tuple(self._status(known[number]) for _, number in sorted(self._durable.items()) if number in known)

    def _status(self, backlog: Backlog) -> frames.DurableStatus:
        missed = {str(reason): count for reason, count in backlog.unreported.items()}
        return frames.DurableStatus(
            backlog.options.name,
            backlog.subscription.filter,
            backlog.id.number in self._attached,
            len(backlog.entries),
            backlog.size,
            missed,
        )

    def remove(self, name: str) -> None:
        """Remove a durable subscription, with the events that wait for it."""
        number = self._durable.get(name)
        if number is None:
            raise Refused(f"this peer has no durable subscription {name!r}")
        if number in self._attached:
            client, handle = self._attached[number]
            self.unsubscribe(client, handle)
            client.replaced(handle)
        del self._durable[name]
        self.peer.ask(Unsubscribed(number))

    # ---------------------------------------------------------------- subscriptions of the peer, and deliveries

    def _subscribe_peer(self, wanted: Wanted) -> int:
        text, qos, announced = (wanted, USUAL, True) if isinstance(wanted, str) else wanted
        parse(text)
        number = self._next_number
        self.peer.ask(Subscribed(LocalSubscription(number, text, qos, announced=announced)))
        self._next_number += 1
        self._numbers[wanted] = number
        if qos.group:
            self._shared[number] = qos.group
            self._groups[qos.group] += 1
        return number

    def delivered(self, effect: Deliver) -> None:
        """Hand an event to every client whose subscription it reached."""
        if effect.position:
            attached = self._attached.get(effect.subscription.number)
            if attached is not None:
                self._hand(*attached, effect)
            return
        number = effect.subscription.number
        if number in self._shared:
            self._hand(*self._next_member(number), effect)
            return
        for client, handle in self._subscribers_of(number):
            self._hand(client, handle, effect)
            self.retained.delivered(client, handle, effect.event.id)

    def _hand(self, client: BrokerClient, handle: int, effect: Deliver) -> None:
        """Hand an event to a client, with the name of who signed it. Answers about retained events carry the signature
        of another event, which is verified later."""
        if effect.event.headers and client is not self.retained:
            event = self.signatures.verified(effect.event, monotonic())
            effect = effect if event is effect.event else effect.of(event)
        client.deliver(handle, effect)

    def _subscribers_of(self, number: int) -> tuple[Subscriber, ...]:
        found = self._subscribers.get(number)
        if found is None:
            return ()
        return (found,) if isinstance(found, tuple) else tuple(found)

    def _next_member(self, number: int) -> Subscriber:
        """The client of a queue group whose turn it is. Those that read too slowly are passed over, if not all do."""
        members = self._subscribers[number]
        if isinstance(members, tuple):
            return members
        waiting = list(members)
        chosen = next((member for member in waiting if not member[0].stalled), waiting[0])
        del members[chosen]
        members[chosen] = None
        return chosen

    def missed(self, effect: Missed) -> None:
        """Tell the clients of a subscription what it misses."""
        number = effect.subscription.number
        if number in self._attached:
            client, handle = self._attached[number]
            client.missed(handle, effect.counts)
        for client, handle in self._subscribers_of(number):
            client.missed(handle, effect.counts)

    # ---------------------------------------------------------------- requests to the peer

    def publish(
        self,
        attributes: Attributes,
        payload: bytes,
        headers: Headers,
        ttl_ns: Nanos | None = None,
        to: PeerId | None = None,
        retain: str = "",
    ) -> Receipt:
        if retain:
            if to is not None:
                raise Refused("an event for one peer alone cannot be retained")
            if not self.peer.peer.names_everyone:
                raise Refused(_UNNAMED.format("nobody could ask for events that it retains"))
            if retain not in attributes:
                raise Refused(f"the event is to be retained by its attribute {retain!r}, which it does not have")
            self.retained.offer()
        if headers or self.signatures.signs:
            headers = self.signatures.signed(self.peer.peer.next_id, attributes, payload, headers)
        return self.peer.publish(attributes, payload, headers, ttl_ns, to, retain)

    def held(self, attribute: str, value: Value) -> Event | None:
        """The event that the peer retains for this value of an attribute."""
        return self.peer.held(attribute, value)

    def status(self) -> StatusSnapshot:
        plan = None if self.plan is None else self.plan.status()
        counts, subscriptions = dict(self.counts), len(self._numbers)
        return msgspec.structs.replace(self.peer.status(), clients=counts, subscriptions=subscriptions, plan=plan)

    def set_link(self, neighbour: PeerId, up: bool) -> None:
        """Cut or heal the link to a neighbour, for experiments."""
        if not self._experiments:
            raise Refused("this peer allows no experiments: set experiments = true in its configuration")
        try:
            (self.peer.heal if up else self.peer.cut)(neighbour)
        except ConfigError as error:
            raise Refused(str(error)) from None

    def add_link(self, entry: NeighbourEntry) -> None:
        """Link the peer with one more neighbour."""
        try:
            self._given_links().add(entry)
        except ConfigError as error:
            raise Refused(str(error)) from None

    def remove_link(self, neighbour: PeerId) -> None:
        """End the link with a neighbour for good."""
        try:
            self._given_links().remove(neighbour)
        except ConfigError as error:
            raise Refused(str(error)) from None

    def _given_links(self) -> GivenLinks:
        if self._links is None:
            raise Refused("this peer's links cannot be changed: no file describes them")
        return self._links

    def followed_plan(self) -> FollowedPlan:
        """What decides which plan the peer follows."""
        if self.plan is None:
            raise Refused("this peer has no configuration to name a plan")
        return self.plan
