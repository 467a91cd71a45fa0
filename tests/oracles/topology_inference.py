"""The oracle of `wend data topology`: the rule of `wend.topology.inference` in one process, small and slow."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from wend.topology.inference import LONGEST, Node, merge_holes
from wend.topology.traceroute import Hop

Hole = tuple[Node, Node, int]
"""The nodes around a hole, the lower first, and the number of hops that did not answer."""


class Traceroute(msgspec.Struct, frozen=True):
    """The result of a trace. `hops` are the routers on the path, None for those that did not answer."""

    source: int
    target: int
    hops: tuple[Hop, ...]
    reached: bool = True


class InferredNetwork(msgspec.Struct):
    """An inferred network: how often each link was observed, and how much of the traces was not used."""

    links: dict[tuple[Node, Node], int]
    holes: int = 0
    """Holes that stay unfilled."""
    rare: int = 0
    """Links that occur too seldom."""
    looped: int = 0
    """Traces that pass a router twice."""

    def routers(self) -> list[tuple[int | str, int | str]]:
        """The links between routers that answer."""
        return sorted((a[1], b[1]) for a, b in self.links if a[0] == b[0] == "router")


def infer(traces: Iterable[Traceroute], *, least: int = 1, longest: int = LONGEST) -> InferredNetwork:
    every = list(traces)
    paths = [traced_nodes(trace) for trace in every if not loops(trace)]
    gaps = Counter(hole for path in paths for hole in _holes(path))
    filled = _fillings(paths, Counter({hole: n for hole, n in gaps.items() if hole[2] <= longest}))
    unknown = merge_holes(
        {(a, b) for (a, b, gap), n in gaps.items() if gap == 1 and (a, b, 1) not in filled and n >= least}
    )
    count = Counter(link_ends(a, b) for path in paths for a, b in pairwise(path) if a is not None and b is not None)
    holes = 0
    for (a, b, gap), n in gaps.items():
        inner = filled.get((a, b, gap)) or ((unknown[a, b],) if gap == 1 and (a, b) in unknown else None)
        if inner is None:
            holes += n
            continue
        for here, there in pairwise((a, *inner, b)):
            count[link_ends(here, there)] += n
    often = {link: n for link, n in sorted(count.items()) if n >= least}
    return InferredNetwork(often, holes, len(count) - len(often), len(every) - len(paths))


def _fillings(paths: list[list[Node | None]], gaps: Counter[Hole]) -> dict[Hole, tuple[Node, ...]]:
    """For each hole the hops that most other traces show there (rule 2)."""
    seen: dict[Hole, Counter[tuple[Node, ...]]] = {}
    lengths = sorted({gap for _, _, gap in gaps})
    for path in paths:
        for a, b, middle in _stretches(path, lengths):
            if (a, b, len(middle)) in gaps:
                seen.setdefault((a, b, len(middle)), Counter())[middle] += 1
    return {hole: min(found.items(), key=lambda item: (-item[1], item[0]))[0] for hole, found in seen.items()}


def loops(trace: Traceroute) -> bool:
    answered = [hop for hop in trace.hops if hop is not None]
    return len(set(answered)) < len(answered)


def traced_nodes(trace: Traceroute) -> list[Node | None]:
    """The nodes from the source to the target, or to the last router that answered."""
    hops: list[Node | None] = [None if hop is None else ("router", hop) for hop in trace.hops]
    path: list[Node | None] = [("peer", trace.source), *hops]
    if trace.reached:
        return [*path, ("peer", trace.target)]
    while path[-1] is None:
        path.pop()
    return path


def _holes(path: list[Node | None]) -> list[Hole]:
    found = []
    last = 0
    for i in range(1, len(path)):
        here, before = path[i], path[last]
        if here is not None and before is not None:
            if i - last > 1:
                found.append((*link_ends(before, here), i - last - 1))
            last = i
    return found


def _stretches(path: list[Node | None], lengths: list[int]) -> list[tuple[Node, Node, tuple[Node, ...]]]:
    """The segments of a path without holes that have one of these numbers of inner hops, the lower end first."""
    found = []
    for inside in lengths:
        for i in range(len(path) - inside - 1):
            segment = [node for node in path[i : i + inside + 2] if node is not None]
            if len(segment) == inside + 2:
                segment = segment if segment[0] < segment[-1] else segment[::-1]
                found.append((segment[0], segment[-1], tuple(segment[1:-1])))
    return found


def link_ends(a: Node, b: Node) -> tuple[Node, Node]:
    return (a, b) if a <= b else (b, a)
