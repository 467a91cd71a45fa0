"""Parses the names of nodes and links: `3`, `Stuttgart`, `3-7`, `Stuttgart-Mannheim`. Finds the routers of a map."""

from collections.abc import Mapping
from pathlib import Path

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.topology.graph import Overlay
from wend.topology.maps import read_graphml


def find_node(overlay: Overlay, text: str) -> PeerId:
    """The node with this name, or else with this number."""
    if (node := _find_node(overlay, text)) is None:
        raise ConfigError(
            f"there is no node {text!r}: give the name of one of the {overlay.peers}, or its number from 0"
        )
    return node


def find_nodes(overlay: Overlay, text: str) -> frozenset[PeerId]:
    """The nodes in a list of names, numbers and ranges of numbers: `0-13,Stuttgart`."""
    nodes: set[PeerId] = set()
    for name in filter(None, map(str.strip, text.split(","))):
        low, dash, high = name.partition("-")
        if _find_node(overlay, name) is None and dash and low.isdecimal() and high.isdecimal():
            nodes |= {find_node(overlay, str(n)) for n in range(int(low), int(high) + 1)}
        else:
            nodes.add(find_node(overlay, name))
    return frozenset(nodes)


def find_link(overlay: Overlay, text: str) -> int:
    """The link with this number, or with these two ends: `A-B`. Names may contain dashes."""
    if text.isdecimal():
        if int(text) >= len(overlay.links):
            raise ConfigError(f"there is no link {text}: the lab has {len(overlay.links)}, from 0")
        return int(text)
    dashes = [i for i, character in enumerate(text) if character == "-"]
    for i in dashes:
        a, b = _find_node(overlay, text[:i]), _find_node(overlay, text[i + 1 :])
        if a is not None and b is not None:
            if b not in overlay.neighbours(a):
                raise ConfigError(f"{overlay.names[a]} and {overlay.names[b]} have no link between them")
            return overlay.link(a, b)
    raise ConfigError(f"there is no link {text!r}: give its number, or its two ends as A-B")


def _find_node(overlay: Overlay, text: str) -> PeerId | None:
    if text in overlay.names:
        return overlay.names.index(text)
    if text.isdecimal() and int(text) < overlay.peers:
        return int(text)
    return None


def read_routers(path: Path) -> frozenset[PeerId]:
    """The nodes of a GraphML file that have the attribute `kind` with the value `router`."""
    nodes = enumerate(read_graphml(path)[0])
    return frozenset(i for i, node in nodes if isinstance(node, Mapping) and node.get("kind") == "router")
