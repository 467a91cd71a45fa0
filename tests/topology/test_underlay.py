"""Generated underlays: their sizes, their shape, and that the seed determines them."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.placements import is_same
from wend.model.errors import ConfigError
from wend.topology import transit_stub as ts
from wend.topology.brite import Brite, brite, draw_waxman_links
from wend.topology.catalog import DRAWN, list_real_maps, make
from wend.topology.powerlaw import PowerLaw, draw_pfp_links, power_law
from wend.topology.routing import shortest_paths
from wend.topology.underlay import LinkKind, RouterKind, Underlay, find_components, summarise_underlay
from wend.topology.underlay_builder import UnderlayBuilder


def mean_hops(underlay: Underlay) -> float:
    homes = underlay.access()[::10]
    here, there = np.meshgrid(homes, homes, indexing="ij")
    apart = here != there
    return float(shortest_paths(underlay, homes).paths(here[apart], there[apart]).lengths().mean() - 1)


@pytest.mark.parametrize("seed", range(1, 6))
def test_brite_has_the_thesis_size_and_length(seed: int) -> None:
    made = make("brite", seed)
    assert (made.routers, made.links) == (1640, 3320)
    assert 12 <= mean_hops(made) <= 14
    assert np.bincount(made.domain).tolist() == [82] * 20
    border = made.link_kind == LinkKind.BORDER
    assert border.sum() == 40
    assert (made.domain[made.ends[border, 0]] != made.domain[made.ends[border, 1]]).all()
    assert (made.domain[made.ends[~border, 0]] == made.domain[made.ends[~border, 1]]).all()


@pytest.mark.parametrize("seed", range(1, 6))
def test_transit_stub_has_the_thesis_size_and_length(seed: int) -> None:
    made = make("transit-stub", seed)
    assert made.routers == 1640
    assert abs(made.links - 3953) <= 60
    assert mean_hops(made) == pytest.approx(6.97, rel=0.1)
    assert (made.router_kind == RouterKind.TRANSIT).sum() == 40
    uplinks = made.ends[made.link_kind == LinkKind.BORDER]
    stubs = made.domain[np.where(made.router_kind[uplinks] == RouterKind.TRANSIT, uplinks[:, ::-1], uplinks)[:, 0]]
    assert np.unique(made.domain[made.access()]).tolist() == sorted(stubs.tolist()), "one uplink for each stub"


def test_dmms_variant_has_its_size_and_latency() -> None:
    made = make("transit-stub-dmm", 1)
    assert made.routers == 5050
    homes = made.access()[::25]
    assert shortest_paths(made, homes).delay_ns[:, homes].mean() / 1e9 == pytest.approx(0.74, rel=0.12)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("homing", ["single", "multi"])
def test_power_law_has_the_papers_size(homing: str, seed: int) -> None:
    made = power_law(seed, PowerLaw(homing=homing))  # type: ignore[arg-type]
    assert (made.routers, made.links, len(np.unique(made.domain))) == (300, 500, 8)
    borders = {d: set() for d in range(8)}
    for a, b in made.ends[made.link_kind == LinkKind.BORDER].tolist():
        borders[int(made.domain[a])].add(a)
        borders[int(made.domain[b])].add(b)
    if homing == "multi":
        assert min(map(len, borders.values())) >= 2
    else:
        assert min(map(len, borders.values())) == 1


def test_a_joining_as_prefers_those_with_many_links() -> None:
    rng = np.random.default_rng(1)
    degrees = np.sort(np.bincount(np.array(draw_pfp_links(400, "single", rng)).ravel()))[::-1]
    assert degrees[0] > 15 * np.median(degrees)
    assert len(draw_pfp_links(8, "multi", rng)) >= 3 + 2 * 5


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_the_seed_determines_an_underlay(name: str) -> None:
    if name == "transit-stub-dmm":
        shape = msgspec.structs.replace(ts.DMM, stubs=1)
        first, again, other = (ts.transit_stub(seed, shape) for seed in (1, 1, 2))
    else:
        first, again, other = make(name, 1), make(name, 1), make(name, 2)
    assert is_same(first, again)
    assert not is_same(first, other)


@pytest.mark.parametrize("salt", ["1", "2"])
def test_an_underlay_is_the_same_in_every_process(salt: str) -> None:
    """In this process, which has a hash seed of its own, and in another one."""
    code = "from wend.topology.powerlaw import power_law as p; u = p(3); print(u.ends.sum(), u.delay_ns.sum())"
    other = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": salt, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    here = power_law(3)
    assert other.stdout == f"{here.ends.sum()} {here.delay_ns.sum()}\n"


@settings(max_examples=60)
@given(st.integers(1, 3), st.integers(0, 20), st.integers(0, 999))
def test_a_waxman_level_has_m_links_for_each_node(m: int, more: int, seed: int) -> None:
    nodes = 2 * m + 1 + more
    rng = np.random.default_rng(seed)
    links = draw_waxman_links(rng.random((nodes, 2)), m, 0.2, 1.0, rng)
    assert len(set(links)) == len(links) == m * nodes
    assert all(0 <= a < b < nodes for a, b in links)
    assert find_components(nodes, np.array(links))[0] == 1


def test_a_waxman_level_prefers_near_nodes() -> None:
    rng = np.random.default_rng(5)
    spots = rng.random((300, 2))
    links = np.array(draw_waxman_links(spots, 2, 0.2, 1.0, rng))
    linked = np.hypot(*(spots[links[:, 0]] - spots[links[:, 1]]).T).mean()
    anyone = np.hypot(*(spots[:, None] - spots[None]).reshape(-1, 2).T).mean()
    assert linked < 0.8 * anyone


@settings(max_examples=25)
@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 6), st.floats(0.4, 1.0), st.integers(0, 99)
)
def test_any_transit_stub_is_connected(
    domains: int, size: int, stubs: int, stub: int, density: float, seed: int
) -> None:
    shape = ts.TransitStub(
        transit_domains=domains, transit_size=size, stubs=stubs, stub_size=stub, stub_density=density
    )
    try:
        made = ts.transit_stub(seed, shape)
    except ConfigError as error:
        assert "were not connected in 1000 draws" in str(error) and density * stub * (stub - 1) / 2 < stub
        return
    assert made.routers == domains * size * (1 + stubs * stub)
    assert find_components(made.routers, made.ends)[0] == 1


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ts.transit_stub(1, ts.TransitStub(stubs=0)), "stubs must be at least 1"),
        (lambda: ts.transit_stub(1, ts.TransitStub(stub_density=0.0)), "stub_density must be in"),
        (lambda: ts.transit_stub(1, ts.TransitStub(stub_ms=(0.0, 1.0))), "stub_ms must be a range"),
        (lambda: ts.transit_stub(1, ts.TransitStub(stub_density=0.1)), "were not connected in 1000 draws"),
        (lambda: brite(1, Brite(m=0)), "m must be at least 1"),
        (lambda: brite(1, Brite(domains=4)), "needs at least 5 domains, got 4"),
        (lambda: brite(1, Brite(beta=0.0)), "must be positive"),
        (lambda: power_law(1, PowerLaw(domains=2)), "needs 3 AS"),
        (lambda: power_law(1, PowerLaw(edges=5000)), "edges here, not 5000"),
        (lambda: power_law(1, PowerLaw(edges=300)), "edges here, not 300"),
        (lambda: power_law(1, PowerLaw(homing="none")), "homing is single or multi"),  # type: ignore[arg-type]
        (lambda: make("moon"), "there is no network 'moon'; known are transit-stub"),
        (lambda: make("topohub:moon/base"), "topohub has no map named 'moon/base'"),
    ],
)
def test_impossible_underlays_are_refused(made, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made()


def test_a_draft_refuses_unconnected_routers_and_links_without_delay() -> None:
    builder = UnderlayBuilder("two islands")
    a, b, c = (builder.add_router(RouterKind.ACCESS, 0) for _ in range(3))
    assert builder.add_link(a, b, LinkKind.INNER, 5)
    assert not builder.add_link(b, a, LinkKind.INNER, 7), "the first link between two routers stays"
    assert not builder.add_link(c, c, LinkKind.INNER, 7)
    with pytest.raises(ConfigError, match="not a connected network"):
        builder.build()
    builder.add_link(b, c, LinkKind.INNER, 0)
    with pytest.raises(ConfigError, match="link 1-2 has no delay"):
        builder.build()


def test_real_maps_are_listed_and_can_be_made() -> None:
    names = list_real_maps()
    assert names == sorted(names)
    assert {"topohub:topozoo/Abilene", "topohub:sndlib/germany50", "topohub:backbone/africa"} <= set(names)
    abilene = make("topohub:topozoo/Abilene")
    assert summarise_underlay(abilene)["routers"] == 11
    assert 1 < abilene.delay_ns.mean() / 1e6 < 20, "a thousand kilometres take five milliseconds"
