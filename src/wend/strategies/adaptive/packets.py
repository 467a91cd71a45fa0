"""A packet on its way through a peer, and the groups of its destinations by next hop."""

import msgspec

from wend.model.events import Event, PeerId
from wend.model.units import FOREVER, Nanos
from wend.protocol.plugins import Forward, Ranks, is_hedged
from wend.strategies.adaptive.spread_trees import SpreadTree

RETRIES = 2
"""How often it sends a packet again over the same link, where loss explains a missing ACK better than an outage."""

Group = list[tuple[PeerId, int, Nanos]]
"""Destinations of one packet: peer, rank, and when the packet has to arrive at the next hop."""
Groups = dict[PeerId, Group]


class Packet(msgspec.Struct, frozen=True, gc=False):
    """A packet to forward from here, with the next hops already tried for it."""

    event: Event
    born_ns: Nanos
    dests: tuple[PeerId, ...]
    ranks: Ranks
    path: tuple[PeerId, ...]
    tried: tuple[PeerId, ...]
    tree: SpreadTree | None = None
    """The tree that the publisher chose, under load."""


def forward(hop: PeerId, group: Group, packet: Packet, tree: SpreadTree | None = None, timed: bool = False) -> Forward:
    """`timed`: the packet has deadlines, though it may be too late for all of them."""
    dests, ranks = tuple([d for d, _, _ in group]), tuple([m for _, m, _ in group])
    confirm = any(map(is_hedged, ranks))
    due = tuple([due for _, _, due in group])
    if not timed and min(due) == FOREVER:
        due = ()
    where = (hop, packet.event, packet.born_ns, dests, packet.path, tree, ranks, packet.tried)
    return Forward(*where, 0, confirm, due, RETRIES)
