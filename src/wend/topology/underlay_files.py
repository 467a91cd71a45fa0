"""Underlays as files: readers and writers of GraphML and GML, and a reader of maps of real networks by name.

Wend reads back exactly what it wrote. Files of other tools may contain only nodes and edges. Delays then come from
lengths, from the geographic positions of the two ends, or from a range, in this order; kinds and domains have defaults.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.model.rates import Capacity, capacity_text
from wend.model.units import MS, millis
from wend.topology import gml, layout, maps
from wend.topology.layout import Attributes
from wend.topology.maps import MapGraph
from wend.topology.underlay import LinkKind, RouterKind, Underlay
from wend.topology.underlay_builder import UnderlayBuilder

_EARTH_KM = 6371.0
_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML forbids: control characters and lone surrogates."""
DRAWN_MS = (1.0, 20.0)


def read(path: Path, *, seed: int = 0, delay_ms: tuple[float, float] = DRAWN_MS) -> Underlay:
    if not path.is_file():
        raise ConfigError(f"cannot read {path}: there is no such file", code="unreadable")
    check_suffix(path)
    graph = maps.read_graphml(path) if path.suffix == ".graphml" else MapGraph(*gml.read(path))
    return _make_underlay(path.stem, graph, seed, delay_ms)


def from_topohub(name: str, *, seed: int = 0, delay_ms: tuple[float, float] = DRAWN_MS) -> Underlay:
    return _make_underlay(f"topohub:{name}", maps.read_topohub(name), seed, delay_ms)


def check_suffix(path: Path) -> None:
    if path.suffix not in (".graphml", ".gml"):
        other = path.suffix or "one without a suffix"
        raise ConfigError(f"{path}: a network is a .graphml or a .gml file, not {other}")


def write(underlay: Underlay, path: Path) -> None:
    check_suffix(path)
    for text in (underlay.name, *underlay.names) if path.suffix == ".graphml" else ():
        if _NO_XML.search(text):
            raise ConfigError(f"cannot write {path}: the name {text!r} has a character that GraphML does not allow")
    text = to_graphml(underlay) if path.suffix == ".graphml" else to_gml(underlay)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from None


_KEYS = (
    ("node", "label", "string"),
    ("node", "kind", "string"),
    ("node", "domain", "int"),
    ("node", "x", "double"),
    ("node", "y", "double"),
    ("node", "capacity", "string"),
    ("edge", "kind", "string"),
    ("edge", "delay_ms", "double"),
    ("edge", "capacity", "string"),
)


def to_graphml(underlay: Underlay) -> str:
    keys = {(of, name): f"d{i}" for i, (of, name, _) in enumerate(_KEYS)}
    lines = ['<?xml version="1.0" encoding="utf-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    for of, name, kind in _KEYS:
        lines.append(f'  <key id="{keys[of, name]}" for="{of}" attr.name="{name}" attr.type="{kind}"/>')
    lines.append(f'  <graph id={quoteattr(underlay.name)} edgedefault="undirected">')

    def data(of: str, values: Mapping[str, Any]) -> str:
        return "".join(f'<data key="{keys[of, name]}">{escape(str(v))}</data>' for name, v in values.items())

    for router in range(underlay.routers):
        lines.append(f'    <node id="n{router}">{data("node", _node_attributes(underlay, router))}</node>')
    for link, (a, b) in enumerate(underlay.ends.tolist()):
        lines.append(f'    <edge source="n{a}" target="n{b}">{data("edge", _edge_attributes(underlay, link))}</edge>')
    return "\n".join([*lines, "  </graph>", "</graphml>", ""])


def to_gml(underlay: Underlay) -> str:
    def shown(value: Any) -> str:
        return gml.quote(value) if isinstance(value, str) else str(value)

    lines = ["graph [", "  directed 0", f"  name {gml.quote(underlay.name)}"]
    for router in range(underlay.routers):
        pairs = [f"{name} {shown(value)}" for name, value in _node_attributes(underlay, router).items()]
        lines.append(f"  node [ id {router} {' '.join(pairs)} ]")
    for link, (a, b) in enumerate(underlay.ends.tolist()):
        pairs = [f"{name} {shown(value)}" for name, value in _edge_attributes(underlay, link).items()]
        lines.append(f"  edge [ source {a} target {b} {' '.join(pairs)} ]")
    return "\n".join([*lines, "]", ""])


def _node_attributes(underlay: Underlay, router: int) -> dict[str, Any]:
    x, y = underlay.position[router].tolist()
    spot = {} if math.isnan(x) else {"x": x, "y": y}
    kind = RouterKind(int(underlay.router_kind[router])).name.lower()
    about = {"label": underlay.names[router], "kind": kind, "domain": int(underlay.domain[router]), **spot}
    return about | _capacity_attribute(underlay.router_capacity[router])


def _edge_attributes(underlay: Underlay, link: int) -> dict[str, Any]:
    kind = LinkKind(int(underlay.link_kind[link])).name.lower()
    return {
        "kind": kind,
        "delay_ms": int(underlay.delay_ns[link]) / MS,
        **_capacity_attribute(underlay.link_capacity[link]),
    }


def _capacity_attribute(capacity: Capacity) -> dict[str, str]:
    text = capacity_text(capacity)
    return {"capacity": text} if text else {}


def _make_underlay(name: str, graph: MapGraph, seed: int, delay_ms: tuple[float, float]) -> Underlay:
    builder = UnderlayBuilder(name)
    nodes, names = graph.nodes, maps.node_names(graph.nodes)
    for node, label, (x, y) in zip(nodes, names, layout.map_positions(nodes), strict=True):
        stated = maps.read_capacity(node, f"{name}, node {label}")
        builder.add_router(
            _parse_kind(RouterKind, node, name, label), _parse_domain(node, name, label), x, y, label, stated
        )
    links = maps.collect_links(name, graph, names)
    drawn = stream(seed, "underlay", "map", "delays").integers(
        millis(delay_ms[0]), millis(delay_ms[1]), size=len(links), endpoint=True
    )
    apart = [_fibre_delay(nodes[link.a], nodes[link.b]) for link in links]
    builder.remarks = _delay_remarks(links, apart, maps.drawn_delays_text(delay_ms))
    for (a, b, data, capacity, where), draw, across in zip(links, drawn.tolist(), apart, strict=True):
        delay = maps.read_delay(data, draw if across is None else across, where)
        builder.add_link(a, b, _parse_kind(LinkKind, data, name, f"{names[a]}-{names[b]}"), delay, capacity)
    return builder.build()


def _delay_remarks(links: list[maps.MapLink], apart: list[int | None], drawn: str) -> tuple[str, ...]:
    """Remarks about missing delays. Most maps have positions and no delays, so a delay from positions is worth a remark
    only if the map has an attribute that looks like a delay."""
    located = [x.data for x, ns in zip(links, apart, strict=True) if ns is not None]
    far = maps.missing_delay_remarks(located, len(links), "from positions")
    return tuple(sentence for sentence in far if "not read" in sentence) + maps.missing_delay_remarks(
        [x.data for x, ns in zip(links, apart, strict=True) if ns is None], len(links), drawn
    )


def _fibre_delay(a: Attributes, b: Attributes) -> int | None:
    """The delay of a straight fibre between two nodes, if both have a geographic position."""
    here, there = layout.geographic_position(a), layout.geographic_position(b)
    if here is None or there is None:
        return None
    (lon1, lat1), (lon2, lat2) = ([math.radians(v) for v in spot] for spot in (here, there))
    half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    km = 2 * _EARTH_KM * math.asin(min(1.0, math.sqrt(half)))
    return maps.fibre_ns(km)


def _parse_kind(kinds: Any, data: Attributes, name: str, what: str) -> Any:
    stated = data.get("kind")
    if stated is None:
        return kinds(0)
    try:
        return kinds[str(stated).upper()]
    except KeyError:
        known = ", ".join(kind.name.lower() for kind in kinds)
        raise ConfigError(f"{name}: {what} has kind {stated!r}, not one of {known}") from None


def _parse_domain(node: Attributes, name: str, what: str) -> int:
    try:
        return int(node.get("domain", 0))
    except (TypeError, ValueError):
        raise ConfigError(f"{name}: {what} has domain {node['domain']!r}, which is not a whole number") from None
