"""Outputs of `wend data topology` for tests, inferred in one process."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from tests.oracles.topology_inference import Traceroute, infer, link_ends, loops, traced_nodes
from wend.topology.inference import Node
from wend.topology.inferred_topology import InferredLink, InferredTopology
from wend.topology.placement import Placement
from wend.topology.traceroute import Tracer, router_address


def infer_links(traces: Iterable[Traceroute], *, least: int = 1) -> list[InferredLink]:
    """The links that the job infers, with how often each was in a hole."""
    every = list(traces)
    direct = Counter(
        link_ends(a, b)
        for trace in every
        if not loops(trace)
        for a, b in pairwise(traced_nodes(trace))
        if a is not None and b is not None
    )
    found = infer(every, least=least).links
    return [InferredLink(_name(a), _name(b), seen, seen - direct[a, b]) for (a, b), seen in found.items()]


def infer_topology(traces: Iterable[Traceroute], *, least: int = 1) -> InferredTopology:
    return InferredTopology(infer_links(traces, least=least))


def trace_all(placement: Placement, tracer: Tracer, attempts: int = 1) -> list[Traceroute]:
    """Traces between every two peers, in both directions."""
    pairs = [(a, b) for a in range(placement.peers) for b in range(placement.peers) if a != b]
    return [Traceroute(a, b, tracer.trace(a, b, attempt)) for a, b in pairs for attempt in range(attempts)]


def write_links(folder: Path, links: Iterable[InferredLink]) -> Path:
    """Write the links as the job does. Returns the folder."""
    (folder / "links").mkdir(parents=True)
    rows = [{**link._asdict(), "kind": "link", "first_ns": 0, "last_ns": 0} for link in links]
    columns = [("a", pa.string()), ("b", pa.string()), ("kind", pa.string())]
    columns += [(name, pa.int64()) for name in ("seen", "filled", "first_ns", "last_ns")]
    parquet.write_table(pa.Table.from_pylist(rows, schema=pa.schema(columns)), folder / "links" / "part-0.parquet")
    return folder


def _name(node: Node) -> str:
    match node:
        case ("router", int(router)):
            return router_address(router)
        case ("router", name):
            return str(name)
        case (kind, number):
            return f"{kind}:{number}"
