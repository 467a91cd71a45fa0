"""A decorator that compiles loops over arrays with numba. It preserves the function's type and caches machine code.

Importing this module imports numba, which takes a while. Compiled functions release the GIL, because they use nothing
but arrays. To keep compilation short, loops copy element by element: an assignment to a slice makes numba compile its
error message about shapes, which takes two seconds. A literal argument has a signature of its own.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    return cast(Function, njit(cache=True, nogil=True)(function))
