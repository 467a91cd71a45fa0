"""Layout of drawings: positions as on the map, north on top, and the height of the picture."""

import math

import numpy as np

from wend.topology.layout import fit, lay_out, map_positions, picture_height


def test_north_is_on_top_and_east_on_the_right() -> None:
    (kiel, ulm, goerlitz) = map_positions([{"pos": (10.1, 54.3)}, {"pos": (10.0, 48.4)}, {"pos": (15.0, 51.2)}])
    assert kiel[1] < goerlitz[1] < ulm[1]
    assert kiel[0] < goerlitz[0]


def test_a_map_without_positions_has_a_spring_layout_that_is_the_same_in_every_run() -> None:
    unknown = np.full((4, 2), math.nan)
    ends = [(0, 1), (1, 2), (2, 3), (3, 0)]
    placed = lay_out(unknown, ends)
    assert np.isfinite(placed).all()
    assert (placed == lay_out(unknown, ends)).all()
    known = np.array([[0.0, 0.0], [1.0, 5.0], [2.0, 0.0], [3.0, 3.0]])
    assert lay_out(known, ends) is known


def test_fitting_preserves_proportions() -> None:
    found = fit(np.array([[0.0, 0.0], [2.0, 1.0]]), (100.0, 50.0), (80.0, 80.0))
    assert found.tolist() == [[60.0, 30.0], [140.0, 70.0]]


def test_a_picture_has_the_height_that_its_map_needs_within_bounds() -> None:
    wide = np.array([[0.0, 0.0], [2.0, 1.0]])
    assert picture_height(wide, 500.0, 100.0, 800.0) == 250.0
    assert picture_height(wide, 100.0, 100.0, 800.0) == 100.0
    assert picture_height(wide[:, ::-1], 500.0, 100.0, 800.0) == 800.0
    assert picture_height(np.zeros((1, 2)), 500.0, 100.0, 800.0) == 800.0
