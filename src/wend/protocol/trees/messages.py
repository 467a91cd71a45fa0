"""The messages with which peers build trees. Trees are numbered from 0; links are ordered by their `Key`."""

import msgspec

from wend.model.events import PeerId

Key = tuple[int, float, PeerId, PeerId]
"""The sort key of a link in one tree: how many earlier trees use it, its weight, its ends. No two are equal."""


class Connect(msgspec.Struct, frozen=True, gc=False, tag="tc"):
    """The sender's fragment, of this level, asks to join the receiver's over this link."""

    tree: int
    level: int


class Initiate(msgspec.Struct, frozen=True, gc=False, tag="ti"):
    """The receiver belongs to the fragment of this core and level. If `finding`, it searches the best outgoing link."""

    tree: int
    level: int
    core: Key
    finding: bool


class Probe(msgspec.Struct, frozen=True, gc=False, tag="tt"):
    """Asks whether this link leads out of the sender's fragment. GHS calls it TEST."""

    tree: int
    level: int
    core: Key


class Accept(msgspec.Struct, frozen=True, gc=False, tag="ta"):
    """The answer to `Probe`: the ends are in different fragments."""

    tree: int


class Reject(msgspec.Struct, frozen=True, gc=False, tag="tr"):
    """The answer to `Probe`: both ends are in one fragment."""

    tree: int


class Report(msgspec.Struct, frozen=True, gc=False, tag="tp"):
    """The best outgoing link on the sender's side, or None if there is none."""

    tree: int
    best: Key | None


class ChangeCore(msgspec.Struct, frozen=True, gc=False, tag="th"):
    """The fragment's best outgoing link is on the receiver's side: connect over it."""

    tree: int


class Complete(msgspec.Struct, frozen=True, gc=False, tag="td"):
    """All trees are complete."""


GhsMessage = Connect | Initiate | Probe | Accept | Reject | Report | ChangeCore | Complete

# ---- shortest-path trees


class Explore(msgspec.Struct, frozen=True, gc=False, tag="tx"):
    """A wave from the coordinator to all peers, to count them."""


class Echo(msgspec.Struct, frozen=True, gc=False, tag="te"):
    """The number of peers at and below the sender, and the lowest lots among them: the candidates for roots."""

    peers: int
    lots: tuple[tuple[float, PeerId], ...]


class Begin(msgspec.Struct, frozen=True, gc=False, tag="tb"):
    """Measure the distances to these roots for this tree. The previous tree is that of the root at `chosen`."""

    tree: int
    roots: tuple[PeerId, ...]
    peers: int
    chosen: int


class Distances(msgspec.Struct, frozen=True, gc=False, tag="tv"):
    """The sender's distances to some roots, by index. The receiver answers when their effects have settled."""

    tree: int
    costs: tuple[tuple[int, int], ...]


class Settled(msgspec.Struct, frozen=True, gc=False, tag="ts"):
    """The answer: the effects of the receiver's message have settled."""

    tree: int


class Measure(msgspec.Struct, frozen=True, gc=False, tag="tm"):
    """All distances are final: measure the trees."""

    tree: int


class Parents(msgspec.Struct, frozen=True, gc=False, tag="tq"):
    """The receiver is the sender's parent in the trees of the roots at these indices, and in no other."""

    tree: int
    places: tuple[int, ...]


class Sizes(msgspec.Struct, frozen=True, gc=False, tag="tz"):
    """By root index: the number of peers at and below the sender, and the cost of the links there over all pairs."""

    tree: int
    sizes: tuple[tuple[int, int, float], ...]


class Best(msgspec.Struct, frozen=True, gc=False, tag="tw"):
    """The least total cost of a root at or below the sender, and its index."""

    tree: int
    total: float
    place: int


class TreesComplete(msgspec.Struct, frozen=True, gc=False, tag="tg"):
    """All trees are complete. The last is that of the root at `chosen`."""

    chosen: int


SptMessage = Explore | Echo | Begin | Distances | Settled | Measure | Parents | Sizes | Best | TreesComplete
TreeMessage = GhsMessage | SptMessage

# ---- generations

Generation = tuple[int, PeerId, int]
"""The number of a generation of trees, the peer that called for it, and that peer's incarnation. A restarted peer
counts from the start, so the incarnation keeps names unique. Of one number, the lower peer and its later incarnation
win."""


class LinkWeight(msgspec.Struct, frozen=True, gc=False, tag="t0"):
    """The first message over a link: the sender's failure probability, and its estimate of the link's."""

    peer_fails: float
    link_fails: float


class SequencedMessage(msgspec.Struct, frozen=True, gc=False, tag="t"):
    """A message of one generation, numbered per link, so that the receiver can restore the order."""

    generation: Generation
    number: int
    word: LinkWeight | TreeMessage


class FilterDemand(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Filters of subscriptions with one reliability target, and the costs of the worst route to any of them."""

    need: float
    own: int
    shared: int
    filters: tuple[str, ...]


class SubtreeInterest(msgspec.Struct, frozen=True, gc=False, tag="w"):
    """The filters at the sender and behind it on one tree of one generation. It replaces the previous message."""

    generation: Generation
    tree: int
    version: int
    claims: tuple[FilterDemand, ...]
    peers: tuple[tuple[PeerId, int, int], ...]
    """The sender and all peers behind it, with the costs of the route to each. They do not change."""
