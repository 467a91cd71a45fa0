"""A packet on its way through a peer, and the groups of its destinations by next hop."""

import msgspec

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import Ranks
from wend.strategies.adaptive.spread_trees import SpreadTree

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
