"""The paths of entries to the root regions of their spaces, hop by hop.

Each hop remembers the peer that an entry came from, and passes on only entries that no other one covers. Everything
here is soft state: each hop renews its entries at the next one, and entries that nobody renews expire.
"""

from collections.abc import Iterable, Sequence

from wend.model.errors import FilterError
from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Refuse
from wend.strategies.dmm.attribute_space import SpaceName
from wend.strategies.dmm.messages import (
    UNREADABLE,
    FromLeaves,
    Outgoing,
    RenewInSpace,
    Reply,
    ToLeaves,
    UnwantInSpace,
    WantInSpace,
)
from wend.strategies.ring.key_based import Entry, EntryId, batches
from wend.strategies.ring.reverse_paths import Branch, ReversePaths


def add_entries(
    table: ReversePaths, entries: Iterable[Entry], previous: PeerId, expires: Nanos
) -> tuple[list[Branch], list[Reply]]:
    """Add entries of a peer to a table. Returns the branches to pass on, and refusals of invalid filters."""
    onward: dict[Branch, None] = {}
    refusals: list[Reply] = []
    for entry in entries:
        try:
            onward.update(dict.fromkeys(table.add(entry, None, previous, expires)))
        except FilterError:
            refusals.append(Refuse(previous, UNREADABLE))
    return list(onward), refusals


class SpacePaths:
    """The entries on their way through this peer, by space. A hop of None means that this peer owns the root."""

    def __init__(self, me: PeerId, expiry_ns: Nanos) -> None:
        self.by_space: dict[SpaceName, ReversePaths] = {}
        self._me = me
        self._expiry_ns = expiry_ns
        self._former: list[tuple[PeerId, SpaceName, list[Entry]]] = []
        """Former next hops, with the entries that they have to forget at the next beacon."""

    def add(
        self, now: Nanos, space: SpaceName, hop: PeerId | None, sender: PeerId, entries: Sequence[Entry], joined: bool
    ) -> list[Reply]:
        """Add the entries of a peer. Before this peer has joined the ring, nobody else hears of them."""
        table = self.by_space.get(space)
        if hop is None and sender != self._me:
            # the table has them if this peer did not own the root before
            replies = [] if table is None else self.remove(space, sender, entries)
            return [*replies, Outgoing(self._me, ToLeaves(space, "", sender, tuple(entries)))]
        if table is None:
            table = self.by_space[space] = ReversePaths()
        onward, replies = add_entries(table, entries, sender, now + self._expiry_ns)
        if hop != table.next_hop:
            replies += self._move(space, table, hop)
        elif joined:
            replies += self._tell(space, table, onward)
        self._drop_empty(space)
        return replies

    def remove(self, space: SpaceName, sender: PeerId, entries: Iterable[Entry]) -> list[Reply]:
        """Forget entries of a peer."""
        table = self.by_space.get(space)
        if table is None:
            return []
        return self._forget(space, table, [(e.id, sender) for e in entries if (e.id, sender) in table])

    def renew(self, now: Nanos, space: SpaceName, sender: PeerId, ids: Iterable[EntryId]) -> list[EntryId]:
        """Renew entries of a peer. Returns those that are unknown."""
        table = self.by_space.get(space)
        expires = now + self._expiry_ns
        return [id_ for id_ in ids if table is None or not table.renew(id_, sender, expires)]

    # ---------------------------------------------------------------- the next hop

    def move(self, space: SpaceName, hop: PeerId | None) -> list[Reply]:
        """Tell all entries to a new next hop."""
        return self._move(space, self.by_space[space], hop)

    def reroute(self, space: SpaceName, dead: PeerId, hop: PeerId | None) -> list[Reply]:
        """The same if the next hop is the one that does not answer."""
        table = self.by_space.get(space)
        if table is None or table.next_hop != dead:
            return []
        table.next_hop = None
        return self._move(space, table, hop)

    def tell(self, space: SpaceName, ids: Iterable[EntryId]) -> list[Reply]:
        """Tell entries to the next hop again."""
        table = self.by_space[space]
        return self._tell(space, table, table.of(ids))

    def tell_all(self, space: SpaceName) -> list[Reply]:
        table = self.by_space[space]
        return self._tell(space, table, table.onward)

    # ---------------------------------------------------------------- beacons

    def leave_former_hops(self) -> list[Reply]:
        """Former next hops forget the entries, since events take the new path by now."""
        former, self._former = self._former, []
        replies: list[Reply] = []
        for hop, space, entries in former:
            if space not in self.by_space or self.by_space[space].next_hop != hop:
                replies += _tell_gone(hop, space, entries)
        return replies

    def expire(self, now: Nanos, space: SpaceName) -> list[Reply]:
        """Renew this peer's own entries, and forget those that nobody has renewed."""
        table = self.by_space.get(space)
        if table is None:
            return []
        for id_, _ in table.came_from(self._me):
            table.renew(id_, self._me, now + self._expiry_ns + 1)
        return self._forget(space, table, table.expired(now))

    def renewals(self) -> list[Reply]:
        """Renew the entries at the next hops."""
        return [
            Outgoing(table.next_hop, RenewInSpace(space, ids))
            for space, table in self.by_space.items()
            if table.next_hop is not None
            for ids in batches(table.onward_ids)
        ]

    # ---------------------------------------------------------------- what the next hop hears

    def _move(self, space: SpaceName, table: ReversePaths, hop: PeerId | None) -> list[Reply]:
        former = table.next_hop
        table.move(hop)
        onward = table.onward
        if former is not None:
            self._former.append((former, space, [table.entry(branch) for branch in onward]))
        return self._tell(space, table, onward)

    def _tell(self, space: SpaceName, table: ReversePaths, onward: list[Branch]) -> list[Reply]:
        replies: list[Reply] = []
        for batch in batches(onward):
            entries = tuple([table.entry(branch) for branch in batch])
            if table.next_hop is None:
                replies.append(Outgoing(self._me, ToLeaves(space, "", self._me, entries)))
            else:
                replies.append(Outgoing(table.next_hop, WantInSpace(space, entries)))
        return replies

    def _forget(self, space: SpaceName, table: ReversePaths, branches: list[Branch]) -> list[Reply]:
        """Remove branches: the next hop hears of it, and of entries that they covered."""
        gone, onward = table.remove_all(branches)
        replies = self._tell(space, table, onward)
        if table.next_hop is not None:
            replies += _tell_gone(table.next_hop, space, gone)
        elif gone:
            replies.append(Outgoing(self._me, FromLeaves(space, "", self._me, tuple(gone))))
        self._drop_empty(space)
        return replies

    def _drop_empty(self, space: SpaceName) -> None:
        if space in self.by_space and not len(self.by_space[space]):
            del self.by_space[space]


def _tell_gone(hop: PeerId, space: SpaceName, entries: list[Entry]) -> list[Reply]:
    return [Outgoing(hop, UnwantInSpace(space, batch)) for batch in batches(entries)]
