"""Copy ranks: they decide which of two copies of an event a peer drops and which it forwards.

If a sender misses an ACK, it sends another copy while the first may still be in transit; a hedge sends two
on purpose. A peer that has forwarded one copy should not forward the other. But if each peer dropped the
later copy, each copy could end at a peer that the other had passed, and the event would be lost. So copies
have ranks. A new copy for a destination ranks above the copy it was made from. The id of the peer that made
it breaks ties. A peer drops a copy only if it has forwarded one of strictly higher rank. No peer drops the
highest copy, so one copy always goes on. Peers whose ids agree in 16 bits make copies of equal rank: then
both go on, which costs a packet and loses nothing.

A copy rank is an integer per destination; its lowest bit says whether a hedge was already made.
"""

from wend.model.events import Event, EventId, PeerId

_PEER_BITS = 16
_PEER_MASK = (1 << _PEER_BITS) - 1
_HEDGED = 1
_LAST_VERSION = (1 << (63 - _PEER_BITS - 1)) - 1
"""The highest version. No peer makes that many copies, but a neighbour may claim it. A larger rank fits no message."""

CopyKey = EventId | tuple[EventId, int]
"""What all copies of an event share; for a coded event, all copies of one of its blocks."""
Ranks = tuple[int, ...]
"""One rank per destination, in their order. If all are 0 (the first copy, not hedged), the tuple is empty."""


def copy_key(event: Event) -> CopyKey:
    block = event.block
    return event.id if block is None else (event.id, block.index)


def fork(rank: int, peer: PeerId) -> int:
    """Return the rank of a new copy that `peer` makes from a copy of this rank."""
    version = min((rank >> (_PEER_BITS + 1)) + 1, _LAST_VERSION)
    return ((version << _PEER_BITS | peer & _PEER_MASK) << 1) | (rank & _HEDGED)


def ranks_below(rank: int, other: int) -> bool:
    return rank >> 1 < other >> 1


def is_hedged(rank: int) -> bool:
    return bool(rank & _HEDGED)


def hedge(rank: int) -> int:
    return rank | _HEDGED


def subset(dests: tuple[PeerId, ...], of: tuple[PeerId, ...], ranks: Ranks) -> Ranks:
    """Return the ranks of some destinations, given those of all."""
    if not ranks:
        return ()
    known = dict(zip(of, ranks, strict=False))
    return tuple(known[d] for d in dests)


class ForwardedCopies:
    """Remembers, for recent events, the destinations this peer has forwarded to and the rank of each copy.

    It has two generations: when the younger is full, it replaces the older, whose entries are lost.
    """

    __slots__ = ("_older", "_young", "limit")

    def __init__(self, limit: int = 4096) -> None:
        self.limit = limit
        """The least number of events and blocks remembered; the most is twice as many."""
        self._young: dict[CopyKey, dict[PeerId, int] | tuple[PeerId, ...]] = {}
        """The rank of each destination, by event. If all are 0, as for most events, only the tuple of destinations."""
        self._older: dict[CopyKey, dict[PeerId, int] | tuple[PeerId, ...]] = {}

    def __len__(self) -> int:
        """The number of events remembered."""
        return len(self._young) + len(self._older)

    def record(self, key: CopyKey, dests: tuple[PeerId, ...], ranks: Ranks) -> tuple[tuple[PeerId, ...], Ranks]:
        """Record a copy. Return the destinations to forward it to, with their ranks; higher copies serve the others."""
        young = self._young
        if key not in young and key not in self._older:
            if len(young) >= self.limit:
                self._older, self._young = young, {}
            self._young[key] = dict(zip(dests, ranks, strict=False)) if ranks else dests
            return dests, ranks
        known = self._ranks(key)
        fresh = []
        for dest, rank in zip(dests, ranks or (0,) * len(dests), strict=False):
            before = known.get(dest)
            if before is None or not ranks_below(rank, before):
                known[dest] = rank
                fresh.append((dest, rank))
        return tuple([d for d, _ in fresh]), tuple([r for _, r in fresh])

    def give_back(self, key: CopyKey, dests: tuple[PeerId, ...]) -> None:
        """Forget these destinations, since the copy went back upstream: this peer accepts any copy for them again."""
        if key in self._young or key in self._older:
            ranks = self._ranks(key)
            for dest in dests:
                ranks.pop(dest, None)

    def _ranks(self, key: CopyKey) -> dict[PeerId, int]:
        generation = self._young if key in self._young else self._older
        ranks = generation[key]
        if isinstance(ranks, tuple):
            ranks = generation[key] = dict.fromkeys(ranks, 0)
        return ranks
