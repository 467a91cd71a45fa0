"""Events through the protocol's own tables deliver what is counted on the trees, with no copy more."""

import numpy as np
import pytest

from tests.topology.placements import placed
from wend.matching.filters import parse
from wend.studies.quist.construction import build_trees, compute_link_weights
from wend.studies.quist.table_forwarding import publish_by_tables
from wend.studies.quist.tree_forwarding import draw_workload, publish_events
from wend.topology.component_reliability import draw_reliabilities
from wend.topology.overlays import choose_landmarks, landmark

PEERS = 40


@pytest.mark.parametrize("builder", ["mrst", "spt-k"])
def test_tables_deliver_what_is_counted_on_the_trees(builder: str) -> None:
    for seed in (1, 2, 3):
        placement = placed("power-law", PEERS, seed)
        overlay = landmark(placement, choose_landmarks(placement, 6, seed))
        reliable = draw_reliabilities(placement, seed)
        trees = build_trees(overlay, compute_link_weights(placement, overlay, reliable), 3, builder, seed=seed).trees
        load = draw_workload(PEERS, 200, 30, seed)
        counted = publish_events(placement, overlay, trees, reliable, load, seed)
        found = publish_by_tables(placement, overlay, trees, reliable, load, seed)
        assert found.events.ratio.tolist() == counted.ratio.tolist()
        assert found.events.copies.tolist() == pytest.approx(counted.copies.tolist())
        assert 0 < counted.ratio[0] < 1, "something fails"
        assert found.messages >= 3 * 2 * (PEERS - 1), "each peer tells each neighbour on a tree its interest"
        assert found.widened == 0


def test_the_filters_of_a_workload_are_its_rectangles() -> None:
    load = draw_workload(PEERS, 300, 30, 1)
    assert sum(len(filters) for filters in load.filters.values()) == 30
    for event, publisher in enumerate(load.publishers.tolist()):
        x, y = load.points[event].tolist()
        wanting = [
            peer
            for peer, filters in load.filters.items()
            if peer != publisher and any(parse(text).matches({"x": x, "y": y}) for text in filters)
        ]
        assert sorted(wanting) == np.flatnonzero(load.wants[event]).tolist()
