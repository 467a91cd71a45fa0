"""The messages by which peers build trees. Trees are numbered from 0; links are ordered by their `Key`."""

import msgspec

from wend.model.events import PeerId

Key = tuple[int, float, PeerId, PeerId]
"""A link as one tree orders it: how many trees before it use it, its weight, its ends. No two are equal."""


class Connect(msgspec.Struct, frozen=True, gc=False, tag="tc"):
    """The sender's GHS fragment, of this level, joins the receiver's over this link."""

    tree: int
    level: int


class Initiate(msgspec.Struct, frozen=True, gc=False, tag="ti"):
    """The receiver is in this core's fragment, of this level; if `finding`, it looks for the best outgoing link."""

    tree: int
    level: int
    core: Key
    finding: bool


class Probe(msgspec.Struct, frozen=True, gc=False, tag="tt"):
    """Does this link lead out of the sender's fragment? GHS calls it TEST."""

    tree: int
    level: int
    core: Key


class Accept(msgspec.Struct, frozen=True, gc=False, tag="ta"):
    """The answer to `Probe`: the link leads out."""

    tree: int


class Reject(msgspec.Struct, frozen=True, gc=False, tag="tr"):
    """The answer to `Probe`: both are in the same fragment."""

    tree: int


class Report(msgspec.Struct, frozen=True, gc=False, tag="tp"):
    """The best outgoing link on this side; nil if there is none."""

    tree: int
    best: Key | None


class ChangeCore(msgspec.Struct, frozen=True, gc=False, tag="th"):
    """The best outgoing link of the fragment is on the receiver's side: connect over it."""

    tree: int


class Complete(msgspec.Struct, frozen=True, gc=False, tag="td"):
    """All trees are complete."""


GhsMessage = Connect | Initiate | Probe | Accept | Reject | Report | ChangeCore | Complete

# ---- shortest-path trees


class Explore(msgspec.Struct, frozen=True, gc=False, tag="tx"):
    """From the coordinator to all peers: who is there?"""


class Echo(msgspec.Struct, frozen=True, gc=False, tag="te"):
    """The number of peers below the sender, and the best roots among them, each with the lot that it drew."""

    peers: int
    lots: tuple[tuple[float, PeerId], ...]


class Begin(msgspec.Struct, frozen=True, gc=False, tag="tb"):
    """Measure the distances to these roots, for this tree. The tree before it is that of the root at place `chosen`."""

    tree: int
    roots: tuple[PeerId, ...]
    peers: int
    chosen: int


class Distances(msgspec.Struct, frozen=True, gc=False, tag="tv"):
    """The sender's distance to some of the roots, by place. The receiver answers `Settled` once it has acted on it."""

    tree: int
    costs: tuple[tuple[int, int], ...]


class Settled(msgspec.Struct, frozen=True, gc=False, tag="ts"):
    """The answer to `Distances`."""

    tree: int


class Measure(msgspec.Struct, frozen=True, gc=False, tag="tm"):
    """All distances are known: compute the sizes of the trees."""

    tree: int


class Parents(msgspec.Struct, frozen=True, gc=False, tag="tq"):
    """The receiver is the sender's parent in the trees of the roots at these places, and in no other."""

    tree: int
    places: tuple[int, ...]


class Sizes(msgspec.Struct, frozen=True, gc=False, tag="tz"):
    """By place: the number of peers below the sender, and what their links add to the cost between all pairs."""

    tree: int
    sizes: tuple[tuple[int, int, float], ...]


class Best(msgspec.Struct, frozen=True, gc=False, tag="tw"):
    """The least total cost of a root below the sender, and its place."""

    tree: int
    total: float
    place: int


class TreesComplete(msgspec.Struct, frozen=True, gc=False, tag="tg"):
    """All trees are complete; the last is that of the root at place `chosen`."""

    chosen: int


SptMessage = Explore | Echo | Begin | Distances | Settled | Measure | Parents | Sizes | Best | TreesComplete
TreeMessage = GhsMessage | SptMessage

# ---- generations

Generation = tuple[int, PeerId, int]
"""The number of a generation of trees, the peer that called for it, and the incarnation in which it called.

A new incarnation counts from the start again and must not name a generation of a former one. Of two generations with
the same number, the one of the lower peer counts, and of the same peer the one of its later incarnation.
"""


class LinkWeight(msgspec.Struct, frozen=True, gc=False, tag="t0"):
    """The first message over a link: how likely the sender and the link fail, as the sender measures it."""

    peer_fails: float
    link_fails: float


class SequencedMessage(msgspec.Struct, frozen=True, gc=False, tag="t"):
    """A message of one generation, numbered per link, so that the receiver handles messages in order."""

    generation: Generation
    number: int
    message: LinkWeight | TreeMessage


class FilterDemand(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Filters of subscriptions with one reliability target, and the costs of the worst route to any of them."""

    need: float
    own: int
    shared: int
    filters: tuple[str, ...]


class SubtreeInterest(msgspec.Struct, frozen=True, gc=False, tag="w"):
    """The interest of the sender and the peers behind it, on one tree of one generation. It replaces the former one."""

    generation: Generation
    tree: int
    version: int
    claims: tuple[FilterDemand, ...]
    peers: tuple[tuple[PeerId, int, int], ...]
    """The sender and the peers behind it, with the costs of the route to each. They do not change."""
