"""Real networks: GraphML files, and the topohub collection by name (Topology Zoo, SNDlib, backbones).

Wend uses the delay that the map states for a link (`DELAYS`). If there is none, it draws one from the scenario's range
and adds a remark to the overlay. The `capacity` of a link or a peer is a rate (`10Mbit/s`, `40msg/s`, a bare number of
messages per second) or one of each unit; most maps state none.

A link has the same properties in both directions. So a directed map must have both edges, with equal properties.
Several edges between the same two nodes become one link: their capacities add up, and the first edge gives the rest.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.model.rates import Capacity, parse_capacity
from wend.model.units import Nanos, millis
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.layout import Attributes, map_positions

FIBRE_MS_PER_KM = 1 / 200
MIN_DELAY_MS = 0.05
DELAYS = {
    "delay_ms": 1.0,
    "latency_ms": 1.0,
    "delay": 1.0,
    "dist": FIBRE_MS_PER_KM,
    "length": FIBRE_MS_PER_KM,
}
"""The attributes that may state a link's delay, in order of precedence, and their unit in milliseconds
(docs/reference/maps.md)."""
_LIKE_A_DELAY = re.compile(
    r"delay|latency|rtt|(^|_)(lag|ping|dist|distance|length|weight)(_|$)|(^|_)(ms|us|ns|km)$", re.IGNORECASE
)


def fibre_ns(km: float) -> Nanos:
    """The delay of a straight fibre."""
    return millis(max(km * FIBRE_MS_PER_KM, MIN_DELAY_MS))


_OWN = re.compile(rb"""<edge\b[^>]*\sdirected\s*=\s*["'](true|false)["']""")


class MapGraph(NamedTuple):
    """The nodes and edges of a map, with their attributes."""

    nodes: Sequence[Attributes]
    edges: Sequence[tuple[int, int, Attributes]]
    directed: bool = False


class MapLink(NamedTuple):
    """One link of a map, `a` < `b`, with its attributes."""

    a: int
    b: int
    data: Attributes
    capacity: Capacity
    where: str
    """The beginning of error messages about it."""


def from_graphml(path: Path, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    if not path.is_file():
        from wend.topology.catalog import DRAWN

        if str(path) in DRAWN:
            raise ConfigError(f"{path} is an underlay, not an overlay: use --underlay {path}")
        raise ConfigError(f"topology {str(path)!r} is neither full-mesh, regular, topohub:<name> nor a file")
    return _make_overlay(str(path), read_graphml(path), delay_ms, loss, seed)


def from_topohub(name: str, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    return _make_overlay(f"topohub:{name}", read_topohub(name), delay_ms, loss, seed)


def read_graphml(path: Path) -> MapGraph:
    import rustworkx

    try:
        graphs = rustworkx.read_graphml(str(path))
    except Exception as error:  # the reader raises many types
        raise ConfigError(f"{path} is not a GraphML file: {error}", code="unreadable") from None
    if not graphs:
        raise ConfigError(f"{path} is not a GraphML file: there is no graph in it", code="unreadable")
    graph = graphs[0]
    directed = isinstance(graph, rustworkx.PyDiGraph)
    # The reader ignores the attribute `directed` of a single edge.
    if (b"false" if directed else b"true") in _OWN.findall(path.read_bytes()):
        raise ConfigError(f"{path} has both directed and undirected edges: make all of them undirected")
    edges = [(a, b, data if isinstance(data, Mapping) else {}) for a, b, data in graph.weighted_edge_list()]
    return MapGraph(list(graph.nodes()), edges, directed)


def read_topohub(name: str) -> MapGraph:
    import topohub

    unknown = ConfigError(f"topohub has no map named {name!r} (try topozoo/Abilene or sndlib/germany50)")
    if not name.isprintable():  # no map has such a name, and topohub fails on it
        raise unknown
    try:
        data = topohub.get(name)
    except KeyError:
        raise unknown from None
    nodes = data["nodes"]
    place = {node["id"]: i for i, node in enumerate(nodes)}
    return MapGraph(
        nodes, [(place[e["source"]], place[e["target"]], e) for e in data.get("edges", data.get("links", ()))]
    )


def node_names(nodes: Iterable[Attributes]) -> list[str]:
    """The name of each node: the first that it has of label, name and id. The number 0 is a name, too."""
    keys = ("label", "name", "id")
    return [str(next((n[key] for key in keys if n.get(key) not in (None, "")), i)) for i, n in enumerate(nodes)]


def collect_links(what: str, graph: MapGraph, names: Sequence[str]) -> list[MapLink]:
    """The links of a map, sorted: one for each pair of nodes that have edges."""
    edges: dict[tuple[int, int], list[Attributes]] = {}
    for a, b, data in graph.edges:
        if a != b:
            edges.setdefault((a, b) if graph.directed else (min(a, b), max(a, b)), []).append(data)
    links = []
    for a, b in sorted({(min(pair), max(pair)) for pair in edges}):
        where = f"{what}, link {names[a]}-{names[b]}"
        there = edges.get((a, b), [])
        if graph.directed:
            _check_symmetric(there, edges.get((b, a), []), where, names[a], names[b])
        links.append(MapLink(a, b, there[0], _total_capacity(there, where), where))
    return links


def _check_symmetric(there: Sequence[Attributes], back: Sequence[Attributes], where: str, a: str, b: str) -> None:
    if not there or not back:
        missing = f"from {b} to {a}" if there else f"from {a} to {b}"
        raise ConfigError(
            f"{where}: the map is directed and has no edge {missing}, but links have two directions; "
            "if each edge stands for both, declare the map undirected"
        )
    for property_name, differ in (
        ("delays", read_delay(there[0], -1, where) != read_delay(back[0], -1, where)),
        ("capacities", _total_capacity(there, where) != _total_capacity(back, where)),
        ("kinds", there[0].get("kind") != back[0].get("kind")),
    ):
        if differ:
            raise ConfigError(f"{where}: its two directions have different {property_name}, but they must be equal")


def _total_capacity(parallel: Sequence[Attributes], where: str) -> Capacity:
    """The sum of the capacities of parallel edges."""
    each = [read_capacity(data, where) for data in parallel]
    for unit in zip(*each, strict=True):
        if inf in unit and min(unit) < inf:
            raise ConfigError(f"{where}: of its {len(each)} edges some state a capacity and others none")
    msgs, bps = (sum(unit) for unit in zip(*each, strict=True))
    return msgs, bps


def _make_overlay(what: str, graph: MapGraph, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    nodes, names = graph.nodes, node_names(graph.nodes)
    edges = collect_links(what, graph, names)
    drawn = stream(seed, "topology", "delays").integers(
        millis(delay_ms[0]), millis(delay_ms[1]), size=len(edges), endpoint=True
    )
    links = [
        OverlayLink(e.a, e.b, read_delay(e.data, int(draw), e.where), loss, *e.capacity)
        for e, draw in zip(edges, drawn, strict=True)
    ]
    stated = tuple([read_capacity(node, f"{what}, peer {name}") for node, name in zip(nodes, names, strict=True)])
    said = missing_delay_remarks([e.data for e in edges], len(edges), drawn_delays_text(delay_ms))
    overlay = Overlay(len(names), links, tuple(names), stated, tuple(map_positions(nodes)), said)
    if len(names) < 2 or not overlay.is_connected():
        raise ConfigError(f"{what} is not a connected network of two peers or more")
    return overlay


def missing_delay_remarks(links: Sequence[Attributes], of: int, instead: str) -> tuple[str, ...]:
    """A remark about links without a stated delay, out of `of` links, and about attributes that look like a delay."""
    lacking = [data for data in links if not any(data.get(key) is not None for key in DELAYS)]
    if not lacking:
        return ()
    alike = sorted({key for data in lacking for key in data if data[key] is not None and _LIKE_A_DELAY.search(key)})
    states, is_ = "states" if len(lacking) == 1 else "state", "is" if len(alike) == 1 else "are"
    unread = f"; {', '.join(alike)} {is_} none of these and {is_} not read" if alike else ""
    return (f"{len(lacking)} of {of} links {states} no delay ({', '.join(DELAYS)}): {instead}{unread}",)


def drawn_delays_text(delay_ms: tuple[float, float]) -> str:
    return f"drawn from {delay_ms[0]:g}-{delay_ms[1]:g} ms"


def read_delay(data: Attributes, drawn: Nanos, where: str) -> Nanos:
    """The delay that the map states, or else the drawn one."""
    for key, scale in DELAYS.items():
        if data.get(key) is not None:
            try:
                value = float(data[key]) * scale
            except (TypeError, ValueError):
                raise ConfigError(f"{where}: {key} = {data[key]!r} is not a number") from None
            if not 0 <= value < float("inf"):
                raise ConfigError(f"{where}: {key} = {data[key]!r} is not a delay")
            return millis(max(value, MIN_DELAY_MS))
    return drawn


def read_capacity(data: Attributes, where: str) -> Capacity:
    """The capacity that the map states for a link or a peer."""
    stated = data.get("capacity")
    return (inf, inf) if stated in (None, "") else parse_capacity(stated, where)
