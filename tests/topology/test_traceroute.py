"""Traceroutes with and without holes, and the network that is inferred from many of them."""

import itertools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.topology_inference import InferredNetwork, Traceroute, infer
from tests.topology.placements import placements
from wend.topology.catalog import make
from wend.topology.inference import Node, merge_holes
from wend.topology.placement import Placement, attach_peers
from wend.topology.traceroute import Tracer


def every_trace(placement: Placement, tracer: Tracer, attempts: int = 1) -> list[Traceroute]:
    pairs = [(a, b) for a in range(placement.peers) for b in range(placement.peers) if a != b]
    return [Traceroute(a, b, tracer.trace(a, b, n)) for a, b in pairs for n in range(attempts)]


def links_between(placement: Placement) -> set[tuple[int, int]]:
    paths = [placement.path(a, b) for a in range(placement.peers) for b in range(a)]
    return {(min(x, y), max(x, y)) for path in paths for x, y in pairwise(path)}


@settings(max_examples=60)
@given(placements())
def test_a_trace_has_the_path(placement: Placement) -> None:
    for trace in every_trace(placement, Tracer(placement, seed=1)):
        assert list(trace.hops) == placement.path(trace.source, trace.target)


def test_an_anonymous_router_never_answers_and_an_answer_may_get_lost() -> None:
    placement = attach_peers(make("power-law", 1), 30, 1)
    tracer = Tracer(placement, seed=1, anonymous=0.2, loss=0.1)
    assert 0.1 < len(tracer.anonymous) / 300 < 0.3
    traces = every_trace(placement, tracer)
    hops = answered = 0
    for trace in traces:
        path = placement.path(trace.source, trace.target)
        for hop, router in zip(trace.hops, path, strict=True):
            assert hop is None or (hop == router and router not in tracer.anonymous)
            hops += router not in tracer.anonymous
            answered += hop is not None
    assert answered / hops == pytest.approx(0.9, abs=0.02)
    assert traces == every_trace(placement, Tracer(placement, seed=1, anonymous=0.2, loss=0.1))
    assert len({tracer.trace(1, 2, attempt) for attempt in range(9)}) > 1


@settings(max_examples=60)
@given(placements(routers=9, peers=6))
def test_without_holes_the_inferred_network_is_the_true_one(placement: Placement) -> None:
    seen = infer(every_trace(placement, Tracer(placement, seed=1)))
    assert set(seen.routers()) == links_between(placement)
    assert (seen.holes, seen.rare, seen.looped) == (0, 0, 0)
    homes = {(a[1], b[1]) for a, b in seen.links if a[0] == "peer"}
    assert homes == {(peer, int(home)) for peer, home in enumerate(placement.homes)}


@settings(max_examples=40)
@given(placements(routers=9, peers=6), st.integers(0, 99))
def test_lost_answers_add_no_link(placement: Placement, seed: int) -> None:
    tracer = Tracer(placement, seed=seed, loss=0.2)
    seen = infer(every_trace(placement, tracer, attempts=6), least=4)
    assert set(seen.routers()) <= links_between(placement)


def test_other_traces_fill_a_hole() -> None:
    whole = Traceroute(0, 1, (10, 11, 12, 13))
    seen = infer([whole, whole, Traceroute(0, 1, (10, None, 12, 13)), Traceroute(1, 0, (13, None, None, 10))])
    assert seen.links == {
        (("peer", 0), ("router", 10)): 4,
        (("peer", 1), ("router", 13)): 4,
        (("router", 10), ("router", 11)): 4,
        (("router", 11), ("router", 12)): 4,
        (("router", 12), ("router", 13)): 4,
    }


def test_the_more_frequent_filling_wins() -> None:
    one, other = Traceroute(0, 1, (10, 11, 12)), Traceroute(0, 1, (10, 21, 12))
    seen = infer([one, other, other, Traceroute(0, 1, (10, None, 12))])
    assert seen.links[("router", 10), ("router", 21)] == 3
    assert seen.links[("router", 10), ("router", 11)] == 1


def test_a_router_that_never_answers_is_one_router() -> None:
    """7 is silent between 1, 2 and 3, each with its peer."""
    traces = [Traceroute(0, 1, (1, None, 2)), Traceroute(1, 2, (2, None, 3)), Traceroute(2, 0, (3, None, 1))]
    seen = infer(traces)
    unknown = {node for link in seen.links for node in link if node[0] == "unknown"}
    assert unknown == {("unknown", 0)}
    assert {(a[1], b[1]) for a, b in seen.links if b[0] == "unknown"} == {(1, 0), (2, 0), (3, 0)}


def test_the_silent_access_router_of_a_peer_is_one_router() -> None:
    seen = infer([Traceroute(0, 1, (None, 5, 6)), Traceroute(0, 2, (None, 8, 9)), Traceroute(3, 0, (4, 5, None))])
    assert {node for link in seen.links for node in link if node[0] == "unknown"} == {("unknown", 0)}


def test_two_silent_routers_are_not_merged_without_proof() -> None:
    seen = infer([Traceroute(0, 1, (1, None, 2)), Traceroute(2, 3, (2, None, 4))])
    assert len({node for link in seen.links for node in link if node[0] == "unknown"}) == 2


def test_everything_that_is_left_out_is_counted() -> None:
    long = Traceroute(0, 1, (1, None, None, 2))
    loop = Traceroute(0, 1, (1, 2, 1))
    seldom = Traceroute(2, 3, (8, 9))
    seen = infer(
        [long, loop, seldom, Traceroute(0, 1, (1, None), reached=False)] + [Traceroute(4, 5, (6, 7))] * 2, least=2
    )
    assert (seen.holes, seen.looped) == (1, 1)
    assert seen.routers() == [(6, 7)]
    assert seen.rare == 4, "router 2 to peer 1, and all three links of the seldom trace"
    assert infer([]) == InferredNetwork({})


def test_merging_is_that_of_comparing_every_two_holes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        nodes: list[Node] = [("peer", n) for n in range(3)] + [("router", n) for n in range(9)]
        drawn = [tuple(sorted(rng.choice(len(nodes), 2, replace=False))) for _ in range(rng.integers(1, 25))]
        holes = {(nodes[a], nodes[b]) for a, b in drawn}
        groups: dict[Node, set[tuple[Node, Node]]] = {}
        for hole, unknown in merge_holes(holes).items():
            groups.setdefault(unknown, set()).add(hole)
        assert sorted(map(sorted, groups.values())) == sorted(map(sorted, by_pairs(holes)))


class CountedRouter(str):
    """The name of a router. It counts how often it is compared or hashed."""

    __slots__ = ()
    uses = 0

    def __lt__(self, other: str) -> bool:
        CountedRouter.uses += 1
        return str.__lt__(self, other)

    def __eq__(self, other: object) -> bool:
        CountedRouter.uses += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        CountedRouter.uses += 1
        return str.__hash__(self)


@pytest.mark.parametrize("hub", [("peer", 0), ("router", "hub")])
def test_merging_many_silent_hops_at_one_place_costs_no_more_than_their_number(hub: Node) -> None:
    """Comparing every two of them would cost four times as much for twice as many, and sixteen times for four."""

    def uses(holes: int) -> int:
        nodes: list[Node] = [("router", CountedRouter(f"r{number:05d}")) for number in range(holes)]
        CountedRouter.uses = 0
        merge_holes({(hub, node) if hub <= node else (node, hub) for node in nodes})
        return CountedRouter.uses

    assert uses(4000) < 6 * uses(1000)


def by_pairs(holes: set[tuple[Node, Node]]) -> list[set[tuple[Node, Node]]]:
    groups = [{hole} for hole in holes]
    for one, other in itertools.combinations(sorted(holes), 2):
        for node in {*one} & {*other}:
            ends = sorted({*one, *other} - {node})
            if node[0] == "peer" or (ends[0], ends[1]) in holes:
                mine = [group for group in groups if one in group or other in group]
                groups = [group for group in groups if group not in mine] + [set().union(*mine)]
    return groups
