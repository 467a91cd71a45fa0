"""Events and subscriptions, and how soon a subscriber needs its events.

An event's identity is (publisher, incarnation, sequence). A publisher that restarts begins a new incarnation, so its
sequence numbers never collide with earlier ones.

An attribute is a truth value, a number, a text, or a `Range` of numbers or texts (dmm, section IV-A), for a value that
lasts, moves or was measured inexactly.
"""

import math
from numbers import Integral, Rational, Real
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from wend.model.units import FOREVER, HOUR, Nanos

if TYPE_CHECKING:
    from wend.model.publication import Publication

PeerId = int
Scalar = bool | int | float | str


def as_scalar(value: Any) -> Any:
    """Convert a number, truth value or text of another library, such as NumPy, to Python's own type. All other values
    stay as they are."""
    kind = type(value)
    if kind in (bool, int, float, str, type(None)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Rational):  # a fraction would be rounded
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):
        return bool(value)
    return value


class Range(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """All numbers, or all texts, between two ends. An end that is missing is unbounded; at least one must be given."""

    low: int | float | str | None = None
    high: int | float | str | None = None
    low_open: bool = False
    high_open: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError, not WendError, so that a decoder can add the position."""
        low, high = as_scalar(self.low), as_scalar(self.high)
        if low is not self.low or high is not self.high:
            msgspec.structs.force_setattr(self, "low", low)
            msgspec.structs.force_setattr(self, "high", high)
        _check_bound(low)
        _check_bound(high)
        if low is None and high is None:
            raise ValueError("a range needs at least one end")
        if (low is None and self.low_open) or (high is None and self.high_open):
            raise ValueError("an end that is not given can be neither open nor closed")
        if low is not None and high is not None:
            self._check_order(low, high)

    def _check_order(self, low: Any, high: Any) -> None:
        if isinstance(low, str) != isinstance(high, str):
            raise ValueError(f"the ends of a range have one type, got {low!r} and {high!r}")
        if not low < high and not (low == high and not self.low_open and not self.high_open):
            raise ValueError(f"a range from {low!r} to {high!r} is empty")

    def __str__(self) -> str:
        low = "" if self.low is None else repr(self.low)
        high = "" if self.high is None else repr(self.high)
        opening = "]" if self.low_open or self.low is None else "["
        return f"{opening}{low}, {high}{'[' if self.high_open or self.high is None else ']'}"


def _check_bound(end: Any) -> None:
    if isinstance(end, bool) or not isinstance(end, int | float | str | None):
        raise ValueError(f"the ends of a range are numbers or texts, got {end!r}")
    if isinstance(end, float) and not math.isfinite(end):
        raise ValueError(f"a range has finite ends, got {end}; leave out an end that does not exist")


Value = Scalar | Range
Attributes = dict[str, Value]

Headers = dict[str, str]
"""Information of applications about a payload. Filters do not see it."""

SIGNATURE_HEADER = "wend-signature"
"""The header with the publisher's certificate and signature, between peers."""
SIGNED_BY_HEADER = "wend-signed-by"
"""The header by which a peer tells its client who signed an event. A peer believes it from nobody else."""
KEY_HEADER = "wend-key"
"""The header with the key of an event: published again with the same key, it is one event."""

MAX_HEADERS = 64
MAX_ATTRIBUTES = 1024
"""Of one event. It bounds the time that matching takes."""

MAX_DEADLINE_NS = FOREVER
MAX_FACTOR = 1e6
MAX_GROUP_CHARS = 200
MAX_KEY_CHARS = 200
MAX_EVENT_GROUPS = 256
"""Queue groups that an event may name."""


class EventId(NamedTuple):
    publisher: PeerId
    incarnation: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.publisher}.{self.incarnation}.{self.sequence}"


GroupChoice = tuple[str, tuple[PeerId, ...]]
"""A queue group, and the peers that were chosen for it, the last choice first."""


class CodedBlock(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Which block of a coded event its payload is (`blocks.py`). Blocks that differ in anything but the index belong to
    different versions of the event."""

    index: int
    needed: int
    """How many blocks give the event back. Those with a lower index are pieces of its payload."""
    length: int
    """The size of the payload of the event, in bytes."""
    checksum: int
    """The CRC-32 of the payload of the event."""


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An event that an application published. Immutable."""

    id: EventId
    attributes: Annotated[Attributes, msgspec.Meta(max_length=MAX_ATTRIBUTES)]
    payload: bytes = b""
    headers: Annotated[Headers, msgspec.Meta(max_length=MAX_HEADERS)] = {}
    ttl_ns: Nanos | None = None
    """The age at which the event expires; None: never."""
    previous: tuple[tuple[PeerId, int], ...] = ()
    """For each peer whose subscribers want the publisher's order: the sequence number of the previous event for that
    peer, or 0. It is empty for clients."""
    groups: Annotated[tuple[GroupChoice, ...], msgspec.Meta(max_length=MAX_EVENT_GROUPS)] = ()
    """For queue groups: the peer whose member gets the event, then the peers that were chosen earlier and no longer had
    a member. It is empty for clients."""
    origin: EventId | None = None
    """The id under which the event was published, set by a peer that passes it to another member of a queue group."""
    direct: bool = False
    """Whether it is for unannounced subscriptions at one peer, such as a reply."""
    block: CodedBlock | None = None
    """Between peers: the payload is only this block of the event. It is None for clients."""

    def is_expired(self, age_ns: Nanos) -> bool:
        return self.ttl_ns is not None and age_ns > self.ttl_ns

    def previous_at(self, peer: PeerId) -> int | None:
        """The sequence number of the previous event for this peer; None if the event names none."""
        for other, number in self.previous:
            if other == peer:
                return number
        return None


_EVENT_BYTES = 240
_ATTRIBUTE_BYTES = 64
_HEADER_BYTES = 128


def event_bytes(event: "Event | Publication") -> int:
    """The approximate memory of an event, by which queues and stores are bounded; on the wire it takes less."""
    size = _EVENT_BYTES + len(event.payload) + _ATTRIBUTE_BYTES * len(event.attributes)
    for name, value in event.attributes.items():
        size += len(name)
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Range):
            size += sum(len(end) for end in (value.low, value.high) if isinstance(end, str))
    return size + sum(_HEADER_BYTES + len(name) + len(text) for name, text in event.headers.items())


class Qos(msgspec.Struct, frozen=True, gc=False):
    """How soon a subscriber needs its events, and how reliably. It states a deadline, a factor, or neither."""

    deadline_ns: Nanos | None = None
    """The time from publication to delivery."""
    factor: float | None = None
    """The same as a multiple of the shortest delay between publisher and subscriber, as the dcrd paper has it."""
    reliability: float | None = None
    """The share of events that must arrive at the first attempt. Strategies on trees use only as many trees as that
    takes; None: all of them."""
    order: bool = False
    """Whether events of one publisher arrive in the order of publication."""
    expire: bool = False
    """Whether to drop an event that is past the deadline, instead of delivering it late."""
    group: str = ""
    """The queue group: one of all subscriptions with this group gets each event; empty: none."""

    def is_valid(self) -> bool:
        """Whether the values make sense. Other peers may send any, and deadlines are computed from them."""
        return (
            (self.deadline_ns is None or 0 < self.deadline_ns <= MAX_DEADLINE_NS)
            and (self.factor is None or 0.0 < self.factor <= MAX_FACTOR)
            and (self.reliability is None or 0.0 < self.reliability <= 1.0)
            and len(self.group) <= MAX_GROUP_CHARS
        )

    def expires(self, deadline_ns: Nanos | None, age_ns: Nanos) -> bool:
        """Whether an event of this age is too old for the subscription, by its deadline there."""
        return self.expire and deadline_ns is not None and age_ns > deadline_ns


class DurableOptions(msgspec.Struct, frozen=True, gc=False):
    """What makes a subscription durable: its name, and the bounds of its backlog."""

    name: str
    max_events: int = 100_000
    max_bytes: int = 64 * 1024 * 1024
    max_age_ns: Nanos = 7 * 24 * HOUR


class SubscriptionId(NamedTuple):
    """The peer that the subscriber is connected to, and the peer's number for the subscription."""

    peer: PeerId
    number: int


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """A subscription of a client at some peer."""

    id: SubscriptionId
    filter: str
    qos: Qos = Qos()
