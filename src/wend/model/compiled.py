"""A decorator that compiles loops over arrays with numba. It preserves the function's type and caches machine code.

Importing this module imports numba, which takes a while. Compiled functions release the GIL, because they only use
arrays. Loops copy element by element to keep compilation short: an assignment to a slice makes numba compile its error
message about shapes, which takes two seconds. Literal arguments are cast, because each literal has its own signature.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    return cast(Function, njit(cache=True, nogil=True)(function))
