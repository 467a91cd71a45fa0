"""The inputs and effects of a peer.

A driver turns a datagram, a timer or a call of the application into an input. It passes the input to
`Peer.handle(now, input)` and carries out the effects in order. `now` is the driver's monotonic time in
nanoseconds; the peer has no other clock. The input of a publication is the `Publication` itself.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from wend.model.events import DurableOptions, Event, EventId, PeerId, Qos, SubscriptionId, Value
from wend.model.paths import Path
from wend.model.publication import Publication
from wend.model.units import Nanos
from wend.protocol.messages import Message
from wend.protocol.notices import DropCode, MissedCode, NoticeName, RefusalCode
from wend.protocol.records import Record

if TYPE_CHECKING:  # a plan is arrays in files; most peers read none
    from wend.model.forwarding import Forwarding

# ---------------------------------------------------------------- inputs


class Neighbour(msgspec.Struct, frozen=True, gc=False):
    """A given link, with estimates of its delay and reliability."""

    peer: PeerId
    delay_ns: Nanos
    reliability: float = 1.0
    wait_ns: Nanos = 0
    """The longest time that data queues for the link. ACK timeouts include it."""
    control_waits: bool = True
    """Whether control messages queue with data."""


class LocalSubscription(msgspec.Struct, frozen=True, gc=False):
    """A subscription of the application."""

    number: int
    filter: str
    qos: Qos = Qos()
    durable: DurableOptions | None = None
    """If set, the subscription outlives the client's connection and, with a store, the peer's process."""
    announced: bool = True
    """Whether it is announced to other peers. If not, it gets only events that are published for this peer alone."""
    logged: bool = False
    """Whether a log of the driver takes the events. The driver stores an event before it carries out later effects, so
    the delivery comes before the record that ends the peer's responsibility."""


class Started(msgspec.Struct, frozen=True, gc=False):
    """The first input: the peer's neighbours, interest and stored records."""

    neighbours: tuple[Neighbour, ...]
    """The linked peers or, if a membership makes the links, the reachable peers."""
    subscriptions: tuple[LocalSubscription, ...] = ()
    advertisements: tuple[str, ...] = ()
    stored: tuple[Record, ...] = ()
    """The records that `Persist` effects of earlier incarnations stored, in order."""
    lost_records: bool = False
    """Whether `stored` may lack records of earlier incarnations, because the store was damaged or is new."""
    contacts_follow: bool = False
    """Whether the driver knows only addresses of peers to join by. It reports each that answers as `ContactFound`."""


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message arrived."""

    sender: PeerId
    message: Message


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """The driver cannot send a message: it is too large or cannot be encoded. The link itself works."""

    peer: PeerId
    message: Message


class Woken(msgspec.Struct, frozen=True, gc=False):
    """The time of `WakeAt` has come. A spurious wake-up is harmless."""


class Paused(msgspec.Struct, frozen=True, gc=False):
    """The peer's process did not run for this time, or its host was too busy to read packets. So silence in this time
    is no evidence of an outage."""

    ns: Nanos


class Advertised(msgspec.Struct, frozen=True, gc=False):
    """The application will publish events that match the filter. Others are sent a little later."""

    filter: str


class Subscribed(msgspec.Struct, frozen=True, gc=False):
    """The application subscribes."""

    subscription: LocalSubscription


class Unsubscribed(msgspec.Struct, frozen=True, gc=False):
    """The application ends a subscription, and the backlog of a durable one."""

    number: int


class Unretained(msgspec.Struct, frozen=True, gc=False):
    """The application asks the peer to forget the event retained for this value of an attribute."""

    attribute: str
    value: Value


class Attached(msgspec.Struct, frozen=True, gc=False):
    """A client attaches to a durable subscription to receive its events."""

    number: int
    window: int
    """The most unconfirmed events that the client gets."""
    window_bytes: int = 8 * 1024 * 1024
    """The most unconfirmed bytes, not counting the last event."""
    standby_ns: Nanos = 0
    """The age before which an event is not sent, because another home of the subscription sends it first."""
    is_shared: bool = False
    """Whether the subscription has other homes, so that clients may have got the events there."""


class StandbyChanged(msgspec.Struct, frozen=True, gc=False):
    """The client of a durable subscription gets events from another age on; 0: at once."""

    number: int
    standby_ns: Nanos


class Detached(msgspec.Struct, frozen=True, gc=False):
    """The client of a durable subscription has detached. The next client gets the unconfirmed events again."""

    number: int


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """The client of a durable subscription has processed the events at these positions."""

    number: int
    positions: tuple[int, ...]
    ids: tuple[EventId, ...] = ()
    """Events that the client got elsewhere, at another home of the subscription."""


class Delayed(msgspec.Struct, frozen=True, gc=False):
    """A delivery has waited in the driver, and can be made now. The answer is a `Deliver`, unless it has expired."""

    delivery: "Deliver"
    waited_ns: Nanos


class Planned(msgspec.Struct, frozen=True, gc=False):
    """This peer publishes by this plan from now on. Packets in transit follow the plan that they started with."""

    plan: "Forwarding | None"
    """The plan; None if the peer no longer follows one."""
    publish: bool = True
    """Whether the peer publishes by this plan. If not, it only forwards packets of peers that do. It forgets the plan
    if no peer uses it for a minute."""


class Stopping(msgspec.Struct, frozen=True, gc=False):
    """The peer is about to stop. It withdraws its interest unless it will be back. If it will be back, its durable
    subscriptions stay announced and, with persistence, all its subscriptions do."""

    away_ns: Nanos = 0
    """How long other peers store events for it; 0: it leaves for good."""


class PathFound(msgspec.Struct, frozen=True, gc=False):
    """The answer to `FindPath`. An incomplete path ends with None; a path that cannot be measured is None."""

    peer: PeerId
    path: Path | None


class ContactFound(msgspec.Struct, frozen=True, gc=False):
    """A peer answers at an address that this one is to join by. Repeated after that peer has restarted.

    If it is this peer itself, all the addresses are its own, so it is the first peer of the overlay."""

    peer: PeerId


class LinkAdded(msgspec.Struct, frozen=True, gc=False):
    """The driver adds a link. This is an error if a membership makes the links."""

    neighbour: Neighbour


class LinkRemoved(msgspec.Struct, frozen=True, gc=False):
    """A given link is gone for good. The peer sends the packets in flight over it on other routes."""

    peer: PeerId


class PeerForgotten(msgspec.Struct, frozen=True, gc=False):
    """A peer is gone for good: nobody stores events for it any more. If it runs after all, it announces its interest
    again."""

    peer: PeerId


Input = (
    Started
    | Received
    | Unsent
    | Woken
    | Paused
    | Publication
    | Advertised
    | Subscribed
    | Unsubscribed
    | Unretained
    | Attached
    | StandbyChanged
    | Detached
    | Confirmed
    | Delayed
    | PathFound
    | ContactFound
    | LinkAdded
    | LinkRemoved
    | PeerForgotten
    | Planned
    | Stopping
)

# ---------------------------------------------------------------- effects


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a peer."""

    peer: PeerId
    message: Message


class SendEach(msgspec.Struct, frozen=True, gc=False):
    """Send one message to each of these peers."""

    peers: tuple[PeerId, ...]
    message: Message


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Deliver an event to a subscription of the application."""

    subscription: SubscriptionId
    event: Event
    age_ns: Nanos
    """The age of the event, summed up hop by hop. A driver with one clock knows it exactly."""
    deadline_ns: Nanos | None
    position: int = 0
    """The position in the backlog of a durable subscription, for `Confirmed`; 0 for other subscriptions."""
    again: bool = False
    """Whether a client may have got the event before: it did not confirm it, or the peer has lost records."""
    retained: bool = False
    """Whether a peer retained the event, which was published before the subscription."""

    def delayed_by(self, waited_ns: Nanos) -> "Deliver":
        """The delivery with its age increased by a waiting time."""
        age = self.age_ns + waited_ns
        return Deliver(self.subscription, self.event, age, self.deadline_ns, self.position, self.again, self.retained)

    def with_event(self, event: Event) -> "Deliver":
        """The delivery of the event with other headers."""
        how = (self.deadline_ns, self.position, self.again, self.retained)
        return Deliver(self.subscription, event, self.age_ns, *how)


class Missed(msgspec.Struct, frozen=True, gc=False):
    """Events that a subscription will not get, counted by reason."""

    subscription: SubscriptionId
    counts: dict[MissedCode, int]


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The result of a publication: the destinations, and whether the event survives a crash of this peer (`kept`)."""

    id: EventId
    targets: tuple[PeerId, ...]
    kept: bool
    congested: bool = False
    """Whether the send queue of a link is so long that the publisher should pause."""
    is_repeated: bool = False
    """Whether the event was published before with the same key. Then this is the receipt of that event."""


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Wake the peer at this time. The newest request counts; a wake-up for an older, earlier request is harmless."""

    time_ns: Nanos


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Store a record. The next incarnation gets it with `Started`."""

    record: Record


class Drop(msgspec.Struct, frozen=True, gc=False):
    """The peer drops an event for these destinations, for the reason that the code names."""

    id: EventId
    dests: tuple[PeerId, ...]
    code: DropCode


class Notice(msgspec.Struct, frozen=True, gc=False):
    """Something to count and report; `notices.py` lists all notices."""

    what: NoticeName
    peer: PeerId
    count: int = 1


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """The peer refuses a message or a call because its sender made a mistake. It counts this and never raises."""

    peer: PeerId
    code: RefusalCode
    detail: str = ""
    """The invalid value, if the code does not imply it."""


class FindPath(msgspec.Struct, frozen=True, gc=False):
    """Find the routers on the underlay path to this peer. The answer is `PathFound`."""

    peer: PeerId


class JoinMulticast(msgspec.Struct, frozen=True, gc=False):
    """Start to receive multicasts to this group."""

    group: str


class LeaveMulticast(msgspec.Struct, frozen=True, gc=False):
    """Stop receiving multicasts to this group."""

    group: str


class Multicast(msgspec.Struct, frozen=True, gc=False):
    """Send one message to all other peers that joined the group and that multicast reaches. It is not acknowledged, and
    may be lost for some of them.

    Receivers get it like a plain message. The driver reports `Unsent` with this peer's own id if the message is too
    large for a datagram."""

    group: str
    message: Any
    """From a plug-in: one of its messages. From the peer: a `PlainMessage` that contains it."""


class MulticastMembers(msgspec.Struct, frozen=True, gc=False):
    """These peers, with their incarnations, may send and receive multicasts of a group. The keeper is one of them.

    If peers have keys, the keeper makes the key of the group, and a new one whenever the members change. A driver
    without keys ignores this effect."""

    group: str
    keeper: PeerId
    members: tuple[tuple[PeerId, int], ...]


Effect = (
    Send
    | SendEach
    | Deliver
    | Missed
    | Receipt
    | WakeAt
    | Persist
    | Drop
    | Notice
    | Refuse
    | FindPath
    | JoinMulticast
    | LeaveMulticast
    | Multicast
    | MulticastMembers
)
