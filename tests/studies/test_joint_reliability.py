"""Joint reliability and resilience of k trees, against the enumeration of every state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.trees import mrst, shortest_path_trees
from tests.topology.placements import overlays, placed, placements, row
from wend.model.errors import ConfigError
from wend.studies.quist.construction import compute_link_weights
from wend.studies.quist.joint_reliability import compute_joint_reliability, root_tree
from wend.topology.component_reliability import draw_reliabilities, draw_up_per_event
from wend.topology.graph import Overlay
from wend.topology.overlays import choose_landmarks, landmark, random_regular
from wend.topology.placement import Placement


def brute_force(paths: list[list[int]], reliability: np.ndarray, links: list[int]) -> tuple[float, float]:
    """The reliability and resilience of one pair, by trying every state of every component."""
    used = sorted({component for path in paths for component in path})
    whole = 0.0
    fewest = np.inf
    cuttable = {used.index(link) for link in links if link in used}
    for state in range(1 << len(used)):
        up = [bool(state >> i & 1) for i in range(len(used))]
        alive = any(all(up[used.index(component)] for component in path) for path in paths)
        if alive:
            whole += float(np.prod([reliability[c] if up[i] else 1 - reliability[c] for i, c in enumerate(used)]))
        elif all(up[i] or i in cuttable for i in range(len(used))):
            fewest = min(fewest, up.count(False))
    return whole, float(fewest)


def members(placement: Placement, overlay: Overlay, tree: list[int], a: int, b: int) -> list[int]:
    """The components of a path on a tree, in plain Python."""
    parent, uplink, depth = root_tree(overlay, tree)
    starts, components = placement.link_components(overlay)
    found = {placement.first_peer + a, placement.first_peer + b}
    while a != b:
        if depth[a] < depth[b]:
            a, b = b, a
        found |= set(components[starts[uplink[a]] : starts[uplink[a] + 1]].tolist())
        a = parent[a]
        found.add(placement.first_peer + a)
    return sorted(found)


@settings(max_examples=60)
@given(st.data(), st.integers(1, 3), st.integers(0, 999))
def test_joint_reliability_and_resilience_are_what_enumeration_says(data: st.DataObject, k: int, seed: int) -> None:
    placement = data.draw(placements(routers=4, peers=3))
    overlay = data.draw(overlays(placement))
    rng = np.random.default_rng(seed)
    chances = rng.choice([0.0, 0.3, 0.5, 0.9, 1.0], placement.components)
    trees = mrst(overlay, rng.random(len(overlay.links)), k)
    found = compute_joint_reliability(placement, overlay, trees, chances)
    links = list(range(placement.first_link, placement.first_peer))
    for i, (a, b) in enumerate(zip(found.a.tolist(), found.b.tolist(), strict=True)):
        for j in range(k):
            paths = [members(placement, overlay, tree, a, b) for tree in trees[: j + 1]]
            whole, fewest = brute_force(paths, chances, links)
            assert found.reliability[i, j] == pytest.approx(whole, abs=1e-12)
            assert found.resilience[i, j] == fewest


def test_a_sample_of_states_agrees_with_five_trees_on_a_large_network() -> None:
    placement = placed("power-law", 30, 1)
    overlay = random_regular(placement, 6, 1)
    chances = draw_reliabilities(placement, 1)
    trees = mrst(overlay, compute_link_weights(placement, overlay, chances), 5)
    found = compute_joint_reliability(placement, overlay, trees, chances, (np.array([3]), np.array([20])))
    paths = [members(placement, overlay, tree, 3, 20) for tree in trees]
    draws = 4000
    whole = 0
    for event in range(draws):
        up = draw_up_per_event(chances, 9, event)
        whole += any(up[path].all() for path in paths)
    assert found.reliability[0, -1] == pytest.approx(whole / draws, abs=4 * 0.5 / np.sqrt(draws))
    assert (np.diff(found.reliability[0]) >= -1e-12).all(), "one more path never hurts"


def test_one_path_is_a_product_and_has_resilience_one() -> None:
    placement = row(4, [0, 3])
    overlay = placement.overlay([(0, 1)])
    chances = np.linspace(0.9, 1.0, placement.components)
    found = compute_joint_reliability(placement, overlay, [[0], [0]], chances)
    assert found.reliability[0] == pytest.approx([chances.prod()] * 2), "the same path twice is no second chance"
    assert found.resilience[0].tolist() == [1.0, 1.0]


def test_peers_on_one_router_have_no_link_to_cut() -> None:
    placement = row(2, [0, 0, 1])
    found = compute_joint_reliability(
        placement, placement.overlay([(0, 1), (1, 2)]), [[0, 1]], np.full(placement.components, 0.9)
    )
    assert np.isinf(found.resilience[0, 0])
    assert found.mean_resilience().tolist() == [1.0]


@pytest.mark.parametrize(
    ("trees", "said"),
    [
        ([], "1 to 8 trees, not 0"),
        ([[0]] * 9, "1 to 8 trees, not 9"),
        ([[0]], "1 links are not a spanning tree: they reach 2 of 3 peers"),
        ([[0, 1, 2]], "are not a spanning tree"),
    ],
)
def test_what_is_no_tree_is_refused(trees: list[list[int]], said: str) -> None:
    placement = row(3, [0, 1, 2])
    overlay = placement.overlay([(0, 1), (1, 2), (0, 2)])
    with pytest.raises(ConfigError, match=said):
        compute_joint_reliability(placement, overlay, trees, np.ones(placement.components))
    with pytest.raises(ConfigError, match="need as many reliabilities, got 2"):
        compute_joint_reliability(placement, overlay, [[0, 1]], np.ones(2))


SAMPLE = 3000
"""The number of pairs of which the mean is taken: those of 250 peers are ten times as many."""


@pytest.mark.parametrize(
    ("name", "none", "aware", "own"),
    [
        ("transit-stub", (0.505, 0.627, 0.722), (0.693, 0.749, 0.786), (0.709, 0.793)),
        ("brite", (0.205, 0.296, 0.383), (0.416, 0.546, 0.698), (0.509, 0.802)),
    ],
)
def test_the_documented_reliabilities_come_out(
    name: str, none: tuple[float, ...], aware: tuple[float, ...], own: tuple[float, ...]
) -> None:
    """Joint reliability with 1, 2 and 5 trees, without and with landmarks, and of spt-k; means of eight runs."""
    got: dict[str, list[np.ndarray]] = {"none": [], "aware": [], "own": []}
    for seed in (1, 2, 3):
        placement = placed(name, 250, seed)
        a, b = placement.pairs()
        some = np.linspace(0, len(a) - 1, SAMPLE).astype(np.int64)
        pairs = a[some], b[some]
        chances = draw_reliabilities(placement, seed)
        overlay = landmark(placement, choose_landmarks(placement, 15, seed))
        for what, over in (("none", random_regular(placement, 15, seed)), ("aware", overlay)):
            trees = mrst(over, compute_link_weights(placement, over, chances), 5)
            got[what].append(compute_joint_reliability(placement, over, trees, chances, pairs).mean_reliability())
        trees = shortest_path_trees(placement, overlay, chances, 5, seed=seed)
        got["own"].append(compute_joint_reliability(placement, overlay, trees, chances, pairs).mean_reliability())
    means = {what: np.mean(rows, axis=0) for what, rows in got.items()}
    assert means["none"][[0, 1, 4]] == pytest.approx(none, abs=0.04)
    assert means["aware"][[0, 1, 4]] == pytest.approx(aware, abs=0.04)
    assert means["own"][[0, 4]] == pytest.approx(own, abs=0.04)
    assert (means["own"] > means["aware"]).all()
