"""Array types of planning, and the tolerance of its comparisons."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

TOLERANCE = 1e-6
"""Relative: ten times the tolerance of the solver."""


def run_offsets(sizes: npt.ArrayLike) -> Longs:
    """The start of each run if runs of these sizes follow each other in one array, and the end of the last."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def run_numbers(ptr: npt.NDArray[np.signedinteger]) -> Longs:
    """For each element of runs with these offsets: the number of its run."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def round_noise(value: float) -> float:
    """Round away the solver's noise: 0.75000007 becomes 0.75. A number that is not this close to one of six digits
    stays as it is, so that reports stay true."""
    short = float(f"{value:.6g}")
    return short if abs(short - value) <= TOLERANCE / 2 * abs(value) else value
