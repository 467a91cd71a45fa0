"""The shortest routes between all peers of an overlay, and the overlay in which these routes are links.

A strategy that needs no links of its own, such as one on a DHT, runs on the second one, in the same world as one that
forwards hop by hop. Routes are fixed, as Internet routes are during an outage: a route is down while any of its links
is down.
"""

from math import prod

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.topology.faults import Faults, Intervals
from wend.topology.graph import Overlay, OverlayLink


def shortest_delays(overlay: Overlay) -> np.ndarray:
    """The delay of the shortest route between every two peers, in nanoseconds; -1 if there is none."""
    delays = dijkstra(_delay_matrix(overlay), directed=False)
    return np.where(np.isfinite(delays), delays, -1).astype(np.int64)


def make_routed_overlay(overlay: Overlay, faults: Faults) -> tuple[Overlay, Faults, list[list[int]]]:
    """The overlay with a link between all pairs of peers, the outages of these links, and their routes of links."""
    routes = dict(sorted(_find_routes(overlay).items()))
    links, by_link = [], [[] for _ in overlay.links]  # type: tuple[list[OverlayLink], list[list[int]]]
    for number, ((a, b), route) in enumerate(routes.items()):
        parts = [overlay.links[one] for one in route]
        delay, loss = sum(one.delay_ns for one in parts), 1 - prod(1 - one.loss for one in parts)
        links.append(OverlayLink(a, b, delay, loss))
        for one in route:
            by_link[one].append(number)
    down = [(number, start, until) for link, start, until in faults.outages() for number in by_link[link]]
    full = Overlay(overlay.peers, links, overlay.names, overlay.capacities, overlay.positions, overlay.remarks)
    return full, Intervals(len(links), down), list(routes.values())


def _delay_matrix(overlay: Overlay) -> csr_array:
    delays = np.array([link.delay_ns for link in overlay.links], dtype=np.float64)
    return csr_array((delays, overlay.ends), shape=(overlay.peers, overlay.peers))


def _find_routes(overlay: Overlay) -> dict[tuple[PeerId, PeerId], list[int]]:
    """By pair of peers: the links of the shortest route."""
    _, before = dijkstra(_delay_matrix(overlay), directed=False, return_predecessors=True)
    routes = {}
    for a in range(overlay.peers):
        for b in range(a + 1, overlay.peers):
            route, at = [], b
            while at != a:
                earlier = int(before[a, at])
                if earlier < 0:
                    raise ConfigError(f"there is no route between the peers {a} and {b}")
                route.append(overlay.link(earlier, at))
                at = earlier
            routes[a, b] = route
    return routes
