"""`wend topology`: making, listing, converting and drawing networks, and errors of one sentence."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from tests.console.calls import COMPILING, Said
from tests.topology.placements import is_same
from wend.topology import underlay_files
from wend.topology.catalog import make
from wend.topology.link_overlap import meeting_routers
from wend.topology.overlays import choose_landmarks, landmark
from wend.topology.placement import Placement, attach_peers
from wend.topology.underlay_drawing import draw

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_brite_is_made_and_written(tmp_path: Path, said: Said) -> None:
    code, out, err = said("topology", "make", "brite", "--seed", "1", "--out", "x.graphml", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["routers"], found["edges"]) == (1640, 3320)
    assert 12 <= found["mean_hops"] <= 14
    assert is_same(underlay_files.read(tmp_path / "x.graphml"), make("brite", 1))


def test_a_network_is_converted_and_shown(tmp_path: Path, said: Said) -> None:
    assert said("topology", "make", "power-law", "--out", "x.gml")[0] == 0
    assert said("topology", "convert", "x.gml", "y.graphml")[1] == "y.graphml: 300 routers, 500 edges\n"
    assert is_same(underlay_files.read(tmp_path / "y.graphml"), make("power-law", 1))
    code, out, err = said("topology", "show", "y.graphml", "--peers", "12", "--overlay", "chain", "--out", "y.svg")
    assert code == 0, err
    assert "12 peers" in out
    assert "shared routers" in out
    assert "overlay links run through router" in out
    assert ET.parse(tmp_path / "y.svg").getroot().tag == f"{SVG}svg"


def test_at_most_one_peer_per_access_router_is_drawn_with_a_remark(said: Said) -> None:
    code, out, err = said("topology", "show", "topohub:topozoo/Abilene", "--peers", "100", "--json")
    assert not code
    remark = "wend: topohub:topozoo/Abilene has 11 access routers: drawing 11 peers, not 100\n"
    assert err.replace(COMPILING, "") == remark
    shown = json.loads(out)
    assert (shown["peers"], shown["picture"]) == (11, "topology.svg")
    assert (shown["shared_routers"], shown["most_shared"]) == (0, None), (
        "with a peer on each, links end where they meet"
    )


def test_networks_are_listed(said: Said) -> None:
    found = json.loads(said("topology", "list", "--json")[1])
    assert list(found["drawn"])[:3] == ["transit-stub", "transit-stub-dmm", "brite"]
    assert "topohub:topozoo/Abilene" in found["maps"]
    text = said("topology", "list")[1]
    assert "1640 routers" in text
    assert "--maps lists them all" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("make", "moon"), "there is no network 'moon'"),
        (
            ("make", "regular"),
            "regular is an overlay, not an underlay: see `wend sim --topology regular`",
        ),
        (("make", "power-law", "--out", "x.txt"), "a network is a .graphml or a .gml file, not .txt"),
        (("make", "missing.gml"), "cannot read missing.gml: there is no such file"),
        (("make", "topohub:moon/base"), "topohub has no map named 'moon/base'"),
        (("convert", "a.gml", "b.gml"), "cannot read a.gml: there is no such file"),
        (("show", "power-law", "--out", "x.png"), "x.png must end in .svg"),
        (("show", "power-law", "--overlay", "magic"), "there is no overlay 'magic': choose tdo-landmark"),
        (("show", "power-law", "--peers", "1"), "an overlay needs at least 2 peers, got 1"),
        (("show", "power-law", "--peers", "4", "--k", "4"), "k = 4 needs more than 4 peers, got 4"),
        (("show", "power-law", "--k", "0"), "k must be at least 1, got 0"),
        (("make", "power-law", "--out", "/proc/none/x.gml"), "cannot write /proc/none/x.gml"),
    ],
)
def test_an_error_is_one_sentence(words: tuple[str, ...], sentence: str, said: Said) -> None:
    code, _, err = said("topology", *words)
    assert code == 2
    complaint = err.replace(COMPILING, "")
    assert sentence in complaint
    assert len(complaint.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["power-law", "topohub:topozoo/Abilene", "transit-stub"])
def test_the_picture_shows_every_peer_and_every_shared_router(name: str) -> None:
    under = make(name, 1)
    placement = attach_peers(under, min(11, under.routers // 2), 1)
    overlay = landmark(placement, choose_landmarks(placement, 2, 1))
    root = ET.fromstring(draw(placement, overlay, "a <title> & more"))
    shared = [circle for circle in root.iter(f"{SVG}circle") if "shared" in circle.get("class", "").split()]
    assert len(shared) == int((meeting_routers(placement, overlay) > 1).sum()) > 0
    peers = [disc for disc in root.iter(f"{SVG}circle") if "peer" in disc.get("class", "").split()]
    assert len(peers) == placement.peers + 1, "and one in the legend"
    inside = [(float(c.get("cx", "nan")), float(c.get("cy", "nan"))) for c in shared]
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    assert all(0 < x < width and 0 < y < height for x, y in inside)
    words = "".join(root.itertext())
    assert f"of {len(overlay.links)} overlay links fail with it" in words
    assert f"router shared by 2–{meeting_routers(placement, overlay).max()} of them" in words
    curves = [path for path in root.iter(f"{SVG}path") if "overlay" in path.get("class", "").split()]
    assert len(curves) == len(overlay.links) + 1, "and one in the legend"


def test_underlay_links_of_one_overlay_link_have_no_colour(tmp_path: Path) -> None:
    (tmp_path / "x.gml").write_text(
        "graph [ node [ id 1 ] node [ id 2 ] node [ id 3 ] edge [ source 1 target 2 ] edge [ source 2 target 3 ] ]"
    )
    placement = Placement(underlay_files.read(tmp_path / "x.gml"), [0, 1, 2])

    def drawn(*links: tuple[int, int]) -> tuple[list[str | None], str]:
        root = ET.fromstring(draw(placement, placement.overlay(links), "three in a row"))
        used = [path.get("class") for path in root.iter(f"{SVG}path") if "used" in path.get("class", "").split()]
        return used, "".join(root.itertext())

    apart, words = drawn((0, 1), (1, 2))
    assert len(set(apart)) == 1
    assert "underlay link of 1 overlay link" in words
    assert "overlay links" not in words.split("underlay link of")[1].split("unused")[0]
    assert "No router is shared by links of different peers" in words
    both, words = drawn((0, 1), (0, 2))
    assert sorted(colour == apart[0] for colour in both) == [False, True], "the first two share a link"
    assert "2 routers are shared" not in words
    assert "1 router is shared" in words


def test_a_network_without_positions_is_laid_out(tmp_path: Path) -> None:
    (tmp_path / "x.gml").write_text(
        "graph [ node [ id 1 ] node [ id 2 ] node [ id 3 ] edge [ source 1 target 2 ] edge [ source 2 target 3 ] ]"
    )
    under = underlay_files.read(tmp_path / "x.gml")
    assert np.isnan(under.position).all()
    placement = attach_peers(under, 2, 1)
    assert ET.fromstring(draw(placement, placement.overlay(()), "bare")).tag == f"{SVG}svg"
