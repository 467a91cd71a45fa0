"""The page on maps names every attribute that is read, in the order in which they count."""

import re
from pathlib import Path
from typing import Any

from wend.topology import layout, maps
from wend.topology.underlay import LinkKind, RouterKind
from wend.topology.underlay_files import _KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "maps.md").read_text()
ROWS = re.findall(r"^\| (edge|node) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)


class Asked(dict[str, Any]):
    """Notes what it is asked for, and has nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def get(self, key: Any, default: Any = None) -> Any:
        self.names.append(key)
        return default

    def __contains__(self, key: object) -> bool:
        self.names.append(str(key))
        return False


def named(of: str) -> list[str]:
    return [name for whose, cell, _ in ROWS if whose == of for name in re.findall(r"`(\w+)`", cell)]


def test_every_attribute_of_an_edge_is_named() -> None:
    edge = Asked()
    maps.read_delay(edge, 1, "here")
    maps.read_capacity(edge, "here")
    assert named("edge") == [*edge.names, "kind"]
    assert edge.names[:-1] == list(maps.DELAYS)


def test_every_attribute_of_a_node_is_named() -> None:
    node = Asked()
    maps.node_names([node])
    maps.read_capacity(node, "here")
    layout.map_positions([node])
    assert named("node") == list(dict.fromkeys([*node.names[:4], "kind", "domain", *node.names[4:]]))


def test_units_and_kinds_are_as_written() -> None:
    about = {name: text for _, cell, text in ROWS for name in re.findall(r"`(\w+)`", cell)}
    for name, scale in maps.DELAYS.items():
        assert ("milliseconds" if scale == 1 else f"{1 / maps.FIBRE_MS_PER_KM:g} km in a millisecond") in about[name]
    kinds = [set(re.findall(r"`(\w+)`", text)) for _, cell, text in ROWS if cell == "`kind`"]
    assert kinds == [{kind.name.lower() for kind in each} for each in (LinkKind, RouterKind)]


def test_what_is_written_is_on_the_page() -> None:
    assert all(name in named(of) for of, name, _ in _KEYS)
