"""Loops over arrays are compiled: a decorator that keeps a function's type and remembers its machine code.

Whoever imports this waits for numba. Other threads go on while a loop runs, since it touches nothing but arrays.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    return cast(Function, njit(cache=True, nogil=True)(function))
