"""The messages of `rendezvous`. A region is named by what it is about and by the leading bits of its values' cells."""

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.strategies.ring.key_based import Entry, EntryId

UNKNOWN_OWNER: PeerId = -1


class PlaceEntries(msgspec.Struct, frozen=True, gc=False, tag="rp"):
    """To the owner of a region: these entries belong there."""

    name: str
    code: str
    entries: tuple[Entry, ...]
    asker: PeerId
    """Who is to be told which regions there are."""
    hops: int = 0


class RemoveEntries(msgspec.Struct, frozen=True, gc=False, tag="rx"):
    """To the owner of a region: these entries are gone."""

    name: str
    code: str
    ids: tuple[EntryId, ...]
    hops: int = 0


class RenewEntries(msgspec.Struct, frozen=True, gc=False, tag="rr"):
    """To the owner of a region: the entries of this peer with this digest still hold. The owner asks for all of them
    if it knows others."""

    name: str
    code: str
    peer: PeerId
    digest: int
    hops: int = 0
    away_ns: Nanos = 0
    """Above 0: the peer has stopped and will be back within this time. Its entries live so long."""


class TellEntries(msgspec.Struct, frozen=True, gc=False, tag="rt"):
    """From the owner of a region: place all entries again that belong there."""

    name: str
    code: str


class RegionsAre(msgspec.Struct, frozen=True, gc=False, tag="ri"):
    """From the owner of a region: the regions at its place, each with its owner or -1. Caches adopt it."""

    name: str
    code: str
    regions: tuple[tuple[str, PeerId], ...]


class HalfIsActive(msgspec.Struct, frozen=True, gc=False, tag="rh"):
    """To the owner of a region, with every beacon: it is split, because its half of this code is active."""

    name: str
    code: str
    hops: int = 0


class MatchEvent(msgspec.Struct, frozen=True, gc=False, tag="rm"):
    """To the owner of a region: send this event to the subscribers whose entries match."""

    name: str
    code: str
    event: Event
    age_ns: Nanos
    hops: int
    asks: bool = False
    """Whether the publisher's peer wants to know the regions."""
    stored: bool = False
    """Whether the publisher's peer stores the event until this region has `EventSettled` it."""


class NotifyPeer(msgspec.Struct, frozen=True, gc=False, tag="rn"):
    """An event for subscribers at the receiver, and at the peers that the receiver is to pass it on to."""

    event: Event
    age_ns: Nanos
    hops: int
    others: tuple[PeerId, ...] = ()
    region: tuple[str, str] | None = None
    """Where the event is stored: the name and code of the region whose owner waits for `Reached`."""


class Reached(msgspec.Struct, frozen=True, gc=False, tag="rg"):
    """To the owner of a region: the sender has delivered or stored this event."""

    name: str
    code: str
    id: EventId


class EventSettled(msgspec.Struct, frozen=True, gc=False, tag="rs"):
    """To the publisher's peer: all subscribers of this region have the event."""

    name: str
    code: str
    id: EventId


class CopyEntries(msgspec.Struct, frozen=True, gc=False, tag="rc"):
    """To a replica of a region: entries that were added, and those that are gone."""

    name: str
    code: str
    added: tuple[Entry, ...]
    removed: tuple[EntryId, ...] = ()
    split: bool = False


class RenewCopy(msgspec.Struct, frozen=True, gc=False, tag="rk"):
    """To a replica of a region, with every beacon: the digest of all its entries. The replica asks if it has others."""

    name: str
    code: str
    digest: int
    split: bool
    away: tuple[tuple[PeerId, Nanos], ...] = ()
    """The peers that have stopped, and how long their entries live."""


class TellCopy(msgspec.Struct, frozen=True, gc=False, tag="rq"):
    """From a replica: send all entries of the region."""

    name: str
    code: str


class StoredEvent(msgspec.Struct, frozen=True, gc=False, tag="re"):
    """What a publisher's peer remembers of an event until every region has settled it. `slot` is its place among these;
    None for an event: the place is free."""

    slot: int
    event: Event | None
    born_ns: Nanos = 0


class AskTrip(msgspec.Struct, frozen=True, gc=False, tag="ra"):
    """Answer at once: the sender measures the round trip, to know the age of an event from the receiver."""

    number: int


class AnswerTrip(msgspec.Struct, frozen=True, gc=False, tag="rA"):
    """The answer to `AskTrip`, with its number."""

    number: int


RendezvousMessage = (
    PlaceEntries
    | RemoveEntries
    | RenewEntries
    | TellEntries
    | RegionsAre
    | HalfIsActive
    | MatchEvent
    | NotifyPeer
    | Reached
    | EventSettled
    | CopyEntries
    | RenewCopy
    | TellCopy
    | StoredEvent
    | AskTrip
    | AnswerTrip
)
