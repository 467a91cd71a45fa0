"""The paths of entries to the root regions of their spaces, hop by hop."""

from collections.abc import Sequence

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Refuse
from wend.strategies.dmm.messages import FromLeaves, RenewInSpace, ToLeaves, UnwantInSpace, WantInSpace
from wend.strategies.dmm.spaces import SpaceName
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Outgoing, PlacePaths


class SpacePaths(PlacePaths[SpaceName]):
    """The entries on their way through this peer, by space. If this peer owns the root, they go down the tree."""

    def __init__(self, me: PeerId, expiry_ns: Nanos) -> None:
        super().__init__(me, expiry_ns)
        self._former: list[tuple[PeerId, SpaceName, list[Entry]]] = []
        """Former next hops, with the entries that they have to forget at the next beacon."""

    def make_announcement(self, place: SpaceName, hop: PeerId | None, entries: tuple[Entry, ...]) -> Outgoing:
        if hop is None:
            return Outgoing(self.me, ToLeaves(place, "", self.me, entries))
        return Outgoing(hop, WantInSpace(place, entries))

    def make_withdrawals(self, place: SpaceName, hop: PeerId | None, entries: list[Entry]) -> list[Outgoing]:
        if hop is not None:
            return [Outgoing(hop, UnwantInSpace(place, batch)) for batch in split_into_batches(entries)]
        return [Outgoing(self.me, FromLeaves(place, "", self.me, tuple(entries)))] if entries else []

    def make_renewal(self, place: SpaceName, ids: tuple[EntryId, ...]) -> RenewInSpace:
        return RenewInSpace(place, ids)

    def add_from(
        self, now: Nanos, space: SpaceName, hop: PeerId | None, sender: PeerId, entries: Sequence[Entry], joined: bool
    ) -> list[Outgoing | Refuse]:
        """Add the entries of a peer. At the owner of the root, other peers' entries go to the leaves only."""
        if hop is not None or sender == self.me:
            return self.add(now, space, hop, sender, entries, joined)
        # the table has them if this peer did not own the root before
        removed = self.remove(space, sender, [entry.id for entry in entries])
        return [*removed, Outgoing(self.me, ToLeaves(space, "", sender, tuple(entries)))]

    def move(self, place: SpaceName, hop: PeerId | None) -> list[Outgoing]:
        table = self.tables[place]
        former = table.next_hop
        outgoing = super().move(place, hop)
        if former is not None:
            self._former.append((former, place, [table.entry(branch) for branch in table.onward]))
        return outgoing

    def leave_former_hops(self) -> list[Outgoing]:
        """Former next hops forget the entries, since events take the new path by now."""
        former, self._former = self._former, []
        outgoing: list[Outgoing] = []
        for hop, space, entries in former:
            if space not in self.tables or self.tables[space].next_hop != hop:
                outgoing += self.make_withdrawals(space, hop, entries)
        return outgoing
