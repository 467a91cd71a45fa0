"""What peers say to each other: immutable, tagged, passed by reference in the simulator, encoded only live.

`tx` numbers one transmission of one sender: (incarnation << TX_SHIFT) + counter. A retransmission keeps
its number, so the receiver knows it again; a restarted sender never reuses one.
"""

import msgspec

from wend.model.events import Event, EventId, PeerId, Subscription
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.membership.messages import MembershipMessage
from wend.protocol.trees.messages import SequencedMessage, SubtreeInterest

TX_SHIFT = 28
TX_MASK = (1 << TX_SHIFT) - 1

TreeLabel = tuple[int, PeerId, int, int]
"""A generation of trees, and one tree of it."""


class Data(msgspec.Struct, frozen=True, gc=False, tag="d"):
    """An event on its way. `age_ns` is what it has gathered until this send: no clock is compared."""

    tx: int
    event: Event
    age_ns: Nanos
    dests: tuple[PeerId, ...]
    path: tuple[PeerId, ...] = ()
    """The peers that sent this packet on, in order, with repetition."""
    routes: tuple[tuple[PeerId, ...], ...] = ()
    """Source routes, one per destination: what is still to be visited. Empty where hops decide themselves."""
    ranks: tuple[int, ...] = ()
    """How this copy ranks among others, per destination; see `copies.py`."""
    lane: TreeLabel | None = None
    """The tree that this copy follows, to whoever wants it there; then it has no destinations."""


class Fragment(msgspec.Struct, frozen=True, gc=False, tag="p"):
    """A piece of an event that is larger than a packet; `parts.py`."""

    tx: int
    whole: int
    """The same for all parts of an event over one link, and never the number of a transmission."""
    index: int
    count: int
    id: EventId
    chunk: bytes
    head: Data | None = None
    """What the event is but for its payload; in the first part."""


class Ack(msgspec.Struct, frozen=True, gc=False, tag="a", omit_defaults=True):
    tx: int
    taken: bool = False
    """Of a part: that the whole event is taken on. One that came in one packet is when it is acknowledged."""


class Hello(msgspec.Struct, frozen=True, gc=False, tag="h"):
    """Proof that a quiet link lives. `hearing` tells whether the sender hears the receiver."""

    incarnation: int
    hearing: bool
    within_ns: Nanos = 0
    """When the receiver will hear from the sender again, at the latest; 0: as was said before."""


class LinkState(msgspec.Struct, frozen=True, gc=False, tag="l", omit_defaults=True):
    """What a peer measures about its own links; flooded."""

    origin: PeerId
    version: tuple[int, int]
    links: tuple[tuple[PeerId, Nanos, float], ...]
    paths: tuple[Path, ...] = ()
    """The routers beneath each link, empty for one that was not traced; none at all where nobody traces."""


class PeerInterest(msgspec.Struct, frozen=True, gc=False, tag="i"):
    """What is subscribed to and advertised at a peer; flooded."""

    origin: PeerId
    version: tuple[int, int]
    subscriptions: tuple[Subscription, ...]
    advertisements: tuple[str, ...]


class Expectations(msgspec.Struct, frozen=True, gc=False, tag="x"):
    """A batch of <d, r>: expected delay and delivery ratio per (publisher, subscriber); dcrd section III-B."""

    version: int
    pairs: tuple[tuple[PeerId, PeerId], ...]
    delays_ns: tuple[float, ...]
    ratios: tuple[float, ...]


Slot = tuple[str, PeerId]
"""What control is about: only the newest of a slot counts."""


class ControlFragment(msgspec.Struct, frozen=True, gc=False, tag="s"):
    """A piece of control that is larger than a datagram; `sheets.py`."""

    about: str
    """Under which name the whole is counted."""
    slot: Slot
    number: int
    """The same for all sheets of one telling; a higher one replaces it."""
    index: int
    count: int
    chunk: bytes


Body = LinkState | PeerInterest | Expectations | SequencedMessage | SubtreeInterest | ControlFragment


class Control(msgspec.Struct, frozen=True, gc=False, tag="r"):
    """Control that is repeated until it is acknowledged."""

    tx: int
    body: Body


class PlainMessage(msgspec.Struct, frozen=True, gc=False, tag="o"):
    """About the overlay; to any peer, neighbour or not, and not repeated."""

    word: MembershipMessage


Message = Data | Fragment | Ack | Hello | Control | PlainMessage

CONTROL_KINDS: dict[type, str] = {
    Ack: "acks",
    Hello: "probes",
    LinkState: "link_state",
    PeerInterest: "subscriptions",
    Expectations: "expectations",
    SequencedMessage: "trees",
    SubtreeInterest: "subscriptions",
    PlainMessage: "overlay",
}

CONTROL = tuple(dict.fromkeys(CONTROL_KINDS.values()))
"""All names under which control packets are counted, for every driver."""


def as_unicast(message: Data | Fragment) -> int:
    """How many packets it would be with one for each destination; on a tree nobody is named, and it is one."""
    head = message if isinstance(message, Data) else message.head
    return 1 if head is None else len(head.dests) or 1


def control_kind(message: Message) -> str:
    """Under which name a control packet is counted."""
    if not isinstance(message, Control):
        return CONTROL_KINDS[type(message)]
    return control_name(message.body)


def control_name(body: Body) -> str:
    return body.about if isinstance(body, ControlFragment) else CONTROL_KINDS[type(body)]


def older(message: Message, by_ns: Nanos) -> Message:
    """The same message after it waited in a queue of its host."""
    if isinstance(message, Data):
        return msgspec.structs.replace(message, age_ns=message.age_ns + by_ns)
    if isinstance(message, Fragment) and message.head is not None:
        return msgspec.structs.replace(message, head=older(message.head, by_ns))
    return message


class PendingRecord(msgspec.Struct, frozen=True, gc=False, tag="kept"):
    """Stable record: this peer answers for an event towards these destinations."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    ranks: tuple[int, ...] = ()
    """How its copy ranks, per destination (`copies.py`); empty where all are 0."""


class DoneRecord(msgspec.Struct, frozen=True, gc=False, tag="done"):
    """Stable record: a kept event went on, or was dropped on purpose."""

    id: EventId


class DeliveredRecord(msgspec.Struct, frozen=True, gc=False, tag="notified"):
    """Stable record: the local subscribers have this event; never again."""

    id: EventId


class StateRecord(msgspec.Struct, frozen=True, gc=False, tag="learned"):
    """Stable record: the newest flooded state of another peer."""

    body: LinkState | PeerInterest


Record = PendingRecord | DoneRecord | DeliveredRecord | StateRecord
