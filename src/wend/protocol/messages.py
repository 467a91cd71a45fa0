"""Messages between peers: immutable, tagged, passed by reference in the simulator, encoded only live.

These are the link layer's messages. `Control`, `PlainMessage` and `DirectMessage` are envelopes: they name a plug-in
and carry a message of the type that this plug-in declares.

`tx` numbers one transmission of one sender: (incarnation << TX_SHIFT) + counter. A retransmission keeps its number, so
the receiver recognises it; a restarted sender never uses a number again.
"""

from typing import Any, Final

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos

TX_SHIFT: Final = 28
TX_MASK: Final = (1 << TX_SHIFT) - 1
MAX_CONTROL_BYTES = 64 * 16_000
"""The longest control message, all its fragments together."""

Slot = tuple[str, PeerId]
"""The subject of a control message: a newer message replaces an older one of the same slot."""


class Data(msgspec.Struct, frozen=True, gc=False, tag="d"):
    """A packet: an event in transit over one link."""

    tx: int
    event: Event
    age_ns: Nanos
    """The age of the event when this packet was sent. Peers add up ages; they compare no clocks."""
    dests: tuple[PeerId, ...]
    """The destinations; empty if the interest does not name them."""
    path: tuple[PeerId, ...] = ()
    """The peers that forwarded this packet, in order, with repetition."""
    header: Any = None
    """The routing plug-in's own header, of the type that it declares."""
    ranks: tuple[int, ...] = ()
    """The rank of this copy per destination; empty if all are 0. `copy_ranks.py` explains ranks."""


class Fragment(msgspec.Struct, frozen=True, gc=False, tag="p"):
    """A fragment of an event that is larger than a packet; `link/event_fragments.py`."""

    tx: int
    number: int
    """The number of the event, the same for all its fragments over one link; never the number of a transmission."""
    index: int
    count: int
    id: EventId
    chunk: bytes
    head: Data | None = None
    """The event without its payload; in the first fragment."""


class Ack(msgspec.Struct, frozen=True, gc=False, tag="a", omit_defaults=True):
    """The receiver has the packet with this number."""

    tx: int
    accepted: bool = False
    """For a fragment: whether the receiver accepted the whole event. The ACK of a `Data` always implies it."""
    held_ns: Nanos = 0
    """How long the receiver held the ACK back, to send it with other messages. It is no part of the round trip."""


class FailureNews(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The links of a peer that are down, as that peer reports; `link/news.py`."""

    origin: PeerId
    version: tuple[int, int]
    """The origin's incarnation, and a counter. Newer news replaces older news."""
    hops: int
    """How many links this news has crossed, including the next one: 1 if the sender of the hello is the origin."""
    down: tuple[PeerId, ...]
    """The neighbours of the origin whose links with it are down."""


class Hello(msgspec.Struct, frozen=True, gc=False, tag="h", omit_defaults=True):
    """Proof that a quiet link works. `hearing` tells whether the sender hears the receiver."""

    incarnation: int
    hearing: bool
    within_ns: Nanos = 0
    """The time within which the sender will transmit again; 0: as announced before."""
    news: tuple[FailureNews, ...] = ()
    """All links that the sender knows to be down, within the scope of its news."""


class Control(msgspec.Struct, frozen=True, gc=False, tag="r"):
    """A message from a plug-in to the same plug-in of a neighbour. The sender repeats it until it is acknowledged."""

    tx: int
    plugin: str
    body: Any
    """A message of the plug-in's type, or a `ControlFragment` of one."""


class ControlFragment(msgspec.Struct, frozen=True, gc=False, tag="s"):
    """A fragment of a control message that is larger than a datagram; `link/control_fragments.py`."""

    slot: Slot
    number: int
    """The number of the message, the same for all its fragments. A message with a higher number replaces it."""
    index: int
    count: int
    chunk: bytes


class PlainMessage(msgspec.Struct, frozen=True, gc=False, tag="o"):
    """A message from a plug-in to the same plug-in of any peer, with or without a link. It may get lost."""

    plugin: str
    body: Any


class DirectMessage(msgspec.Struct, frozen=True, gc=False, tag="m"):
    """A `PlainMessage` that the receiver acknowledges. `number` is (incarnation << TX_SHIFT) + counter."""

    number: int
    plugin: str
    body: Any


class DirectAck(msgspec.Struct, frozen=True, gc=False, tag="n"):
    """The receiver has the `DirectMessage` with this number."""

    number: int


Message = Data | Fragment | Ack | Hello | Control | PlainMessage | DirectMessage | DirectAck

ACKS, HELLOS = "acks", "hellos"
"""Names under which drivers count ACKs and hellos; other control counts under its plug-in's name."""


def as_unicast(message: Data | Fragment) -> int:
    """How many packets a message would be with one per destination; without named destinations, one."""
    head = message if isinstance(message, Data) else message.head
    return 1 if head is None else len(head.dests) or 1


def find_event_id(message: Message) -> EventId | None:
    """The id of the event that a plug-in's own message carries; None if it carries none."""
    event = getattr(getattr(message, "body", None), "event", None)
    return event.id if isinstance(event, Event) else None


def control_name(message: Message) -> str:
    """The name under which a control packet is counted."""
    match message:
        case Control(plugin=plugin) | PlainMessage(plugin=plugin) | DirectMessage(plugin=plugin):
            return plugin
        case Hello():
            return HELLOS
    return ACKS


def increase_age(message: Message, by_ns: Nanos) -> Message:
    """The message with its age increased by the time that its sender, or a queue of the host, held it."""
    if isinstance(message, Ack):
        return Ack(message.tx, message.accepted, message.held_ns + by_ns)
    if isinstance(message, Data):
        return msgspec.structs.replace(message, age_ns=message.age_ns + by_ns)
    if isinstance(message, Fragment) and message.head is not None:
        return msgspec.structs.replace(message, head=increase_age(message.head, by_ns))
    if isinstance(message, PlainMessage | DirectMessage) and find_event_id(message) and hasattr(message.body, "age_ns"):
        body = msgspec.structs.replace(message.body, age_ns=message.body.age_ns + by_ns)
        return msgspec.structs.replace(message, body=body)
    return message
