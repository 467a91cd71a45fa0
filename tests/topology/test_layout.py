"""Layout of drawings: positions as on the map, north on top, and readable names."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wend.topology.layout import fit, laid_out, positions_of, readable

LETTER = (6.0, 10.0)


def test_north_is_on_top_and_east_on_the_right() -> None:
    (kiel, ulm, goerlitz) = positions_of([{"pos": (10.1, 54.3)}, {"pos": (10.0, 48.4)}, {"pos": (15.0, 51.2)}])
    assert kiel[1] < goerlitz[1] < ulm[1]
    assert kiel[0] < goerlitz[0]


def test_a_map_without_positions_has_a_spring_layout_that_is_the_same_in_every_run() -> None:
    unknown = np.full((4, 2), math.nan)
    ends = [(0, 1), (1, 2), (2, 3), (3, 0)]
    placed = laid_out(unknown, ends)
    assert np.isfinite(placed).all()
    assert (placed == laid_out(unknown, ends)).all()
    known = np.array([[0.0, 0.0], [1.0, 5.0], [2.0, 0.0], [3.0, 3.0]])
    assert laid_out(known, ends) is known


def test_fitting_preserves_proportions() -> None:
    found = fit(np.array([[0.0, 0.0], [2.0, 1.0]]), (100.0, 50.0), (80.0, 80.0))
    assert found.tolist() == [[60.0, 30.0], [140.0, 70.0]]


@given(st.lists(st.tuples(st.text("abc", max_size=8), st.integers(0, 60), st.integers(0, 40)), max_size=12))
def test_written_names_do_not_overlap_and_omitted_ones_would(drawn: list[tuple[str, int, int]]) -> None:
    names = [name for name, *_ in drawn]
    at = np.array([spot for _, *spot in drawn], dtype=float).reshape(-1, 2)

    def covers(i: int, j: int) -> bool:
        across = at[i, 0] < at[j, 0] + 6 * len(names[j]) and at[j, 0] < at[i, 0] + 6 * len(names[i])
        return bool(across and abs(at[i, 1] - at[j, 1]) < LETTER[1])

    chosen = readable(names, at, LETTER, range(len(names)))
    assert not any(covers(i, j) for i in chosen for j in chosen if i != j)
    for i in sorted(set(range(len(names))) - set(chosen)):
        assert any(covers(i, j) for j in chosen if j < i)
