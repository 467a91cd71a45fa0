"""Topology inference from many traceroutes: which routers are linked, and how often that was observed.

The rule of `wend data topology` assumes that paths are the same in both directions.

0. Traces that pass a router twice are left out and counted.
1. Two routers that answer one after the other are linked.
2. If a trace has a hole of up to three hops between u and v, and other traces show the same number of hops there, the
   hole is filled with the hops that most of them show (in a tie, with the lower ids).
3. A hole of one hop that no trace fills and that occurs at least `least` times is an unknown router. Holes next to the
   same peer are one router, because a peer has one access router. Holes around three routers, (u, v), (v, w) and (u,
   w), are also one router. No other holes are merged: a wrong merge loses routers, while a missing merge only counts a
   router twice.
4. All other holes are counted. Links that occur fewer than `least` times are left out and counted.

The Spark job applies the rule; this module has its part that needs all holes at once (rule 3).
"""

from itertools import pairwise

LONGEST = 3
"""Longer holes, in hops, are not filled: too many paths would fit."""
Node = tuple[str, int | str]
"""("router", 17), ("peer", 3), or ("unknown", 5) for a router that never answers."""


def merge_holes(around: set[tuple[Node, Node]]) -> dict[tuple[Node, Node], Node]:
    """The unknown router of each hole (rule 3). Routers are numbered in the order of their lowest holes."""
    pairs = sorted(around)
    leader = {pair: pair for pair in pairs}

    def find(pair: tuple[Node, Node]) -> tuple[Node, Node]:
        while leader[pair] != pair:
            leader[pair] = leader[leader[pair]]
            pair = leader[pair]
        return pair

    def join(one: tuple[Node, Node], other: tuple[Node, Node]) -> None:
        low, high = sorted((find(one), find(other)))
        leader[high] = low

    def around_it(node: Node, other: Node) -> tuple[Node, Node]:
        return (node, other) if node <= other else (other, node)

    near: dict[Node, set[Node]] = {}
    for one, other in pairs:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    for node, others in sorted(near.items()):
        if node[0] == "peer":
            for one, other in pairwise(sorted(others)):
                join(around_it(node, one), around_it(node, other))
    # Three holes that form a triangle: the two at a router are one unknown router. It is enough to look at the common
    # neighbours of the two sides of each hole, so a router with many holes costs no more than its holes.
    for one, other in pairs:
        few, many = sorted((near[one], near[other]), key=len)
        for node in few & many:
            if node[0] != "peer":
                join(around_it(node, one), around_it(node, other))
    number = {pair: i for i, pair in enumerate(sorted({find(pair) for pair in pairs}))}
    return {pair: ("unknown", number[find(pair)]) for pair in pairs}
