"""What peers say to each other about who is linked to whom. Most of it goes to peers that are no neighbours yet.

Words may be lost, come twice or come late: whatever matters is said again every period.
"""

import msgspec

from wend.model.events import PeerId
from wend.model.paths import Path, Router

INCARNATION_SHIFT = 28
"""Peers number heartbeats and links from (incarnation << INCARNATION_SHIFT) on, so that those of a new incarnation are
higher. The incarnations of transmissions are shifted as far, so the numbers fit into 64 bits."""


class Gossip(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What spreads with the shuffles; each overlay uses the part that it needs."""

    epoch: int = 0
    minima: tuple[float, ...] = ()
    """The census, `census.py`."""
    landmarks: tuple[tuple[PeerId, int], ...] = ()
    """Each with its heartbeat."""
    homes: tuple[tuple[PeerId, Router, int], ...] = ()
    """Peers, the router each is at, and its heartbeat."""
    leader: PeerId = -1
    """The component that the sender belongs to, where it is sure; `whole.py`."""


class Shuffle(msgspec.Struct, frozen=True, gc=False, tag="os"):
    """Peers with their ages, of which the receiver may keep some; the answer is another one."""

    entries: tuple[tuple[PeerId, int], ...]
    gossip: Gossip
    answer: bool = False


class ProbePing(msgspec.Struct, frozen=True, gc=False, tag="og"):
    number: int


class ProbePong(msgspec.Struct, frozen=True, gc=False, tag="oG"):
    number: int


# ---- trees of landmarks


class JoinTree(msgspec.Struct, frozen=True, gc=False, tag="oj"):
    """To a landmark: take me into your tree."""

    near: bool = False
    """Below you, though my place is elsewhere: whoever is there cannot reach me."""


class Renew(msgspec.Struct, frozen=True, gc=False, tag="or"):
    """To a landmark, now and then: measure the path to me again, and find me a place if it is not this one."""

    path: Path


class Find(msgspec.Struct, frozen=True, gc=False, tag="of"):
    """Find a place for `peer` at or below you, in the tree of `root`."""

    root: PeerId
    peer: PeerId
    path: Path
    """From the root to the peer, as all paths of a tree."""


class Adopt(msgspec.Struct, frozen=True, gc=False, tag="oa"):
    """The sender is your parent in this tree, and these are your children."""

    root: PeerId
    path: Path
    parent_path: Path
    children: tuple[tuple[PeerId, Path], ...] = ()


class ParentAlive(msgspec.Struct, frozen=True, gc=False, tag="ok"):
    """From a child, every period: you are my parent in these trees."""

    roots: tuple[PeerId, ...]


class ChildAlive(msgspec.Struct, frozen=True, gc=False, tag="oK"):
    """The answer: I live; but in these trees you are not my child."""

    missing: tuple[PeerId, ...]


class Dissolve(msgspec.Struct, frozen=True, gc=False, tag="od"):
    """The landmark left. Passed down its tree."""

    root: PeerId
    beat: int


class Quit(msgspec.Struct, frozen=True, gc=False, tag="oq"):
    """The sender leaves; its parent in each tree, for its children to ask."""

    heirs: tuple[tuple[PeerId, PeerId], ...]


# ---- bonds between two peers


class Join(msgspec.Struct, frozen=True, gc=False, tag="oJ"):
    """Link with `peer`, or pass this on to a neighbour that lies on the way to it."""

    peer: PeerId
    path: Path | None = None
    """From the receiver to the peer; None where it has to be measured."""


class LinkOffer(msgspec.Struct, frozen=True, gc=False, tag="oO"):
    """The sender has linked you (quist calls it ACK): do the same, or decline. Its bonds are numbered."""

    number: int
    path: Path
    """From the sender to the receiver."""
    others: tuple[tuple[PeerId, Path], ...] = ()
    """Peers that lie behind the receiver, to be linked by it."""


class MultiJoin(msgspec.Struct, frozen=True, gc=False, tag="oM"):
    peers: tuple[tuple[PeerId, Path], ...]


class KeepAlive(msgspec.Struct, frozen=True, gc=False, tag="oA"):
    """Every period, over every bond; with the beacon of the component's leader."""

    number: int
    leader: PeerId
    beat: int


class Unlinked(msgspec.Struct, frozen=True, gc=False, tag="oP"):
    """Bonds that the sender numbered up to `mine` are void, and those that the receiver numbered up to `yours`."""

    mine: int
    yours: int
    heir: PeerId | None = None
    """Whom to join instead: the sender leaves."""


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
