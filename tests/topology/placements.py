"""Placements for tests: the thesis's, made once, and small ones for property tests, on underlays full of ties."""

from functools import cache

import numpy as np
from hypothesis import strategies as st

from wend.topology.catalog import make
from wend.topology.graph import Overlay
from wend.topology.placement import Placement, attach_peers
from wend.topology.underlay import LinkKind, RouterKind, Underlay
from wend.topology.underlay_builder import UnderlayBuilder


def is_same(one: Underlay, other: Underlay) -> bool:
    """Whether two networks are equal in everything that routing and reliability use."""
    columns = ("router_kind", "domain", "ends", "link_kind", "delay_ns")
    return all(np.array_equal(getattr(one, column), getattr(other, column)) for column in columns)


@cache
def placed(name: str, peers: int, seed: int) -> Placement:
    """Peers on an underlay of the catalogue. Tests share it and do not change it."""
    return attach_peers(make(name, seed), peers, seed)


@st.composite
def networks(draw: st.DrawFn, most: int = 9, least: int = 2) -> Underlay:
    """Delays are 1 to 3, so that many paths have the same delay."""
    routers = draw(st.integers(least, most))
    builder = UnderlayBuilder("drawn")
    for _ in range(routers):
        builder.add_router(RouterKind.ACCESS, 0)
    for router in range(1, routers):
        builder.add_link(router, draw(st.integers(0, router - 1)), LinkKind.INNER, draw(st.integers(1, 3)))
    for a, b in draw(st.lists(st.tuples(st.integers(0, routers - 1), st.integers(0, routers - 1)), max_size=12)):
        builder.add_link(a, b, LinkKind.INNER, draw(st.integers(1, 3)))
    return builder.build()


@st.composite
def placements(draw: st.DrawFn, routers: int = 7, peers: int = 5) -> Placement:
    """Some peers share a router."""
    under = draw(networks(routers))
    homes = draw(st.lists(st.integers(0, under.routers - 1), min_size=2, max_size=peers))
    return Placement(under, homes)


@st.composite
def overlays(draw: st.DrawFn, placement: Placement) -> Overlay:
    """A connected overlay."""
    pairs = {(draw(st.integers(0, peer - 1)), peer) for peer in range(1, placement.peers)}
    ends = st.integers(0, placement.peers - 1)
    pairs |= {(min(a, b), max(a, b)) for a, b in draw(st.lists(st.tuples(ends, ends), max_size=6)) if a != b}
    return placement.overlay(pairs)


def row(routers: int, homes: list[int]) -> Placement:
    """Routers in a line, with links of a millisecond."""
    builder = UnderlayBuilder("row")
    for _ in range(routers):
        builder.add_router(RouterKind.ACCESS, 0)
    for router in range(1, routers):
        builder.add_link(router - 1, router, LinkKind.INNER, 1_000_000)
    return Placement(builder.build(), homes)
