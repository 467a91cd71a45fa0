"""The check of pictures finds what it is for, and its measure of words agrees with the pictures' own."""

import pytest

from tests.pictures.extents import Picture, extent
from wend.pictures.svg import document, text, text_width


def picture(*elements: str) -> Picture:
    return Picture(document(200, 100, "a test", elements))


def test_a_good_picture_has_no_problems() -> None:
    good = picture(text(10, 30, "one"), text(10, 60, "two"), '<circle cx="100" cy="50" r="20" class="fill-blue"/>')
    assert [words for words, _ in good.labels] == ["one", "two"]
    assert good.problems() == []


@pytest.mark.parametrize(
    ("elements", "problem"),
    [
        ((text(10, 30, "first"), text(20, 34, "second")), "'first' overlaps 'second'"),
        ((text(10, 30, "first"), f'<g transform="translate(0, -26)">{text(12, 60, "moved")}</g>'), "'first' overlaps"),
        ((text(190, 30, "too far"),), "'too far' leaves the canvas"),
        ((text(10, 30, "left", anchor="end"),), "'left' leaves the canvas"),
        ((text(10, 5, "top"),), "'top' leaves the canvas"),
        (('<circle cx="195" cy="50" r="20"/>',), "circle"),
        (('<path d="M10 10L300 20"/>',), "path"),
        (('<polygon points="1,1 5,120 9,1"/>',), "polygon"),
        (('<g transform="rotate(-90) translate(0, 20)"><text x="10" y="0" font-size="12">up</text></g>',), "'up'"),
    ],
)
def test_labels_on_others_and_shapes_beyond_the_canvas_are_found(elements: tuple[str, ...], problem: str) -> None:
    (found,) = picture(*elements).problems()
    assert problem in found


@pytest.mark.parametrize("bold", [False, True])
@pytest.mark.parametrize("words", ["Kansas City", "adaptive (Wend)", "100 %", "WWW", "illicit", "a → b – c"])
def test_words_are_at_most_as_wide_as_the_pictures_assume(words: str, bold: bool) -> None:
    assumed = text_width(words, 1.0, bold=bold)
    assert 0.8 * assumed <= extent(words, bold)[0] <= 1.01 * assumed
