"""Cells of Table 4.1: the honest model against plain counting, and the printed program with its defects."""

from itertools import pairwise

import numpy as np
import pytest

from wend.model.rates import Rate
from wend.pipeline.sweeps.trials import Trial
from wend.planning.candidate_paths import find_paths
from wend.planning.delivery_graphs import make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.studies.campr import printed
from wend.studies.campr.simulated import SimulatedTrial
from wend.studies.campr.study import CAMPR, POPULARITY, TRIALS
from wend.studies.campr.trials import (
    CAPACITIES,
    MBIT,
    CellTrial,
    charge_publishers,
    compute_dropped_share,
    draw_cell_workload,
    draw_messages,
    make_network,
    run_cell,
)
from wend.studies.claims import Estimate, load_claims
from wend.studies.study_run import collect_runs
from wend.topology.graph import Overlay, OverlayLink

SMALL = {"nodes": 30, "messages": 60}
FULL = {**SMALL, "size_kbit": 1600.0}
"""The load of a hundred times as many messages."""


def overlay(peers: int, pairs: list[tuple[int, int]]) -> Overlay:
    return Overlay(peers, [OverlayLink(a, b, 1_000_000 + 1000 * a + b) for a, b in sorted(pairs)])


def test_the_study_is_chapters_four_and_five() -> None:
    assert POPULARITY.values == (0.05, 0.25, 0.45, 0.65, 0.85)
    assert CAPACITIES == (20, 30, 40, 50, 60)
    runs = collect_runs(CAMPR, CAMPR.find_size("default"), load_claims("campr"), CAMPR.strategies())
    fields = [run.fields for run in runs if isinstance(run, Trial)]
    cells = {each for each in fields if isinstance(each, CellTrial)}
    whole = {cell for cell in cells if cell.scale == 1}
    assert {(cell.nodes, cell.messages) for cell in whole} == {
        (100, 1000), (100, 4000), (100, 5000), (100, 10000), (200, 4000), (200, 10000), (300, 10000),
        (400, 10000), (500, 10000), (1000, 10000),
    }  # fmt: skip
    assert {cell.strategy for cell in whole} == {"honest", "printed"}
    assert {cell.nodes for cell in cells - whole} == {100, 200, 300, 400, 500, 1000}
    played = {each for each in fields if isinstance(each, SimulatedTrial)}
    assert {each.strategy for each in played} == {"min-usage", "balance", "d-tree", "multipath", "dcrd", "adaptive"}
    assert {each.nodes for each in played} == {100, 200, 300}
    assert len({TRIALS.key(run) for run in runs if isinstance(run, Trial)}) == len(runs) == len(fields)


def test_a_quick_look_is_thinner_in_both_chapters() -> None:
    runs = collect_runs(CAMPR, CAMPR.find_size("smoke"), load_claims("campr"), CAMPR.strategies())
    fields = [run.fields for run in runs if isinstance(run, Trial)]
    assert {each.scale for each in fields if isinstance(each, CellTrial)} == {20}
    assert {each.scale for each in fields if isinstance(each, SimulatedTrial)} == {200}
    assert len(runs) < 70


def test_every_claim_can_be_measured() -> None:
    for claim in load_claims("campr"):
        assert claim.figure in {figure.name for figure in CAMPR.figures}, claim.id
        for part in claim.parts:
            for side in part.operands():
                for term in side.terms:
                    kind = TRIALS.kind(TRIALS.trial(term.fields, 1).kind)
                    assert term.metric in kind.metrics, claim.id
            assert len(claim.parts) == 1 or part.label, claim.id


def test_a_smaller_workload_is_how_a_larger_one_begins() -> None:
    few = draw_messages(CellTrial("honest", nodes=40, messages=10), 3)
    many = draw_messages(CellTrial("honest", nodes=40, messages=25), 3)
    assert few[0] == many[0]
    assert all(np.array_equal(a, b) for a, b in zip(few[1], many[1][:10], strict=True))


@pytest.mark.parametrize("per", ["node", "link"])
def test_a_cell_is_consistent(per: str) -> None:
    found = TRIALS.run_metrics(
        TRIALS.row(TRIALS.trial({**FULL, "kind": "cell", "strategy": "honest", "per": per, "least_at": 20}, 1)),
        TRIALS.code(),
    )
    assert 0 < found["floor_20"] <= found["least"] <= found["single_20"]
    assert found["needed_floor"] <= found["needed"] * (1 + 1e-6) <= found["needed_1"] * (1 + 2e-6)
    for low, high in pairwise(CAPACITIES):
        assert found[f"single_{high}"] <= found[f"single_{low}"]
        assert (found[f"k_{high}"] or 0) <= (found[f"k_{low}"] or 99)
    for c in CAPACITIES:
        assert (found[f"single_{c}"] == pytest.approx(0.0, abs=1e-9)) == (found["needed_1"] <= c * (1 + 1e-6))
        assert found[f"floor_{c}"] <= min(found[f"single_{c}"], found[f"planned_{c}"]) + 1e-9 or found[f"solved_{c}"]
        assert (found[f"solved_{c}"] == 1.0) == (found[f"k_{c}"] is not None) == (found["needed"] <= c * (1 + 1e-6))


def test_single_paths_need_what_the_busiest_peer_carries() -> None:
    cell = CellTrial("honest", **FULL)
    network = make_network(cell, 2, Rate(MBIT, bits=True))
    carried = np.zeros(30)
    publishers, receivers = draw_messages(cell, 2)
    for number, wanted in enumerate(receivers):
        publisher = publishers[number % len(publishers)]
        found = find_paths(network.graph, publisher, np.array([r for r in wanted if r != publisher], dtype=np.int32), 1)
        for peer in set(network.graph.head[found.arcs].tolist()):
            carried[peer] += 1.6
    links = [len(network.overlay.neighbours(peer)) for peer in range(30)]
    assert run_cell(cell, 2)["needed_1"] == pytest.approx((carried / links).max())


def test_full_peers_drop_evenly_and_spare_those_behind() -> None:
    """0 sends to 2 and 3, both behind 1. Peer 1 passes half of the load, and 3 half of the rest."""
    chain = FlowNetwork(overlay(4, [(0, 1), (1, 2), (1, 3)]), link=Rate(1.0, bits=True), peer="links")
    chain.arc_capacity[:] = np.inf
    chain.peer_capacity[1, :] = [9.0, 5.0, 9.0, 2.5]
    from wend.planning.flow_workload import Flow
    from wend.planning.flow_workload import make_workload as flows_of

    work = flows_of([Flow(0, [2, 3], rate="10bit/s", size_bytes=1)], chain.names)
    graphs = make_delivery_graphs(chain, work, 1)
    assert compute_dropped_share(chain, work, graphs, np.ones(1), 1.0) == pytest.approx(1 - (5.0 + 2.5) / 20)
    assert compute_dropped_share(chain, work, graphs, np.ones(1), 4.0) == 0.0


def test_a_publisher_that_is_charged_drops_what_it_has_no_room_for() -> None:
    """0 publishes ten messages and receives ten of 2's. With a capacity of ten, it drops half of its own."""
    line = FlowNetwork(overlay(3, [(0, 1), (1, 2)]), link=Rate(1.0, bits=True), peer="links")
    line.arc_capacity[:] = np.inf
    line.peer_capacity[1, :] = [10.0, 99.0, 99.0]
    from wend.planning.flow_workload import Flow
    from wend.planning.flow_workload import make_workload as flows_of

    work = flows_of([Flow(p, [2 - p], rate="10bit/s", size_bytes=1) for p in (0, 2)], line.names)
    assert compute_dropped_share(line, work, make_delivery_graphs(line, work, 1), np.ones(2), 1.0) == 0.0
    wider, entering = charge_publishers(line, work)
    assert compute_dropped_share(
        wider, entering, make_delivery_graphs(wider, entering, 1), np.ones(2), 1.0
    ) == pytest.approx(0.5)


def test_hops_and_what_a_peer_takes_in_are_counted_along_the_trees() -> None:
    cell = CellTrial("honest", **SMALL)
    network = make_network(cell, 4, Rate(MBIT, bits=True))
    publishers, receivers = draw_messages(cell, 4)
    hops, taken, wanted = 0, 0, 0
    for number, wants in enumerate(receivers):
        publisher = publishers[number % len(publishers)]
        others = [int(r) for r in wants if r != publisher]
        found = find_paths(network.graph, publisher, np.array(others, dtype=np.int32), 1)
        hops, wanted = hops + len(found.arcs), wanted + len(others)
        taken += len(set(network.graph.head[found.arcs].tolist()))
    metrics = run_cell(cell, 4)
    assert metrics["hops"] == pytest.approx(hops / wanted)
    assert metrics["intake"] == pytest.approx(taken / len(receivers) / 30)


def test_peers_that_feed_each_other_settle() -> None:
    """Twelve peers in a ring, each sends five hops ahead. If each peer passes p, a delivery arrives with p^5."""
    ring = FlowNetwork(
        overlay(12, [(a, a + 1) for a in range(11)] + [(0, 11)]), link=Rate(1.0, bits=True), peer="links"
    )
    ring.arc_capacity[:] = np.inf
    p = 0.8
    ring.peer_capacity[1, :] = 10.0 * sum(p**hop for hop in range(1, 6))
    from wend.planning.flow_workload import Flow
    from wend.planning.flow_workload import make_workload as flows_of

    work = flows_of([Flow(a, [(a + 5) % 12], rate="10bit/s", size_bytes=1) for a in range(12)], ring.names)
    assert compute_dropped_share(ring, work, make_delivery_graphs(ring, work, 1), np.ones(12), 1.0) == pytest.approx(
        1 - p**5
    )


LINE = [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_the_printed_program_replaces_what_it_knows() -> None:
    graph = FlowNetwork(overlay(5, LINE), link=Rate(1.0)).graph
    program = printed.PrintedProgram(graph, 1)
    assert program.find_trees(0, [2, 4]) == ((0, 1, 2, 3, 4),)  # both paths are new, and are united
    assert program.find_trees(0, [4, 2]) == ((0, 1, 2),)  # both paths are known: the last one remains
    assert program.find_trees(0, [3, 4]) == ((0, 1, 2, 3, 4),)
    assert program.find_trees(0, [1]) == ((),)  # on a known path: recorded, and not added
    assert program.find_trees(0, [1]) == ((0, 1),)
    assert program.find_trees(0, [2, 0]) == ((0, 1, 2, 0),)


def test_the_printed_program_leaves_graphs_empty_and_they_cost_nothing() -> None:
    graph = FlowNetwork(overlay(5, LINE), link=Rate(1.0)).graph
    assert printed.PrintedProgram(graph, 2).find_trees(0, [4]) == ((0, 1, 2, 3, 4), ())
    messages = [(0, [4])] * 6

    def needed(k: int) -> float:
        return printed.compute_needed_capacity(graph, printed.count_flows(graph, messages, k), k)

    assert needed(1) == 6.0  # six messages at an end node, which has one link
    assert needed(2) == 0.0


def test_the_shortcut_changes_nothing() -> None:
    cell = CellTrial("printed", nodes=40, messages=80, popularity=0.25)
    publishers, receivers = draw_messages(cell, 1)
    graph = make_network(cell, 1, Rate(1.0)).graph

    class Plain(printed.PrintedProgram):
        def _select_relevant(self, publisher: int, receivers: object) -> object:  # type: ignore[override]
            return receivers

    for k in (1, 3):
        quick, plain = printed.PrintedProgram(graph, k), Plain(graph, k)
        for number, wanted in enumerate(receivers):
            who = publishers[number % 3]
            assert quick.find_trees(who, wanted.tolist()) == plain.find_trees(who, wanted.tolist())


def test_what_the_printed_program_loses_is_counted_on_its_graphs_only() -> None:
    star = FlowNetwork(overlay(4, [(0, 1), (1, 2), (1, 3)]), link=Rate(4.0), peer="links")
    star.arc_capacity[:] = np.inf
    messages = [(0, [2, 3])] + [(0, [2, 3])] * 9
    one = printed.find_single_graphs(star.graph, messages)
    # The first message unites both paths, the nine others end at 3; peer 1 has capacity 12, peers 2 and 3 have 4.
    assert sorted(one.workload.demand[0].tolist()) == [1.0, 9.0]
    assert printed.count_lost(star, one) == pytest.approx(11 - 5)


def test_workloads_count_what_is_wanted() -> None:
    cell = CellTrial("honest", **SMALL)
    publishers, receivers = draw_messages(cell, 1)
    own = sum(publishers[i % len(publishers)] in wanted for i, wanted in enumerate(receivers))
    assert draw_cell_workload(cell, 1).deliveries() == sum(map(len, receivers)) - own


@pytest.mark.parametrize("strategy", ["honest", "printed"])
def test_one_message_that_counts_as_many_loads_as_much(strategy: str) -> None:
    whole = run_cell(CellTrial(strategy, nodes=30, messages=1200, size_kbit=80.0), 1)  # type: ignore[arg-type]
    scaled = run_cell(CellTrial(strategy, nodes=30, messages=1200, size_kbit=80.0, scale=4), 1)  # type: ignore[arg-type]
    assert scaled["wanted"] == pytest.approx(whole["wanted"], rel=0.1)
    assert scaled["needed_1"] == pytest.approx(whole["needed_1"], rel=0.25)
    assert scaled["single_20"] == pytest.approx(whole["single_20"], abs=0.05)
    assert scaled["lost_20"] == pytest.approx(scaled["single_20"] * scaled["wanted"])


@pytest.mark.parametrize(("metric", "value"), [("single_load", 1.8), ("dropped", 1.8), ("undelivered", 0.98)])
def test_only_what_is_a_share_is_cut_off_at_all_of_it(metric: str, value: float) -> None:
    """A load may be several times the capacity, and an event dropped more than once."""
    canvas = pytest.importorskip("matplotlib.figure")
    from wend.studies.figures import Drawing

    size, heights = CAMPR.sizes[-1], []
    for figure in (one for one in CAMPR.figures if one.name in ("5.1", "5.2")):
        for panel in (one for one in figure.panels if one.metric == metric):
            points = [point for _, line in figure.points_by_series(panel, size) for point in line]
            known = {(size.setting_key(point.fields), metric): Estimate(value, 0.2, 5) for point in points}
            axes = canvas.Figure().subplots()
            Drawing(size, known, {}, "").draw_panel(axes, figure, panel)
            heights.append(axes.get_ylim())
    assert heights
    for low, high in heights:
        assert low < 100 * value < high
        assert bool(high > 101) is (metric != "undelivered")
