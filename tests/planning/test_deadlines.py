"""Delays and deadlines of plans: which graphs are candidates, what each goal does with delays and weights, and how much
of it peers keep."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.planning.nets import networks, overlay, workload
from tests.planning.test_models import instance, matrices
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.run import play_world
from wend.drivers.world import build_world
from wend.model.errors import ConfigError
from wend.model.flows import Deadline, check_flows, parse_deadline
from wend.model.forwarding import Forwarding
from wend.model.plan import Plan, read_plan
from wend.model.rates import Rate
from wend.model.units import MS
from wend.planning.candidate_paths import find_paths
from wend.planning.delivery_graphs import DeliveryGraphs, make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import (
    Flow,
    FlowWorkload,
    draw_workload,
    make_workload,
    read_workload,
    write_workload,
)
from wend.planning.graph_delays import compute_graph_delays, receiver_limits
from wend.planning.models import DELAY, USAGE, Goal, balance, first_objective, optimise_reduced, parse_goal, solve
from wend.planning.plan_check import check_plan
from wend.planning.planner import make_plan
from wend.planning.problem import Problem, make_problem
from wend.planning.route_choice import make_candidates

GOALS = ("balance", "min-usage", "min-delay", "on-time", "blend:0.3")
SQUARE = [(0, 1, 10 * MS, 50.0), (1, 3, 10 * MS, 50.0), (0, 2, 30 * MS, 100.0), (2, 3, 30 * MS, 100.0)]
"""From 0 to 3: 20 ms over 1, or 60 ms over 2, where there is more room. Transmission takes 2 x 20 or 2 x 10 ms."""


def square(
    rate: float, deadline: str | None = None, weight: float = 1.0, flows: int = 1
) -> tuple[FlowNetwork, FlowWorkload]:
    network = FlowNetwork(overlay(4, SQUARE))
    made = [Flow(0, [3], rate, 100 * n, weight, deadline) for n in range(flows)]
    return network, make_workload(made, network.names)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("200ms", Deadline(delay_s=0.2)),
        ("1s", Deadline(delay_s=1.0)),
        ("3x", Deadline(factor=3)),
        ("1.5x", Deadline(factor=1.5)),
    ],
)
def test_a_deadline_is_a_duration_or_a_factor(text: str, limit: Deadline) -> None:
    assert parse_deadline(text, "deadline") == limit


@pytest.mark.parametrize("text", ["x", "0.5x", "-3x", "0ms", "soon", "nanx", "infx"])
def test_other_deadlines_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^deadline"):
        parse_deadline(text, "deadline")


def test_deadlines_are_merged_written_and_read(tmp_path: Path) -> None:
    names = tuple("abcd")
    flows = [
        Flow("a", ["b"], deadline="3x", deadline_ns=80 * MS), Flow("a", ["b"], deadline="100ms"), Flow("b", ["c"]),
        Flow("b", ["d"], deadline="2x"),
    ]  # fmt: skip
    assert next(check_flows(flows, names, "here")).deadline == Deadline(0.08, 3.0)
    made = make_workload(flows, names)
    assert made.deadline.T.tolist() == [[0.08, 3.0], [np.inf, np.inf], [np.inf, 2.0]]
    assert made.with_deadline(Deadline(factor=4)).deadline.T.tolist() == [[0.08, 3.0], [np.inf, 4.0], [np.inf, 2.0]]
    for name in ("flows.jsonl", "flows.parquet"):
        write_workload(made, tmp_path / name, names)
        assert read_workload(tmp_path / name, names).deadline.tolist() == made.deadline.tolist()


def late_by_hand(network: FlowNetwork, made: FlowWorkload, graphs: DeliveryGraphs) -> list[int]:
    """Late receivers of each graph, following each tree from its publisher."""
    limits, graph = receiver_limits(network, made), network.graph
    assert limits is not None
    late = []
    for f in range(len(made)):
        bits = made.demand[1, f] / made.demand[0, f]
        for g in range(graphs.of_flow[f], graphs.of_flow[f + 1]):
            arrival = {int(made.publisher[f]): 0.0}
            for arc in graphs.arcs[graphs.ptr[g] : graphs.ptr[g + 1]]:
                tail, head = int(graph.tail[arc]), int(graph.head[arc])
                sending = max(1 / network.arc_capacity[0, arc], bits / network.arc_capacity[1, arc])
                receiving = max(1 / network.peer_capacity[0, head], bits / network.peer_capacity[1, head])
                arrival[head] = arrival[tail] + graph.delay[arc] / 1e9 + sending + receiving
            span = slice(made.ptr[f], made.ptr[f + 1])
            late.append(
                sum(arrival[r] > limit for r, limit in zip(made.receivers[span].tolist(), limits[span], strict=True))
            )
    return late


@given(networks(), st.integers(1, 4), st.integers(0, 2**16), st.sampled_from([1.0, 1.5, 3.0, 1e9]))
@settings(deadline=None, max_examples=60)
def test_candidates_are_late_for_as_few_receivers_as_any_graph(
    network: FlowNetwork, k: int, seed: int, factor: float
) -> None:
    made = workload(network, np.random.Generator(np.random.PCG64(seed)), 4).with_deadline(Deadline(factor=factor * 1e7))
    all_graphs = make_delivery_graphs(network, made, k)
    late = late_by_hand(network, made, all_graphs)
    delays = compute_graph_delays(network, made, all_graphs.of_flow, all_graphs.ptr, all_graphs.arcs)
    assert delays.late.tolist() == late
    chosen = make_candidates(network, made, Goal("balance"), k, find_paths)
    assert late_by_hand(network, made, chosen.graphs) == [
        min(late[all_graphs.of_flow[f] : all_graphs.of_flow[f + 1]])
        for f in range(len(made))
        for _ in range(chosen.graphs.of_flow[f], chosen.graphs.of_flow[f + 1])
    ]
    single = make_delivery_graphs(network, made, 1)
    firsts = [chosen.single.arcs[a:b].tolist() for a, b in zip(chosen.single.ptr, chosen.single.ptr[1:], strict=False)]
    assert firsts == [single.arcs[single.ptr[g] : single.ptr[g + 1]].tolist() for g in single.of_flow[:-1]]


@pytest.mark.parametrize("goal", GOALS)
def test_a_graph_that_misses_the_deadline_carries_nothing(goal: str) -> None:
    """60 ms over 1, and 80 ms over 2."""
    free = make_plan(*square(40.0), Goal("balance"), 2)
    assert free.head.highest_load == pytest.approx(40 / 150)
    for deadline in ("70ms", "3.5x"):
        plan = make_plan(*square(40.0, deadline), parse_goal(goal), 2)
        assert (plan.head.highest_load, plan.head.late) == (pytest.approx(0.8), 0)
    both = make_plan(*square(40.0, "90ms"), Goal("balance"), 2)
    assert both.head.highest_load == free.head.highest_load


def test_a_flow_that_no_graph_serves_in_time_is_planned_and_counted() -> None:
    plan = make_plan(*square(40.0, "1x"), Goal("balance"), 2)
    assert plan.head.late == 1 and check_plan(plan) == []


def test_a_plan_carries_its_deadlines(tmp_path: Path) -> None:
    plan = make_plan(*square(40.0, "3.5x"), Goal("balance"), 2)
    plan.write(tmp_path / "plan")
    again = read_plan(tmp_path / "plan")
    assert again.flows["deadline_factor"].tolist() == [3.5] and again.flows["deadline_s"].tolist() == [np.inf]
    without = make_plan(*square(40.0), Goal("min-usage"), 2)
    assert plan.id != make_plan(*square(40.0), Goal("balance"), 2).id
    assert again.content_hash == plan.content_hash != without.content_hash


# ---------------------------------------------------------------- goals


def best_by_hand(problem: Problem, stages: list[np.ndarray], limit: float) -> list[float]:
    """The optima of several costs, one after the other, with all loads at most `limit`."""
    loads, whose, _ = matrices(problem)
    held: list[np.ndarray] = []
    values: list[float] = []
    for costs in stages:
        found = linprog(
            costs,
            A_ub=np.vstack([loads, *held]),
            b_ub=np.append(np.full(len(loads), limit), [value * (1 + 1e-7) for value in values]),
            A_eq=whose,
            b_eq=np.ones(len(whose)),
        )
        assert found.status == 0
        held.append(costs)
        values.append(float(found.fun))
    return values


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_the_stages_are_the_optima_one_after_the_other(start: int) -> None:
    for seed in range(start, start + 10):
        network, made, graphs, _ = instance(seed)
        network.graph.delay[:] *= MS  # differences of nanoseconds would be within the tolerance of the solver
        problem = make_problem(network, made, graphs)
        limit = balance(problem).y * 1.1
        usage, delay = problem.costs(USAGE), problem.costs(DELAY)
        for objectives, stages in (((USAGE, DELAY), [usage, delay]), ((DELAY, USAGE), [delay, usage])):
            best = best_by_hand(problem, stages, limit)
            for reduced in (True, False):
                found = optimise_reduced(problem, objectives, limit=limit, reduced=reduced)
                assert found is not None
                assert [float(cost @ found.shares) for cost in stages] == pytest.approx(best, rel=2e-5), seed


@pytest.mark.parametrize("kind", ["balance", "min-usage", "min-delay", "blend"])
def test_the_weight_of_a_flow_gives_it_the_short_route_in_every_goal(kind: str) -> None:
    """Two equal flows compete for two routes of two hops each; one of them is slow."""
    links = [(0, 1, 10 * MS, 50.0), (1, 3, 10 * MS, 50.0), (0, 2, 30 * MS, 50.0), (2, 3, 30 * MS, 50.0),
             (3, 4, MS, 1000.0), (3, 5, MS, 1000.0)]  # fmt: skip
    network = FlowNetwork(overlay(6, links))
    for heavy, light in ((0, 1), (1, 0)):
        weights = [3.0, 1.0] if heavy == 0 else [1.0, 3.0]
        made = make_workload([Flow(0, [4], 50, weight=weights[0]), Flow(0, [5], 50, weight=weights[1])], network.names)
        problem = make_problem(network, made, make_delivery_graphs(network, made, 2))
        found = solve(problem, Goal(kind, 0.5))  # type: ignore[arg-type]
        assert found is not None
        fast = problem.of_flow[:-1]
        assert found.shares[fast[heavy]] == pytest.approx(1.0, abs=1e-5)
        assert found.shares[fast[light]] == pytest.approx(0.0, abs=1e-5)


def test_weights_change_no_value_of_a_goal() -> None:
    for seed in range(20):
        network, made, graphs, _ = instance(seed)
        network.arc_capacity *= 4
        network.peer_capacity *= 4
        plain = FlowWorkload(made.publisher, made.ptr, made.receivers, made.demand, np.ones(len(made)))
        for text in ("balance", "min-usage", "blend:0.3"):
            goal = parse_goal(text)
            values = []
            for each in (made, plain):
                problem = make_problem(network, each, graphs)
                found = solve(problem, goal)
                if found is None:
                    continue
                objective = first_objective(problem, goal)
                values.append(float(problem.costs(objective) @ found.shares) + objective.y * found.y)
            assert values == pytest.approx(values[:1] * len(values), rel=1e-6), (seed, text)


@pytest.mark.parametrize("goal", GOALS)
def test_no_load_is_above_the_highest_that_is_allowed(goal: str) -> None:
    network, made = square(60.0)
    plan = make_plan(network, made, parse_goal(goal), 2, max_load=0.5)
    assert plan.head.highest_load <= 0.5 * (1 + 1e-6) and plan.head.max_load == 0.5
    network, made = square(80.0)
    with pytest.raises(ConfigError, match="of which the plan may use 50 %"):
        make_plan(network, made, parse_goal(goal), 2, max_load=0.5)
    part = make_plan(network, made, parse_goal(goal), 2, max_load=0.5, partial=True)
    assert (
        part.head.partial and part.head.delivered == pytest.approx(75.0) and part.head.highest_load <= 0.5 * (1 + 1e-6)
    )


# ---------------------------------------------------------------- the simulator


class Overlays:
    """20 peers of degree 5, and flows that load the links of a shortest-path tree to at most one half."""

    def __init__(self, folder: Path, seed: int) -> None:
        world = Scenario(peers=20, degree=5, seed=seed, pf=0.0, pl=0.0, topics=1, factor=3.0)
        self.network = FlowNetwork(build_world(world).overlay, link=Rate(40.0))
        self.flows = draw_workload(20, 200, popularity=0.3, seed=seed, publishers=0.3)
        single = balance(make_problem(self.network, self.flows, make_delivery_graphs(self.network, self.flows, 1)))
        self.flows.demand = self.flows.demand * 0.5 / single.y
        write_workload(self.flows, folder / "flows.jsonl")
        self.world = world.with_(
            link_capacity="40msg/s", queue=32, flows=str(folder / "flows.jsonl"), duration="6s", drain="20s"
        )

    def plan(self, goal: str, deadline: str | None) -> Plan:
        flows = self.flows if deadline is None else self.flows.with_deadline(parse_deadline(deadline, "deadline"))
        return make_plan(self.network, flows, parse_goal(goal), 5)

    def on_time(self, plan: Plan | None) -> float:
        world = build_world(self.world.with_(strategy="d-tree" if plan is None else "planned"))
        world.plan = None if plan is None else Forwarding(plan)
        return play_world(world).summary.on_time


@pytest.mark.parametrize("seed", [2, 3])
def test_plans_with_deadlines_are_on_time_at_least_as_often_as_a_tree(tmp_path: Path, seed: int) -> None:
    case = Overlays(tmp_path, seed)
    tree, blind = case.on_time(None), case.plan("balance", None)
    assert case.on_time(blind) < tree - 0.2, "a balanced plan without deadlines takes detours"
    for goal in ("balance", "min-delay"):
        plan = case.plan(goal, "3x")
        assert check_plan(plan) == []
        assert case.on_time(plan) >= tree
        assert plan.head.highest_load < plan.head.highest_load_single


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("delay_ms", 1.0, "plan.json states that the delay is 1 ms, but it is 60 ms"),
        ("late", 0, "plan.json states that 0 receivers are late, but 1 are"),
    ],
)
def test_a_check_knows_delays_and_deadlines(field: str, value: float, complaint: str) -> None:
    """No path is in time, so the flow stays on the shortest: 20 ms, and 40 ms of transmission."""
    network, made = square(40.0, "1x")
    made.deadline[1] = np.inf
    made.deadline[0] = 0.05
    plan = make_plan(network, made, Goal("balance"), 2)
    assert check_plan(plan) == []
    wrong = Plan(msgspec.structs.replace(plan.head, **{field: value}), plan.tables)
    assert check_plan(wrong) == [complaint]
