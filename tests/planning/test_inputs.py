"""Capacities and flows: reading, merging, and errors."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.planning.nets import overlay
from wend.model.errors import ConfigError
from wend.model.rates import Rate, parse_rate
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import (
    BITS,
    MESSAGES,
    Flow,
    FlowWorkload,
    draw_workload,
    make_workload,
    read_workload,
    write_workload,
)
from wend.topology.generators import regular
from wend.topology.graph import Overlay, OverlayLink
from wend.topology.maps import from_graphml

NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("40", Rate(40.0)), (2.5, Rate(2.5)), ("40 msg/s", Rate(40.0)), ("64kbit/s", Rate(64e3, True)),
        ("10Mbit/s", Rate(10e6, True)), ("1e3bit/s", Rate(1e3, True)),
    ],
)  # fmt: skip
def test_rates_have_units(text: str | float, rate: Rate) -> None:
    assert parse_rate(text, "rate") == rate
    assert parse_rate(str(rate).replace(" ", ""), "rate") == rate


@pytest.mark.parametrize("text", ["fast", "10 parsec", "", "1e999", "10mbit/s"])
def test_invalid_rates_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^capacity"):
        parse_rate(text, "capacity")


def test_a_link_has_its_capacity_in_each_direction_and_a_peer_the_sum_of_its_links() -> None:
    network = FlowNetwork(overlay(3, [(0, 1, 5, 10.0), (1, 2, 7, 30.0)]), peer="links")
    graph = network.graph
    assert list(zip(graph.tail.tolist(), graph.head.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert network.arc_capacity[MESSAGES].tolist() == [10, 10, 30, 30]
    assert network.peer_capacity[MESSAGES].tolist() == [10, 40, 30]
    assert np.isinf(network.peer_capacity[BITS]).all()
    assert [network.graph.arc(a, b) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))] == [0, 1, 2, 3]
    assert graph.back.tolist() == [1, 0, 3, 2]


def test_stated_capacities_win_over_the_flag() -> None:
    links = [OverlayLink(0, 1, 1, 0.0, 7.0), OverlayLink(1, 2, 1), OverlayLink(0, 2, 1, capacity_bps=1e6)]
    network = FlowNetwork(Overlay(3, links), link=Rate(5e6, bits=True))
    assert network.arc_capacity[MESSAGES].tolist() == [7, np.inf, 7, np.inf, np.inf, np.inf]
    assert network.arc_capacity[BITS].tolist() == [np.inf, 1e6, np.inf, 5e6, 1e6, 5e6]


def test_with_equal_capacities_an_arc_is_as_wide_as_its_tail_has_links() -> None:
    network = FlowNetwork(overlay(4, [(0, 1, 1, 20.0), (0, 2, 1, 20.0), (0, 3, 1, 20.0)]))
    assert network.graph.width.tolist() == [3, 3, 3, 1, 1, 1]


def test_networks_without_valid_capacities_are_refused() -> None:
    with pytest.raises(ConfigError, match="no link or peer has a capacity"):
        FlowNetwork(Overlay(2, [OverlayLink(0, 1, 1)]))
    with pytest.raises(ConfigError, match="link 0-1 needs a capacity above 0, got 0"):
        FlowNetwork(Overlay(2, [OverlayLink(0, 1, 1)]), link=Rate(0.0))
    with pytest.raises(ConfigError, match="a peer needs a capacity above 0, got -3 msg/s"):
        FlowNetwork(Overlay(2, [OverlayLink(0, 1, 1)]), peer=Rate(-3.0))
    with pytest.raises(ConfigError, match="a peer's capacity must be a rate or 'links', got 'plenty'"):
        FlowNetwork(Overlay(2, [OverlayLink(0, 1, 1)]), peer="plenty")


def test_graphml_states_capacities(tmp_path: Path) -> None:
    path = tmp_path / "net.graphml"
    path.write_text(GRAPHML.format(capacity="10Mbit/s", peer="40msg/s, 1Mbit/s"))
    stated = from_graphml(path, delay_ms=(1.0, 1.0), loss=0.0, seed=1)
    assert [(e.capacity_msgs, e.capacity_bps) for e in stated.links] == [(np.inf, 10e6)]
    assert stated.capacities == ((40.0, 1e6), (np.inf, np.inf))
    # The flag is for peers that state nothing.
    for flag, other in ((None, [np.inf, np.inf]), (Rate(7.0), [7.0, np.inf]), ("links", [np.inf, 10e6])):
        assert FlowNetwork(stated, peer=flag).peer_capacity.T.tolist() == [[40.0, 1e6], other]


@pytest.mark.parametrize(
    ("capacity", "peer", "complaint"),
    [
        ("0", "", "link a-b needs a capacity above 0, got 0 msg/s"),
        ("", "-2kbit/s", "peer a needs a capacity above 0, got -2000 bit/s"),
        ("", "plenty", "peer a: capacity: cannot read 'plenty' as a rate"),
        ("", "1kbit/s,2Mbit/s", "peer a has two capacities in bit/s"),
        ("4 5", "", "link a-b: capacity: cannot read '4 5' as a rate"),
    ],
)
def test_the_error_about_an_invalid_capacity_is_one_sentence(
    tmp_path: Path, capacity: str, peer: str, complaint: str
) -> None:
    path = tmp_path / "net.graphml"
    path.write_text(GRAPHML.format(capacity=capacity, peer=peer))
    with pytest.raises(ConfigError, match=complaint):
        from_graphml(path, delay_ms=(1.0, 1.0), loss=0.0, seed=1)


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="n" for="node" attr.name="name" attr.type="string"/>
<key id="c" for="edge" attr.name="capacity" attr.type="string"/>
<key id="p" for="node" attr.name="capacity" attr.type="string"/>
<graph edgedefault="undirected"><node id="0"><data key="n">a</data><data key="p">{peer}</data></node>
<node id="1"><data key="n">b</data></node>
<edge source="0" target="1"><data key="c">{capacity}</data></edge></graph></graphml>
"""


def flows(made: FlowWorkload) -> list[tuple[int, list[int], float, float, float]]:
    return [
        (int(made.publisher[f]), made.flow_receivers(f).tolist(), *made.demand[:, f].tolist(), float(made.weight[f]))
        for f in range(len(made))
    ]


def test_flows_with_the_same_publisher_and_receivers_are_one() -> None:
    made = make_workload(
        [
            Flow("a", ["c", "b", "c"], 10, 100, 1.0),
            Flow(1, [0], "8kbit/s", 100, 2.0),
            Flow(0, [1, 2, 0], 30, 200, 5.0),
            Flow("d", ["d"]),
        ],
        NAMES,
    )
    assert flows(made) == [(0, [1, 2], 40, 10 * 800 + 30 * 1600, 4.0), (1, [0], 10, 8000, 2.0)]
    assert made.unwanted == 1
    assert made.deliveries() == 90


@pytest.mark.parametrize(
    ("flow", "complaint"),
    [
        (Flow(0, [1], -3), "flow 1: the rate must be above 0, got -3"),
        (Flow(0, [1], "0Mbit/s", 10), "flow 1: the rate must be above 0"),
        (Flow(0, [1], "1Mbit/s"), "flow 1: a rate in bits needs size_bytes, the size of the messages"),
        (Flow(0, [1], "much"), "flow 1: rate: cannot read 'much' as a rate"),
        (Flow(9, [1]), "flow 1: publisher 9 is not in the topology"),
        (Flow(0, ["z"]), "flow 1: receiver 'z' is not in the topology"),
        (Flow(0, [1], size_bytes=-1), "size_bytes and weight must not be negative"),
        (Flow(0, [0]), "has no flow with a receiver other than its publisher"),
    ],
)
def test_invalid_flows_are_refused(flow: Flow, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_workload([flow], NAMES)


SEVEN = [str(i) for i in range(1, 8)]


def test_a_number_is_the_peer_with_that_name() -> None:
    assert flows(make_workload([Flow(1, [7, "2"])], SEVEN)) == flows(make_workload([Flow("1", ["7", 2])], SEVEN))
    assert flows(make_workload([Flow(1, [7])], SEVEN))[0][:2] == (0, [6])
    # Numbers are indices only if no name is a number.
    assert flows(make_workload([Flow(1, [2])], ["Ulm", "Kiel", "Bonn"]))[0][:2] == (1, [2])


@pytest.mark.parametrize(
    ("names", "who", "complaint"),
    [
        (SEVEN, 0, "publisher 0 is not in the topology: its peers have numbers as names, and none is 0"),
        (["10", "Ulm", "Kiel"], 1, "publisher 1 is not in the topology: its peers have numbers as names"),
        (["007", "Ulm", "Kiel"], 7, "publisher 7 is not in the topology"),
        (["Ulm", "Ulm", "Kiel"], "Ulm", "publisher: two peers are called 'Ulm'"),
        (["1", "1", "2"], 1, "publisher: two peers are called 1"),
    ],
)
def test_ambiguous_peers_are_refused(names: list[str], who: int | str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_workload([Flow(who, [names[2]])], names)


@pytest.mark.parametrize("names", [SEVEN, ["Ulm", "Ulm", *"abcde"], ["3", *"abcdef"]], ids=["1..7", "twice", "a 3"])
@pytest.mark.parametrize("name", ["flows.jsonl", "flows.parquet"])
def test_a_written_workload_refers_to_the_same_peers(tmp_path: Path, name: str, names: list[str]) -> None:
    made = draw_workload(7, 20, popularity=0.4, seed=3, publishers=0.5)
    write_workload(made, tmp_path / name, names)
    assert flows(read_workload(tmp_path / name, names)) == flows(made)


@pytest.mark.parametrize("name", ["flows.jsonl", "flows.parquet"])
def test_workloads_survive_their_files(tmp_path: Path, name: str) -> None:
    made = draw_workload(40, 200, popularity=0.25, seed=3, rate=2.0, size_bytes=500)
    write_workload(made, tmp_path / name)
    assert flows(read_workload(tmp_path / name, [str(p) for p in range(40)])) == flows(made)


def test_files_that_are_no_workload_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_workload(tmp_path / "none.jsonl", NAMES)
    folder = tmp_path / "folder"
    folder.mkdir()
    lines = tmp_path / "flows.jsonl"
    lines.write_text(json.dumps({"publisher": 0, "receivers": [1]}) + "\n{}\n")
    with pytest.raises(ConfigError, match="line 2 is not a flow"):
        read_workload(lines, NAMES)
    table = tmp_path / "flows.parquet"
    table.write_text("no")
    with pytest.raises(ConfigError, match=r"is not a Parquet file of flows, or it is truncated$"):
        read_workload(table, NAMES)
    parquet.write_table(pa.table({"publisher": [0, 0], "receivers": [[1], [1]], "weight": [1.0, None]}), table)
    with pytest.raises(ConfigError, match=r"flows.parquet, row 2 is not a flow: weight must be a number, not nothing$"):
        read_workload(table, NAMES)
    lines.write_bytes(b'{"publisher": 0, \xff')
    with pytest.raises(ConfigError, match=r"flows.jsonl, line 1 is not a flow: it is not JSON, or it is truncated$"):
        read_workload(lines, NAMES)
    with pytest.raises(ConfigError, match=r"is a folder without Parquet files: flows are JSON lines or Parquet$"):
        read_workload(folder, NAMES)


@pytest.mark.parametrize("popularity", [0.05, 0.25, 0.45, 0.65, 0.85])
def test_drawn_workloads_have_the_given_popularity(popularity: float) -> None:
    made = draw_workload(200, 2000, popularity=popularity, seed=1)
    assert len(np.unique(made.receivers)) <= 150
    assert len(np.unique(made.publisher)) == 20
    assert made.demand[MESSAGES].sum() == 2000 - made.unwanted
    assert made.deliveries() / 2000 / 150 == pytest.approx(popularity, rel=0.05)
    again = draw_workload(200, 2000, popularity=popularity, seed=1)
    assert flows(again) == flows(made)


def test_drawing_needs_sensible_shares() -> None:
    with pytest.raises(ConfigError, match="popularity must be above 0 and at most 1, got 2"):
        draw_workload(10, 10, popularity=2.0, seed=1)


def test_generated_overlays_state_no_capacity() -> None:
    assert all(np.isinf(e.capacity_msgs) for e in regular(6, 3, delay_ms=(1.0, 2.0), loss=0.0, seed=1).links)
