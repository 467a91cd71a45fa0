"""Numbers, truth values and texts of other libraries are attributes and settings like Python's own."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from wend.drivers.scenarios import Scenario
from wend.model.events import Range, as_scalar
from wend.model.publication import check_size


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(1.5), 1.5),
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (5, 5),
        (None, None),
    ],
)
def test_a_scalar_of_numpy_is_one(given: Any, meant: object) -> None:
    assert (as_scalar(given), type(as_scalar(given))) == (meant, type(meant))


@pytest.mark.parametrize("given", [np.array(3), np.array([1]), Fraction(1, 3), b"a"])
def test_all_else_stays_as_it_is(given: Any) -> None:
    assert as_scalar(given) is given


def test_a_range_and_a_scenario_take_them() -> None:
    assert Range(np.int64(1), np.float64(2.5)) == Range(1, 2.5)  # type: ignore[arg-type]
    check_size({"x": Range(np.int64(1), np.float64(2.5))}, b"", {})  # type: ignore[arg-type]
    given = Scenario(pf=np.float32(0.5), peers=np.int64(10), degree=np.int8(4), persistence=np.bool_(True))  # type: ignore[arg-type]
    assert given == Scenario(pf=0.5, peers=10, degree=4, persistence=True)
