"""Holes of paths, filled by the links that `wend data topology` inferred."""

from collections.abc import Sequence
from itertools import pairwise, permutations
from pathlib import Path as File

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tests.errors import raises
from tests.oracles.topology_inference import Traceroute
from tests.topology.inferred_links import infer_links, infer_topology, trace_all, write_links
from tests.topology.placements import placements
from wend.model.paths import Path
from wend.strategies.tdo.paths import is_prefix, is_same
from wend.topology.catalog import make
from wend.topology.inference import LONGEST
from wend.topology.inferred_topology import InferredLink, InferredTopology, read_topology
from wend.topology.overlays import random_regular
from wend.topology.placement import Placement, attach_peers
from wend.topology.traceroute import Hop, Tracer, router_address

ROUTERS = tuple("bcdefg")
NODES = (*ROUTERS, "peer:1", "peer:2")


@st.composite
def links(draw: st.DrawFn) -> list[InferredLink]:
    pairs = [(a, b) for a in NODES for b in NODES if a < b]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=3, max_size=16))
    counts = st.integers(0, 3)
    return [InferredLink(a, b, 3 + draw(counts), draw(counts)) for a, b in chosen]


@st.composite
def paths(draw: st.DrawFn) -> Path:
    hops: list[str | None] = draw(st.lists(st.sampled_from(ROUTERS), unique=True, max_size=3))
    for place_ in sorted(draw(st.lists(st.integers(0, 3), min_size=1, max_size=5)), reverse=True):
        hops.insert(min(place_, len(hops)), None)
    return tuple(hops)


def complete_by_trying(found: list[InferredLink], path: Path) -> Path:
    """The rule of `inferred_topology`, with every sequence of routers tried for each hole, from left to right."""
    counts = {frozenset((link.a, link.b)): (link.filled, link.seen) for link in found if link.filled}
    nodes: list[str | None] = ["peer:1", *(hop and str(hop) for hop in path), "peer:2"]
    while None in nodes:
        begin = nodes.index(None)
        end = next(i for i in range(begin, len(nodes)) if nodes[i] is not None)
        best: tuple[int, int, tuple[str, ...]] | None = None
        free = [router for router in ROUTERS if router not in nodes]
        for routers in permutations(free, end - begin) if end - begin <= LONGEST else ():
            steps = [frozenset(step) for step in pairwise((nodes[begin - 1], *routers, nodes[end]))]
            if all(step in counts for step in steps):
                filled, seen = (min(counts[step][i] for step in steps) for i in (0, 1))
                best = min(best or (0, 0, ()), (-filled, -seen, routers))
        nodes[begin:end] = best[2] if best else ["?"] * (end - begin)
    return tuple(None if node == "?" else node for node in nodes[1:-1])


@settings(max_examples=400, deadline=None)
@given(links(), paths())
def test_a_hole_gets_the_routers_that_the_rule_names(found: list[InferredLink], path: Path) -> None:
    completed = InferredTopology(found).complete(1, 2, path)
    assert completed == complete_by_trying(found, path)
    assert InferredTopology(found[::-1]).complete(2, 1, path[::-1]) == completed[::-1]


def test_a_router_that_always_answered_fills_no_hole() -> None:
    found = [InferredLink("a", "m", 9, 0), InferredLink("b", "m", 9, 0), InferredLink("a", "n", 3, 1)]
    assert InferredTopology(found).complete(1, 2, ("a", None, "b")) == ("a", None, "b")
    found.append(InferredLink("b", "n", 3, 1))
    assert InferredTopology(found).complete(1, 2, ("a", None, "b")) == ("a", "n", "b")


def test_the_silent_router_of_a_peer_is_found_at_the_end_of_a_path() -> None:
    traces = [Traceroute(1, 2, ("a", None)), Traceroute(1, 3, ("a", "c")), Traceroute(3, 2, ("c", "b", None))]
    topology = infer_topology(traces)
    (one,) = topology.complete(1, 2, ("a", None))[1:]
    assert one is not None and topology.complete(2, 3, (None, "b", "c")) == (one, "b", "c")
    assert topology.complete(3, 2, ("c", None)) == ("c", None), "c and the silent router are not linked"


def test_silent_routers_keep_their_names_when_the_job_gives_them_other_numbers() -> None:
    one = [("r1", "unknown:0"), ("r2", "unknown:0"), ("r3", "unknown:1"), ("r4", "unknown:1")]
    later = [("r0", "unknown:0"), ("r1", "unknown:1"), ("r2", "unknown:1"), ("r3", "unknown:2"), ("r4", "unknown:2")]
    topologies = [InferredTopology(InferredLink(a, b, 3, 3) for a, b in each) for each in (one, later)]
    for path in (("r1", None, "r2"), ("r3", None, "r4")):
        first, second = (topology.complete(1, 2, path) for topology in topologies)
        assert first == second and None not in first
    names = [topologies[0].complete(1, 2, path)[1] for path in (("r1", None, "r2"), ("r3", None, "r4"))]
    assert len({*names}) == 2


@settings(max_examples=60, deadline=None)
@given(placements(routers=9, peers=6), st.integers(0, 99))
def test_a_lost_answer_is_found_if_all_others_were_recorded(placement: Placement, seed: int) -> None:
    """Every hop was in a hole, and answered, too: a filled hop is right or stays open where something else fits."""
    records = [trace for n in range(6) for trace in trace_all(placement, Tracer(placement, seed=n, loss=0.3))]
    topology = infer_topology(records)
    for a in range(placement.peers):
        for b in range(placement.peers):
            path = named(placement.path(a, b))
            if a != b:
                assert topology.complete(a, b, path) == path
                hops = [None if n == seed % len(path) else hop for n, hop in enumerate(path)]
                completed = topology.complete(a, b, tuple(hops))
                assert len(completed) == len(path)
                assert all(hop in (None, now) for hop, now in zip(hops, completed, strict=True))


def named(hops: Sequence[Hop]) -> Path:
    return tuple(None if hop is None else router_address(hop) for hop in hops)


def parents(paths_from: dict[int, Path]) -> dict[int, int]:
    """Brute force of the landmark's tree: the last peer on the path to each; -1 for the landmark itself."""
    found = {}
    for peer, path in paths_from.items():
        before = [
            other
            for other, begin in paths_from.items()
            if other != peer and (is_prefix(begin, path) or (is_same(begin, path) and other < peer))
        ]
        found[peer] = min(before, key=lambda other: (-len(paths_from[other]), other), default=-1)
    return found


@pytest.mark.parametrize("name", ["power-law", "brite", "transit-stub"])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_peers_find_their_places_in_a_landmark_s_tree_through_silent_routers(name: str, loss: float) -> None:
    """Of the peers that silent hops misplace, inference puts at least two thirds in their place. Records are those of
    the links of an overlay; the landmarks trace other paths."""
    wrong = {"traced": 0, "completed": 0}
    for seed in (1, 2, 3):
        placement = attach_peers(make(name, seed), 60, seed)
        tracer = Tracer(placement, seed=seed, anonymous=0.1, loss=loss)
        near = [(link.a, link.b) for link in random_regular(placement, 8, seed).links]
        records = [Traceroute(a, b, tracer.trace(a, b, n)) for a, b in near for n in range(8)]
        topology = infer_topology(records, least=3)
        for root in range(0, 60, 12):
            others = [peer for peer in range(60) if peer != root]
            true = {peer: named(placement.path(root, peer)) for peer in others}
            traced = {peer: named(tracer.trace(root, peer, 99)) for peer in others}
            completed = {peer: topology.complete(root, peer, path) for peer, path in traced.items()}
            right = parents(true)
            for kind, seen in (("traced", traced), ("completed", completed)):
                wrong[kind] += len(parents(seen).items() - right.items())
    assert wrong["traced"] > 20
    assert 3 * wrong["completed"] <= wrong["traced"], wrong


# ---------------------------------------------------------------- the folder


def test_the_output_of_the_job_is_read_as_it_is(tmp_path: File) -> None:
    found = infer_links([Traceroute(0, 1, ("a", "b", "c")), Traceroute(2, 3, ("a", None, "c"))])
    topology = read_topology(write_links(tmp_path / "network", found))
    assert topology.complete(5, 6, ("a", None, "c")) == ("a", "b", "c")


def test_an_output_that_cannot_be_read_is_refused_in_a_sentence(tmp_path: File) -> None:
    with raises("unreadable", match=r"network is not an output of `wend data topology`: it has no folder links$"):
        read_topology(tmp_path / "network")
    place_ = tmp_path / "network" / "links"
    place_.mkdir(parents=True)
    (place_ / "part-0.parquet").write_bytes(b"no table")
    with raises("unreadable", match=r"^cannot read the inferred topology in .*network: [^\n]+$"):
        read_topology(tmp_path / "network")
    table = pa.table({"a": ["x"], "b": ["y"], "seen": [1], "filled": ["2"]})
    for columns, sentence in (
        (["a", "b", "seen"], r"have no column filled$"),
        (["a", "b", "seen", "filled"], r"the column filled of the links in .* must be int64, without nulls$"),
    ):
        parquet.write_table(table.select(columns), place_ / "part-0.parquet")
        with raises("unreadable", match=sentence):
            read_topology(tmp_path / "network")
