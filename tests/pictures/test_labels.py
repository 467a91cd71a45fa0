"""Placement of labels: none covers another, a node or the edge; needed ones are there if there is any space."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scripts.line_chart import spread_labels
from wend.pictures.labels import Label, draw_labels, place_labels
from wend.pictures.svg import Extent, text_width

BOUNDS = Extent(0, 0, 300, 200)
spots = st.tuples(st.text("abcm", min_size=1, max_size=9), st.integers(0, 300), st.integers(0, 200), st.booleans())


@given(st.lists(spots, max_size=14))
def test_placed_labels_cover_nothing(drawn: list[tuple[str, int, int, bool]]) -> None:
    labels = [Label(words, x, y, 4.0, needed) for words, x, y, needed in drawn]
    discs = [(one.x, one.y, one.radius) for one in labels]
    placed = place_labels(labels, BOUNDS, discs=discs)
    boxes = [one.box for one in placed]
    assert all(box.is_within(BOUNDS) for box in boxes)
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    for box in boxes:
        for x, y, radius in discs:
            across = x - min(max(x, box.left), box.right)
            down = y - min(max(y, box.top), box.bottom)
            assert across**2 + down**2 >= radius**2 - 1e-6
    assert not any(one.leader for one in placed if not one.label.needed)


def test_a_needed_label_moves_away_and_gets_a_leader_where_another_is_left_out() -> None:
    crowd = [(150.0 + 9 * x, 100.0 + 9 * y, 6.0) for x in range(-2, 3) for y in range(-2, 3)]
    plain = Label("middle", 150, 100, 6.0)
    assert place_labels([plain], BOUNDS, discs=crowd) == []
    (moved,) = place_labels([plain._replace(needed=True)], BOUNDS, discs=crowd)
    assert moved.leader
    assert any("<line" in element for element in draw_labels([moved]))


def test_needed_labels_are_placed_first() -> None:
    near = Label("plain", 150, 100, 4.0), Label("needed", 151, 100, 4.0, needed=True)
    first, *_ = place_labels(near, BOUNDS)
    assert first.label.words == "needed"


def test_a_label_avoids_lines() -> None:
    label = Label("name", 100, 100, 4.0)
    right = np.array([[100.0, 100.0, 200.0, 100.0]])
    (beside,) = place_labels([label], BOUNDS)
    assert beside.box.left > 100
    (other,) = place_labels([label], BOUNDS, lines=right)
    assert other.box.right < 100


@given(st.lists(st.floats(0, 100), max_size=8), st.floats(1, 40))
def test_spread_positions_are_apart_and_in_order(wanted: list[float], gap: float) -> None:
    found = spread_labels(wanted, gap, 0.0, 100.0)
    assert len(found) == len(wanted)
    enough = min(gap, 100.0 / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [found[i] for i in order]
    assert all(b - a >= enough - 1e-6 for a, b in pairwise(places))
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in places)


def test_positions_that_are_apart_stay() -> None:
    assert spread_labels([90.0, 10.0, 50.0], 20.0, 0.0, 100.0) == [90.0, 10.0, 50.0]
    assert spread_labels([50.0, 50.0], 20.0, 0.0, 100.0) == [40.0, 60.0]


def test_bold_words_are_wider() -> None:
    assert text_width("words", bold=True) > text_width("words")
