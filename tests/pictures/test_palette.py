"""The palette: readers with any common kind of colour vision can tell series apart, on light and dark paper."""

from itertools import combinations
from math import dist

import pytest

from wend.pictures.palette import COLOURS, FAMILIES, HEATS, LOADS, MARKERS, SERIES, STRATEGIES, Colour, heat_colour

# Machado, Oliveira and Fernandes (2009), full severity; they apply to linear RGB.
VISION = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
PAPERS = range(len(Colour._fields))


def linear(colour: str) -> list[float]:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """As WCAG defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def oklab(colour: str, vision: str) -> tuple[float, ...]:
    """A colour as such a reader sees it, in a space in which distances are differences for the eye."""
    seen = [sum(a * b for a, b in zip(row, linear(colour), strict=True)) for row in VISION[vision]]
    red, green, blue = (min(max(share, 0.0), 1.0) for share in seen)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.793617785 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.428592205 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.808675766 * short,
    )


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("paper", PAPERS)
def test_series_differ_for_every_kind_of_colour_vision(vision: str, paper: int) -> None:
    for one, other in combinations(SERIES, 2):
        apart = dist(oklab(SERIES[one][paper], vision), oklab(SERIES[other][paper], vision))
        assert apart > 0.08, f"{one} and {other}"


@pytest.mark.parametrize("paper", PAPERS)
def test_everything_that_is_read_stands_out_from_its_paper(paper: int) -> None:
    behind = COLOURS["paper"][paper]
    for name, least in {"ink": 10.0, "soft": 5.0, **dict.fromkeys(SERIES, 3.0)}.items():
        assert contrast(COLOURS[name][paper], behind) >= least, name
        assert contrast(COLOURS[name][paper], COLOURS["card"][paper]) >= 0.93 * least, name
    for verdict in ("good", "bad", "doubt"):
        assert contrast(COLOURS[verdict][paper], COLOURS[f"{verdict}-paper"][paper]) >= 4.5


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("scale", [LOADS[:4], HEATS])
def test_a_scale_stands_out_more_from_step_to_step(scale: tuple[str, ...], paper: int) -> None:
    found = [contrast(COLOURS[name][paper], COLOURS["paper"][paper]) for name in scale]
    assert found == sorted(found) and found[-1] > 2.5 * found[0]
    assert heat_colour(0.0) == HEATS[0] and heat_colour(1.0) == HEATS[-1]


def test_every_colour_of_a_series_has_a_marker_of_its_own() -> None:
    assert MARKERS.keys() == SERIES.keys()
    assert len(set(MARKERS.values())) == len(MARKERS)
    assert {*STRATEGIES.values(), *FAMILIES.values()} <= SERIES.keys()
