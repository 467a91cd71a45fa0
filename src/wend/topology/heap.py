"""A binary heap of nodes in two arrays, for compiled searches: the lowest key is on top, of equal keys the lower node.

A search adds a node again when it finds a shorter path to it, and skips entries that are out of date.
"""

import numpy as np

from wend.model.compiled import compiled
from wend.topology.underlay import Floats, Index, Ints

Number = int | np.signedinteger


@compiled
def push(keys: Ints | Floats, nodes: Index, size: Number, key: Number | float, node: Number) -> int:
    """Add to a binary heap ordered by (key, place)."""
    i = int(size)
    while i > 0:
        up = (i - 1) >> 1
        if keys[up] < key or (keys[up] == key and nodes[up] <= node):
            break
        keys[i] = keys[up]
        nodes[i] = nodes[up]
        i = up
    keys[i] = key
    nodes[i] = node
    return int(size) + 1


@compiled
def pop(keys: Ints | Floats, nodes: Index, size: int) -> int:
    """Remove the top, which the caller has read."""
    size -= 1
    key, node = keys[size], nodes[size]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (keys[right] < keys[down] or (keys[right] == keys[down] and nodes[right] < nodes[down])):
            down = right
        if key < keys[down] or (key == keys[down] and node <= nodes[down]):
            break
        keys[i] = keys[down]
        nodes[i] = nodes[down]
        i = down
    keys[i] = key
    nodes[i] = node
    return size
