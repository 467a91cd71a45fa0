"""Returns a packet whose routes have all failed to the peer that it came from."""

from wend.model.events import Event, PeerId
from wend.model.units import Nanos
from wend.protocol.plugins.copy_ranks import Ranks, fork
from wend.protocol.plugins.ports import Forward, GiveUp
from wend.protocol.plugins.view import View

UPSTREAM_TRIES = 10
"""Transmissions to the upstream peer, which has no alternative, before this peer gives the packet up."""


def return_upstream(
    event: Event, born_ns: Nanos, dests: tuple[PeerId, ...], ranks: Ranks, path: tuple[PeerId, ...], view: View
) -> Forward | GiveUp:
    """Return the packet to the peer before this one's first occurrence in the path.

    It goes as a new copy: a late ACK of the earlier copy must not end the responsibility for the returned one.
    """
    first = path.index(view.me) if view.me in path else len(path)
    if first == 0 or path[first - 1] not in view.links:
        return GiveUp(event, born_ns, dests, "no-route-left", ranks)
    ranks = tuple(fork(rank, view.me) for rank in ranks or (0,) * len(dests))
    return Forward(path[first - 1], event, born_ns, dests, path, None, ranks, tries=UPSTREAM_TRIES)
