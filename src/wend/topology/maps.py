"""Real networks: GraphML files, and the topohub collection by name (Topology Zoo, SNDlib, backbones).

A link's delay comes from the map where the map has one (`delay` or `delay_ms` in milliseconds, `dist`
or `length` in kilometres at the speed of light in fibre), else from the scenario's range. `capacity` is a
rate (`10Mbit/s`, `40msg/s`, a bare number of messages per second); a link without one states none.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wend.model.errors import ConfigError
from wend.model.randomness import stream
from wend.model.rates import parse_rate
from wend.model.units import Nanos, millis
from wend.topology.graph import Link, Overlay

FIBRE_MS_PER_KM = 1 / 200
MIN_DELAY_MS = 0.05


def from_graphml(path: Path, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    import rustworkx

    if not path.is_file():
        raise ConfigError(f"topology {str(path)!r} is neither full-mesh, regular, topohub:<name> nor a file")
    try:
        graph = rustworkx.read_graphml(str(path))[0]
    except Exception as error:  # the reader raises many kinds
        raise ConfigError(f"{path} is not a GraphML file: {error}") from None
    names = [str(n.get("label") or n.get("name") or n.get("id", i)) for i, n in enumerate(graph.nodes())]
    edges = [(a, b, data if isinstance(data, Mapping) else {}) for a, b, data in graph.weighted_edge_list()]
    return _overlay(str(path), names, edges, delay_ms, loss, seed)


def from_topohub(name: str, *, delay_ms: tuple[float, float], loss: float, seed: int) -> Overlay:
    import topohub

    try:
        data = topohub.get(name)
    except Exception:  # a missing key, a missing file: the collection has several ways to say no
        raise ConfigError(f"topohub has no map named {name!r} (try topozoo/Abilene or sndlib/germany50)") from None
    nodes = data["nodes"]
    place = {node["id"]: i for i, node in enumerate(nodes)}
    names = [str(node.get("name", node["id"])) for node in nodes]
    edges = [(place[e["source"]], place[e["target"]], e) for e in data.get("edges", data.get("links", ()))]
    return _overlay(f"topohub:{name}", names, edges, delay_ms, loss, seed)


def _overlay(
    what: str,
    names: list[str],
    edges: Iterable[tuple[int, int, Mapping[str, Any]]],
    delay_ms: tuple[float, float],
    loss: float,
    seed: int,
) -> Overlay:
    known: dict[tuple[int, int], Mapping[str, Any]] = {}
    for a, b, data in edges:
        if a != b:
            known.setdefault((min(a, b), max(a, b)), data)
    drawn = stream(seed, "topology", "delays").integers(
        millis(delay_ms[0]), millis(delay_ms[1]), size=len(known), endpoint=True
    )
    links = []
    for ((a, b), data), draw in zip(sorted(known.items(), key=lambda item: item[0]), drawn, strict=True):
        where = f"{what}, link {names[a]}-{names[b]}"
        links.append(Link(a, b, _delay(data, int(draw), where), loss, **_capacity(data, where)))
    overlay = Overlay(len(names), links, tuple(names))
    if len(names) < 2 or not overlay.connected():
        raise ConfigError(f"{what} is not a connected network of two peers or more")
    return overlay


def _delay(data: Mapping[str, Any], drawn: Nanos, where: str) -> Nanos:
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


def _capacity(data: Mapping[str, Any], where: str) -> dict[str, float]:
    if data.get("capacity") in (None, ""):
        return {}
    rate = parse_rate(data["capacity"], f"{where}: capacity")
    if not rate.value > 0:
        raise ConfigError(f"{where} needs a capacity above 0, got {rate}")
    return {"capacity_bps" if rate.bits else "capacity_msgs": rate.value}
