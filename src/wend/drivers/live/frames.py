"""The client protocol over TCP: frames of a length and a tagged message.

    frame = length 4 | msgpack

The first frame in each direction names the protocol version. The answer to a request repeats its number, so a client
can send several requests before the first answer. The size of a frame is bounded. Receivers ignore unknown fields.
`transport/wire.py` encodes and decodes frames.
"""

import msgspec

from wend.drivers.live.log_frames import LogPlace, Records
from wend.drivers.live.status import StatusSnapshot
from wend.model.events import Attributes, DurableOptions, Event, EventId, Headers, PeerId, Value
from wend.model.publication import Publication
from wend.model.units import Nanos

VERSION = 3
MAX_FRAME_BYTES = 384 * 1024

# ---------------------------------------------------------------- from the client


class Greet(msgspec.Struct, frozen=True, gc=False, tag="greet"):
    """The first frame: the version that the client speaks."""

    version: int = VERSION
    batches: bool = False
    """Whether the client accepts `Deliveries`."""
    token: str = ""
    """The token that `wend key token` made, from a client that connects by TLS without a certificate."""


class Publish(msgspec.Struct, frozen=True, gc=False, tag="publish"):
    """Publish an event; the answer is `Accepted`."""

    ref: int
    attributes: Attributes
    payload: bytes = b""
    headers: Headers = {}
    ttl_ns: Nanos | None = None
    """The age at which the event expires."""
    to: PeerId | None = None
    """The only peer that gets the event, for subscriptions that were not announced, such as the inbox of replies."""
    retain: str = ""
    """The name of an attribute. For each of its values, the peer retains the newest event for later subscriptions."""

    def publication(self) -> Publication:
        return Publication(self.attributes, self.payload, self.headers, self.ttl_ns, self.to, self.retain)


class PostedEvent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event of `Post`."""

    attributes: Attributes
    payload: bytes = b""
    headers: Headers = {}
    ttl_ns: Nanos | None = None
    retain: str = ""

    def publication(self) -> Publication:
        return Publication(self.attributes, self.payload, self.headers, self.ttl_ns, None, self.retain)


class Post(msgspec.Struct, frozen=True, gc=False, tag="post"):
    """Publish events in this order; one `Posted` answers them all."""

    ref: int
    events: tuple[PostedEvent, ...]


class Subscribe(msgspec.Struct, frozen=True, gc=False, tag="subscribe"):
    """Subscribe to the events that match a filter; the answer is `Completed`."""

    ref: int
    handle: int
    """The client's own number for the subscription, 1 or higher; deliveries repeat it."""
    filter: str
    deadline_ns: Nanos | None = None
    reliability: float | None = None
    order: bool = False
    """Whether the peer delivers events of one publisher in the order of their publication."""
    expire: bool = False
    """Whether the peer drops events that are past the deadline."""
    durable: DurableOptions | None = None
    """Makes the subscription durable. A subscription that exists under the same name is changed."""
    window: int = 256
    """The number of unconfirmed deliveries that the client of a durable subscription may have."""
    group: str = ""
    """The queue group: one of the subscriptions in the group, at any peer, gets each event. Empty: no group."""
    announced: bool = True
    """Whether other peers learn of the subscription. If not, it gets only events published for this peer alone."""
    retained: bool = True
    """Whether the client gets matching events that peers retain. Durable subscriptions and queue groups get none."""
    shared: bool = False
    """Whether the durable subscription has homes at other peers, too, where clients may have got events."""
    standby_ns: Nanos = 0
    """The age before which the peer does not deliver an event, because another home does so first."""
    factor: float | None = None
    """The deadline as a multiple of the shortest delay from the publisher's peer, instead of `deadline_ns`."""


class ReadLog(msgspec.Struct, frozen=True, gc=False, tag="read-log"):
    """Read the events of a log that match a filter, in the order of their positions, and then those that come; the
    answer is `Completed`. Deliveries name their positions. `Unsubscribe` ends it."""

    ref: int
    handle: int
    """As in `Subscribe`."""
    filter: str
    begin: LogPlace
    """Where to begin: with the first event of this place or later."""
    end: LogPlace | None = None
    """Where to end, with `Finished`: before the first event of this place or later."""
    log: str = ""
    """The name of the log; empty: the first one that has all events that the filter matches."""
    log_id: str = ""
    """The log to which the position of `begin` belongs; empty: any."""
    window: int = 1024
    """The most events that the client has not taken (`Continue`)."""
    deadline_ns: Nanos | None = None
    """The age from which deliveries are late."""
    records: bool = False
    """Whether the peer sends `Records` instead of deliveries, for clients that read many events."""
    order: bool = False
    """Whether events of one publisher must be in the order of publication; not all logs are."""


class Continue(msgspec.Struct, frozen=True, gc=False, tag="continue"):
    """The client has taken the events of a log up to this position. The peer does not answer."""

    handle: int
    position: int


class Confirm(msgspec.Struct, frozen=True, gc=False, tag="confirm"):
    """The client has processed these deliveries of a durable subscription. The peer does not answer."""

    handle: int
    positions: tuple[int, ...]
    ids: tuple[EventId, ...] = ()
    """Events that the client got at another home of the subscription."""


class StandBy(msgspec.Struct, frozen=True, gc=False, tag="stand-by"):
    """Deliver the events of a durable subscription from this age on; 0: at once. The peer does not answer."""

    handle: int
    standby_ns: Nanos


class Unsubscribe(msgspec.Struct, frozen=True, gc=False, tag="unsubscribe"):
    """End a subscription; the answer is `Completed`. A durable one stays at the peer and waits for a client."""

    ref: int
    handle: int


class PingFrame(msgspec.Struct, frozen=True, gc=False, tag="ping"):
    """Ask for a sign of life; the answer is `Completed`, after everything that the peer wrote before it."""

    ref: int


class Unretain(msgspec.Struct, frozen=True, gc=False, tag="unretain"):
    """Remove the event that the peer retains for this value of an attribute; the answer is `Completed`."""

    ref: int
    attribute: str
    value: Value


class AskStatus(msgspec.Struct, frozen=True, gc=False, tag="get-status"):
    """Ask for the status snapshot; the answer is `StatusFrame`."""

    ref: int


class ListSubscriptions(msgspec.Struct, frozen=True, gc=False, tag="list-subscriptions"):
    """Ask for the durable subscriptions of the peer; the answer is `Subscriptions`."""

    ref: int
    after: str = ""
    """The last name in the previous answer, to get the next page."""


class RemoveSubscription(msgspec.Struct, frozen=True, gc=False, tag="remove-subscription"):
    """Remove a durable subscription and its backlog; the answer is `Completed`."""

    ref: int
    name: str


class SetLink(msgspec.Struct, frozen=True, gc=False, tag="set-link"):
    """Cut or heal the link to a neighbour; the answer is `Completed`. The peer's file must allow experiments."""

    ref: int
    peer: PeerId
    up: bool


class AddLink(msgspec.Struct, frozen=True, gc=False, tag="add-link"):
    """Make a link to another neighbour; the answer is `Completed`."""

    ref: int
    peer: PeerId
    address: str
    delay: str = "20ms"
    """The expected one-way delay; measurements correct it."""
    reliability: float = 1.0


class RemoveLink(msgspec.Struct, frozen=True, gc=False, tag="remove-link"):
    """Remove the link to a neighbour; the answer is `Completed`."""

    ref: int
    peer: PeerId


class ForgetPeer(msgspec.Struct, frozen=True, gc=False, tag="forget-peer"):
    """Store no more events for a peer that is gone for good; the answer is `Completed`."""

    ref: int
    peer: PeerId


class LoadPlan(msgspec.Struct, frozen=True, gc=False, tag="load-plan"):
    """Read the plan that the peer's file names again, and follow it; the answer is `Following`."""

    ref: int


class PreparePlan(msgspec.Struct, frozen=True, gc=False, tag="prepare-plan"):
    """Send a piece of the peer's part of a plan; the answer is `Completed`. After the last piece the peer checks the
    part and holds it for a minute."""

    ref: int
    version: int
    """Must be higher than that of the plan that the peer follows."""
    data: bytes
    last: bool = True


class CommitPlan(msgspec.Struct, frozen=True, gc=False, tag="commit-plan"):
    """Follow the plan that the peer holds; the answer is `Following`."""

    ref: int
    plan: int
    version: int


class RevertPlan(msgspec.Struct, frozen=True, gc=False, tag="revert-plan"):
    """Drop a plan that the peer holds, or return to the previous one; the answer is `Completed`."""

    ref: int
    plan: int
    version: int


PlanRequest = LoadPlan | PreparePlan | CommitPlan | RevertPlan
Request = (
    Publish
    | Post
    | Subscribe
    | Unsubscribe
    | PingFrame
    | AskStatus
    | SetLink
    | AddLink
    | RemoveLink
    | ForgetPeer
    | PlanRequest
    | ListSubscriptions
    | RemoveSubscription
    | Unretain
    | ReadLog
)
Note = Confirm | StandBy | Continue
"""What a client says and wants no answer to."""
ToPeer = Greet | Note | Request

# ---------------------------------------------------------------- from the peer


class Welcome(msgspec.Struct, frozen=True, gc=False, tag="welcome"):
    """The answer to `Greet`: which peer this is."""

    peer: PeerId
    incarnation: int
    version: int = VERSION


class Accepted(msgspec.Struct, frozen=True, gc=False, tag="accepted", omit_defaults=True):
    """The receipt of a publication."""

    ref: int
    id: EventId
    targets: int
    """How many peers the event is for."""
    kept: bool
    """Whether the event survives a crash of this peer."""
    congested: bool = False
    """Whether the client should pause, because too much waits for a link of this peer."""
    repeated: bool = False
    """Whether the event was published before with the same key."""


class Posted(msgspec.Struct, frozen=True, gc=False, tag="posted", omit_defaults=True):
    """The receipt of a `Post`."""

    ref: int
    accepted: int
    """How many events the peer accepted."""
    refused: int = 0
    """How many the peer refused."""
    code: str = ""
    """Why the peer refused the first of these, for programs."""
    why: str = ""
    """The same as a sentence, for people."""
    congested: bool = False
    """As in `Accepted`."""


class Completed(msgspec.Struct, frozen=True, gc=False, tag="completed"):
    """The request was carried out."""

    ref: int


class StatusFrame(msgspec.Struct, frozen=True, gc=False, tag="status"):
    """The status snapshot of the peer."""

    ref: int
    status: StatusSnapshot


class Following(msgspec.Struct, frozen=True, gc=False, tag="following"):
    """The id of the plan that the peer follows from now on."""

    ref: int
    plan: int


class RefusedFrame(msgspec.Struct, frozen=True, gc=False, tag="refused"):
    """The peer did not carry out the request. With `ref` 0 it ends the connection."""

    ref: int
    code: str
    """What happened, for programs."""
    why: str
    """The same as a sentence, for people."""


class Delivery(msgspec.Struct, frozen=True, gc=False, tag="delivery", omit_defaults=True):
    """An event for a subscription of the client."""

    handle: int
    event: Event
    age_ns: Nanos
    """The time since publication, as the peers on the route added it up."""
    late: bool
    """Whether the age exceeds the deadline of the subscription."""
    position: int = 0
    """What the client of a durable subscription confirms, or the position in a log; 0 for other subscriptions."""
    redelivered: bool = False
    """Whether a client may have got the event before: it did not confirm the event, or the peer has lost records."""
    retained: bool = False
    """Whether the event is older than the subscription, and a peer retained it."""
    time_ns: Nanos = 0
    """When it was appended to the log that is read, as wall-clock time; 0 for other subscriptions."""


class Deliveries(msgspec.Struct, frozen=True, gc=False, tag="deliveries"):
    """Several deliveries in order, for a client that greeted with `batches`."""

    deliveries: tuple[Delivery, ...]


class MissedFrame(msgspec.Struct, frozen=True, gc=False, tag="missed", omit_defaults=True):
    """The number of events that this subscription will not get, by reason."""

    handle: int
    counts: dict[str, int]
    below: int = 0
    """For a log: the position before which they are missing."""


class Reading(msgspec.Struct, frozen=True, gc=False, tag="reading"):
    """Where the peer reads a log from."""

    handle: int
    log: str
    log_id: str
    """Names the log wherever it is: positions mean something only within one log."""
    position: int


class Finished(msgspec.Struct, frozen=True, gc=False, tag="finished"):
    """A log was read to the end that the client asked for."""

    handle: int


class Replaced(msgspec.Struct, frozen=True, gc=False, tag="replaced"):
    """Another client attached to the durable subscription; this client gets no more deliveries."""

    handle: int


class DurableStatus(msgspec.Struct, frozen=True):
    """A durable subscription of a peer."""

    name: str
    filter: str
    attached: bool
    """Whether a client is attached to it."""
    events: int
    """How many events wait or are unconfirmed."""
    bytes: int
    missed: dict[str, int] = {}
    """The number of lost events that no client has been told of yet, by reason."""


class Subscriptions(msgspec.Struct, frozen=True, gc=False, tag="subscriptions"):
    """The durable subscriptions of a peer, by name."""

    ref: int
    durable: tuple[DurableStatus, ...]
    more: bool = False
    """Whether there is another page."""


class Dropped(msgspec.Struct, frozen=True, gc=False, tag="dropped"):
    """The client read too slowly, and the peer dropped deliveries of this subscription."""

    handle: int
    count: int


Answer = Accepted | Posted | Completed | StatusFrame | Following | RefusedFrame | Subscriptions
Report = Dropped | MissedFrame | Replaced | Reading | Finished
"""About one subscription."""
ToClient = Welcome | Answer | Delivery | Deliveries | Records | Report
