"""Generated overlays: full meshes, random regular graphs and random graphs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wend.model.errors import ConfigError
from wend.model.units import MS
from wend.topology.generators import full_mesh, random_graph, regular
from wend.topology.graph import Overlay, OverlayLink

RANGE = (10.0, 50.0)


@settings(deadline=None)
@given(st.integers(3, 24), st.integers(2, 8), st.integers(0, 2**32))
def test_a_regular_graph_is_regular_connected_and_repeatable(peers: int, degree: int, seed: int) -> None:
    if degree >= peers or degree * peers % 2:
        with pytest.raises(ConfigError, match="no regular graph"):
            regular(peers, degree, delay_ms=RANGE, loss=0.0, seed=seed)
        return
    made = regular(peers, degree, delay_ms=RANGE, loss=0.25, seed=seed)
    assert all(len(made.neighbours(p)) == degree for p in range(peers))
    assert made.is_connected()
    assert all(10 * MS <= link.delay_ns <= 50 * MS and link.loss == 0.25 for link in made.links)
    assert made.links == regular(peers, degree, delay_ms=RANGE, loss=0.25, seed=seed).links


@settings(deadline=None)
@given(st.integers(4, 24), st.integers(3, 8), st.integers(0, 2**32))
def test_a_random_graph_has_the_mean_degree_and_is_connected_and_repeatable(peers: int, degree: int, seed: int) -> None:
    if degree >= peers or degree * peers % 2:
        with pytest.raises(ConfigError, match="no graph has"):
            random_graph(peers, degree, delay_ms=RANGE, loss=0.0, seed=seed)
        return
    made = random_graph(peers, degree, delay_ms=RANGE, loss=0.0, seed=seed)
    assert sum(len(made.neighbours(p)) for p in range(peers)) == degree * peers
    assert made.is_connected()
    assert made.links == random_graph(peers, degree, delay_ms=RANGE, loss=0.0, seed=seed).links


def test_a_random_graph_has_peers_of_other_degrees_than_the_mean() -> None:
    made = random_graph(20, 4, delay_ms=RANGE, loss=0.0, seed=1)
    assert len({len(made.neighbours(p)) for p in range(20)}) > 1


def test_a_graph_that_is_never_connected_is_refused() -> None:
    with pytest.raises(ConfigError, match="found no connected graph of 40 peers with mean degree 1"):
        random_graph(40, 1, delay_ms=RANGE, loss=0.0, seed=1)


def test_other_seeds_give_other_graphs() -> None:
    graphs = {
        tuple((link.a, link.b) for link in regular(20, 4, delay_ms=RANGE, loss=0, seed=seed).links)
        for seed in range(20)
    }
    assert len(graphs) == 20


def test_a_mesh_links_every_two_peers() -> None:
    mesh = full_mesh(7, delay_ms=RANGE, loss=0.0, seed=1)
    assert [(link.a, link.b) for link in mesh.links] == [(a, b) for a in range(7) for b in range(a + 1, 7)]
    assert all(mesh.links[mesh.link(b, a)] == mesh.links[mesh.link(a, b)] for a in range(7) for b in range(a))


@pytest.mark.parametrize(
    "links", [[OverlayLink(1, 1, 5)], [OverlayLink(0, 5, 5)], [OverlayLink(1, 0, 5)], [OverlayLink(0, 1, 5)] * 2]
)
def test_impossible_links_are_refused(links: list[OverlayLink]) -> None:
    with pytest.raises(ConfigError, match="is a loop, a duplicate, or not ordered between peers"):
        Overlay(3, links)


def test_an_unconnected_overlay_is_detected() -> None:
    assert not Overlay(3, [OverlayLink(0, 1, 5)]).is_connected()
