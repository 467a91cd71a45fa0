"""The distances of a whole topology at once, with SciPy."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from wend.model.events import PeerId


def all_pairs(peers: int, links: list[tuple[PeerId, PeerId, int]]) -> np.ndarray:
    """The shortest distance between every two peers, as an integer; -1 if there is no path."""
    ends = np.array([(a, b) for a, b, _ in links], dtype=np.int64).reshape(-1, 2)
    costs = np.array([cost for *_, cost in links], dtype=np.float64)
    matrix = csr_array((costs, (ends[:, 0], ends[:, 1])), shape=(peers, peers))
    distances = dijkstra(matrix, directed=False)
    return np.where(np.isfinite(distances), distances, -1).astype(np.int64)
