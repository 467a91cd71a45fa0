"""The reliability of components (quist, Table 7.1), and failures drawn from it.

A reliability is `U^(1/alpha)` clipped to [0.85, 1], the inverted Pareto of section 7.3: most components are nearly
perfect, and -ln r is 1/alpha on average. Failures are drawn per event, as in the thesis, or as processes in time, in
which a component alternates between up and down and is up for the share of time that is its reliability. An overlay
link is up while all its components are.
"""

import numpy as np
from numpy.typing import NDArray

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.model.units import Nanos, seconds
from wend.topology.faults import Intervals, Outage
from wend.topology.placement import Placement
from wend.topology.underlay import Floats, Ints, LinkKind, RouterKind

ROUTER_ALPHA = {RouterKind.ACCESS: 50.0, RouterKind.TRANSIT: 100.0}
LINK_ALPHA = {LinkKind.INNER: 50.0, LinkKind.BORDER: 80.0, LinkKind.TRANSIT: 100.0}
PEER_ALPHA = 100.0
LAST_MILE_ALPHA = 200.0
WORST = 0.85


def draw_reliabilities(placement: Placement, seed: int) -> Floats:
    """The reliability of each component, in [0.85, 1]."""
    under = placement.underlay
    routers = np.array([ROUTER_ALPHA[RouterKind(int(kind))] for kind in under.router_kind])
    links = np.array([LINK_ALPHA[LinkKind(int(kind))] for kind in under.link_kind])
    alphas = {
        "routers": routers,
        "links": links,
        "peers": np.full(placement.peers, PEER_ALPHA),
        "last-miles": np.full(len(placement.accesses), LAST_MILE_ALPHA),
    }
    drawn = [stream(seed, "reliability", what).random(len(alpha)) ** (1 / alpha) for what, alpha in alphas.items()]
    return np.clip(np.concatenate(drawn), WORST, 1.0)


def path_reliabilities(starts: Ints, components: NDArray[np.int32], reliability: Floats) -> Floats:
    """The reliability of each path: the product over its components."""
    products: Floats = np.exp(np.add.reduceat(np.log(reliability)[components], starts[:-1]))
    return products


def draw_up_per_event(reliability: Floats, seed: int, event: int) -> NDArray[np.bool_]:
    """Whether each component is up for this event. Components and events are independent."""
    drawn: NDArray[np.bool_] = stream(seed, "failures", "event", event).random(len(reliability)) < reliability
    return drawn


def draw_outages_over_time(reliability: Floats, *, down_s: float, begin: Nanos, end: Nanos, seed: int) -> Intervals:
    """Outages of exponential length, `down_s` on average, as often as the reliabilities require.

    All components are up at first. A component with reliability 1 has no outages.
    """
    if down_s <= 0:
        raise ConfigError(f"the mean outage must be longer than 0 s, got {down_s:g} s")
    if (reliability <= 0).any():
        raise ConfigError("a component with reliability 0 is never up: outages in time need a reliability above 0")
    outages: list[Outage] = []
    for component in np.flatnonzero(reliability < 1).tolist():
        rng = stream(seed, "failures", "time", component)
        up_s = down_s * reliability[component] / (1 - reliability[component])
        now = begin + seconds(rng.exponential(up_s))
        while now < end:
            until = now + max(1, seconds(rng.exponential(down_s)))
            outages.append((component, now, min(until, end)))
            now = until + seconds(rng.exponential(up_s))
    return Intervals(len(reliability), outages)
