"""The overlap of trees, counted by hand."""

from wend.studies.esposito.tree_overlap import Overlap, PairOverlap, TreeEdge, measure_overlap


def test_overlap_counts_edges_at_a_node_and_routes_of_events() -> None:
    one = [TreeEdge("b", "a", (1, 2)), TreeEdge("c", "b", (3, 4))]
    two = [TreeEdge("b", "c", (5, 3)), TreeEdge("a", "c", (6, 1))]
    # at a: (1 2) with (6 1); at b: (1 2), (3 4) with (5 3); at c: (3 4) with (5 3), (6 1)
    # a-b: 1 2 with 6 1 5 3; a-c: 1 2 3 4 with 6 1; b-c: 3 4 with 5 3
    assert measure_overlap([one, two]) == Overlap(PairOverlap(5, 3, 3), PairOverlap(3, 3, 3))
    assert measure_overlap([one]) == Overlap(PairOverlap(), PairOverlap())
    assert measure_overlap([one, two]).local.mean == 3 / 5
    assert PairOverlap().mean == 0.0


def test_trees_over_other_routers_are_diverse_on_both_counts() -> None:
    one = [TreeEdge("b", "a", (1, 2)), TreeEdge("c", "a", (1, 3))]
    two = [TreeEdge("a", "b", (4, None)), TreeEdge("c", "b", (5, None))]
    found = measure_overlap([one, two])
    assert (found.local.overlapping, found.between_routes.overlapping) == (0, 0)
    assert (found.local.pairs, found.between_routes.pairs) == (2 + 2 + 1, 3)
