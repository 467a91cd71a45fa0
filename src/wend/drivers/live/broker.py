"""The broker of a live peer: local subscriptions of clients, fan-out of deliveries, requests to the peer.

It knows nothing of connections. A listener (`listener.py` for `wend://`) translates between its clients and the
broker; several listeners can share one broker. Clients that want the same filter with the same quality of service share
one subscription of the peer, so the interest that the overlay learns does not grow with their number.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from wend.drivers.live.config import NeighbourEntry
from wend.drivers.live.given_links import GivenLinks
from wend.drivers.live.observer import Observer
from wend.drivers.live.peer import LivePeer
from wend.drivers.live.status import StatusSnapshot
from wend.matching.filters import parse
from wend.model.errors import ConfigError, Refused, WendError
from wend.model.events import MAX_DEADLINE_NS, Attributes, Headers, PeerId, Qos
from wend.model.units import SECOND
from wend.protocol.ports import Deliver, LocalSubscription, Receipt, Subscribed, Unsubscribed

log = logging.getLogger("wend.clients")

MAX_HANDLES = 100_000
TURN_S = 0.003
"""How long clients are served before the loop sees to sockets and timers again."""

Wanted = tuple[str, Qos]


class BrokerClient(Protocol):
    """A client of the broker: a connection of a listener."""

    def deliver(self, handle: int, effect: Deliver) -> None:
        """Take an event for the subscription that this client made as `handle`. It must not block or raise."""
        ...


class Broker(Observer):
    """Between one live peer and the clients of all its listeners."""

    def __init__(
        self,
        peer: LivePeer,
        *,
        experiments: bool = False,
        load_plan: Callable[[], Awaitable[int]] | None = None,
        links: GivenLinks | None = None,
    ) -> None:
        self.peer = peer
        self.scheduler = FairScheduler()
        self.counts: Counter[str] = Counter()
        """Of clients, by all listeners. `now` is how many are connected."""
        self._experiments = experiments
        self._load_plan = load_plan
        self._links = links
        self._handles: dict[BrokerClient, dict[int, Wanted]] = {}
        self._numbers: dict[Wanted, int] = {}
        self._subscribers: dict[int, dict[tuple[BrokerClient, int], None]] = {}
        self._next_number = 1
        peer.observe(self)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The filters that the peer subscribes to for clients."""
        return tuple(text for text, _ in self._numbers)

    # ---------------------------------------------------------------- subscriptions

    def subscribe(self, client: BrokerClient, handle: int, filter: str, qos: Qos) -> None:
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
        wanted = (filter, qos)
        number = self._numbers.get(wanted)
        if number is None:
            number = self._subscribe_peer(wanted)
        self._subscribers[number][client, handle] = None
        self._handles.setdefault(client, {})[handle] = wanted

    def unsubscribe(self, client: BrokerClient, handle: int) -> None:
        """End a subscription of a client; one that it does not have is no mistake."""
        wanted = self._handles.get(client, {}).pop(handle, None)
        if wanted is None:
            return
        number = self._numbers[wanted]
        subscribers = self._subscribers[number]
        del subscribers[client, handle]
        if not subscribers:
            del self._numbers[wanted], self._subscribers[number]
            try:
                self.peer.ask(Unsubscribed(number))
            except WendError as error:
                log.info("cannot unsubscribe from a peer that is closed: %s", error)

    def disconnect(self, client: BrokerClient) -> None:
        """End all subscriptions of a client that is gone."""
        for handle in list(self._handles.get(client, ())):
            self.unsubscribe(client, handle)
        self._handles.pop(client, None)

    def _subscribe_peer(self, wanted: Wanted) -> int:
        text, qos = wanted
        parse(text)
        number = self._next_number
        self.peer.ask(Subscribed(LocalSubscription(number, text, qos)))
        self._next_number += 1
        self._numbers[wanted], self._subscribers[number] = number, {}
        return number

    def delivered(self, effect: Deliver) -> None:
        """Hand an event to every client whose subscription it reached."""
        for client, handle in tuple(self._subscribers.get(effect.subscription.number, ())):
            client.deliver(handle, effect)

    # ---------------------------------------------------------------- requests to the peer

    def publish(self, attributes: Attributes, payload: bytes, headers: Headers) -> Receipt:
        return self.peer.publish(attributes, payload, headers)

    def status(self) -> StatusSnapshot:
        return msgspec.structs.replace(self.peer.status(), clients=dict(self.counts), subscriptions=len(self._numbers))

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

    async def load_plan(self) -> int:
        """Have the peer read its plan again and follow it; the plan's id."""
        if self._load_plan is None:
            raise Refused("this peer has no configuration to name a plan")
        return await self._load_plan()


class Worker(Protocol):
    def work(self, until: float) -> bool:
        """Work until then by the monotonic clock, or a little longer; whether some work is left."""
        ...


class FairScheduler:
    """Serves clients with many requests a few milliseconds at a time, in turn; the event loop runs in between."""

    def __init__(self) -> None:
        self._waiting: deque[Worker] = deque()

    def add(self, worker: Worker) -> None:
        """Let a worker work: at once if no other waits, else in turn. One that waits already must not be added."""
        self._waiting.append(worker)
        if len(self._waiting) == 1:
            self._run()

    def _run(self) -> None:
        until = time.monotonic() + TURN_S
        while self._waiting:
            worker = self._waiting[0]
            left = worker.work(until)
            self._waiting.popleft()
            if left:
                self._waiting.append(worker)
                asyncio.get_running_loop().call_soon(self._run)
                return
