"""Copies of one event: which may be dropped where they meet, and which must go on.

A sender that misses an ACK sends another copy while the first may live; a hedge sends two on purpose. A
peer that has taken one on should not carry the other too. But if every meeting dropped the newcomer, two
copies could each be dropped at a peer that the other had passed, and the event would be lost. So copies
are ranked: each new copy of a destination ranks above the one it was made from, ties are broken by the
peer that made it, and a copy is dropped only where a strictly higher one has been. The highest copy is
never dropped, so one always goes on. Peers whose ids agree in 16 bits make copies of equal rank: then both
go on, which costs a packet and loses nothing.

A mark holds, for one destination, the rank and whether a hedge was made for it already.
"""

from wend.model.events import EventId, PeerId

_PEER_BITS = 16
_PEER_MASK = (1 << _PEER_BITS) - 1
_HEDGED = 1
_LAST_VERSION = (1 << (63 - _PEER_BITS - 1)) - 1
"""Nobody makes so many copies, but a neighbour may say so; a mark that is larger fits no message."""

Ranks = tuple[int, ...]
"""One per destination, in their order; empty where all are 0: the first copy, not hedged."""


def fork(rank: int, peer: PeerId) -> int:
    """The mark of a new copy, made by `peer` from one with this mark."""
    version = min((rank >> (_PEER_BITS + 1)) + 1, _LAST_VERSION)
    return ((version << _PEER_BITS | peer & _PEER_MASK) << 1) | (rank & _HEDGED)


def ranks_below(rank: int, other: int) -> bool:
    return rank >> 1 < other >> 1


def is_hedged(rank: int) -> bool:
    return bool(rank & _HEDGED)


def hedge(rank: int) -> int:
    return rank | _HEDGED


def subset(dests: tuple[PeerId, ...], of: tuple[PeerId, ...], ranks: Ranks) -> Ranks:
    """The marks of some destinations, given those of all."""
    if not ranks:
        return ()
    known = dict(zip(of, ranks, strict=False))
    return tuple(known[d] for d in dests)


class ForwardedCopies:
    """For which destinations this peer has taken an event on, and how the copy ranked; most recent events only.

    Two generations: when the younger is full it becomes the older, and the older is forgotten at once.
    """

    __slots__ = ("_older", "_taken", "limit")

    def __init__(self, limit: int = 4096) -> None:
        self.limit = limit
        """Events that are remembered at least; twice as many at most."""
        self._taken: dict[EventId, dict[PeerId, int] | tuple[PeerId, ...]] = {}
        """A tuple where all ranks are 0, as for most events: it is the packet's own."""
        self._older: dict[EventId, dict[PeerId, int] | tuple[PeerId, ...]] = {}

    def __len__(self) -> int:
        """How many events it remembers."""
        return len(self._taken) + len(self._older)

    def take(self, id_: EventId, dests: tuple[PeerId, ...], ranks: Ranks) -> tuple[tuple[PeerId, ...], Ranks]:
        """The destinations to carry on, with their marks; the others go on in a higher copy."""
        young = self._taken
        if id_ not in young and id_ not in self._older:
            if len(young) >= self.limit:
                self._older, self._taken = young, {}
            self._taken[id_] = dict(zip(dests, ranks, strict=False)) if ranks else dests
            return dests, ranks
        known = self._ranks(id_)
        fresh = []
        for dest, rank in zip(dests, ranks or (0,) * len(dests), strict=False):
            before = known.get(dest)
            if before is None or not ranks_below(rank, before):
                known[dest] = rank
                fresh.append((dest, rank))
        return tuple([d for d, _ in fresh]), tuple([r for _, r in fresh])

    def give_back(self, id_: EventId, dests: tuple[PeerId, ...]) -> None:
        """These went back to where they came from: any copy is welcome again."""
        if id_ in self._taken or id_ in self._older:
            ranks = self._ranks(id_)
            for dest in dests:
                ranks.pop(dest, None)

    def _ranks(self, id_: EventId) -> dict[PeerId, int]:
        generation = self._taken if id_ in self._taken else self._older
        ranks = generation[id_]
        if isinstance(ranks, tuple):
            ranks = generation[id_] = dict.fromkeys(ranks, 0)
        return ranks
