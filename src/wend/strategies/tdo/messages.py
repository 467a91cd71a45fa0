"""The messages of the membership plug-ins. Most of them go to peers that are not neighbours yet.

A message may be lost, or arrive twice or late. So peers repeat what matters every period.
"""

from collections.abc import Iterator

import msgspec

from wend.model.events import PeerId
from wend.model.paths import Path, Router
from wend.protocol.plugins import PluginEffect, Refuse

Effects = Iterator[PluginEffect]
"""What the peer does, in order: the methods of overlays yield it."""

INCARNATION_SHIFT = 28
"""Peers number heartbeats and links from (incarnation << INCARNATION_SHIFT) on, so that those of a new incarnation are
higher. The incarnations of transmissions are shifted as far, so the numbers fit into 64 bits."""


class Gossip(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """State that spreads with shuffles; each membership uses the fields that it needs."""

    epoch: int = 0
    """The number of the census, which estimates how many peers there are."""
    minima: tuple[float, ...] = ()
    """The least numbers that peers drew for this census."""
    landmarks: tuple[tuple[PeerId, int], ...] = ()
    """The landmarks, each with its heartbeat."""
    homes: tuple[tuple[PeerId, Router, int], ...] = ()
    """Peers, the router each is at, and its heartbeat."""
    leader: PeerId = -1
    """The leader of the connected component that the sender belongs to; -1 if the sender is not sure."""


class Shuffle(msgspec.Struct, frozen=True, gc=False, tag="os"):
    """A sample of peers with their ages. The receiver may adopt some of them, and answers with a sample of its own."""

    entries: tuple[tuple[PeerId, int], ...]
    gossip: Gossip
    answer: bool = False


class ProbePing(msgspec.Struct, frozen=True, gc=False, tag="og"):
    """Are you there, and how far away?"""

    number: int


class ProbePong(msgspec.Struct, frozen=True, gc=False, tag="oG"):
    """The answer to `ProbePing`, with its number."""

    number: int


# ---- trees of landmarks


class JoinTree(msgspec.Struct, frozen=True, gc=False, tag="oj"):
    """To a landmark: the sender asks for a place in its tree."""

    near: bool = False
    """Whether to put the sender directly below the landmark, because the peers at its own place cannot reach it."""


class Renew(msgspec.Struct, frozen=True, gc=False, tag="or"):
    """To a landmark, now and then: measure the path to the sender again, and find it a place if its place changed."""

    path: Path


class Find(msgspec.Struct, frozen=True, gc=False, tag="of"):
    """Find a place for `peer` at or below the receiver, in the tree of `root`."""

    root: PeerId
    peer: PeerId
    path: Path
    """From the root to the peer, as all paths of a tree."""


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
    """The answer to `ParentAlive`: the receiver is not a child of the sender in the trees of these roots."""

    missing: tuple[PeerId, ...]


class Dissolve(msgspec.Struct, frozen=True, gc=False, tag="od"):
    """The landmark left; peers pass this down its tree."""

    root: PeerId
    beat: int


class Quit(msgspec.Struct, frozen=True, gc=False, tag="oq"):
    """The sender leaves. For each tree: the root, and the peer that its children are to ask instead."""

    heirs: tuple[tuple[PeerId, PeerId], ...]


# ---- links between two peers


class Join(msgspec.Struct, frozen=True, gc=False, tag="oJ"):
    """Link with `peer`, or pass this on to a neighbour on the path to it."""

    peer: PeerId
    path: Path | None = None
    """From the receiver to the peer; nil if it has to be measured."""


class LinkOffer(msgspec.Struct, frozen=True, gc=False, tag="oO"):
    """The sender has made a link and numbered it (quist calls this ACK): the receiver makes it, too, or declines."""

    number: int
    path: Path
    """From the sender to the receiver."""
    others: tuple[tuple[PeerId, Path], ...] = ()
    """Peers behind the receiver, which it is to link with."""


class MultiJoin(msgspec.Struct, frozen=True, gc=False, tag="oM"):
    """Join these peers, each with the path from the receiver."""

    peers: tuple[tuple[PeerId, Path], ...]


class KeepAlive(msgspec.Struct, frozen=True, gc=False, tag="oA"):
    """Every period over every link, with the heartbeat of the component's leader."""

    number: int
    leader: PeerId
    beat: int


class Unlinked(msgspec.Struct, frozen=True, gc=False, tag="oP"):
    """The links that the sender numbered up to `mine`, or the receiver up to `yours`, have ended."""

    mine: int
    yours: int
    heir: PeerId | None = None
    """If the sender leaves: the peer to join instead."""


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


def refuse(sender: PeerId, message: MembershipMessage) -> Refuse:
    return Refuse(sender, "invalid-message", type(message).__name__)
