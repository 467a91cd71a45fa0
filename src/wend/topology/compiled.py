"""Loops over all pairs are compiled: a decorator that keeps a function's type and remembers its machine code."""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    return cast(Function, njit(cache=True)(function))
