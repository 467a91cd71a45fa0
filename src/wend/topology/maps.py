"""Real networks: GraphML files, and the topohub collection by name (Topology Zoo, SNDlib, backbones).

A link's delay comes from the map where the map has one (`delay` or `delay_ms` in milliseconds, `dist`
or `length` in kilometres at the speed of light in fibre), else from the scenario's range. `capacity`, of a link
or a peer, is a rate (`10Mbit/s`, `40msg/s`, a bare number of messages per second) or one of each unit; most state none.
"""

from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.model.rates import Capacity, parse_capacity
from wend.model.units import Nanos, millis
from wend.topology.graph import Link, Overlay
from wend.topology.places import Attributes, spots

FIBRE_MS_PER_KM = 1 / 200
MIN_DELAY_MS = 0.05


def fibre_ns(km: float) -> Nanos:
    """The delay of a straight fibre."""
    return millis(max(km * FIBRE_MS_PER_KM, MIN_DELAY_MS))


Graph = tuple[list[Attributes], list[tuple[int, int, Attributes]]]
"""What a map says of its nodes, and of its edges between them."""


def from_graphml(path: Path, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    if not path.is_file():
        from wend.topology.catalog import DRAWN

        if str(path) in DRAWN:
            raise ConfigError(f"{path} lies beneath an overlay: name it as the underlay (--underlay {path})")
        raise ConfigError(f"topology {str(path)!r} is neither full-mesh, regular, topohub:<name> nor a file")
    nodes, edges = read_graphml(path)
    return _overlay(str(path), nodes, edges, delay_ms, loss, seed)


def from_topohub(name: str, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    nodes, edges = read_topohub(name)
    return _overlay(f"topohub:{name}", nodes, edges, delay_ms, loss, seed)


def read_graphml(path: Path) -> Graph:
    import rustworkx

    try:
        graphs = rustworkx.read_graphml(str(path))
    except Exception as error:  # the reader raises many kinds
        raise ConfigError(f"{path} is not a GraphML file: {error}") from None
    if not graphs:
        raise ConfigError(f"{path} is not a GraphML file: there is no graph in it")
    graph = graphs[0]
    edges = [(a, b, data if isinstance(data, Mapping) else {}) for a, b, data in graph.weighted_edge_list()]
    return list(graph.nodes()), edges


def read_topohub(name: str) -> Graph:
    import topohub

    unknown = ConfigError(f"topohub has no map named {name!r} (try topozoo/Abilene or sndlib/germany50)")
    if not name.isprintable():  # no file is called so, and the collection would stumble over it
        raise unknown
    try:
        data = topohub.get(name)
    except KeyError:
        raise unknown from None
    nodes = data["nodes"]
    place = {node["id"]: i for i, node in enumerate(nodes)}
    return nodes, [(place[e["source"]], place[e["target"]], e) for e in data.get("edges", data.get("links", ()))]


def labels(nodes: Iterable[Attributes]) -> list[str]:
    return [str(n.get("label") or n.get("name") or n.get("id", i)) for i, n in enumerate(nodes)]


def _overlay(
    what: str,
    nodes: list[Attributes],
    edges: Iterable[tuple[int, int, Attributes]],
    delay_ms: tuple[float, float],
    loss: float,
    seed: int,
) -> Overlay:
    names = labels(nodes)
    known: dict[tuple[int, int], Attributes] = {}
    for a, b, data in edges:
        if a != b:
            known.setdefault((min(a, b), max(a, b)), data)
    drawn = stream(seed, "topology", "delays").integers(
        millis(delay_ms[0]), millis(delay_ms[1]), size=len(known), endpoint=True
    )
    links = []
    for ((a, b), data), draw in zip(sorted(known.items(), key=lambda item: item[0]), drawn, strict=True):
        where = f"{what}, link {names[a]}-{names[b]}"
        links.append(Link(a, b, delay_of(data, int(draw), where), loss, *capacity_of(data, where)))
    stated = tuple([capacity_of(node, f"{what}, peer {name}") for node, name in zip(nodes, names, strict=True)])
    overlay = Overlay(len(names), links, tuple(names), stated, tuple(spots(nodes)))
    if len(names) < 2 or not overlay.connected():
        raise ConfigError(f"{what} is not a connected network of two peers or more")
    return overlay


def delay_of(data: Attributes, drawn: Nanos, where: str) -> Nanos:
    """What the map says, else what was drawn."""
    for key, scale in (
        ("delay_ms", 1.0),
        ("delay", 1.0),
        ("dist", FIBRE_MS_PER_KM),
        ("length", FIBRE_MS_PER_KM),
    ):
        if data.get(key) is not None:
            try:
                value = float(data[key]) * scale
            except (TypeError, ValueError):
                raise ConfigError(f"{where}: {key} = {data[key]!r} is not a number") from None
            if not 0 <= value < float("inf"):
                raise ConfigError(f"{where}: {key} = {data[key]!r} is not a delay")
            return millis(max(value, MIN_DELAY_MS))
    return drawn


def capacity_of(data: Attributes, where: str) -> Capacity:
    """What the map says, of a link or of a peer."""
    stated = data.get("capacity")
    return (inf, inf) if stated in (None, "") else parse_capacity(stated, where)
