"""The goal `on-time`: the fewest late deliveries within a bound of the load, with trees grown at prices."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from benchmarks.on_time_bound import on_time_bound
from tests.planning.nets import networks, workload
from tests.planning.test_deadlines import Overlays
from tests.planning.test_models import matrices
from wend.model.errors import ConfigError
from wend.model.flows import Deadline
from wend.planning.arrays import run_numbers
from wend.planning.candidate_paths import find_paths, shortest_delays
from wend.planning.delivery_graphs import make_delivery_graphs, unite_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.planning.graph_delays import compute_graph_delays
from wend.planning.models import LATE, Goal, balance, optimise_reduced
from wend.planning.plan_check import check_plan
from wend.planning.planner import make_plan
from wend.planning.priced_trees import add_priced_trees
from wend.planning.problem import Problem, make_problem
from wend.planning.route_choice import LoadLimit, make_candidates, parse_load_limit

ON_TIME = Goal("on-time")


def hurried(network: FlowNetwork, seed: int, factor: float, load: float = 0.5) -> FlowWorkload:
    """Flows whose balanced plan needs this share of the capacities."""
    made = workload(network, np.random.Generator(np.random.PCG64(seed)), 5)
    made.demand = made.demand * load / balance(make_problem(network, made, make_delivery_graphs(network, made, 3))).y
    slowest = max(shortest_delays(network.graph, int(peer)).max() for peer in made.publisher)
    return made.with_deadline(Deadline(delay_s=factor * slowest / 1e9 + 2.0))


def least_late(problem: Problem, limit: float) -> float:
    """The fewest late deliveries by another solver."""
    loads, whose, _ = matrices(problem)
    found = linprog(
        problem.costs(LATE), A_ub=loads, b_ub=np.full(len(loads), limit), A_eq=whose, b_eq=np.ones(len(whose))
    )
    assert found.status == 0
    return float(found.fun)


@given(networks(), st.integers(0, 2**16), st.floats(0.2, 3.0), st.sampled_from([1.0, 1.1, 1.5]))
@settings(deadline=None, max_examples=40)
def test_no_choice_of_the_candidates_is_late_for_fewer(
    network: FlowNetwork, seed: int, factor: float, room: float
) -> None:
    made = hurried(network, seed, factor)
    plan = make_plan(network, made, ON_TIME, 3, room=room)
    assert check_plan(plan) == []
    assert plan.head.highest_load <= plan.head.max_load * (1 + 1e-6) <= 0.5 * room * (1 + 1e-5)
    chosen = make_candidates(network, made, ON_TIME, 3, find_paths, LoadLimit(multiple=room))
    best = optimise_reduced(chosen.problem, (LATE,), limit=chosen.max_load)
    assert best is not None
    late = float(chosen.problem.costs(LATE) @ best.shares)
    assert late == pytest.approx(least_late(chosen.problem, chosen.max_load), rel=1e-4, abs=1e-5 * made.deliveries())


@given(networks(), st.integers(0, 2**16), st.floats(0.2, 3.0))
@settings(deadline=None, max_examples=40)
def test_priced_trees_are_trees_and_never_make_it_worse(network: FlowNetwork, seed: int, factor: float) -> None:
    made = hurried(network, seed, factor)
    graphs = unite_graphs(
        make_delivery_graphs(network, made.without_deadlines(), 3), make_delivery_graphs(network, made, 3)
    )
    more = add_priced_trees(network, made, graphs, LATE, 0.5)
    before, after = (make_problem(network, made, each) for each in (graphs, more))
    assert least_late(after, 0.5 * (1 + 1e-9)) <= least_late(before, 0.5) * (1 + 1e-6) + 1e-6 * made.deliveries()
    graph = network.graph
    for g, flow in enumerate(run_numbers(more.of_flow).tolist()):
        reached = {int(made.publisher[flow])}
        for arc in more.arcs[more.ptr[g] : more.ptr[g + 1]].tolist():
            assert int(graph.tail[arc]) in reached and int(graph.head[arc]) not in reached
            reached.add(int(graph.head[arc]))
        assert reached >= set(made.flow_receivers(flow).tolist())
        spans = more.of_flow[flow], more.of_flow[flow + 1]
        assert len({frozenset(more.arcs[more.ptr[i] : more.ptr[i + 1]].tolist()) for i in range(*spans)}) == (
            spans[1] - spans[0]
        )


@pytest.mark.parametrize("text", ["", "x", "1.1y", "nan", "nanx", "0", "1.5", "-1", "0.9x"])
def test_other_limits_of_the_load_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the highest load must be"):
        parse_load_limit(text)


def test_a_limit_is_a_share_or_a_multiple() -> None:
    assert parse_load_limit("0.8") == LoadLimit(share=0.8)
    assert parse_load_limit("1.1x") == LoadLimit(multiple=1.1)


def bound(case: Overlays, limit: float) -> float:
    """The share that any routes bring in time if packets never wait, with no load above the limit."""
    larger = case.flows.without_deadlines()
    larger.demand = larger.demand / limit
    shortest = {peer: shortest_delays(case.network.graph, peer) for peer in set(larger.publisher.tolist())}
    return on_time_bound(case.network, larger, lambda a, b: int(3 * shortest[a][b])).share


@pytest.mark.parametrize("seed", [3, 4, 6, 8])
def test_a_plan_on_time_as_often_as_a_tree_needs_little_more_than_balance(tmp_path: Path, seed: int) -> None:
    """20 peers, whose links a tree fills to one half at most, with deadlines of three times the shortest delay."""
    case = Overlays(tmp_path, seed)
    least = case.plan("balance", None).head.highest_load
    made = case.flows.with_deadline(Deadline(factor=3.0))
    plan = make_plan(case.network, made, ON_TIME, 5, room=1.1)
    assert check_plan(plan) == []
    assert plan.head.highest_load <= 1.1 * least * (1 + 1e-6)
    tree, planned, best = case.on_time(None), case.on_time(plan), bound(case, 1.1 * least)
    assert tree <= planned <= best
    assert planned > case.on_time(case.plan("balance", None)) + 0.2


def test_on_idle_links_a_plan_reaches_most_of_the_bound(tmp_path: Path) -> None:
    case = Overlays(tmp_path, 1)
    least = case.plan("balance", None).head.highest_load
    made = case.flows.with_deadline(Deadline(factor=3.0))
    chosen = make_candidates(case.network, made, ON_TIME, 5, find_paths, LoadLimit(multiple=1.1))
    best = optimise_reduced(chosen.problem, (LATE,), limit=chosen.max_load)
    assert best is not None
    graphs = chosen.graphs
    late = compute_graph_delays(case.network, made, graphs.of_flow, graphs.ptr, graphs.arcs).late
    share = 1 - float(late * best.shares @ made.demand[0][run_numbers(graphs.of_flow)]) / made.deliveries()
    assert bound(case, 1.1 * least) - 0.03 <= share <= bound(case, 1.1 * least) + 1e-6
