"""What peers say to each other while they build trees. Trees are numbered from 0; links are ordered by their `Key`."""

import msgspec

from wend.model.events import PeerId

Key = tuple[int, float, PeerId, PeerId]
"""A link as one tree orders it: how many trees before it use it, its weight, its ends. No two are equal."""


class Connect(msgspec.Struct, frozen=True, gc=False, tag="tc"):
    """My fragment, of this level, joins yours over this link."""

    tree: int
    level: int


class Initiate(msgspec.Struct, frozen=True, gc=False, tag="ti"):
    """You belong to the fragment with this core, of this level; look for its best way out if it is `finding`."""

    tree: int
    level: int
    core: Key
    finding: bool


class Probe(msgspec.Struct, frozen=True, gc=False, tag="tt"):
    """Does this link lead out of my fragment? GHS calls it TEST."""

    tree: int
    level: int
    core: Key


class Accept(msgspec.Struct, frozen=True, gc=False, tag="ta"):
    tree: int


class Reject(msgspec.Struct, frozen=True, gc=False, tag="tr"):
    tree: int


class Report(msgspec.Struct, frozen=True, gc=False, tag="tp"):
    """The best way out that was found on this side; None where there is none."""

    tree: int
    best: Key | None


class ChangeCore(msgspec.Struct, frozen=True, gc=False, tag="th"):
    """The best way out of all is on your side: connect over it."""

    tree: int


class Complete(msgspec.Struct, frozen=True, gc=False, tag="td"):
    """All trees stand."""


GhsMessage = Connect | Initiate | Probe | Accept | Reject | Report | ChangeCore | Complete

# ---- shortest-path trees


class Explore(msgspec.Struct, frozen=True, gc=False, tag="tx"):
    """From the coordinator to all: who is there?"""


class Echo(msgspec.Struct, frozen=True, gc=False, tag="te"):
    """So many peers below me, and the best of them as roots, each with the lot it drew."""

    peers: int
    lots: tuple[tuple[float, PeerId], ...]


class Begin(msgspec.Struct, frozen=True, gc=False, tag="tb"):
    """Measure the distances to these roots, for this tree; the tree before it is that of the root at `chosen`."""

    tree: int
    roots: tuple[PeerId, ...]
    peers: int
    chosen: int


class Distances(msgspec.Struct, frozen=True, gc=False, tag="tv"):
    """My distance to some of the roots, by place; every one is answered, once it has had its effect."""

    tree: int
    costs: tuple[tuple[int, int], ...]


class Settled(msgspec.Struct, frozen=True, gc=False, tag="ts"):
    """What you told me has had its effect."""

    tree: int


class Measure(msgspec.Struct, frozen=True, gc=False, tag="tm"):
    """All distances are known: measure the trees."""

    tree: int


class Parents(msgspec.Struct, frozen=True, gc=False, tag="tq"):
    """You are my parent in the trees of the roots at these places, and in no other."""

    tree: int
    places: tuple[int, ...]


class Sizes(msgspec.Struct, frozen=True, gc=False, tag="tz"):
    """By place: how many peers are below me, and what all links down there add to the cost between all pairs."""

    tree: int
    sizes: tuple[tuple[int, int, float], ...]


class Best(msgspec.Struct, frozen=True, gc=False, tag="tw"):
    """The least total cost of a root below me, and its place."""

    tree: int
    total: float
    place: int


class TreesComplete(msgspec.Struct, frozen=True, gc=False, tag="tg"):
    """All trees stand; the last is that of the root at `chosen`."""

    chosen: int


SptMessage = Explore | Echo | Begin | Distances | Settled | Measure | Parents | Sizes | Best | TreesComplete
TreeMessage = GhsMessage | SptMessage

# ---- generations

Generation = tuple[int, PeerId, int]
"""The number of a generation of trees, the peer that called for it, and the life that it called in: a life counts from
the start again, and must not name what a former one named. Of one number the lower peer's counts, and its later life's.
"""


class LinkWeight(msgspec.Struct, frozen=True, gc=False, tag="t0"):
    """The first word over a link: how likely the sender and the link fail, as the sender sees it."""

    peer_fails: float
    link_fails: float


class SequencedMessage(msgspec.Struct, frozen=True, gc=False, tag="t"):
    """A word of one generation, numbered per link, so that words come in order."""

    generation: Generation
    number: int
    word: LinkWeight | TreeMessage


class FilterDemand(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Filters of subscriptions with one reliability target, and the costs of the worst way to any of them."""

    need: float
    own: int
    shared: int
    filters: tuple[str, ...]


class SubtreeInterest(msgspec.Struct, frozen=True, gc=False, tag="w"):
    """What is wanted at the sender and behind it, on one tree of one generation; replaces what was said before."""

    generation: Generation
    tree: int
    version: int
    claims: tuple[FilterDemand, ...]
    peers: tuple[tuple[PeerId, int, int], ...]
    """All who are there: the sender and those behind it, with the costs of the way to each. They do not change."""
