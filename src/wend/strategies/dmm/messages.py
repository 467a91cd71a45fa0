"""The messages of `dmm` and `dmm-ar`.

The first group travels one hop, between a peer and the next one towards the root of a space. The second group is routed
to the peer that owns a region; peers on the route remember nothing. The third group carries events. The parts of `dmm`
return messages of the first two groups (`Reply`).
"""

from typing import Final

import msgspec

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Refuse, Timer
from wend.strategies.dmm.spaces import SpaceName
from wend.strategies.ring.key_based import Entry, EntryId
from wend.strategies.ring.reverse_paths import Outgoing

# ---------------------------------------------------------------- finding the tree, hop by hop


class EntriesInSpace(msgspec.Struct, frozen=True, gc=False):
    """Some entries of the sender's branch."""

    space: SpaceName
    entries: tuple[Entry, ...]


class IdsInSpace(msgspec.Struct, frozen=True, gc=False):
    """Some entries of the sender's branch, by id."""

    space: SpaceName
    ids: tuple[EntryId, ...]


class WantInSpace(EntriesInSpace, frozen=True, gc=False, tag="dw"):
    """The sender's branch wants the events that match these entries."""


class RenewInSpace(IdsInSpace, frozen=True, gc=False, tag="dr"):
    """The sender's branch still wants these entries. The receiver asks for those that it does not know."""


class UnknownInSpace(IdsInSpace, frozen=True, gc=False, tag="du"):
    """The answer to `RenewInSpace`: the receiver should send these entries again."""


class UnwantInSpace(EntriesInSpace, frozen=True, gc=False, tag="dx"):
    """The sender's branch no longer wants the events that match these entries."""


class TellAgain(msgspec.Struct, frozen=True, gc=False, tag="da"):
    """The sender took over a region of this space without its entries: the receiver should send its own again."""

    space: SpaceName


class LeafBranches(msgspec.Struct, frozen=True, gc=False, tag="db"):
    """Light replication: where the entries of a region of the sender come from, but not the entries."""

    space: SpaceName
    code: str
    split: bool
    peers: tuple[PeerId, ...]
    """Empty if the sender no longer has the region."""


# ---------------------------------------------------------------- to the peer that owns a region


class EntriesForLeaves(msgspec.Struct, frozen=True, gc=False):
    """Some entries whose events go to one peer."""

    space: SpaceName
    code: str
    back: PeerId
    """The last peer on the path that remembers the entries: events for them go there."""
    entries: tuple[Entry, ...]
    route_hops: int = 0


class ToLeaves(EntriesForLeaves, frozen=True, gc=False, tag="dl"):
    """Entries on their way down to the active leaves whose regions they meet."""


class ToCachedLeaf(EntriesForLeaves, frozen=True, gc=False, tag="dk"):
    """Entries for an active leaf that the sender remembers, and whose region contains theirs."""


class FromLeaves(EntriesForLeaves, frozen=True, gc=False, tag="dy"):
    """These entries leave the active leaves whose regions they meet."""


class GrowNode(msgspec.Struct, frozen=True, gc=False, tag="dg"):
    """This region is active. Its parent says so with every beacon, and a peer that hands it over."""

    space: SpaceName
    code: str
    split: bool = False
    """Whether its children are active instead."""
    route_hops: int = 0


class ChildActive(msgspec.Struct, frozen=True, gc=False, tag="dc"):
    """A child of this region is active, and has not heard from its parent for a long time."""

    space: SpaceName
    code: str
    route_hops: int = 0


COLLECT: Final = 0
"""A child is to send its entries to the parent."""
HOLD: Final = 1
"""The parent has them, and needs the child a little longer."""
DROP: Final = 2
"""The parent is the active leaf now, and the child is to go."""


class MergeNode(msgspec.Struct, frozen=True, gc=False, tag="dm"):
    """To a child: its parent takes the entries back. It repeats the message with every beacon."""

    space: SpaceName
    code: str
    step: int
    """0: send the entries to the parent. 1: the parent has them, and needs the child a little longer. 2: the parent is
    the active leaf now."""
    route_hops: int = 0


class ToHeldLeaf(EntriesForLeaves, frozen=True, gc=False, tag="dh"):
    """Entries for a child whose parent takes the entries back, and has these. They do not make the child active."""


class ChildEntries(EntriesForLeaves, frozen=True, gc=False, kw_only=True, tag="de"):
    """To the parent of a region, which takes its entries back: some entries of a child."""

    child: str
    total: int
    """How many entries the child has."""


class ChildDropped(msgspec.Struct, frozen=True, gc=False, tag="dp"):
    """To the parent of a region that has taken its entries back: this child is no longer active."""

    space: SpaceName
    code: str
    child: str
    route_hops: int = 0


Routed = (
    ToLeaves | ToCachedLeaf | FromLeaves | GrowNode | ChildActive | MergeNode | ToHeldLeaf | ChildEntries | ChildDropped
)


Reply = Outgoing | Routed | Refuse | Timer
"""An output of a part of `dmm`. A routed message goes to the owner of the region that it names."""

# ---------------------------------------------------------------- events

FINDING_TREE: Final = 0
"""On the way to the first region: peers that it passes serve their own branches."""
UP: Final = 1
"""From region to parent, to an active leaf."""
DOWN: Final = 2
"""From a region to its children, to the active leaves that it meets."""


class SeekLeaf(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="ds"):
    """An event on its way to an active leaf."""

    space: SpaceName
    code: str
    """The region that it is routed to now."""
    event: Event
    age_ns: Nanos
    hops: int
    state: int
    """0 while it is finding the tree, 1 on its way up, 2 on its way down."""
    cached: bool
    """Whether a peer that remembers the leaf sent it there directly."""
    route_hops: int
    """Since the last region."""
    last: PeerId | None = None
    """With `tree_cache_place=last`, after it has found the tree: the last peer before that, which the leaf informs."""


class DownPath(msgspec.Struct, frozen=True, gc=False, tag="dd"):
    """An event on its way back along the paths of entries to a space."""

    space: SpaceName
    event: Event
    age_ns: Nanos
    hops: int


class TreeInfo(msgspec.Struct, frozen=True, gc=False, tag="di"):
    """The sender owns this active leaf: the receiver may send events and entries there directly."""

    space: SpaceName
    code: str


DmmMessage = (
    WantInSpace
    | RenewInSpace
    | UnknownInSpace
    | UnwantInSpace
    | TellAgain
    | LeafBranches
    | Routed
    | SeekLeaf
    | DownPath
    | TreeInfo
)
