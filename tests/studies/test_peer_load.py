"""The load of the busiest peer of an overlay, against every route followed by itself."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.placements import overlays, placed, placements
from wend.studies.quist.peer_load import count_passing, measure_load
from wend.topology.overlays import choose_landmarks, landmark
from wend.topology.routing import shortest


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_peer_s_load_is_the_number_of_routes_through_it(data: st.DataObject) -> None:
    placement = data.draw(placements(routers=8, peers=7))
    overlay = data.draw(overlays(placement))
    ends = np.stack(overlay.ends, axis=1)
    costs = (placement.direct_ns[ends[:, 0], ends[:, 1]] << 12) + 1
    _, before, _ = shortest(overlay.peers, ends, costs, np.arange(overlay.peers))
    counted: Counter[int] = Counter()
    for source in range(overlay.peers):
        for target in range(overlay.peers):
            peer = target
            while peer != source:
                counted[peer] += peer != target
                peer = int(before[source, peer])
    assert count_passing(placement, overlay) == [counted[peer] for peer in range(overlay.peers)]


def test_one_landmark_bears_the_links_traces_and_routes_of_most() -> None:
    placement = placed("power-law", 12, 1)
    chosen = choose_landmarks(placement, 1, 1)
    overlay = landmark(placement, chosen)
    load = measure_load(placement, overlay, [(chosen[0], peer) for peer in range(12) if peer != chosen[0]])
    assert load.degree == max(len(overlay.neighbours(peer)) for peer in range(12))
    assert load.traceroutes == 11
    assert 0.5 < load.passing <= 1
