"""Loops over arrays are compiled: a decorator that keeps a function's type and remembers its machine code.

Whoever imports this waits for numba. Other threads go on while a loop runs, since it touches nothing but arrays.
What is written in a loop is also waited for, once: an assignment to a slice compiles numba's sentence about shapes that
differ, two seconds of it, so loops copy element by element; and a literal number is a signature of its own.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    return cast(Function, njit(cache=True, nogil=True)(function))
