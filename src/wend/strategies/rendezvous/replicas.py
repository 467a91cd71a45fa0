"""Replicas of regions: the peers that copy this peer's regions, and this peer's copies of other peers' regions.

The replicas of a region are the owner's neighbours on the ring. If the ring changes, one of them takes the region over,
or the owner hands it over.
"""

from collections.abc import Callable, Iterator

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Refuse
from wend.strategies.rendezvous.entry_table import EntryTable
from wend.strategies.rendezvous.messages import (
    UNKNOWN_OWNER,
    ActiveHalf,
    CopyEntries,
    Output,
    OwnerMessage,
    PlaceEntries,
    RenewCopy,
    RenewEntries,
    RequestCopy,
    ToPeer,
)
from wend.strategies.rendezvous.regions import RegionId, can_split
from wend.strategies.ring.bounded import split_into_batches

MAX_COPIES = 65_536
"""The most copies that a peer holds."""


class RegionReplicas:
    """Shares this peer's regions with its replicas, and holds copies of others' regions."""

    def __init__(self, expiry_ns: Nanos) -> None:
        self._expiry_ns = 2 * expiry_ns
        self.peers: tuple[PeerId, ...] = ()
        """The replicas of this peer's regions."""
        self.copies: dict[RegionId, EntryTable] = {}
        self._owners: dict[RegionId, PeerId] = {}
        """The owner that each copy came from."""
        self._updated_ns: dict[RegionId, Nanos] = {}
        """When an owner last sent a message about each copy."""

    def choose(self, peers: tuple[PeerId, ...]) -> list[PeerId]:
        """Replace the replicas by these peers. Returns the new ones."""
        new = [peer for peer in peers if peer not in self.peers]
        self.peers = peers
        return new

    def share(self, message: CopyEntries | RenewCopy) -> list[ToPeer]:
        """Send a message to all replicas, in parts that fit datagrams."""
        parts: list[CopyEntries | RenewCopy] = [message]
        if isinstance(message, CopyEntries):
            region, is_split = message.region, message.split
            parts = [CopyEntries(*region, batch, (), is_split) for batch in split_into_batches(message.added)]
            if message.removed or is_split:
                parts += [
                    CopyEntries(*region, (), batch, is_split) for batch in split_into_batches(message.removed) or [()]
                ]
        return [ToPeer(peer, part) for peer in self.peers for part in parts]

    def on_copy(self, now: Nanos, sender: PeerId, message: CopyEntries | RenewCopy) -> Iterator[Output]:
        """Update or renew the copy of a region by its owner's message. If the digest differs, request all entries."""
        region = message.region
        if region not in self.copies and len(self.copies) >= MAX_COPIES:
            yield Refuse(sender, "too-many-regions")
            return
        copy = self.copies.setdefault(region, EntryTable())
        self._updated_ns[region] = now
        self._owners[region] = sender
        is_split = message.split and can_split(region)
        if isinstance(message, CopyEntries):
            copy.is_split = copy.is_split or is_split
            yield from copy.add_all(sender, message.added, now + self._expiry_ns)[1]
            for id_ in message.removed:
                copy.remove(id_)
            return
        copy.is_split = is_split
        copy.away = {peer: now + left_ns for peer, left_ns in message.away}
        if copy.digest != message.digest:
            copy.clear()
            yield ToPeer(sender, RequestCopy(*region))
        copy.renew(now + self._expiry_ns)

    def expire(self, now: Nanos) -> None:
        """Forget empty copies, unless they are split and their owner has lately sent a message about them."""
        for region, copy in list(self.copies.items()):
            copy.expire(now)
            age_ns = now - self._updated_ns.get(region, now)
            if not copy.entries and (not copy.is_split or age_ns > self._expiry_ns):
                self.pop(region)
                self._owners.pop(region, None)

    def pop(self, region: RegionId) -> EntryTable:
        """Remove a copy, and return it."""
        self._updated_ns.pop(region, None)
        return self.copies.pop(region)

    def put(self, now: Nanos, region: RegionId, table: EntryTable) -> None:
        """Hold a copy of a region that this peer no longer owns."""
        self.copies[region] = table
        self._updated_ns[region] = now

    def orphans(self, is_dead: Callable[[PeerId], bool]) -> list[RegionId]:
        """The copies whose owners have died since the last call. The next owner may have no copy, if all replicas but
        this one died."""
        regions = [region for region, owner in self._owners.items() if is_dead(owner)]
        for region in regions:
            del self._owners[region]
        return [region for region in regions if region in self.copies]


def hand_over(now: Nanos, region: RegionId, table: EntryTable) -> Iterator[OwnerMessage]:
    """Send the owner of a region all of its entries."""
    if table.is_split:
        yield ActiveHalf(*region)
    for batch in split_into_batches(list(table.entries.values())):
        yield PlaceEntries(*region, batch, UNKNOWN_OWNER, 1)
    for peer, left_ns in table.absences(now):
        yield RenewEntries(*region, peer, table.make_digest(peer), 1, left_ns)
