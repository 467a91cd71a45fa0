"""Spark finds the same paths as one process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.nets import networks
from tests.spark import needs_java
from wend.model.errors import ConfigError
from wend.model.rates import Rate
from wend.pipeline import paths_job as spread
from wend.planning.candidate_paths import find_paths
from wend.planning.flow_network import CsrGraph, FlowNetwork
from wend.studies.campr.brite_flat import grow


def wanted_of(peers: int, sources: list[int], share: int = 1) -> dict[int, Any]:
    return {s: np.array([p for p in range(0, peers, share) if p != s], dtype=np.int32) for s in sources}


@pytest.fixture(scope="module")
def graph() -> CsrGraph:
    return FlowNetwork(grow(150, "attached", seed=4), link=Rate(20.0)).graph


def by_hand(graph: CsrGraph, source: int, receivers: Any, k: int) -> Iterator[tuple[tuple[int, int, int], list[int]]]:
    """Each path with its key: source, receiver, rank; and its peers."""
    found = find_paths(graph, source, receivers, k)
    for place, receiver in enumerate(found.receivers.tolist()):
        for rank, path in enumerate(range(found.first[place], found.first[place + 1]), 1):
            arcs = found.arcs[found.ptr[path] : found.ptr[path + 1]]
            yield (source, receiver, rank), [source, *graph.head[arcs].tolist()]


@given(networks(), st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_rows_hold_all_of_the_paths(network: FlowNetwork, k: int, rng: Any) -> None:
    graph = network.graph
    wanted = {}
    for source in rng.sample(range(network.peers), rng.randint(1, network.peers)):
        receivers = rng.sample(range(network.peers), rng.randint(0, network.peers))
        wanted[source] = np.array(receivers, dtype=np.int32)
    batches = list(spread.find_paths_locally(graph, wanted, k))
    rng.shuffle(batches)
    rows = pa.Table.from_batches(batches, schema=spread.SCHEMA)
    found = {(row["source"], row["receiver"], row["rank"]): row["peers"] for row in rows.to_pylist()}
    assert len(found) == len(rows)
    assert found == {key: peers for source in wanted for key, peers in by_hand(graph, source, wanted[source], k)}
    for row in rows.to_pylist():
        assert (row["peers"][0], row["peers"][-1]) == (row["source"], row["receiver"])
        arcs = [network.graph.arc(a, b) for a, b in zip(row["peers"], row["peers"][1:], strict=False)]
        assert row["delay_ns"] == graph.delay[arcs].sum()


@needs_java
@pytest.mark.spark
def test_spark_finds_the_same_paths(spark: Any, graph: CsrGraph, tmp_path: Path) -> None:
    wanted = wanted_of(150, [0, 3, 77, 149], share=2)
    found = spread.find_paths_on_spark(spark, graph, wanted, 4, tmp_path).toArrow()
    here = pa.Table.from_batches(spread.find_paths_locally(graph, wanted, 4))
    order = [(name, "ascending") for name in ("source", "receiver", "rank")]
    assert found.sort_by(order).to_pylist() == here.sort_by(order).to_pylist()
    assert max(found["rank"].to_pylist()) == 4
    assert [path.name for path in tmp_path.iterdir()] == [spread.write_graph(graph, tmp_path).name]


@given(networks(), st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_rows_become_the_paths_again(network: FlowNetwork, k: int, rng: Any) -> None:
    sources = rng.sample(range(network.peers), rng.randint(1, network.peers))
    wanted = {
        source: np.array(sorted(rng.sample(range(network.peers), rng.randint(0, network.peers))), dtype=np.int32)
        for source in sources
    }
    batches = list(spread.find_paths_locally(network.graph, wanted, k))
    rng.shuffle(batches)
    read = spread.read_path_rows(pa.Table.from_batches(batches, schema=spread.SCHEMA), network.graph, wanted)
    for source, receivers in wanted.items():
        found = find_paths(network.graph, source, receivers, k)
        for name, mine, theirs in zip(found._fields, read[source], found, strict=True):
            assert (mine.dtype, mine.tolist()) == (theirs.dtype, theirs.tolist()), name


def test_what_is_large_grows_with_peers_receivers_and_k() -> None:
    def need(peers: int, sources: int, k: int) -> float:
        return spread.estimate_search_seconds(peers, wanted_of(peers, list(range(sources))), k)

    assert need(50, 2, 3) < need(50, 4, 3) < need(100, 4, 3) < need(100, 4, 4)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "taken").write_text("a file")
    yield tmp_path / "taken"


def test_a_folder_that_cannot_be_written_is_said(graph: CsrGraph, full: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the network to"):
        spread.write_graph(graph, full)
