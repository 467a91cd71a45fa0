"""Everything a peer can be told and everything it can do.

A driver turns what happens (a datagram, a timer, a call of an application) into an input, hands it to
`Peer.handle(now, input)` and carries out the effects in order. `now` is the driver's monotonic time in
nanoseconds; the peer has no other.
"""

import msgspec

from wend.model.events import Attributes, Event, EventId, Headers, PeerId, Qos, SubscriptionId
from wend.model.forwarding import Forwarding
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.messages import Message
from wend.protocol.notices import ComposedReason, DropReason, NoticeName, RefusalReason
from wend.protocol.records import Record

# ---------------------------------------------------------------- inputs


class Neighbour(msgspec.Struct, frozen=True, gc=False):
    """A link to begin with, and what is known of it beforehand."""

    peer: PeerId
    delay_ns: Nanos
    reliability: float = 1.0
    wait_ns: Nanos = 0
    """How long data may queue for the link: an ACK that is expected sooner would be missed for nothing."""
    control_waits: bool = True
    """Whether control queues with it."""


class LocalSubscription(msgspec.Struct, frozen=True, gc=False):
    """A subscription that holds from the start, or is made later."""

    number: int
    filter: str
    qos: Qos = Qos()


class Started(msgspec.Struct, frozen=True, gc=False):
    neighbours: tuple[Neighbour, ...]
    """Who is linked; where an overlay decides that, who can be reached."""
    subscriptions: tuple[LocalSubscription, ...] = ()
    advertisements: tuple[str, ...] = ()
    stored: tuple[Record, ...] = ()
    """What `Persist` effects left behind in a former life, in order."""


class Received(msgspec.Struct, frozen=True, gc=False):
    sender: PeerId
    message: Message


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """What was to be sent and cannot be: it is too large, or cannot be encoded. The link is not to blame."""

    peer: PeerId
    message: Message


class Woken(msgspec.Struct, frozen=True, gc=False):
    """The time asked for has come. A spurious one is harmless."""


class Published(msgspec.Struct, frozen=True, gc=False):
    attributes: Attributes
    payload: bytes = b""
    headers: Headers = {}


class Advertised(msgspec.Struct, frozen=True, gc=False):
    """This peer will publish what the filter describes. Publishing without it works, a little later."""

    filter: str


class Subscribed(msgspec.Struct, frozen=True, gc=False):
    subscription: LocalSubscription


class Unsubscribed(msgspec.Struct, frozen=True, gc=False):
    number: int


class Planned(msgspec.Struct, frozen=True, gc=False):
    """From here on this peer publishes by this plan; what is under way by another goes on by that."""

    plan: Forwarding


class Stopping(msgspec.Struct, frozen=True, gc=False):
    """The peer leaves for good: it withdraws its interest."""


class PathFound(msgspec.Struct, frozen=True, gc=False):
    """An answer to `FindPath`. A path that ends on the way ends with None; one that cannot be measured is None."""

    peer: PeerId
    path: Path | None


Input = (
    Started
    | Received
    | Unsent
    | Woken
    | Published
    | Advertised
    | Subscribed
    | Unsubscribed
    | PathFound
    | Planned
    | Stopping
)

# ---------------------------------------------------------------- effects


class Send(msgspec.Struct, frozen=True, gc=False):
    peer: PeerId
    message: Message


class Deliver(msgspec.Struct, frozen=True, gc=False):
    subscription: SubscriptionId
    event: Event
    age_ns: Nanos
    """As gathered hop by hop; a driver with one clock knows better."""
    deadline_ns: Nanos | None


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What became of a publication: who is to get it, and whether it survives this peer's crash."""

    id: EventId
    targets: tuple[PeerId, ...]
    kept: bool


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Wake me then. The newest one counts; an older one that was sooner may be honoured too, to no harm."""

    time_ns: Nanos


class Persist(msgspec.Struct, frozen=True, gc=False):
    record: Record


class Drop(msgspec.Struct, frozen=True, gc=False):
    """An event that goes no further from here, for these destinations, and why."""

    id: EventId
    dests: tuple[PeerId, ...]
    reason: DropReason


class Notice(msgspec.Struct, frozen=True, gc=False):
    """Something to count and show; `notices.py` says what there is."""

    what: NoticeName
    peer: PeerId
    count: int = 1


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """Another's mistake: counted, never raised."""

    peer: PeerId
    reason: RefusalReason | ComposedReason


class FindPath(msgspec.Struct, frozen=True, gc=False):
    """Which routers are on the way to this peer? The answer is `PathFound`."""

    peer: PeerId


Effect = Send | Deliver | Receipt | WakeAt | Persist | Drop | Notice | Refuse | FindPath
