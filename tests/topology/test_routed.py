"""Routes between all peers: the delays of shortest paths, and outages of every link on them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wend.model.units import SECOND
from wend.topology import generators
from wend.topology.faults import Intervals, PerSecond
from wend.topology.overlay_routes import make_routed_overlay, shortest_delays


@given(st.integers(0, 50))
@settings(max_examples=20)
def test_routes_are_shortest_and_fail_with_their_links(seed: int) -> None:
    overlay = generators.regular(8, 3, delay_ms=(10, 50), loss=0.01, seed=seed)
    faults = PerSecond(len(overlay.links), 0.2, begin=0, end=5 * SECOND, seed=seed)
    full, down, _ = make_routed_overlay(overlay, faults)
    shortest = shortest_delays(overlay)
    assert len(full.links) == 28
    for index, link in enumerate(full.links):
        assert link.delay_ns == shortest[link.a, link.b]
        if link.delay_ns == (direct := _direct(overlay, link.a, link.b)):
            one = overlay.link(link.a, link.b)
            assert link.loss == overlay.links[one].loss or link.loss > 0
            for second in range(6):
                assert down.is_up(index, second * SECOND) == faults.is_up(one, second * SECOND)
        else:
            assert direct is None or direct > link.delay_ns
            assert link.loss > 0.01


def _direct(overlay: object, a: int, b: int) -> int | None:
    try:
        return overlay.links[overlay.link(a, b)].delay_ns  # type: ignore[attr-defined]
    except KeyError:
        return None


def test_a_route_is_down_while_any_link_is() -> None:
    overlay = generators.regular(4, 2, delay_ms=(10, 10), loss=0.0, seed=1)
    first = overlay.links[0]
    full, down, _ = make_routed_overlay(overlay, Intervals(4, [(0, SECOND, 2 * SECOND)]))
    hit = {index for index, _, _ in down.outages()}
    assert full.link(first.a, first.b) in hit
    assert all(not down.is_up(index, SECOND) and down.is_up(index, 2 * SECOND) for index in hit)
