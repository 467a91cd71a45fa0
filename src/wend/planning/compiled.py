"""Numba with types: loops over arrays that are compiled once and kept beside the source.

What is written in them is also waited for, once: an assignment to a slice compiles numba's sentence about shapes that
differ, two seconds of it, so they copy element by element; and a literal number is a signature of its own.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

F = TypeVar("F", bound=Callable[..., object])

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Number = int | np.signedinteger


def compiled(function: F) -> F:
    return cast(F, njit(cache=True)(function))
