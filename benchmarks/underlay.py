"""The speed of underlay routing and of joint reliability.

All paths of 1640 routers are compared with SciPy's Dijkstra, which is compiled, too, and gives distances and
predecessors, but breaks ties by the order of its heap. Joint reliability is compared with plain Python, which does the
same with sets for some of the pairs; its time is scaled to all of them.
"""

import itertools
import math
import time
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks.rows import Row
from tests.oracles.trees import mrst
from wend.studies.quist.construction import compute_link_weights
from wend.studies.quist.joint_reliability import compute_joint_reliability, root_tree
from wend.topology.catalog import make
from wend.topology.component_reliability import draw_reliabilities
from wend.topology.graph import Overlay
from wend.topology.overlays import choose_landmarks, landmark
from wend.topology.placement import Placement, attach_peers
from wend.topology.routing import shortest_paths

TREES = 5
SOME_PAIRS = 300


def measure() -> dict[str, float]:
    """CPU seconds, the best of three, after compilation."""
    under = make("brite", 1)
    shortest_paths(under, np.array([0]))
    routing = min(_cpu_seconds(lambda: shortest_paths(under)) for _ in range(3))
    ends = under.ends
    matrix = csr_array((under.delay_ns.astype(float), (ends[:, 0], ends[:, 1])), shape=(under.routers,) * 2)
    scipys = min(_cpu_seconds(lambda: dijkstra(matrix, directed=False, return_predecessors=True)) for _ in range(3))
    placement = attach_peers(under, 250, 1)
    chances = draw_reliabilities(placement, 1)
    overlay = landmark(placement, choose_landmarks(placement, 15, 1))
    trees = mrst(overlay, compute_link_weights(placement, overlay, chances), TREES)
    first = compute_joint_reliability(placement, overlay, trees, chances)
    together = min(
        _cpu_seconds(lambda: compute_joint_reliability(placement, overlay, trees, chances)) for _ in range(3)
    )
    began = time.thread_time()
    plain = _plain_reliability(
        placement, overlay, trees, chances, list(zip(first.a.tolist(), first.b.tolist(), strict=True))[:SOME_PAIRS]
    )
    python = (time.thread_time() - began) * len(first.a) / SOME_PAIRS
    assert np.allclose(plain, first.reliability[:SOME_PAIRS, -1])
    return {
        "underlay.all_paths_s": routing,
        "underlay.all_paths_scipy_s": scipys,
        "underlay.joint_s": together,
        "underlay.joint_python_s": python,
    }


def _plain_reliability(
    placement: Placement, overlay: Overlay, trees: list[list[int]], chances: np.ndarray, pairs: list[tuple[int, int]]
) -> list[float]:
    """Joint reliability by inclusion and exclusion over sets."""
    starts, components = placement.link_components(overlay)
    links = [frozenset(components[a:b].tolist()) for a, b in itertools.pairwise(starts.tolist())]
    rooted = [root_tree(overlay, tree) for tree in trees]
    logs = np.log(chances).tolist()
    found = []
    for a, b in pairs:
        paths = []
        for parent, uplink, depth in rooted:
            x, y, used = a, b, {placement.first_peer + a, placement.first_peer + b}
            while x != y:
                if depth[x] < depth[y]:
                    x, y = y, x
                used |= links[uplink[x]]
                x = parent[x]
                used.add(placement.first_peer + x)
            paths.append(used)
        total = 0.0
        for size in range(1, len(paths) + 1):
            for some in itertools.combinations(paths, size):
                total -= (-1) ** size * math.exp(sum(logs[c] for c in set().union(*some)))
        found.append(total)
    return found


def _cpu_seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def rows() -> list[Row]:
    found = measure()
    paths, joints = "underlay.all_paths", "underlay.joint"
    what = "CPU seconds for all paths of 1640 routers (SciPy's Dijkstra)"
    both = "CPU seconds for joint reliability of 250 peers, 5 trees (plain Python)"
    return [
        Row(f"{paths}_s", what, found[f"{paths}_s"], found[f"{paths}_scipy_s"], less_is_better=True),
        Row(f"{joints}_s", both, found[f"{joints}_s"], found[f"{joints}_python_s"], less_is_better=True),
    ]


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:28} {value:10.3f}")
