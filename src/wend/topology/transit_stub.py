"""Transit-stub networks as GT-ITM draws them: a few well-meshed transit domains with stub domains attached.

quist (section 7.1.2) has 4 transit domains of 10 routers, and 4 stub domains of 10 at each router. Its "about 7900
edges" count both directions. dmm (section VI) has 10 stub domains of 10 at each of 50 transit routers, and states the
latencies. A transit domain is a complete graph. A stub domain is a random graph with half of the links, redrawn until
it is connected, and has one uplink. Pairs of transit domains are linked: all in quist, 0.7 of them in dmm, which gives
its 0.74 s between two peers.
"""

import math

import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.topology.underlay import LinkKind, RouterKind, Underlay, find_components
from wend.topology.underlay_builder import UnderlayBuilder, check_ranges, draw_delay

_TRIES = 1000
Range = tuple[float, float]


class TransitStub(msgspec.Struct, frozen=True):
    """Parameters. Delays are uniform in their ranges, so that hardly two paths have the same delay."""

    transit_domains: int = 4
    transit_size: int = 10
    transit_density: float = 1.0
    """The share of the pairs of transit domains that are linked."""
    stubs: int = 4
    """Stub domains at each transit router."""
    stub_size: int = 10
    stub_density: float = 0.5
    """The share of the pairs of routers in a stub domain that are linked."""
    stub_ms: Range = (1.0, 2.0)
    uplink_ms: Range = (2.0, 4.0)
    transit_ms: Range = (5.0, 8.0)
    between_ms: Range = (40.0, 56.0)


QUIST = TransitStub()
DMM = TransitStub(
    transit_domains=10,
    transit_size=5,
    transit_density=0.7,
    stubs=10,
    stub_ms=(45.0, 55.0),
    uplink_ms=(90.0, 110.0),
    transit_ms=(45.0, 55.0),
    between_ms=(100.0, 500.0),
)


def transit_stub(seed: int, shape: TransitStub = QUIST, name: str = "transit-stub") -> Underlay:
    _check(shape)
    builder = UnderlayBuilder(name)
    delays = stream(seed, "underlay", name, "delays")
    wiring = stream(seed, "underlay", name, "wiring")
    domains = [_add_transit_domain(builder, shape, d, delays) for d in range(shape.transit_domains)]
    for i, j in _connected_pairs(shape.transit_domains, shape.transit_density, 0, wiring):
        a, b = int(wiring.choice(domains[i])), int(wiring.choice(domains[j]))
        builder.add_link(a, b, LinkKind.TRANSIT, draw_delay(delays, shape.between_ms))
    stub = shape.transit_domains
    for domain in domains:
        for router in domain:
            for number in range(shape.stubs):
                _add_stub_domain(builder, shape, router, number, stub, wiring, delays)
                stub += 1
    return builder.build()


def _add_transit_domain(
    builder: UnderlayBuilder, shape: TransitStub, domain: int, delays: np.random.Generator
) -> list[int]:
    """Add a transit domain. Drawings show domains on a circle, and the routers of each on a smaller circle."""
    centre = _domain_centre(shape, domain)
    routers = []
    for i in range(shape.transit_size):
        turn = 2 * math.pi * i / shape.transit_size
        x, y = centre[0] + 95 * math.cos(turn), centre[1] + 95 * math.sin(turn)
        routers.append(builder.add_router(RouterKind.TRANSIT, domain, x, y))
    for i, a in enumerate(routers):
        for b in routers[i + 1 :]:
            builder.add_link(a, b, LinkKind.TRANSIT, draw_delay(delays, shape.transit_ms))
    return routers


def _domain_centre(shape: TransitStub, domain: int) -> tuple[float, float]:
    """The centre of a domain in drawings, far enough from the others for its stubs."""
    angle, half = 2 * math.pi * domain / shape.transit_domains, math.pi / shape.transit_domains
    radius = 200 / math.sin(half) if shape.transit_domains > 1 else 0.0
    return radius * math.cos(angle), radius * math.sin(angle)


def _add_stub_domain(
    builder: UnderlayBuilder,
    shape: TransitStub,
    transit: int,
    number: int,
    domain: int,
    wiring: np.random.Generator,
    delays: np.random.Generator,
) -> None:
    ring, spot = divmod(transit, shape.transit_size)
    outward = 2 * math.pi * spot / shape.transit_size
    fan = outward + (number - (shape.stubs - 1) / 2) * 2 * math.pi / (shape.transit_size * shape.stubs)
    x0, y0 = np.add(_domain_centre(shape, ring), (165 * math.cos(fan), 165 * math.sin(fan)))
    routers = []
    for i in range(shape.stub_size):
        turn = 2 * math.pi * i / shape.stub_size
        routers.append(builder.add_router(RouterKind.ACCESS, domain, x0 + 9 * math.cos(turn), y0 + 9 * math.sin(turn)))
    for i, j in _connected_pairs(shape.stub_size, shape.stub_density, domain, wiring):
        builder.add_link(routers[i], routers[j], LinkKind.INNER, draw_delay(delays, shape.stub_ms))
    gateway = int(wiring.choice(routers))
    builder.add_link(gateway, transit, LinkKind.BORDER, draw_delay(delays, shape.uplink_ms))


def _connected_pairs(size: int, density: float, turn: int, wiring: np.random.Generator) -> list[tuple[int, int]]:
    """Random pairs of `size` nodes, a share of all pairs, that form a connected graph."""
    upper = np.array([(i, j) for i in range(size) for j in range(i + 1, size)], dtype=np.int64).reshape(-1, 2)
    # Half of 45 pairs is 22 in one domain and 23 in the next: the network has the same number of links for every seed.
    share = density * len(upper)
    count = math.floor(share * (turn + 1)) - math.floor(share * turn)
    for _ in range(_TRIES):
        drawn = upper[np.sort(wiring.permutation(len(upper))[:count])]
        if find_components(size, drawn)[0] == 1:
            return [(int(i), int(j)) for i, j in drawn]
    raise ConfigError(f"transit-stub: {size} nodes with {density:g} of all links were not connected in {_TRIES} draws")


def _check(shape: TransitStub) -> None:
    for field in ("transit_domains", "transit_size", "stubs", "stub_size"):
        if getattr(shape, field) < 1:
            raise ConfigError(f"transit-stub: {field} must be at least 1, got {getattr(shape, field)}")
    for field in ("transit_density", "stub_density"):
        if not 0 < getattr(shape, field) <= 1:
            raise ConfigError(f"transit-stub: {field} must be in (0, 1], got {getattr(shape, field):g}")
    check_ranges("transit-stub", shape, ("stub_ms", "uplink_ms", "transit_ms", "between_ms"))
