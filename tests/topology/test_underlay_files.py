"""Network files: Wend reads back what it writes, and reads or refuses the files of others."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.placements import is_same
from wend.model.errors import ConfigError
from wend.model.units import MS
from wend.topology import gml, underlay_files
from wend.topology.catalog import make
from wend.topology.maps import from_graphml
from wend.topology.underlay import LinkKind, RouterKind, Underlay
from wend.topology.underlay_builder import UnderlayBuilder

TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), max_size=8).map(str.strip)


LIMITS = st.just(math.inf) | st.floats(1e-3, 1e13)


@st.composite
def networks(draw: st.DrawFn) -> Underlay:
    routers = draw(st.integers(2, 6))
    builder = UnderlayBuilder("drawn")
    for i in range(routers):
        spot = draw(st.none() | st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)))
        label = draw(TEXTS) or f"r{i}"
        kind, domain, limits = (
            draw(st.sampled_from(RouterKind)),
            draw(st.integers(0, 3)),
            draw(st.tuples(LIMITS, LIMITS)),
        )
        builder.add_router(kind, domain, *(spot or (np.nan, np.nan)), label, limits)
    for router in range(1, routers):
        delay = draw(st.integers(50_000, 10**11))
        limits = draw(st.tuples(LIMITS, LIMITS))
        builder.add_link(router, draw(st.integers(0, router - 1)), draw(st.sampled_from(LinkKind)), delay, limits)
    return builder.build()


@settings(max_examples=50)
@given(networks(), st.sampled_from(["graphml", "gml"]))
def test_files_are_read_back_as_written(underlay: Underlay, suffix: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{suffix}"
        underlay_files.write(underlay, path)
        again = underlay_files.read(path)
    assert is_same(again, underlay)
    assert again.names == underlay.names
    assert again.router_capacity == underlay.router_capacity
    assert again.link_capacity == underlay.link_capacity
    assert np.array_equal(again.position, underlay.position, equal_nan=True)


def test_others_read_what_wend_writes(tmp_path: Path) -> None:
    underlay = make("power-law", 1)
    underlay_files.write(underlay, tmp_path / "net.graphml")
    underlay_files.write(underlay, tmp_path / "net.gml")
    for graph in (nx.read_graphml(tmp_path / "net.graphml"), nx.read_gml(tmp_path / "net.gml", label="id")):
        assert (len(graph), graph.number_of_edges()) == (300, 500)
        assert sorted(d["delay_ms"] for *_, d in graph.edges(data=True)) == sorted((underlay.delay_ns / MS).tolist())


def test_wend_reads_what_others_write(tmp_path: Path) -> None:
    graph = nx.path_graph(4)
    nx.set_edge_attributes(graph, 100.0, "dist")
    nx.set_node_attributes(graph, {i: f'a "{i}" é' for i in range(4)}, "name")
    nx.write_gml(graph, tmp_path / "net.gml")
    nx.write_graphml(graph, tmp_path / "net.graphml")
    for suffix in ("gml", "graphml"):
        underlay = underlay_files.read(tmp_path / f"net.{suffix}")
        assert underlay.delay_ns.tolist() == [MS // 2] * 3
        assert underlay.links == 3


def test_the_simulator_takes_the_same_file(tmp_path: Path) -> None:
    underlay = make("power-law", 2)
    underlay_files.write(underlay, tmp_path / "net.graphml")
    overlay = from_graphml(tmp_path / "net.graphml", delay_ms=(1.0, 2.0), loss=0.0, seed=1)
    assert [link.delay_ns for link in overlay.links] == underlay.delay_ns.tolist()


def test_geographic_positions_become_delays(tmp_path: Path) -> None:
    path = tmp_path / "zoo.gml"
    path.write_text(
        """# as the Topology Zoo writes it
graph [ DateObtained "22/10/10" node [ id 0 label "K&#246;ln" Longitude 6.95 Latitude 50.94 ]
  node [ id 1 label "Hamburg" Longitude 9.99 Latitude 53.55 Internal 1 ]
  node [ id 2 label "None" ]
  edge [ source 0 target 1 LinkSpeed "10" ] edge [ source 1 target 2 ] edge [ source 2 target 1 ] ]"""
    )
    underlay = underlay_files.read(path, seed=3)
    assert underlay.names == ("Köln", "Hamburg", "None")
    assert underlay.delay_ns[0] / MS == pytest.approx(356 / 200, rel=0.02)
    assert 1 * MS <= underlay.delay_ns[1] <= 20 * MS
    assert underlay_files.read(path, seed=4).delay_ns[1] != underlay.delay_ns[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no graph"),
        ("graph 5", "has no graph"),
        ("graph [ node [ id 1 ]", "ends in the middle"),
        ("graph [ ] ]", "closes no open list"),
        ("[ ]", "opens a list that has no key"),
        ('"text" 1', "is a text without a key"),
        ("graph [ node [ label 5 ] ]", "needs an id, and no two the same"),
        ("graph [ node [ id 1 ] node [ id 1 ] ]", "needs an id, and no two the same"),
        (
            "graph [ node [ id 1 ] edge [ source 1 target 2 ] ]",
            "an edge leads from 1 to 2, and one of them is not a node",
        ),
        ("graph [ node [ id 1 ] ]", "not a connected network"),
        ("graph [ node [ id 1 kind 7 ] ]", "has kind 7, not one of access, transit"),
        ("graph [ node [ id 1 domain x ] ]", "has domain 'x', which is not a whole number"),
        ("graph " * 60 + "[ " * 60, "nested too deeply|has no key"),
        ('graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 delay "soon" ] ]', "is not a number"),
    ],
)
def test_the_error_about_a_malformed_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.gml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        underlay_files.read(path)
    assert "\n" not in str(error.value)


@given(st.text(max_size=60))
def test_no_text_crashes_the_reader(text: str) -> None:
    try:
        gml.parse(text, "drawn")
    except ConfigError as error:
        assert str(error)


@given(TEXTS)
def test_texts_survive(text: str) -> None:
    assert gml.parse(f"key {gml.quote(text)}", "drawn") == [("key", text)]


@pytest.mark.parametrize("name", ["net.txt", "net"])
def test_an_unknown_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"a network is a \.graphml or a \.gml file"):
        underlay_files.write(make("power-law"), tmp_path / name)
    (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=r"a network is a \.graphml or a \.gml file"):
        underlay_files.read(tmp_path / name)
    with pytest.raises(ConfigError, match="there is no such file"):
        underlay_files.read(tmp_path / "missing.gml")


@pytest.mark.parametrize("name", ["half \ud800", "bell \a", "none \0"])
def test_a_name_that_graphml_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    builder = UnderlayBuilder("drawn")
    for each in (name, "other"):
        builder.add_router(RouterKind.ACCESS, 0, name=each)
    builder.add_link(0, 1, LinkKind.INNER, MS)
    with pytest.raises(ConfigError, match="has a character that GraphML does not allow") as error:
        underlay_files.write(builder.build(), tmp_path / "net.graphml")
    str(error.value).encode()
    assert not list(tmp_path.iterdir())
    underlay_files.write(builder.build(), tmp_path / "net.gml")
    assert underlay_files.read(tmp_path / "net.gml").names[0] == name.replace("\ud800", "&#55296;")
