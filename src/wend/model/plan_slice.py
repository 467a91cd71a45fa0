"""The part of a plan that one peer needs, as bytes. `wend plan push` sends it to the peer, which stores it.

A part names the plan, its peer, and the links of that peer in the plan's topology. If every peer has checked its own
links, their topology is that of the plan. The part contains the flows of the peer, and the hops of all delivery graphs
through it.
"""

import zlib
from typing import Any

import msgspec
import numpy as np

from wend.model.errors import WireError
from wend.model.events import PeerId
from wend.model.plan import OwnFlow, Plan

MAX_PART_BYTES = 64 * 1024 * 1024
"""The largest part that a peer unpacks."""
_INT32 = np.dtype("<i4")
_EXCESS = 1e-6
"""How far rounding may raise the shares of a flow above 1."""


class PlanSlice(msgspec.Struct, frozen=True):
    """What one peer needs of a plan."""

    id: int
    topology: str
    """The fingerprint of the plan's topology."""
    peers: int
    peer: PeerId
    neighbours: tuple[PeerId, ...]
    """The peers that this one has links with, in the plan's topology."""
    flows: tuple[OwnFlow, ...]
    """The flows that this peer publishes."""
    graph: bytes
    """Of each hop, sorted by graph: its graph, as four bytes, the lowest first."""
    tail: bytes
    head: bytes


def make_slice(plan: Plan, peer: PeerId) -> PlanSlice:
    """The part of a plan that a peer needs."""
    graph, tail, head = plan.hops["graph"], plan.hops["peer"], plan.hops["next"]
    own = np.isin(graph, graph[tail == peer])
    order = np.argsort(graph[own], kind="stable")
    columns = (np.ascontiguousarray(each[own][order], dtype=_INT32).tobytes() for each in (graph, tail, head))
    linked = plan.arcs["b"][plan.arcs["a"] == peer]
    return PlanSlice(
        plan.id, plan.head.topology, plan.head.peers, peer, tuple(sorted(linked.tolist())), plan.published_flows(peer),
        *columns,
    )  # fmt: skip


def encode_slice(part: PlanSlice) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(part))


def decode_slice(data: bytes) -> PlanSlice:
    """Read and check a part. Raises `WireError`."""
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, MAX_PART_BYTES)
        if not unpacker.eof:
            raise WireError(f"the part of a plan is incomplete, or has more than {MAX_PART_BYTES} bytes")
        part = msgspec.msgpack.decode(plain, type=PlanSlice)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"these bytes are not a part of a plan: {error}") from None
    if (wrong := _find_fault(part)) is not None:
        raise WireError(f"this part of a plan is invalid: {wrong}")
    return part


def hop_columns(part: PlanSlice) -> tuple[Any, Any, Any]:
    """Graph, peer and next hop of each hop."""
    graph, tail, head = (
        np.frombuffer(each, dtype=_INT32).astype(np.int32) for each in (part.graph, part.tail, part.head)
    )
    return graph, tail, head


def _find_fault(part: PlanSlice) -> str | None:
    """Why a part is invalid; None if it is valid."""
    if len({len(part.graph), len(part.tail), len(part.head)}) != 1 or len(part.graph) % _INT32.itemsize:
        return "its columns differ in length"
    if not 0 <= part.id < 1 << 32 or not 0 <= part.peer < part.peers:
        return f"it is for peer {part.peer} of {part.peers}"
    graph, tail, head = hop_columns(part)
    if len(graph) and (graph.min() < 0 or (np.diff(graph) < 0).any()):
        return "its graphs are not sorted"
    for ends in (tail, head):
        if len(ends) and not (ends.min() >= 0 and ends.max() < part.peers):
            return f"it has hops of peers beyond {part.peers - 1}"
    if not set(np.unique(head[tail == part.peer]).tolist()) <= set(part.neighbours):
        return f"it sends from peer {part.peer} over a link that its topology does not have"
    graphs = set(np.unique(graph).tolist())
    return next((fault for flow in part.flows if (fault := _find_flow_fault(flow, graphs)) is not None), None)


def _find_flow_fault(flow: OwnFlow, graphs: set[int]) -> str | None:
    for shares in (flow.shares, *(each for *_, each in flow.backups)):
        values = [share for _, share in shares]
        if not all(0 <= share <= 1 + _EXCESS for share in values) or sum(values) > 1 + _EXCESS:
            return f"the shares of flow {flow.flow} are negative or above 1"
        if not {number for number, _ in shares} <= graphs:
            return f"flow {flow.flow} has delivery graphs that the part does not hold"
    return None
