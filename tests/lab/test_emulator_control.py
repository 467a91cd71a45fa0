"""The failure log as outages, and names of nodes and links."""

from pathlib import Path

import pytest

from tests.lab.labs import triangle
from wend.lab import LinkChange, outages, read_failures
from wend.lab.emulator_control import EmulatorClient
from wend.lab.node_names import find_link, find_node, find_nodes, read_routers
from wend.model.errors import ConfigError, LabError
from wend.topology.graph import Overlay, OverlayLink


def change(at: int, link: int, *, up: bool) -> LinkChange:
    return LinkChange(at, link, 0, 1, up, "schedule")


def test_a_log_becomes_outages_by_start_and_link() -> None:
    log = [change(110, 3, up=False), change(120, 1, up=False), change(130, 3, up=True), change(125, 1, up=True)]
    assert outages(log, 100, 200) == [(3, 10, 30), (1, 20, 25)]


def test_outages_are_clipped_and_an_open_one_lasts_to_the_end() -> None:
    log = [change(80, 0, up=False), change(90, 0, up=True), change(95, 1, up=False), change(110, 1, up=True)]
    log += [change(150, 2, up=False), change(250, 0, up=False)]
    assert outages(log, 100, 200) == [(1, 0, 10), (2, 50, 100)]
    assert outages([], 100, 200) == []


def test_a_log_is_read_up_to_its_last_complete_line(tmp_path: Path) -> None:
    path = tmp_path / "failures.jsonl"
    assert read_failures(path) == []
    line = '{"at_ns":5,"link":1,"a":0,"b":2,"up":false,"cause":"command"}\n'
    path.write_text(line + line[:20])
    assert read_failures(path) == [LinkChange(5, 1, 0, 2, False, "command")]
    path.write_text("nonsense\n")
    with pytest.raises(LabError, match="not a failure log"):
        read_failures(path)


def test_no_emulator_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="does not answer"):
        EmulatorClient(tmp_path).ask("status")


def test_nodes_and_links_by_name_and_number() -> None:
    overlay = Overlay(3, [OverlayLink(0, 1, 1), OverlayLink(1, 2, 1)], ("Baden-Baden", "Ulm", "7"))
    assert [find_node(overlay, text) for text in ("Ulm", "1", "7")] == [1, 1, 2]
    assert [find_link(overlay, text) for text in ("Baden-Baden-Ulm", "Ulm-Baden-Baden", "0-1", "1")] == [0, 0, 0, 1]
    assert find_nodes(overlay, "0-1, 7") == {0, 1, 2}
    for text in ("Ulm-7-7", "9", "x", "Baden"):
        with pytest.raises(ConfigError):
            find_link(overlay, text)
    with pytest.raises(ConfigError, match="no link between"):
        find_link(overlay, "Baden-Baden-7")
    with pytest.raises(ConfigError, match="no node 'Bonn'"):
        find_node(triangle(), "Bonn")


def test_a_map_tells_which_nodes_are_routers(tmp_path: Path) -> None:
    path = tmp_path / "net.graphml"
    path.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="k" for="node" attr.name="kind" '
        'attr.type="string"/><graph edgedefault="undirected"><node id="a"/><node id="r"><data key="k">router</data>'
        '</node><node id="b"/><edge source="a" target="r"/><edge source="r" target="b"/></graph></graphml>'
    )
    assert read_routers(path) == {1}
