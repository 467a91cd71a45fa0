"""The client protocol over TCP: frames of a length and a tagged message.

    frame = length 4 | msgpack

The first frame in each direction names the protocol version. A request carries a number that its answer repeats, so a
client can send several requests before the first answer. Frames are bounded, unknown fields are ignored, and bytes that
cannot be read are a `WireError`. `transport/wire.py` encodes and decodes them.
"""

import msgspec

from wend.drivers.live.status import StatusSnapshot
from wend.model.events import Attributes, DurableOptions, Event, EventId, Headers, PeerId, Value
from wend.model.publication import Publication
from wend.model.units import Nanos

VERSION = 2
MAX_FRAME_BYTES = 384 * 1024

# ---------------------------------------------------------------- from the client


class Greet(msgspec.Struct, frozen=True, gc=False, tag="greet"):
    """The first frame: the version that the client speaks."""

    version: int = VERSION
    batches: bool = False
    """Whether the client takes `Deliveries`."""
    token: str = ""
    """By TLS, from a client without a certificate: the token that `wend key token` made for it."""


class Publish(msgspec.Struct, frozen=True, gc=False, tag="publish"):
    """Publish an event; the answer is `Accepted`."""

    ref: int
    attributes: Attributes
    payload: bytes = b""
    headers: Headers = {}
    ttl_ns: Nanos | None = None
    """The age from which on nobody needs the event."""
    to: PeerId | None = None
    """Set: the event is for subscriptions at this peer alone that were not announced, as a reply is for an inbox."""
    retain: str = ""
    """The name of an attribute: the peer retains the newest event for each of its values, for later subscriptions."""

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
    """Publish events, in this order; the answer to all of them is `Posted`."""

    ref: int
    events: tuple[PostedEvent, ...]


class Subscribe(msgspec.Struct, frozen=True, gc=False, tag="subscribe"):
    """Subscribe to the events that match a filter; the answer is `Completed`."""

    ref: int
    handle: int
    """The client's own number for the subscription, from 1 on; deliveries repeat it."""
    filter: str
    deadline_ns: Nanos | None = None
    reliability: float | None = None
    order: bool = False
    """Whether events of one publisher come in the order of their publication."""
    expire: bool = False
    """Whether the peer drops events that are past the deadline."""
    durable: DurableOptions | None = None
    """Set: the subscription has a name and waits for its client. It is made, or changed, or found again by its name."""
    window: int = 256
    """Of a durable subscription: how many deliveries the client gets that it has not confirmed."""
    group: str = ""
    """The queue group: of all subscriptions with this group, at any peers, one gets each event; empty: none."""
    announced: bool = True
    """Whether other peers are told of it. If not, it gets only events that are published for this peer alone."""
    retained: bool = True
    """Whether it gets matching events that peers retain. Durable subscriptions and queue groups get none."""


class Confirm(msgspec.Struct, frozen=True, gc=False, tag="confirm"):
    """The client has processed these deliveries of a durable subscription. There is no answer."""

    handle: int
    positions: tuple[int, ...]


class Unsubscribe(msgspec.Struct, frozen=True, gc=False, tag="unsubscribe"):
    """End a subscription; the answer is `Completed`. A durable one stays at the peer and waits for its client."""

    ref: int
    handle: int


class PingFrame(msgspec.Struct, frozen=True, gc=False, tag="ping"):
    """The answer is `Completed`, after everything that the peer wrote before."""

    ref: int


class Unretain(msgspec.Struct, frozen=True, gc=False, tag="unretain"):
    """Forget the event that the peer retains for this value of an attribute; the answer is `Completed`."""

    ref: int
    attribute: str
    value: Value


class AskStatus(msgspec.Struct, frozen=True, gc=False, tag="status?"):
    """Ask for the status snapshot; the answer is `StatusFrame`."""

    ref: int


class ListSubscriptions(msgspec.Struct, frozen=True, gc=False, tag="subscriptions?"):
    """Ask for the durable subscriptions of the peer; the answer is `Subscriptions`."""

    ref: int
    after: str = ""
    """The last name of the answer before, if there are more."""


class RemoveSubscription(msgspec.Struct, frozen=True, gc=False, tag="remove"):
    """Remove a durable subscription and its backlog; the answer is `Completed`."""

    ref: int
    name: str


class SetLink(msgspec.Struct, frozen=True, gc=False, tag="link"):
    """Cut or heal the link to a neighbour; refused unless the peer's configuration allows experiments."""

    ref: int
    peer: PeerId
    up: bool


class AddLink(msgspec.Struct, frozen=True, gc=False, tag="link+"):
    """Link the peer with one more neighbour; the answer is `Completed`."""

    ref: int
    peer: PeerId
    address: str
    delay: str = "20ms"
    """The expected one-way delay; measurements correct it."""
    reliability: float = 1.0


class RemoveLink(msgspec.Struct, frozen=True, gc=False, tag="link-"):
    """End the link with a neighbour for good; the answer is `Completed`."""

    ref: int
    peer: PeerId


class LoadPlan(msgspec.Struct, frozen=True, gc=False, tag="plan?"):
    """Read the plan that the peer's configuration names again, and follow it; the answer is `Following`."""

    ref: int


class PreparePlan(msgspec.Struct, frozen=True, gc=False, tag="plan+"):
    """A piece of this peer's part of a plan; the answer is `Completed`. After the last piece the peer checks the part,
    and holds it for a minute."""

    ref: int
    version: int
    """Higher than that of any plan that the peer follows."""
    data: bytes
    last: bool = True


class CommitPlan(msgspec.Struct, frozen=True, gc=False, tag="plan!"):
    """Follow the plan that the peer holds; the answer is `Following`."""

    ref: int
    plan: int
    version: int


class RevertPlan(msgspec.Struct, frozen=True, gc=False, tag="plan-"):
    """Forget a plan that the peer holds, or follow the one before it again; the answer is `Completed`."""

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
    | PlanRequest
    | ListSubscriptions
    | RemoveSubscription
    | Unretain
)
ToPeer = Greet | Confirm | Request

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
    """How many peers are to get the event."""
    kept: bool
    """Whether the event survives a crash of this peer."""
    congested: bool = False
    """Whether so much waits for a link of this peer that the client should pause."""


class Posted(msgspec.Struct, frozen=True, gc=False, tag="posted", omit_defaults=True):
    """The receipt of a `Post`."""

    ref: int
    accepted: int
    """How many of its events the peer accepted."""
    refused: int = 0
    why: str = ""
    """Why the first one that the peer refused was."""
    congested: bool = False
    """As of `Accepted`."""


class Completed(msgspec.Struct, frozen=True, gc=False, tag="done"):
    """The request was carried out."""

    ref: int


class StatusFrame(msgspec.Struct, frozen=True, gc=False, tag="status"):
    """The status snapshot of the peer."""

    ref: int
    status: StatusSnapshot


class Following(msgspec.Struct, frozen=True, gc=False, tag="plan"):
    """The id of the plan that the peer follows from now on."""

    ref: int
    plan: int


class No(msgspec.Struct, frozen=True, gc=False, tag="no"):
    """A refusal, and the sentence why. With `ref` 0 it is about the connection itself."""

    ref: int
    why: str
    filter: bool = False
    """Whether the filter is to blame."""


class Delivery(msgspec.Struct, frozen=True, gc=False, tag="event", omit_defaults=True):
    """An event for a subscription of the client."""

    handle: int
    event: Event
    age_ns: Nanos
    """The time since its publication, as peers added it up."""
    late: bool
    """Whether the age is above the deadline of the subscription."""
    position: int = 0
    """Of a durable subscription: what the client confirms; 0 for other subscriptions."""
    again: bool = False
    """Whether a client of this durable subscription got it before and did not confirm it."""
    retained: bool = False
    """Whether it was published before the subscription, and a peer retained it."""


class Deliveries(msgspec.Struct, frozen=True, gc=False, tag="events"):
    """Several deliveries, in their order, to a client that greeted with `batches`."""

    deliveries: tuple[Delivery, ...]


class MissedFrame(msgspec.Struct, frozen=True, gc=False, tag="missed"):
    """Events that this subscription will not get, by reason."""

    handle: int
    counts: dict[str, int]


class Replaced(msgspec.Struct, frozen=True, gc=False, tag="replaced"):
    """Another client attached to the durable subscription: this one gets no further deliveries."""

    handle: int


class DurableStatus(msgspec.Struct, frozen=True):
    """A durable subscription of a peer."""

    name: str
    filter: str
    attached: bool
    """Whether a client is attached to it."""
    events: int
    """How many events wait, or are not confirmed yet."""
    bytes: int
    missed: dict[str, int] = {}
    """What its client was not told of yet, by reason."""


class Subscriptions(msgspec.Struct, frozen=True, gc=False, tag="subscriptions"):
    """The durable subscriptions of a peer, by name."""

    ref: int
    durable: tuple[DurableStatus, ...]
    more: bool = False
    """Whether there are others after these, to be asked for."""


class Dropped(msgspec.Struct, frozen=True, gc=False, tag="dropped"):
    """The client read too slowly: the peer dropped so many deliveries of this subscription."""

    handle: int
    count: int


Answer = Accepted | Posted | Completed | StatusFrame | Following | No | Subscriptions
ToClient = Welcome | Answer | Delivery | Deliveries | Dropped | MissedFrame | Replaced
