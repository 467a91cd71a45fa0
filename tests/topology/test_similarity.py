"""The similarity of overlay and underlay: the thesis's examples, and every metric against its definition."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.placements import overlays, placed, placements, row
from wend.model.errors import ConfigError
from wend.model.paths import count_shared_routers
from wend.studies.quist.similarity import measure_discovery, measure_similarity
from wend.topology.link_overlap import count_links_by_router, count_overlaps, meeting_routers, overlapping_share
from wend.topology.overlays import chain, choose_landmarks, choose_traced, landmark, landmark_tree, random_regular
from wend.topology.placement import Placement
from wend.topology.underlay import LinkKind, RouterKind
from wend.topology.underlay_builder import UnderlayBuilder


def test_the_thesis_examples_of_hop_ratio_and_path_match() -> None:
    """Figure 7.2: r3 - r2 - r1 with peers on all three; the overlay links only the outer two, so 3 routers, 2 peers."""
    placement = row(3, [0, 1, 2])
    direct = placement.overlay([(0, 2), (0, 1)])
    got = measure_similarity(placement, direct)
    # 0-1: 2/2 and 0; 0-2: 3/2 and 1/3; 1-2 over 0: 2/3 and 0 + 1/3
    assert got.hop_ratio == pytest.approx((1 + 3 / 2 + 2 / 3) / 3)
    assert got.path_match == pytest.approx((0 + 1 / 3 + 1 / 3) / 3)
    assert got.stretch == pytest.approx((1 + 2 + 3) / (1 + 2 + 1))


def test_an_overlay_that_is_the_underlay_is_perfect() -> None:
    placement = row(4, [0, 1, 2, 3])
    assert measure_similarity(placement, placement.overlay([(0, 1), (1, 2), (2, 3)])) == (1.0, 1.0, 0.0)


@settings(max_examples=80)
@given(st.data())
def test_stretch_and_ratios_are_what_the_definitions_say(data: st.DataObject) -> None:
    placement = data.draw(placements())
    overlay = data.draw(overlays(placement))
    if len(set(placement.homes.tolist())) < placement.peers:
        return  # the thesis does not define it for peers on one router
    graph = nx.Graph()
    for link in overlay.links:
        graph.add_edge(link.a, link.b, cost=(int(placement.direct_ns[link.a, link.b]), 1))
    a, b = placement.pairs()
    longer = direct = 0
    least = most = 0.0
    for here, there in zip(a.tolist(), b.tolist(), strict=True):
        routes = [
            (sum(graph[x][y]["cost"][0] for x, y in pairwise(route)), len(route), route)
            for route in nx.all_simple_paths(graph, here, there)
        ]
        best = min(route[:2] for route in routes)
        longer += best[0]
        direct += int(placement.direct_ns[here, there])
        under = set(placement.path(here, there)) & set(placement.homes.tolist())
        ratios = []
        for route in (route[2] for route in routes if route[:2] == best):
            over = {int(placement.homes[p]) for p in route}
            ratios.append(len(under - over) / len(under) + len(over - under) / len(route))
        least, most = least + min(ratios), most + max(ratios)
    got = measure_similarity(placement, overlay)
    assert got.stretch == pytest.approx(longer / direct)
    assert least - 1e-9 <= got.path_match * len(a) <= most + 1e-9, "ties may go either way"


def test_an_overlay_that_is_not_connected_is_refused() -> None:
    placement = row(3, [0, 1, 2])
    with pytest.raises(ConfigError, match="the overlay is not connected"):
        measure_similarity(placement, placement.overlay([(0, 1)]))


@settings(max_examples=50)
@given(st.data())
def test_discovery_counts_links(data: st.DataObject) -> None:
    placement = data.draw(placements())
    ends = st.integers(0, placement.peers - 1)
    traced = data.draw(st.lists(st.tuples(ends, ends), max_size=8))

    def links(pairs: list[tuple[int, int]]) -> set[tuple[int, int]]:
        paths = [placement.path(a, b) for a, b in pairs]
        return {(min(x, y), max(x, y)) for path in paths for x, y in pairwise(path)}

    got = measure_discovery(placement, traced, 40)
    every = links([(a, b) for a in range(placement.peers) for b in range(a)])
    assert (got.discovered, got.total) == (len(links(traced)), len(every))
    assert got.ratio == (len(links(traced)) / len(every) if every else 1.0)
    assert got.efficiency == got.ratio / 40


def test_a_peers_parent_in_a_landmark_tree_is_the_last_peer_on_its_path() -> None:
    placement = row(6, [0, 2, 3, 5])
    assert landmark_tree(placement, 0) == [(0, 1), (1, 2), (2, 3)]
    assert landmark_tree(placement, 2) == [(1, 0), (2, 1), (2, 3)]
    assert [(link.a, link.b) for link in landmark(placement, [0, 2]).links] == [(0, 1), (1, 2), (2, 3)]


def test_peers_on_one_router_have_the_same_parent() -> None:
    placement = row(4, [0, 2, 2, 3])
    assert landmark_tree(placement, 0) == [(0, 1), (0, 2), (1, 3)]


def test_a_chain_cuts_paths_at_every_peer() -> None:
    placement = row(6, [0, 2, 3, 5])
    assert [(link.a, link.b) for link in chain(placement, [(3, 0)]).links] == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("name", ["transit-stub", "brite"])
def test_landmarks_stretch_and_discover_as_the_thesis_says(name: str) -> None:
    stretches, ratios = [], []
    for seed in (1, 2, 3):
        placement = placed(name, 250, seed)
        stretches.append(
            [
                measure_similarity(placement, landmark(placement, choose_landmarks(placement, k, seed))).stretch
                for k in (1, 5)
            ]
        )
        landmarks = choose_landmarks(placement, 20, seed)
        ratios.append(measure_discovery(placement, [(m, p) for m in landmarks for p in range(250) if p != m]).ratio)
    one, five = np.mean(stretches, axis=0)
    assert one <= 2.2
    assert five <= 1.5
    assert np.mean(ratios) >= 0.77


def test_overlays_are_drawn_by_name() -> None:
    placement = placed("power-law", 20, 1)
    assert choose_traced(placement, 3, 1) == choose_traced(placement, 3, 1) != choose_traced(placement, 3, 2)
    assert all(a != b for a, b in choose_traced(placement, 19, 1))
    assert {len(random_regular(placement, 4, 1).neighbours(p)) for p in range(20)} == {4}


# ---------------------------------------------------------------- overlap


def star() -> Placement:
    """Four access routers around one in the middle, a peer on each."""
    builder = UnderlayBuilder("star")
    for _ in range(5):
        builder.add_router(RouterKind.ACCESS, 0)
    for leaf in range(1, 5):
        builder.add_link(0, leaf, LinkKind.INNER, 100 + leaf)
    return Placement(builder.build(), [1, 2, 3, 4])


def test_two_links_through_one_router_share_it() -> None:
    placement = star()
    overlay = placement.overlay([(0, 1), (2, 3), (0, 2)])
    found = count_overlaps(placement, overlay).toarray()
    by = {(link.a, link.b): i for i, link in enumerate(overlay.links)}
    assert found[by[0, 1], by[2, 3]] == 1, "the middle"
    assert found[by[0, 1], by[0, 2]] == 2, "the middle and the router of peer 0"
    assert found.diagonal().tolist() == [3, 3, 3]
    assert count_links_by_router(placement, overlay).tolist() == [3, 2, 1, 2, 1]
    assert meeting_routers(placement, overlay).tolist() == [3, 0, 0, 0, 0], "a peer's own links begin at its router"


@settings(max_examples=50)
@given(st.data())
def test_q_is_the_size_of_the_intersection(data: st.DataObject) -> None:
    placement = data.draw(placements())
    overlay = data.draw(overlays(placement))
    found = count_overlaps(placement, overlay).toarray()
    paths = [placement.path(link.a, link.b) for link in overlay.links]
    assert found.tolist() == [[count_shared_routers(one, other) for other in paths] for one in paths]


def test_links_of_one_peer_meet_if_they_share_more_than_its_router() -> None:
    placement = star()
    assert overlapping_share(placement, placement.overlay([(0, 1), (0, 2), (2, 3)])) == 1.0
    assert overlapping_share(placement, placement.overlay([(0, 1), (2, 3)])) == 0.0
    line = row(3, [0, 1, 2])
    assert overlapping_share(line, line.overlay([(0, 1), (1, 2)])) == 0.0
    assert overlapping_share(line, line.overlay([(0, 1), (0, 2), (1, 2)])) == 2 / 3
