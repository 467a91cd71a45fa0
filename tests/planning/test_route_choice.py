"""The least k that fits, plans that stay close to the running one, and models as files."""

from pathlib import Path

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.nets import networks, random_network, workload
from wend.drivers.scenarios import Scenario
from wend.drivers.world import build_world
from wend.model.errors import ConfigError
from wend.model.flows import Deadline
from wend.model.plan import Plan
from wend.model.rates import Rate
from wend.planning.candidate_paths import PathSearch, find_paths
from wend.planning.delivery_graphs import make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload, draw_workload
from wend.planning.models import Goal, balance, first_objective, parse_goal, solve
from wend.planning.plan_changes import count_moves
from wend.planning.plan_check import check_plan
from wend.planning.planner import make_plan
from wend.planning.problem import make_problem
from wend.planning.route_choice import choose_routes

GOALS = ("balance", "min-usage", "min-delay", "on-time", "blend:0.3")

# ---------------------------------------------------------------- the least k


@given(networks(most=9), st.data())
@settings(deadline=None, max_examples=100)
def test_a_search_that_continues_finds_the_same_paths(network: FlowNetwork, data: st.DataObject) -> None:
    graph = network.graph
    source = data.draw(st.integers(0, network.peers - 1))
    receivers = np.array([peer for peer in range(network.peers) if peer != source], dtype=np.int32)
    search = PathSearch()
    for k in sorted(data.draw(st.sets(st.integers(1, 8), min_size=1))):
        for one, other in zip(
            search(graph, source, receivers, k), find_paths(graph, source, receivers, k), strict=True
        ):
            assert one.tolist() == other.tolist()


def fits(network: FlowNetwork, made: FlowWorkload, k: int) -> bool:
    try:
        make_plan(network, made, Goal("balance"), k)
    except ConfigError:
        return False
    return True


@given(networks(most=7), st.integers(0, 2**16), st.floats(0.3, 1.1), st.booleans())
@settings(deadline=None, max_examples=60)
def test_auto_is_the_least_k_that_fits(network: FlowNetwork, seed: int, load: float, hurried: bool) -> None:
    made = workload(network, np.random.Generator(np.random.PCG64(seed)), 4)
    single = balance(make_problem(network, made, make_delivery_graphs(network, made, 1))).y
    made.demand = made.demand / (single * load)
    if hurried:
        made = made.with_deadline(Deadline(delay_s=0.5))
    tried = [k for k in range(1, 16) if fits(network, made, k)]
    choice = choose_routes(network, made, Goal("balance"), None)
    assert (choice.candidates.k if choice.used is not None else None) == (tried[0] if tried else None)


@pytest.mark.parametrize("ranking", ["bottleneck-disjoint", "capacity", "rejecting"])
def test_auto_ends_for_every_ranking_if_nothing_fits(ranking: str) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    network = random_network(rng, 6, 4, "link")
    made = workload(network, rng, 4)
    made.demand *= 100
    with pytest.raises(ConfigError, match="does not fit with k ="):
        make_plan(network, made, Goal("balance"), None, ranking=ranking)
    assert make_plan(network, made, Goal("balance"), None, ranking=ranking, partial=True).head.partial


# ---------------------------------------------------------------- the running plan


class Overlays:
    """40 peers and 200 flows at a third of what fits."""

    def __init__(self, seed: int) -> None:
        self.overlay = build_world(Scenario(peers=40, degree=5, seed=seed, topics=1)).overlay
        self.flows = draw_workload(40, 220, popularity=0.1, seed=seed, publishers=0.5).select_flows(np.arange(200))
        network = self.network()
        y = balance(make_problem(network, self.flows, make_delivery_graphs(network, self.flows, 3))).y
        self.flows.demand = self.flows.demand * 0.6 / y

    def network(self) -> FlowNetwork:
        return FlowNetwork(self.overlay, link=Rate(100.0))

    def narrower(self, plan: Plan) -> FlowNetwork:
        """Half of the capacity of the fullest link has gone."""
        arc = int((plan.arcs["after_msgs"] / plan.arcs["capacity_msgs"]).argmax())
        network = self.network()
        network.arc_capacity[:, [arc, network.graph.back[arc]]] /= 2
        return network

    def slower(self, plan: Plan) -> FlowNetwork:
        """The fullest link takes 20 ms longer."""
        arc = int(plan.arcs["after_msgs"].argmax())
        network = self.network()
        network.graph.delay[[arc, network.graph.back[arc]]] += 20_000_000
        return network


@pytest.mark.parametrize("goal", [goal for goal in GOALS if goal != "on-time"])
def test_few_flows_move_after_one_link_has_changed(goal: str) -> None:
    case = Overlays(1)
    assert len(case.flows) == 200
    before = make_plan(case.network(), case.flows, parse_goal(goal), 3)
    same = make_plan(case.network(), case.flows, parse_goal(goal), 3, running=before)
    assert count_moves(before, same).flows == 0
    for network in (case.narrower(before), case.slower(before)):
        fresh = make_plan(network, case.flows, parse_goal(goal), 3)
        plan = make_plan(network, case.flows, parse_goal(goal), 3, running=before)
        moves = count_moves(before, plan)
        assert check_plan(plan, network) == []
        assert moves.common == 200 and moves.flows < 20
        if goal == "balance":
            assert plan.head.highest_load <= fresh.head.highest_load * 1.1 * (1 + 1e-6)
        if goal == "min-usage":
            assert plan.head.usage <= fresh.head.usage * 1.1 * (1 + 1e-6)


def test_few_flows_with_deadlines_move_to_be_on_time() -> None:
    case = Overlays(1)
    flows, goal = case.flows.with_deadline(Deadline(factor=4.0)), parse_goal("on-time")
    before = make_plan(case.network(), flows, goal, 3, room=1.2)
    assert count_moves(before, make_plan(case.network(), flows, goal, 3, room=1.2, running=before)).flows == 0
    network = case.slower(before)
    plan = make_plan(network, flows, goal, 3, room=1.2, running=before)
    assert check_plan(plan, network) == [] and count_moves(before, plan).flows < 20


def test_new_flows_and_lost_links_leave_the_others_where_they_are() -> None:
    case = Overlays(2)
    before = make_plan(case.network(), case.flows.select_flows(np.arange(150)), Goal("balance"), 3)
    plan = make_plan(case.network(), case.flows, Goal("min-usage"), 3, running=before, max_load=1.0)
    assert plan.head.flows == 200 and count_moves(before, plan).common == 150
    arc = int(before.arcs["after_msgs"].argmax())
    a, b = int(before.arcs["a"][arc]), int(before.arcs["b"][arc])
    rest = [link for link in case.overlay.links if {link.a, link.b} != {a, b}]
    network = FlowNetwork(type(case.overlay)(40, rest), link=Rate(100.0))
    plan = make_plan(network, case.flows, Goal("min-delay"), 3, running=before)
    assert check_plan(plan, network) == []


# ---------------------------------------------------------------- models as files


@pytest.mark.parametrize("ending", ["lp", "mps"])
@pytest.mark.parametrize("goal", GOALS)
def test_another_solver_finds_the_same_objective(goal: str, ending: str, tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    network = random_network(rng, 8, 8, "both")
    made = workload(network, rng, 6)
    y = balance(make_problem(network, made, make_delivery_graphs(network, made, 3))).y
    made.demand = made.demand * 0.8 / y
    path = tmp_path / f"plan.{ending}"
    plan = make_plan(network, made, parse_goal(goal), 3, model=path)
    other = highspy.Highs()
    other.setOptionValue("output_flag", False)
    assert other.readModel(str(path)) == highspy.HighsStatus.kOk
    other.run()
    problem = make_problem(network, made, make_delivery_graphs(network, made, 3))
    objective = first_objective(problem, parse_goal(goal))
    value = {
        "balance": plan.head.highest_load,
        "min-usage": plan.head.usage,
        "min-delay": None,
        "on-time": None,
        "blend:0.3": objective.usage * plan.head.usage + objective.y * plan.head.highest_load,
    }[goal]
    if value is None:
        best = solve(problem, parse_goal(goal))
        assert best is not None
        value = float(problem.costs(objective) @ best.shares)
    assert other.getInfo().objective_function_value == pytest.approx(value, rel=1e-5)
    names = {other.getColName(column)[1] for column in range(other.getNumCol())}
    assert {"x_0_0", "x_1_0", "y"} <= names


def test_a_model_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    network = random_network(rng, 6, 4, "link")
    made = workload(network, rng, 1)
    made.demand /= 100
    with pytest.raises(ConfigError, match=r"a model is written as \.lp or \.mps"):
        make_plan(network, made, Goal("balance"), 2, model=tmp_path / "plan.txt")
    with pytest.raises(ConfigError, match="cannot write"):
        make_plan(network, made, Goal("balance"), 2, model=tmp_path / "nowhere" / "plan.lp")
