"""Peers that build trees, with messages delayed at random and in order per link; and the same trees built centrally."""

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any

import numpy as np

from wend.model.randomness import stream

Edge = tuple[int, int]
Weights = Mapping[Edge, float]


def random_weights(seed: int, peers: int, more: int, values: int) -> dict[Edge, float]:
    """A connected graph: a random tree and up to `more` links beside it. Few values make many ties."""
    draw = stream(seed, "forests")
    order = [int(p) for p in draw.permutation(peers)]
    edges = {_edge(order[i], order[int(draw.integers(i))]) for i in range(1, peers)}
    for _ in range(more):
        a, b = (int(p) for p in draw.integers(peers, size=2))
        if a != b:
            edges.add(_edge(a, b))
    return {edge: int(draw.integers(1, values + 1)) / values for edge in sorted(edges)}


def _edge(a: int, b: int) -> Edge:
    return (min(a, b), max(a, b))


def around(peer: int, weights: Weights) -> dict[int, float]:
    return {a + b - peer: weight for (a, b), weight in weights.items() if peer in (a, b)}


def kruskal(weights: Weights, k: int) -> list[set[Edge]]:
    """Tree after tree: links that fewer trees use first, then by weight, then by their ends."""
    used = dict.fromkeys(weights, 0)
    trees = []
    for _ in range(k):
        fragment = {peer: peer for edge in weights for peer in edge}
        tree = set()
        for a, b in sorted(weights, key=lambda edge: (used[edge], weights[edge], edge)):
            if fragment[a] != fragment[b]:
                old, new = fragment[a], fragment[b]
                fragment = {peer: new if f == old else f for peer, f in fragment.items()}
                tree.add((a, b))
        for edge in tree:
            used[edge] += 1
        trees.append(tree)
    return trees


class Talk:
    """Runs builders until nobody has anything to say."""

    def __init__(self, builders: Mapping[int, Any], seed: int, limit: int = 1_000_000) -> None:
        self.builders = builders
        self.said: Counter[str] = Counter()
        self._draw: np.random.Generator = stream(seed, "delays")
        self._last: dict[Edge, float] = {}
        self._messages: list[tuple[float, int, int, int, Any]] = []
        self._count = 0
        for peer in self._draw.permutation(sorted(builders)):
            self._send(float(self._draw.random()), int(peer), builders[int(peer)].start())
        self._run(limit)

    def _send(self, now: float, sender: int, says: list[tuple[int, Any]]) -> None:
        for peer, message in says:
            self.said[type(message).__name__] += 1
            self._count += 1
            link = (sender, peer)
            self._last[link] = arrival = max(now + float(self._draw.exponential()), self._last.get(link, 0.0))
            heappush(self._messages, (arrival, self._count, sender, peer, message))

    def _run(self, limit: int) -> None:
        while self._messages:
            now, _, sender, peer, message = heappop(self._messages)
            says = self.builders[peer].on_message(sender, message)
            assert says is not None, f"{peer} finds no sense in {message} of {sender}"
            self._send(now, peer, says)
            assert self._count < limit, "they do not come to an end"


def edges(branches: Callable[[int], tuple[int, ...]], peer: int, k: int) -> list[set[Edge]]:
    return [{_edge(peer, other) for other in branches(tree)} for tree in range(k)]
