"""The durable subscriptions of a peer, as its broker serves them.

A durable subscription belongs to no client. A client attaches to it by its name, and takes it over from the client that
was attached. The peer itself stores the events that wait (`protocol/delivery/durable.py`).
"""

from typing import TYPE_CHECKING, NamedTuple

from wend.drivers.live.client.subscribe_options import check_durable
from wend.drivers.live.frames import DurableStatus
from wend.drivers.live.logs.peer_logs import FIRST_NUMBER
from wend.drivers.live.peer import LivePeer
from wend.matching.filters import parse
from wend.model.errors import ClientError, Refused
from wend.model.units import Nanos
from wend.protocol.delivery.durable import Backlog
from wend.protocol.ports import Attached, Detached, LocalSubscription, Subscribed, Unsubscribed

if TYPE_CHECKING:
    from wend.drivers.live.broker.broker import BrokerClient, Subscriber

MAX_DURABLE = 10_000
MAX_WINDOW = 10_000


class Window(NamedTuple):
    """How many events a client of a durable subscription may receive before it confirms some, and from which age."""

    events: int
    """The most unconfirmed events."""
    standby_ns: Nanos = 0
    is_shared: bool = False
    """These two as in `Attached`."""


class DurableAttachments:
    """The durable subscriptions by name and by number, and the client that is attached to each."""

    def __init__(self, peer: LivePeer) -> None:
        self._peer = peer
        self._numbers: dict[str, int] = {}
        self._attached: dict[int, Subscriber] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def restore(self) -> int:
        """Take over the durable subscriptions from the peer's store. Returns the highest number among them, or 0."""
        backlogs = self._peer.peer.durable
        numbers = [number for number in backlogs if number < FIRST_NUMBER]  # the others are those of logs
        self._numbers.update((backlogs[number].options.name, number) for number in numbers)
        return max(numbers, default=0)

    def make_or_change(self, request: LocalSubscription) -> int:
        """Make or change a subscription. A new one gets the number of the request. Returns the number of the
        subscription. Raises `FilterError` or `Refused`."""
        assert request.durable is not None
        parse(request.filter)
        name = request.durable.name
        try:
            check_durable(request.durable)
        except ClientError as error:
            raise Refused(str(error), code="invalid-subscription") from None
        if name not in self._numbers and len(self._numbers) >= MAX_DURABLE:
            sentence = f"this peer has {MAX_DURABLE} durable subscriptions and takes no more"
            raise Refused(sentence, code="too-many-subscriptions")
        number = self._numbers.get(name, request.number)
        self._peer.ask(Subscribed(LocalSubscription(number, request.filter, request.qos, request.durable)))
        self._numbers[name] = number
        return number

    def find_subscriber(self, number: int) -> "Subscriber | None":
        """The client that is attached, with its handle."""
        return self._attached.get(number)

    def attach(self, number: int, subscriber: "Subscriber", window: Window) -> None:
        self._attached[number] = subscriber
        events = min(window.events, MAX_WINDOW)
        self._peer.ask(Attached(number, events, standby_ns=window.standby_ns, is_shared=window.is_shared))

    def detach(self, client: "BrokerClient", number: int) -> None:
        attached = self._attached.get(number)
        if attached is not None and attached[0] is client:
            del self._attached[number]
            self._peer.tell(Detached(number))

    def find_number(self, name: str) -> int:
        """The number of a subscription. Raises `Refused` if no subscription has this name."""
        number = self._numbers.get(name)
        if number is None:
            raise Refused(f"this peer has no durable subscription {name!r}", code="unknown-subscription")
        return number

    def remove(self, name: str) -> None:
        """Remove a subscription without a client, and the events that wait for it."""
        self._peer.ask(Unsubscribed(self._numbers.pop(name)))

    def status(self) -> tuple[DurableStatus, ...]:
        """The status of all subscriptions, by name."""
        backlogs = self._peer.peer.durable
        numbers = [number for _, number in sorted(self._numbers.items()) if number in backlogs]
        return tuple(self._backlog_status(backlogs[number]) for number in numbers)

    def _backlog_status(self, backlog: Backlog) -> DurableStatus:
        missed = {str(reason): count for reason, count in backlog.unreported.items()}
        return DurableStatus(
            backlog.options.name,
            backlog.subscription.filter,
            backlog.id.number in self._attached,
            len(backlog.entries),
            backlog.size,
            missed,
        )
