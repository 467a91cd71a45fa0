"""The messages of `pastry`. A message may be lost or late, so a peer repeats what it needs an answer to.

Messages name peers by their ids: a peer's place on the ring follows from its id (`model/keys.py`).
"""

import msgspec

from wend.model.events import PeerId
from wend.model.keys import COLUMNS, DIGITS

MAX_HOPS = 2 * DIGITS
MAX_PEERS = COLUMNS
"""In a row of the routing table, and in a leaf set."""
MAX_DEAD = 16
"""Peers that one message may call dead."""


class JoinRequest(msgspec.Struct, frozen=True, gc=False, tag="pj"):
    """Travels to the peer closest to the joiner's place. A peer that has joined looks for other rings this way."""

    joiner: PeerId
    hops: int = 0
    rows: bool = True
    """Whether the peers on the route send rows of their tables to the joiner."""


class JoinReply(msgspec.Struct, frozen=True, gc=False, tag="pJ"):
    """To the joiner: the sender is the closest peer, with this leaf set."""

    leaves: tuple[PeerId, ...]


class TableRow(msgspec.Struct, frozen=True, gc=False, tag="pr"):
    """The peers of one row of the sender's routing table."""

    row: int
    peers: tuple[PeerId, ...]


class RowRequest(msgspec.Struct, frozen=True, gc=False, tag="pR"):
    """Asks for a row of the receiver's routing table. The answer is `TableRow`."""

    row: int


class LeafExchange(msgspec.Struct, frozen=True, gc=False):
    """The leaf set of the sender, and the peers that it lately found dead."""

    number: int
    incarnation: int
    leaves: tuple[PeerId, ...]
    dead: tuple[PeerId, ...] = ()


class LeafProbe(LeafExchange, frozen=True, gc=False, tag="pp"):
    """Asks for a sign of life. The answer is `LeafReply`."""


class LeafReply(LeafExchange, frozen=True, gc=False, tag="pP"):
    """The answer to `LeafProbe`, with its number."""


class RingHeartbeat(msgspec.Struct, frozen=True, gc=False, tag="ph"):
    """From a peer to its predecessor, every period, with its leaf set."""

    leaves: tuple[PeerId, ...]


class TablePing(msgspec.Struct, frozen=True, gc=False, tag="pg"):
    """Asks for an answer, to measure the round trip."""

    number: int


class TablePong(msgspec.Struct, frozen=True, gc=False, tag="pG"):
    """The answer to `TablePing`, with its number."""

    number: int


class RingLeave(msgspec.Struct, frozen=True, gc=False, tag="pq"):
    """The sender leaves the ring; its leaf set takes its place."""

    incarnation: int
    leaves: tuple[PeerId, ...]


PastryMessage = (
    JoinRequest
    | JoinReply
    | TableRow
    | RowRequest
    | LeafProbe
    | LeafReply
    | RingHeartbeat
    | TablePing
    | TablePong
    | RingLeave
)


def is_invalid(sender: PeerId, message: PastryMessage) -> bool:
    """Whether no correct peer sends such a message."""
    match message:
        case RingHeartbeat(leaves) | RingLeave(_, leaves) | JoinReply(leaves):
            return not _are_distinct(sender, leaves)
        case LeafExchange(_, _, leaves, dead):
            return not _are_distinct(sender, leaves) or len(dead) > MAX_DEAD or sender in dead
        case TableRow(row, peers):
            return not 0 <= row < DIGITS or not _are_distinct(sender, peers)
        case RowRequest(row):
            return not 0 <= row < DIGITS
        case JoinRequest(joiner, hops, _):
            return not 0 <= hops <= MAX_HOPS or (joiner == sender) != (hops == 0)
    return False


def _are_distinct(sender: PeerId, peers: tuple[PeerId, ...]) -> bool:
    """Whether this can be a leaf set or a row: not too many peers, none of them twice, and not its owner."""
    return len(peers) <= MAX_PEERS and sender not in peers and len(set(peers)) == len(peers)
