"""The messages of `rendezvous`, and the outputs of its parts.

A message names a region by its subject and by the leading bits of its values' cells.
"""

from typing import NamedTuple

import msgspec

from wend.model.events import Event, EventId, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect
from wend.strategies.rendezvous.regions import RegionId
from wend.strategies.ring.key_based import HOP_TRIES, Entry, EntryId

UNKNOWN_OWNER: PeerId = -1


class RegionMessage(msgspec.Struct, frozen=True, gc=False):
    """A message about a region."""

    name: str
    code: str

    @property
    def region(self) -> RegionId:
        return self.name, self.code


class PlaceEntries(RegionMessage, frozen=True, gc=False, tag="rp"):
    """To the owner of a region: these entries belong there."""

    entries: tuple[Entry, ...]
    asker: PeerId
    """The peer that the owner tells which regions exist, or -1."""
    hops: int = 0
    from_whole: bool = False
    """Whether the sender owns the whole region, which is split: the receiver's half exists, even if it has gone."""


class RemoveEntries(RegionMessage, frozen=True, gc=False, tag="rx"):
    """To the owner of a region: these entries are gone."""

    entries: tuple[Entry, ...]
    hops: int = 0
    from_whole: bool = False


class RenewEntries(RegionMessage, frozen=True, gc=False, tag="rr"):
    """To the owner of a region: the entries of this peer, which have this digest, are still valid. If the owner's
    digest differs, it asks for all of them."""

    peer: PeerId
    digest: int
    hops: int = 0
    away_ns: Nanos = 0
    """If positive, the peer has stopped and will be back within this time. Until then its entries live."""
    from_whole: bool = False


class RequestEntries(RegionMessage, frozen=True, gc=False, tag="rt"):
    """From the owner of a region: place all entries again that belong there."""


class RegionOwners(RegionMessage, frozen=True, gc=False, tag="ri"):
    """From the owner of a region: the regions that exist in its place, each with its owner or -1. The receiver
    remembers them."""

    regions: tuple[tuple[str, PeerId], ...]


class HalfReport(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The load of a half that is not split."""

    half: str
    owner: PeerId
    entries: int
    rate_hz: float
    """Events per second since the last beacon."""
    calm_ns: Nanos
    """For how long the half has had at most half of the load that splits a region."""
    merge: int = 0
    """The number of the merge that the half takes part in, or 0."""


class ActiveHalf(RegionMessage, frozen=True, gc=False, tag="rh"):
    """To the owner of a region, with every beacon: the sender owns an active half of it, so the region is split."""

    hops: int = 0
    report: HalfReport | None = None
    """None if the half is split or new."""


class MergeHalf(RegionMessage, frozen=True, gc=False, tag="rM"):
    """To the owner of a half, from the owner of the whole region: send all entries, and then each change; or, if it
    `drops` the half, forget it, because the whole region has its entries."""

    number: int
    drops: bool = False


class HalfEntries(RegionMessage, frozen=True, gc=False, tag="rE"):
    """The answer to `MergeHalf` with its number: entries of the half that were added or removed. The first `total`
    messages have all its entries."""

    number: int
    turn: int
    total: int
    added: tuple[Entry, ...]
    removed: tuple[EntryId, ...] = ()
    away: tuple[tuple[PeerId, Nanos], ...] = ()
    """The peers that have stopped, and how long their entries live."""


class MatchEvent(RegionMessage, frozen=True, gc=False, tag="rm"):
    """To the owner of a region: send this event to the subscribers whose entries match."""

    event: Event
    age_ns: Nanos
    hops: int
    asks: bool = False
    """Whether the publisher's peer wants to know the regions."""
    stored: bool = False
    """Whether the publisher's peer stores the event until this region has `EventSettled` it."""


class NotifyPeer(msgspec.Struct, frozen=True, gc=False, tag="rn"):
    """An event for subscribers at the receiver, and at the other peers that the receiver passes it on to."""

    event: Event
    age_ns: Nanos
    hops: int
    others: tuple[PeerId, ...] = ()
    region: tuple[str, str] | None = None
    """If the event is stored: the name and code of the region whose owner waits for `Reached`."""


class Reached(RegionMessage, frozen=True, gc=False, tag="rg"):
    """To the owner of a region: the sender has delivered or stored this event."""

    id: EventId


class EventSettled(RegionMessage, frozen=True, gc=False, tag="rs"):
    """To the publisher's peer: all subscribers of this region have the event."""

    id: EventId


class CopyEntries(RegionMessage, frozen=True, gc=False, tag="rc"):
    """To a replica of a region: the entries that were added, and those that were removed."""

    added: tuple[Entry, ...]
    removed: tuple[EntryId, ...] = ()
    split: bool = False


class RenewCopy(RegionMessage, frozen=True, gc=False, tag="rk"):
    """To a replica of a region, with every beacon: the digest of all its entries. If the replica's digest differs, it
    asks for all entries."""

    digest: int
    split: bool
    away: tuple[tuple[PeerId, Nanos], ...] = ()
    """The peers that have stopped, and how long their entries live."""


class RequestCopy(RegionMessage, frozen=True, gc=False, tag="rq"):
    """From a replica: send all entries of the region."""


class StoredEvent(msgspec.Struct, frozen=True, gc=False, tag="re"):
    """The record of an event at its publisher's peer until every region has settled the event. `slot` is its place in
    the store. If the event is None, the place is free."""

    slot: int
    event: Event | None
    born_ns: Nanos = 0


class TripRequest(msgspec.Struct, frozen=True, gc=False, tag="ra"):
    """Asks for an answer at once: the sender measures the round trip to know the age of an event from the receiver."""

    number: int


class TripReply(msgspec.Struct, frozen=True, gc=False, tag="rA"):
    """The answer to `TripRequest`, with its number."""

    number: int


class ToPeer(NamedTuple):
    """Send a message to a peer. If it is this peer itself, the message takes effect at once."""

    peer: PeerId
    message: (
        RequestEntries
        | RegionOwners
        | MergeHalf
        | HalfEntries
        | CopyEntries
        | RenewCopy
        | RequestCopy
        | NotifyPeer
        | EventSettled
    )
    tries: int = HOP_TRIES


class PeerReturned(NamedTuple):
    """A peer that had stopped has renewed its entries."""

    peer: PeerId


OwnerMessage = PlaceEntries | RemoveEntries | RenewEntries | ActiveHalf
"""For the owner of the region that the message names."""
Output = OwnerMessage | MatchEvent | CopyEntries | RenewCopy | ToPeer | PeerReturned | PluginEffect
"""An output of a part. A `MatchEvent` goes to the owner of its region, `CopyEntries` and `RenewCopy` to the replicas of
this peer's regions."""

RendezvousMessage = (
    PlaceEntries
    | RemoveEntries
    | RenewEntries
    | RequestEntries
    | RegionOwners
    | ActiveHalf
    | MergeHalf
    | HalfEntries
    | MatchEvent
    | NotifyPeer
    | Reached
    | EventSettled
    | CopyEntries
    | RenewCopy
    | RequestCopy
    | StoredEvent
    | TripRequest
    | TripReply
)
