"""Two-level power-law networks: Positive-Feedback Preference between AS, a Heuristically Optimal Topology inside
(esposito, 4).

*PFP* (Zhou and Mondragon): an AS that joins prefers AS with many links, with weight k^(1 + delta log10 k), and its
host may add a link to another AS with many links. *HOT* (Li, Alderson, Willinger, Doyle) has no routers with many
links in the middle: the core is sparse, each gateway has two core routers, and the number of access routers per
gateway has a heavy tail.

The paper studies the parameter `homing`. With `single` an AS joins with one border link, so two trees into the AS share
it; with `multi` every AS has two or more border links, at different routers.
"""

import math
from typing import Literal

import msgspec
import numpy as np

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.topology.underlay import LinkKind, RouterKind, Underlay
from wend.topology.underlay_builder import UnderlayBuilder, check_ranges, draw_delay, weighted_choice

Homing = Literal["single", "multi"]
_DELTA = 0.048
_HOST_LINKS_ON = 0.4
"""The probability that the host of a joining AS adds a link to another AS."""


class PowerLaw(msgspec.Struct, frozen=True):
    """Parameters. A tenth of an AS's routers are core routers, a quarter are gateways. `tail` is the exponent of the
    number of access routers per gateway."""

    domains: int = 8
    routers: int = 300
    edges: int = 500
    homing: Homing = "multi"
    tail: float = 1.0
    core_ms: tuple[float, float] = (2.0, 6.0)
    access_ms: tuple[float, float] = (0.5, 2.0)
    border_ms: tuple[float, float] = (5.0, 30.0)


def power_law(seed: int, shape: PowerLaw | None = None, name: str = "power-law") -> Underlay:
    shape = shape or PowerLaw()
    sizes = _check(shape)
    between = draw_pfp_links(shape.domains, shape.homing, stream(seed, "underlay", name, "pfp"))
    inner = shape.edges - len(between)
    builder = UnderlayBuilder(name)
    delays = stream(seed, "underlay", name, "delays")
    wiring = stream(seed, "underlay", name, "hot")
    cores = [_add_as_routers(builder, shape, d, size, wiring, delays) for d, size in enumerate(sizes)]
    _add_border_links(builder, shape, between, cores, stream(seed, "underlay", name, "borders"), delays)
    _add_second_uplinks(builder, shape, inner - sum(map(_count_tree_edges, sizes)), sizes, wiring, delays)
    return builder.build()


def draw_pfp_links(nodes: int, homing: Homing, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The links between AS: a triangle that grows by preferential attachment."""
    links = {(0, 1), (0, 2), (1, 2)}
    for node in range(3, nodes):
        hosts: list[int] = []
        for _ in range(1 if homing == "single" else 2):
            hosts.append(_draw_rich_node(node, links, {node, *hosts}, rng))
            links.add((hosts[-1], node))
        if rng.random() < _HOST_LINKS_ON:
            near = {b for a, b in links if a == hosts[0]} | {a for a, b in links if b == hosts[0]}
            if len(near | {hosts[0], node}) < node:
                other = _draw_rich_node(node, links, near | {hosts[0], node}, rng)
                links.add((min(hosts[0], other), max(hosts[0], other)))
    return sorted(links)


def _draw_rich_node(nodes: int, links: set[tuple[int, int]], without: set[int], rng: np.random.Generator) -> int:
    degree = np.bincount(np.array(sorted(links)).ravel(), minlength=nodes)[:nodes].astype(np.float64)
    weight = np.where(degree > 0, degree ** (1 + _DELTA * np.log10(np.maximum(degree, 1))), 0.0)
    weight[sorted(n for n in without if n < nodes)] = 0.0
    return weighted_choice(rng, weight)


def _part_sizes(size: int) -> tuple[int, int]:
    """The number of core routers and of gateways of an AS."""
    core = max(3, size // 10)
    return core, max(2, size // 4)


def _core_links(core: int) -> list[tuple[int, int]]:
    """A ring; with four routers or more, chords across it, too."""
    ring = [(i, (i + 1) % core) for i in range(core)]
    return ring + ([(i, i + core // 2) for i in range(core // 2)] if core > 3 else [])


def _count_tree_edges(size: int) -> int:
    core, gateways = _part_sizes(size)
    return len(_core_links(core)) + 2 * gateways + (size - core - gateways)


def _add_as_routers(
    builder: UnderlayBuilder,
    shape: PowerLaw,
    domain: int,
    size: int,
    rng: np.random.Generator,
    delays: np.random.Generator,
) -> list[int]:
    """Add the routers of an AS: core, gateways with two uplinks, access routers with one. Returns the core."""
    core, gateways = _part_sizes(size)
    angle = 2 * math.pi * domain / shape.domains
    x0, y0 = 300 * math.cos(angle), 300 * math.sin(angle)
    first = len(builder)
    uplinks: list[int] = []
    popular = 1 / np.arange(1, gateways + 1) ** shape.tail
    for i in range(size):
        if i < core:
            radius, turn = 18.0, 2 * math.pi * i / core
        elif i < core + gateways:
            radius, turn = 52.0, 2 * math.pi * (i - core) / gateways
        else:
            uplinks.append(weighted_choice(rng, popular))
            radius, turn = 92.0, 2 * math.pi * (i - core - gateways) / max(1, size - core - gateways)
        builder.add_router(RouterKind.ACCESS, domain, x0 + radius * math.cos(turn), y0 + radius * math.sin(turn))
    for a, b in _core_links(core):
        builder.add_link(first + a, first + b, LinkKind.INNER, draw_delay(delays, shape.core_ms))
    for i in range(gateways):
        for upper in rng.permutation(core)[:2].tolist():
            builder.add_link(first + core + i, first + upper, LinkKind.INNER, draw_delay(delays, shape.core_ms))
    for i, gateway in enumerate(sorted(uplinks)):  # sorted: neighbours on the circle share a gateway
        builder.add_link(
            first + core + gateways + i, first + core + gateway, LinkKind.INNER, draw_delay(delays, shape.access_ms)
        )
    return list(range(first, first + core))


def _add_border_links(
    builder: UnderlayBuilder,
    shape: PowerLaw,
    between: list[tuple[int, int]],
    cores: list[list[int]],
    rng: np.random.Generator,
    delays: np.random.Generator,
) -> None:
    """Add the links between AS. Each ends at the core routers with the fewest border links, so that the border links
    of an AS are at different routers."""
    used = {router: 0 for core in cores for router in core}
    for a, b in between:
        here, there = (min(rng.permutation(cores[d]).tolist(), key=used.__getitem__) for d in (a, b))
        used[here] += 1
        used[there] += 1
        builder.add_link(here, there, LinkKind.BORDER, draw_delay(delays, shape.border_ms))


def _add_second_uplinks(
    builder: UnderlayBuilder,
    shape: PowerLaw,
    count: int,
    sizes: list[int],
    rng: np.random.Generator,
    delays: np.random.Generator,
) -> None:
    """Spend the remaining edges on links from access routers to a second gateway of their AS."""
    free = []
    first = 0
    for size in sizes:
        core, gateways = _part_sizes(size)
        upper = range(first + core, first + core + gateways)
        free += [
            (a, g) for a in range(first + core + gateways, first + size) for g in upper if not builder.has_link(a, g)
        ]
        first += size
    if not 0 <= count <= len(free):
        least = shape.edges - count
        raise ConfigError(
            f"power-law: {shape.routers} routers in {shape.domains} AS take {least} to {least + len(free)} edges here, "
            f"not {shape.edges}"
        )
    for i in sorted(rng.permutation(len(free))[:count].tolist()):
        access, gateway = free[i]
        builder.add_link(access, gateway, LinkKind.INNER, draw_delay(delays, shape.access_ms))


def _check(shape: PowerLaw) -> list[int]:
    if shape.homing not in ("single", "multi"):
        raise ConfigError(f"power-law: homing is single or multi, not {shape.homing!r}")
    if shape.domains < 3 or shape.routers < 6 * shape.domains:
        raise ConfigError(
            f"power-law: needs 3 AS and 6 routers in each, got {shape.domains} AS and {shape.routers} routers"
        )
    check_ranges("power-law", shape, ("core_ms", "access_ms", "border_ms"))
    each, left = divmod(shape.routers, shape.domains)
    return [each + (d < left) for d in range(shape.domains)]
