"""Maps of real networks: their delays, capacities, names and directions."""

from math import inf
from pathlib import Path

import networkx as nx
import pytest

from wend.model.errors import ConfigError
from wend.model.units import MS
from wend.topology import underlay_files
from wend.topology.maps import from_graphml, from_topohub, read_graphml

GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="node" attr.name="label" attr.type="string"/>
  <key id="d1" for="edge" attr.name="{attribute}" attr.type="{kind}"/>
  <graph edgedefault="undirected">
    <node id="a"><data key="d0">Amsterdam</data></node>
    <node id="b"><data key="d0">Berlin</data></node>
    <node id="c"/>
    <edge source="a" target="b"><data key="d1">{first}</data></edge>
    <edge source="b" target="c"/>
    <edge source="c" target="b"/>
    <edge source="c" target="c"/>
  </graph>
</graphml>
"""


def write(folder: Path, attribute: str = "delay", first: str = "7.5", kind: str = "double") -> Path:
    path = folder / "map.graphml"
    path.write_text(GRAPHML.format(attribute=attribute, first=first, kind=kind), encoding="utf-8")
    return path


def load(path: Path):
    return from_graphml(path, delay_ms=(10.0, 50.0), loss=0.0, seed=1)


def test_a_graphml_file_is_a_network(tmp_path: Path) -> None:
    overlay = load(write(tmp_path))
    assert overlay.names[:2] == ("Amsterdam", "Berlin")
    assert [(link.a, link.b) for link in overlay.links] == [(0, 1), (1, 2)]
    assert overlay.links[0].delay_ns == 7.5 * MS
    assert 10 * MS <= overlay.links[1].delay_ns <= 50 * MS


def test_kilometres_become_milliseconds(tmp_path: Path) -> None:
    assert load(write(tmp_path, "dist", "1000")).links[0].delay_ns == 5 * MS


def test_a_latency_with_its_unit_is_a_delay(tmp_path: Path) -> None:
    assert load(write(tmp_path, "latency_ms", "7")).links[0].delay_ns == 7 * MS


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("delay", "1 of 2 links states no delay"),
        ("colour", "2 of 2 links state no delay"),
        ("latency", "; latency is none of these and is not read"),
        ("RTT", "; RTT is none of these and is not read"),
    ],
)
def test_drawn_delays_are_remarked_on(tmp_path: Path, attribute: str, said: str) -> None:
    path = write(tmp_path, attribute, "7")
    for remarks, low_high in ((load(path).remarks, "10-50"), (underlay_files.read(path).remarks, "1-20")):
        (sentence,) = remarks
        assert said in sentence
        assert f"(delay_ms, latency_ms, delay, dist, length): drawn from {low_high} ms" in sentence
        assert ("not read" in sentence) == ("not read" in said)
    assert from_topohub("topozoo/Abilene", delay_ms=(10.0, 50.0), loss=0.0, seed=1).remarks == ()


@pytest.mark.parametrize(
    ("first", "said"), [("-3", "is not a delay"), ("inf", "is not a delay"), ("nan", "not a delay")]
)
def test_an_impossible_delay_is_named(tmp_path: Path, first: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"Amsterdam-Berlin: delay = .*{said}"):
        load(write(tmp_path, first=first))


def test_a_delay_that_is_no_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a number"):
        load(write(tmp_path, first="soon", kind="string"))


@pytest.mark.parametrize("text", ["", "not xml", "<graphml", "<graphml></graphml>", "<svg/>"])
def test_the_error_about_a_malformed_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.graphml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.graphml") as error:
        load(path)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is neither full-mesh, regular, topohub:<name> nor a file"):
        load(tmp_path / "none.graphml")


def test_an_unconnected_map_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    lines = [line for line in path.read_text().splitlines() if 'source="b"' not in line and 'source="c"' not in line]
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="not a connected network"):
        load(path)


def test_a_map_of_the_collection_loads_with_its_distances() -> None:
    overlay = from_topohub("topozoo/Abilene", delay_ms=(10.0, 50.0), loss=0.0, seed=1)
    assert overlay.peers == 11
    assert overlay.is_connected()
    assert "Seattle" in overlay.names
    assert from_topohub("topozoo/Abilene", delay_ms=(90.0, 99.0), loss=0.0, seed=2).links == overlay.links


@pytest.mark.parametrize("name", ["", "nowhere", "topozoo/Nowhere", "../../secrets", "topozoo/", "a\0b", "x" * 300])
def test_an_unknown_map_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="topohub has no map named"):
        from_topohub(name, delay_ms=(10.0, 50.0), loss=0.0, seed=1)


def test_an_error_of_the_collection_does_not_count_as_a_missing_map(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr("topohub.get", fails)
    with pytest.raises(RuntimeError, match="topozoo/Abilene"):
        from_topohub("topozoo/Abilene", delay_ms=(10.0, 50.0), loss=0.0, seed=1)


@pytest.mark.parametrize("text", ["x", "", "<graphml/>", "<graphml"])
def test_a_file_that_is_no_map_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "map.graphml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"map\.graphml is not a GraphML file: (?!list index)"):
        read_graphml(path)


def directed(path: Path, there: dict[str, object], back: dict[str, object] | None) -> Path:
    """A map of two nodes, by its suffix in GraphML or in GML."""
    graph = nx.DiGraph()
    graph.add_edge("A", "B", **there)
    if back is not None:
        graph.add_edge("B", "A", **back)
    (nx.write_graphml if path.suffix == ".graphml" else nx.write_gml)(graph, path)
    return path


@pytest.mark.parametrize("name", ["map.graphml", "map.gml"])
@pytest.mark.parametrize(
    ("back", "said"),
    [
        (None, "link A-B: the map is directed and has no edge from B to A"),
        ({"capacity": "20msg/s", "delay_ms": 5.0}, "link A-B: its two directions have different capacities"),
        ({"capacity": "40msg/s", "delay_ms": 50.0}, "link A-B: its two directions have different delays"),
        ({"capacity": "40msg/s", "delay_ms": 5.0, "kind": "border"}, "link A-B: its two directions have different kin"),
    ],
)
def test_a_directed_map_with_asymmetric_links_is_refused(
    tmp_path: Path, name: str, back: dict[str, object] | None, said: str
) -> None:
    path = directed(tmp_path / name, {"capacity": "40msg/s", "delay_ms": 5.0}, back)
    with pytest.raises(ConfigError, match=said):
        underlay_files.read(path)
    if path.suffix == ".graphml":
        with pytest.raises(ConfigError, match=said):
            load(path)


def test_a_directed_map_with_symmetric_links_is_read(tmp_path: Path) -> None:
    alike: dict[str, object] = {"capacity": "40msg/s", "delay_ms": 5.0}
    for name in ("map.graphml", "map.gml"):
        assert underlay_files.read(directed(tmp_path / name, alike, {**alike, "capacity": "40.0"})).link_capacity == (
            (40.0, inf),
        )


@pytest.mark.parametrize(("default", "own"), [("directed", "false"), ("undirected", "true")])
def test_edges_with_a_direction_of_their_own_are_refused(tmp_path: Path, default: str, own: str) -> None:
    text = write(tmp_path).read_text().replace('"undirected"', f'"{default}"')
    path = tmp_path / "mixed.graphml"
    path.write_text(text.replace('target="b">', f'target="b" directed="{own}">'))
    with pytest.raises(ConfigError, match="both directed and undirected edges"):
        load(path)


def test_parallel_edges_are_one_link_with_the_sum_of_their_capacities(tmp_path: Path) -> None:
    path = write(tmp_path, "capacity", "40msg/s, 1Mbit/s", "string")
    second = '<edge source="b" target="a"><data key="d1">{}</data></edge></graph>'
    text = path.read_text()
    path.write_text(text.replace("</graph>", second.format("2msg/s, 500kbit/s")))
    link = load(path).links[0]
    assert (link.capacity_msgs, link.capacity_bps) == (42.0, 1.5e6)
    assert underlay_files.read(path).link_capacity[0] == (42.0, 1.5e6)
    path.write_text(text.replace("</graph>", second.format("2msg/s")))
    with pytest.raises(ConfigError, match="link Amsterdam-Berlin: of its 2 edges some state a capacity"):
        load(path)


def test_the_number_0_is_a_name(tmp_path: Path) -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, dict(enumerate((1, 0, 2))), "label")
    nx.write_graphml(graph, tmp_path / "map.graphml")
    assert load(tmp_path / "map.graphml").names == ("1", "0", "2")
    path = tmp_path / "map.gml"
    path.write_text(
        """graph [ node [ id 0 label 1 ] node [ id 1 label 0 ] node [ id 2 label "" name "" ]
        edge [ source 0 target 1 ] edge [ source 1 target 2 ] ]"""
    )
    assert underlay_files.read(path).names == ("1", "0", "2")
