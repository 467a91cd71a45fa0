"""What many traces say about the network: which routers are linked, and how often that was seen.

This is the rule of `wend data topology` in one process, small enough to be its oracle. Ways are taken to be the same in
both directions.

0. A trace that meets a router twice is left out, and counted.
1. Two routers that answer one after the other are linked.
2. A hole of up to three hops between u and v that other traces fill, over as many hops, is what they saw most often
   (lower ids in a tie).
3. A hole of one hop that nobody ever fills, seen at least `least` times, is a router of its own. Holes next to the same
   peer are one router, since a peer has one home; so are holes around three routers: (u, v), (v, w) and (u, w). No
   others are merged: a wrong merge loses routers, a missing one only counts a router twice.
4. Every other hole stays a hole, and is counted. A link seen fewer than `least` times is left out, and counted.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from wend.topology.traceroute import Traceroute

LONGEST = 3
"""Holes of more hops than these are not filled: too many ways fit."""
Node = tuple[str, int | str]
"""("router", 17), ("peer", 3), or ("unknown", 5), one of the routers that never answer."""
Hole = tuple[Node, Node, int]
"""The routers or peers around it, the lower first, and how many hops did not answer."""


class InferredNetwork(msgspec.Struct):
    """An inferred network: how often each link was seen, and what could not be used."""

    links: dict[tuple[Node, Node], int]
    holes: int = 0
    """Holes that nothing fills."""
    rare: int = 0
    """Links that were seen too seldom."""
    looped: int = 0
    """Traces that met a router twice."""

    def routers(self) -> list[tuple[int | str, int | str]]:
        """The links between routers that answer."""
        return sorted((a[1], b[1]) for a, b in self.links if a[0] == b[0] == "router")


def infer(traces: "Iterable[Traceroute]", *, least: int = 1, longest: int = LONGEST) -> InferredNetwork:
    every = list(traces)
    ways = [_way(trace) for trace in every if not loops(trace)]
    gaps = Counter(hole for way in ways for hole in _holes(way))
    filled = _fillings(ways, Counter({hole: n for hole, n in gaps.items() if hole[2] <= longest}))
    unknown = merge({(a, b) for (a, b, gap), n in gaps.items() if gap == 1 and (a, b, 1) not in filled and n >= least})
    count = Counter(_ordered(a, b) for way in ways for a, b in pairwise(way) if a is not None and b is not None)
    holes = 0
    for (a, b, gap), n in gaps.items():
        if (a, b, gap) in filled:
            steps = (a, *filled[a, b, gap], b)
        elif gap == 1 and (a, b) in unknown:
            steps = (a, unknown[a, b], b)
        else:
            holes += n
            continue
        for here, there in pairwise(steps):
            count[_ordered(here, there)] += n
    often = {link: n for link, n in sorted(count.items()) if n >= least}
    return InferredNetwork(often, holes, len(count) - len(often), len(every) - len(ways))


def _fillings(ways: list[list[Node | None]], gaps: Counter[Hole]) -> dict[Hole, tuple[Node, ...]]:
    """What other traces saw most often where these have a hole (rule 2)."""
    seen: dict[Hole, Counter[tuple[Node, ...]]] = {}
    lengths = sorted({gap for _, _, gap in gaps})
    for way in ways:
        for a, b, middle in _stretches(way, lengths):
            if (a, b, len(middle)) in gaps:
                seen.setdefault((a, b, len(middle)), Counter())[middle] += 1
    return {hole: min(found.items(), key=lambda item: (-item[1], item[0]))[0] for hole, found in seen.items()}


def loops(trace: "Traceroute") -> bool:
    answered = [hop for hop in trace.hops if hop is not None]
    return len(set(answered)) < len(answered)


def _way(trace: "Traceroute") -> list[Node | None]:
    """From the source to the target, or to the last router that answered."""
    hops: list[Node | None] = [None if hop is None else ("router", hop) for hop in trace.hops]
    way: list[Node | None] = [("peer", trace.source), *hops]
    if trace.reached:
        return [*way, ("peer", trace.target)]
    while way[-1] is None:
        way.pop()
    return way


def _holes(way: list[Node | None]) -> list[Hole]:
    found = []
    last = 0
    for i in range(1, len(way)):
        here, before = way[i], way[last]
        if here is not None and before is not None:
            if i - last > 1:
                found.append((*_ordered(before, here), i - last - 1))
            last = i
    return found


def _stretches(way: list[Node | None], lengths: list[int]) -> list[tuple[Node, Node, tuple[Node, ...]]]:
    """Unbroken parts of a way with this many hops inside, the lower end first."""
    found = []
    for inside in lengths:
        for i in range(len(way) - inside - 1):
            part = [node for node in way[i : i + inside + 2] if node is not None]
            if len(part) == inside + 2:
                part = part if part[0] < part[-1] else part[::-1]
                found.append((part[0], part[-1], tuple(part[1:-1])))
    return found


def _ordered(a: Node, b: Node) -> tuple[Node, Node]:
    return (a, b) if a <= b else (b, a)


def merge(around: set[tuple[Node, Node]]) -> dict[tuple[Node, Node], Node]:
    """Which unknown router is in each hole (rule 3). They are numbered by the lowest hole that they are in."""
    pairs = sorted(around)
    leader = {pair: pair for pair in pairs}

    def find(pair: tuple[Node, Node]) -> tuple[Node, Node]:
        while leader[pair] != pair:
            pair = leader[pair]
        return pair

    def join(one: tuple[Node, Node], other: tuple[Node, Node]) -> None:
        low, high = sorted((find(one), find(other)))
        leader[high] = low

    near: dict[Node, list[tuple[Node, Node]]] = {}
    for pair in pairs:
        for node in pair:
            near.setdefault(node, []).append(pair)
    for node, holes in sorted(near.items()):
        for i, one in enumerate(holes):
            for other in holes[i + 1 :]:
                ends = sorted({*one, *other} - {node})
                if node[0] == "peer" or (len(ends) == 2 and (ends[0], ends[1]) in leader):
                    join(one, other)
    number = {pair: i for i, pair in enumerate(sorted({find(pair) for pair in pairs}))}
    return {pair: ("unknown", number[find(pair)]) for pair in pairs}
