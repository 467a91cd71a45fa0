"""The messages of membership protocols. Most of them go to peers that are not neighbours yet.

Messages may be lost, duplicated or late. So peers repeat all essential messages every period.
"""

import msgspec

from wend.model.events import PeerId
from wend.model.paths import Path, Router

INCARNATION_SHIFT = 28
"""Peers number heartbeats and links from (incarnation << INCARNATION_SHIFT) on, so that those of a new incarnation are
higher. The incarnations of transmissions are shifted as far, so the numbers fit into 64 bits."""


class Gossip(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Data that spreads with the shuffles. Each membership uses the fields that it needs."""

    epoch: int = 0
    minima: tuple[float, ...] = ()
    """The minima of the census (`census.py`)."""
    landmarks: tuple[tuple[PeerId, int], ...] = ()
    """The landmarks, each with its heartbeat."""
    homes: tuple[tuple[PeerId, Router, int], ...] = ()
    """Peers, each with its home router and its heartbeat."""
    leader: PeerId = -1
    """The leader of the sender's component (`components.py`), or -1 if the sender is not sure."""


class Shuffle(msgspec.Struct, frozen=True, gc=False, tag="os"):
    """Peers with the ages of their entries. The receiver stores some and answers with a shuffle of its own."""

    entries: tuple[tuple[PeerId, int], ...]
    gossip: Gossip
    answer: bool = False


class ProbePing(msgspec.Struct, frozen=True, gc=False, tag="og"):
    """A probe that measures the round trip."""

    number: int


class ProbePong(msgspec.Struct, frozen=True, gc=False, tag="oG"):
    """The answer to `ProbePing`."""

    number: int


# ---- trees of landmarks


class JoinTree(msgspec.Struct, frozen=True, gc=False, tag="oj"):
    """To a landmark: the sender asks for a place in its tree."""

    near: bool = False
    """Whether the sender asks to be a child of the landmark itself, because the parent at its place cannot reach it."""


class Renew(msgspec.Struct, frozen=True, gc=False, tag="or"):
    """To a landmark: measure the path to the sender again. If it is not this one, find the sender a new place."""

    path: Path


class Find(msgspec.Struct, frozen=True, gc=False, tag="of"):
    """Find a place for `peer` at or below the receiver in the tree of `root`."""

    root: PeerId
    peer: PeerId
    path: Path
    """The path from the root to the peer. All paths of a tree start at the root."""


class Adopt(msgspec.Struct, frozen=True, gc=False, tag="oa"):
    """The sender is the receiver's parent in this tree, and `children` are the receiver's children."""

    root: PeerId
    path: Path
    parent_path: Path
    children: tuple[tuple[PeerId, Path], ...] = ()


class ParentAlive(msgspec.Struct, frozen=True, gc=False, tag="ok"):
    """From a child, every period: the receiver is its parent in these trees."""

    roots: tuple[PeerId, ...]


class ChildAlive(msgspec.Struct, frozen=True, gc=False, tag="oK"):
    """The answer to `ParentAlive`: the sender is up. In the trees of `missing` the receiver is not its child."""

    missing: tuple[PeerId, ...]


class Dissolve(msgspec.Struct, frozen=True, gc=False, tag="od"):
    """The landmark left. Peers pass the message down its tree."""

    root: PeerId
    beat: int


class Quit(msgspec.Struct, frozen=True, gc=False, tag="oq"):
    """The sender leaves. `heirs` names its parent in each tree, which its children ask for a place."""

    heirs: tuple[tuple[PeerId, PeerId], ...]


# ---- links between two peers


class Join(msgspec.Struct, frozen=True, gc=False, tag="oJ"):
    """Link to `peer`, or pass the request to a neighbour on the path to it."""

    peer: PeerId
    path: Path | None = None
    """The path from the receiver to the peer, or None if the receiver has to measure it."""


class LinkOffer(msgspec.Struct, frozen=True, gc=False, tag="oO"):
    """The sender has linked the receiver (quist calls it ACK), which links it too or declines. Links are numbered."""

    number: int
    path: Path
    """The path from the sender to the receiver."""
    others: tuple[tuple[PeerId, Path], ...] = ()
    """Peers behind the receiver, which the receiver should link."""


class MultiJoin(msgspec.Struct, frozen=True, gc=False, tag="oM"):
    """Several join requests, each with the path from the receiver to the peer."""

    peers: tuple[tuple[PeerId, Path], ...]


class KeepAlive(msgspec.Struct, frozen=True, gc=False, tag="oA"):
    """Sent over every link in every period, with the beacon of the component's leader."""

    number: int
    leader: PeerId
    beat: int


class Unlinked(msgspec.Struct, frozen=True, gc=False, tag="oP"):
    """Voids the links that the sender numbered up to `mine` and those that the receiver numbered up to `yours`."""

    mine: int
    yours: int
    heir: PeerId | None = None
    """The peer to join instead, if the sender leaves."""


MembershipMessage = (
    Shuffle
    | ProbePing
    | ProbePong
    | JoinTree
    | Renew
    | Find
    | Adopt
    | ParentAlive
    | ChildAlive
    | Dissolve
    | Quit
    | Join
    | LinkOffer
    | MultiJoin
    | KeepAlive
    | Unlinked
)
