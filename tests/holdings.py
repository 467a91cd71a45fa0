"""What a peer holds, wherever in it: each container by the dotted path that leads to it.

A peer is made of parts, and its parts of others; what grows without end may sit anywhere in them. So nobody lists the
containers by name: all attributes and slots are followed, through whatever is ours and through what containers hold.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array

OURS = ("wend.protocol.", "wend.strategies.", "wend.matching.", "wend.model.")
CONTAINERS = (dict, list, set, frozenset, tuple, deque, array, bytes, bytearray, np.ndarray, csr_array)
KEY = "[key]"


def held(peer: object) -> dict[str, int]:
    """How much is in each container: `links[].window._slots` is that of all links. A key does not grow."""
    found: dict[str, int] = {}
    for path, container in containers(peer):
        if KEY not in path:
            found[path] = found.get(path, 0) + (container.size if hasattr(container, "size") else len(container))
    return found


def holders(peer: object, wanted: Iterable[object]) -> set[str]:
    """The paths of the containers in which any of these is, as a key, a value or a part of either."""
    looked_for = set(wanted)
    return {
        path.replace(KEY, "")
        for path, container in containers(peer)
        if any(isinstance(one, int) and one in looked_for for _, one in elements("", container))
    }


def containers(whole: object) -> Iterator[tuple[str, Any]]:
    """Every container once, under the first path that leads to it: attributes in their order, depth first."""
    known: set[int] = set()
    stack: list[tuple[str, object]] = [("", whole)]
    while stack:
        path, one = stack.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        if isinstance(one, CONTAINERS):
            yield path, one
            stack.extend(reversed(list(elements(path, one))))
        elif type(one).__module__.startswith(OURS):
            stack.extend((f"{path}.{name}".lstrip("."), value) for name, value in reversed(attributes(one)))
        # the rest are numbers and text, and methods: whose they are is reached by its own name


def attributes(one: object) -> list[tuple[str, object]]:
    """What an object has: its fields, its slots and those of its bases, and what else it was given."""
    names: dict[str, None] = dict.fromkeys(getattr(one, "__struct_fields__", ()))
    for base in reversed(type(one).__mro__):
        slots = base.__dict__.get("__slots__", ())
        names |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
    names |= dict.fromkeys(getattr(one, "__dict__", {}))
    return [(name, getattr(one, name)) for name in names if hasattr(one, name)]


def elements(path: str, container: Any) -> Iterator[tuple[str, object]]:
    """What is in it, but for bytes and numbers in an array."""
    if isinstance(container, dict):
        yield from ((path + KEY, key) for key in container)
        yield from ((f"{path}[]", value) for value in container.values())
    elif isinstance(container, list | set | frozenset | tuple | deque):
        yield from ((f"{path}[]", value) for value in container)
