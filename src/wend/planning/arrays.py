"""The arrays that planning is done on."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Number = int | np.signedinteger

TOLERANCE = 1e-6
"""Relative: what the solver calls equal, and ten times that."""


def tidy(value: float) -> float:
    """The number of six digits that is meant where the solver says 0.75000007; any other stays as it is, so that what
    is written down stays true."""
    short = float(f"{value:.6g}")
    return short if abs(short - value) <= TOLERANCE / 2 * abs(value) else value
