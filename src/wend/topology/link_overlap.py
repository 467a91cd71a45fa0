"""Overlap of overlay links: Q, the number of network devices that two links share (esposito, section 3.4).

End hosts do not count, because any two links of one peer share it. A lower Q means more diverse links; two links with
Q = 0 share no device and do not fail together.
"""

import numpy as np
from scipy.sparse import csr_array

from wend.topology.graph import Overlay
from wend.topology.placement import Placement
from wend.topology.underlay import Ints


def count_overlaps(placement: Placement, overlay: Overlay) -> csr_array:
    """(links, links): Q of every two overlay links. The diagonal holds the number of routers of each."""
    paths = placement.paths(*overlay.ends)
    routers = paths.components < paths.routers
    which = np.repeat(np.arange(len(paths)), np.diff(paths.starts))[routers]
    shape = (len(paths), paths.routers)
    on = csr_array((np.ones(len(which), dtype=np.int32), (which, paths.components[routers])), shape=shape)
    return (on @ on.T).tocsr()


def count_links_by_router(placement: Placement, overlay: Overlay) -> Ints:
    """For each router, the number of overlay links that run through it."""
    components = placement.paths(*overlay.ends).components
    return np.bincount(components[components < placement.underlay.routers], minlength=placement.underlay.routers)


def meeting_routers(placement: Placement, overlay: Overlay) -> Ints:
    """For each router that overlay links share, their number, else 0.

    Links of one peer begin at its router. That router counts only if another peer's link runs through it."""
    through = count_links_by_router(placement, overlay)
    paths = placement.paths(*overlay.ends)
    ends = {(i, int(paths[i][end])) for i in range(len(paths)) for end in (0, -1)}
    own = np.bincount([home for _, home in sorted(ends)] or np.zeros(0, dtype=int), minlength=len(through))
    return np.where((through > 1) & (through > own), through, 0)


def overlapping_share(placement: Placement, overlay: Overlay) -> float:
    """Of all pairs of links at one peer, the share that overlap beyond the router at which they begin."""
    shared = count_overlaps(placement, overlay).toarray()
    pairs = meet = 0
    for peer in range(overlay.peers):
        own = [overlay.link(peer, other) for other in overlay.neighbours(peer)]
        between = shared[np.ix_(own, own)][np.triu_indices(len(own), 1)]
        pairs += len(between)
        meet += int((between > 1).sum())
    return meet / max(1, pairs)
