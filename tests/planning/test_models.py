"""The models against independent formulations, with and without reductions, and plans against the optimum."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog

from tests.oracles.optimal_plan import optimal
from tests.planning.nets import random_network, workload
from wend.model.errors import ConfigError
from wend.model.rates import Rate
from wend.planning import master_problem as master
from wend.planning import partial_plan as partial
from wend.planning.delivery_graphs import DeliveryGraphs, make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import MESSAGES, Flow, FlowWorkload, make_workload
from wend.planning.models import Goal, balance, minimise_usage, parse_goal, solve
from wend.planning.partial_plan import count_undelivered, find_most_valuable, undelivered_at_least
from wend.planning.problem import Problem, make_problem
from wend.topology.graph import Overlay, OverlayLink

KINDS = ("link", "peer", "both")


def instance(
    seed: int, peers: int = 8, flows: int = 6, k: int = 3, rates: int = 5
) -> tuple[FlowNetwork, FlowWorkload, DeliveryGraphs, Problem]:
    rng = np.random.Generator(np.random.PCG64(seed))
    network = random_network(rng, peers, more=peers, kind=KINDS[seed % 3])
    made = workload(network, rng, flows, rates)
    graphs = make_delivery_graphs(network, made, k)
    return network, made, graphs, make_problem(network, made, graphs)


def matrices(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dense matrices: utilisation by row and graph; the graphs of each flow; usage by graph."""
    loads = np.zeros((len(problem.capacity), len(problem.hops)))
    whose = np.zeros((len(problem.of_flow) - 1, len(problem.hops)))
    usage = np.zeros(len(problem.hops))
    for f in range(len(whose)):
        for g in range(problem.of_flow[f], problem.of_flow[f + 1]):
            whose[f, g] = 1
            usage[g] = problem.hops[g] * problem.demand[problem.usage_unit, f]
            for row in problem.rows[problem.ptr[g] : problem.ptr[g + 1]]:
                loads[row, g] += problem.demand[problem.unit[row], f] / problem.capacity[row]
    return loads, whose, usage


def reference(problem: Problem, cost: float, cost_y: float, limit: float | None) -> float | None:
    loads, whose, usage = matrices(problem)
    found = linprog(
        np.append(cost * usage, cost_y),
        A_ub=np.hstack([loads, -np.ones((len(loads), 1))]),
        b_ub=np.zeros(len(loads)),
        A_eq=np.hstack([whose, np.zeros((len(whose), 1))]),
        b_eq=np.ones(len(whose)),
        bounds=[(0, None)] * len(usage) + [(0, limit)],
    )
    return float(found.fun) if found.status == 0 else None


@pytest.mark.parametrize("start", range(0, 100, 10))
def test_raw_and_reduced_optima_agree(start: int) -> None:
    for seed in range(start, start + 10):
        _, _, _, problem = instance(seed)
        best = balance(problem)
        assert best.y == pytest.approx(balance(problem, reduced=False).y, rel=1e-6), seed
        assert best.y == pytest.approx(reference(problem, 0.0, 1.0, None), rel=1e-6), seed
        # A limit that binds and is feasible for every instance.
        for limit in (best.y * 1.001, best.y * 1.2):
            least = minimise_usage(problem, limit=limit)
            raw = minimise_usage(problem, limit=limit, reduced=False)
            assert least is not None and raw is not None
            assert least.usage == pytest.approx(raw.usage, rel=1e-6), seed
            assert least.usage == pytest.approx(reference(problem, 1.0, 0.0, limit), rel=1e-6), seed
            assert least.y <= limit * (1 + 1e-6)
        assert minimise_usage(problem, limit=best.y * 0.99) is None
        assert reference(problem, 1.0, 0.0, best.y * 0.99) is None
        roomy = problem._replace(capacity=problem.capacity * best.y * 1.1)
        mixed, raw = solve(roomy, Goal("blend", 0.3)), solve(roomy, Goal("blend", 0.3), reduced=False)
        assert mixed is not None and raw is not None
        single = roomy.single_path_shares()
        y, usage = float((roomy.loads(single) / roomy.capacity).max()), roomy.usage(single)
        value = 0.7 * mixed.usage / usage + 0.3 * mixed.y / y
        assert value == pytest.approx(0.7 * raw.usage / usage + 0.3 * raw.y / y, rel=1e-6), seed
        assert value == pytest.approx(reference(roomy, 0.7 / usage, 0.3 / y, 1.0), rel=1e-6), seed


def test_few_columns_find_the_optimum_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without multiplicative weights, so that the duals of the program ask for columns."""
    asked = 0
    for seed in range(12):
        _, _, _, problem = instance(seed, peers=24, flows=50, k=4)
        whole = reference(problem, 0.0, 1.0, None)
        led = balance(problem)
        limit = led.y * 1.01
        monkeypatch.setattr(master, "ROUNDS", 1)
        alone, least = balance(problem), minimise_usage(problem, limit=limit)
        monkeypatch.undo()
        assert least is not None
        assert (led.y, alone.y) == pytest.approx((whole, whole), rel=1e-6), seed
        assert least.usage == pytest.approx(reference(problem, 1.0, 0.0, limit), rel=1e-6), seed
        left = len(problem.hops) - 50
        assert max(led.columns, alone.columns) < left / 2, seed
        asked += alone.columns > 0
    assert asked > 4


def test_shares_sum_to_one_and_give_the_stated_loads() -> None:
    for seed in range(30):
        _, _, _, problem = instance(seed)
        found = balance(problem)
        loads, whose, usage = matrices(problem)
        assert whose @ found.shares == pytest.approx(np.ones(len(whose)))
        assert (loads @ found.shares).max() == pytest.approx(found.y)
        assert usage @ found.shares == pytest.approx(found.usage)
        assert (found.shares >= 0).all()


def test_of_equally_balanced_plans_the_one_with_the_least_usage_wins() -> None:
    seen = 0
    for seed in range(40):
        _, _, _, problem = instance(seed)
        best = balance(problem)
        roomy = problem._replace(capacity=problem.capacity * best.y)
        found = solve(roomy, Goal("balance"))
        assert found is not None
        assert found.y == pytest.approx(1.0, rel=1e-6)
        assert found.usage == pytest.approx(reference(roomy, 1.0, 0.0, 1.0 + 1e-7), rel=1e-5)
        seen += found.usage < best.usage - 1e-6
    assert seen > 0


def bypass(rate: float) -> tuple[FlowNetwork, FlowWorkload]:
    """From 0 to 2: fast over 1, without capacity limits, or over one slow link of 40 msg/s."""
    made = Overlay(3, [OverlayLink(0, 1, 1), OverlayLink(0, 2, 10, 0.0, 40.0), OverlayLink(1, 2, 1)])
    return FlowNetwork(made), make_workload([Flow(0, [2], rate)], made.names)


def test_a_limit_of_zero_is_a_limit() -> None:
    network, made = bypass(50.0)
    problem = make_problem(network, made, make_delivery_graphs(network, made, 2))
    assert balance(problem).y == 0
    for reduced in (True, False):
        found = solve(problem, Goal("balance"), reduced=reduced)
        assert found is not None
        assert (found.y, found.shares.tolist()) == (0.0, [1.0, 0.0])
        assert minimise_usage(
            make_problem(network, made, make_delivery_graphs(network, made, 1)), limit=0.0, reduced=reduced
        )
    loaded = problem._replace(
        of_flow=np.array([0, 1]), ptr=problem.ptr[1:], hops=problem.hops[1:], delay=problem.delay[1:],
        moved=problem.moved[1:],
    )  # fmt: skip
    assert minimise_usage(loaded, limit=0.0, reduced=False) is None


@pytest.mark.parametrize(("weight", "direct"), [(0.0, 1.0), (0.3, 1.0), (0.9, 0.0), (1.0, 0.0)])
def test_a_blend_needs_no_load_on_single_paths(weight: float, direct: float) -> None:
    """Usage in units of 2 x 20 msg/s, y as it is: the direct path saves (1 - b) / 2 and costs b / 2."""
    network, made = bypass(20.0)
    found = solve(make_problem(network, made, make_delivery_graphs(network, made, 2)), Goal("blend", weight))
    assert found is not None
    assert found.shares[1] == direct


def test_a_blend_of_zero_loads_is_made() -> None:
    """Capacities in bit/s, and messages without a size."""
    made = Overlay(3, [OverlayLink(0, 1, 1), OverlayLink(0, 2, 10), OverlayLink(1, 2, 1)])
    network, flows = FlowNetwork(made, link=Rate(1e7, bits=True)), make_workload([Flow(0, [2], 10.0)], made.names)
    found = solve(make_problem(network, flows, make_delivery_graphs(network, flows, 2)), Goal("blend", 0.5))
    assert found is not None
    assert (found.y, found.usage) == (0.0, 0.0)


def test_more_graphs_never_make_it_worse() -> None:
    for seed in range(30):
        network, made, *_ = instance(seed)
        found = [balance(make_problem(network, made, make_delivery_graphs(network, made, k))).y for k in (1, 2, 3, 4)]
        assert all(b <= a * (1 + 1e-9) for a, b in pairwise(found))


# On networks of six peers with k = 4. Plans may split flows, the optimal model does not, so some ratios are below 1.
Y_FACTOR, USAGE_FACTOR = 2.0, 1.25


def test_plans_are_near_the_optimal_model() -> None:
    ratios = []
    for seed in range(30):
        network, made, _, problem = instance(seed, peers=6, flows=2, k=4, rates=2)
        best, y = optimal(network, made, Goal("balance")), balance(problem).y
        assert best is not None
        assert y <= Y_FACTOR * best * (1 + 1e-6), seed
        roomy = problem._replace(capacity=problem.capacity * 1e3)
        free, least = optimal(_roomy(network), made, Goal("min-usage")), minimise_usage(roomy)
        assert free is not None and least is not None
        assert free * (1 - 1e-6) <= least.usage <= USAGE_FACTOR * free, seed
        ratios.append((y / best, least.usage / free))
    assert np.mean(ratios, axis=0).max() < 1.05
    assert np.max(ratios, axis=0).min() > 1.05, "the oracle must be better than the plans sometimes"


def _roomy(network: FlowNetwork) -> FlowNetwork:
    network.arc_capacity *= 1e3
    network.peer_capacity *= 1e3
    return network


def full_model(network: FlowNetwork, made: FlowWorkload, graphs: DeliveryGraphs) -> float:
    """The value of the best partial plan, in the thesis's variables: the share of each flow and graph at each peer."""
    tail, head = network.graph.tail, network.graph.head
    columns: list[tuple[int, int, int]] = []  # flow, graph, arc
    for f in range(len(made)):
        for g in range(graphs.of_flow[f], graphs.of_flow[f + 1]):
            columns += [(f, g, int(arc)) for arc in graphs.arcs[graphs.ptr[g] : graphs.ptr[g + 1]]]
    place = {(g, int(head[arc])): i for i, (_, g, arc) in enumerate(columns)}
    sent = {g: len(columns) + g for g in range(len(graphs.level))}
    width = len(columns) + len(sent)
    rows, bounds = [], []
    for i, (_, g, arc) in enumerate(columns):
        row = np.zeros(width)
        row[i] = 1
        row[place.get((g, int(tail[arc])), sent[g])] -= 1
        rows.append(row)
        bounds.append(0.0)
    for f in range(len(made)):
        row = np.zeros(width)
        row[[sent[g] for g in range(graphs.of_flow[f], graphs.of_flow[f + 1])]] = 1
        rows.append(row)
        bounds.append(1.0)
    for unit in range(2):
        for capacities, ends in ((network.arc_capacity[unit], None), (network.peer_capacity[unit], head)):
            for which in np.flatnonzero(np.isfinite(capacities)):
                row = np.zeros(width)
                for i, (f, _, arc) in enumerate(columns):
                    if (arc if ends is None else ends[arc]) == which:
                        row[i] = made.demand[unit, f]
                rows.append(row)
                bounds.append(capacities[which])
    worth = np.zeros(width)
    for i, (f, _, arc) in enumerate(columns):
        if head[arc] in made.flow_receivers(f):
            worth[i] = made.weight[f] * made.demand[MESSAGES, f]
    found = linprog(-worth, A_ub=np.array(rows), b_ub=np.array(bounds), bounds=(0, None))
    return -float(found.fun)


def test_the_most_valuable_partial_plan_is_that_of_the_full_model() -> None:
    cut = 0
    for seed in range(40):
        network, made, graphs, problem = instance(seed, k=2, rates=20)
        part = find_most_valuable(network, made, graphs)
        assert part.value == pytest.approx(full_model(network, made, graphs), rel=1e-6), seed
        assert part.value <= part.bound * (1 + 1e-9)
        loads = make_problem(network, made, part.graphs).loads(part.shares)
        assert (loads <= problem.capacity * (1 + 1e-6)).all()
        sums = np.add.reduceat(np.append(part.shares, 0.0), part.graphs.of_flow[:-1])
        empty = np.diff(part.graphs.of_flow) == 0
        assert (sums[~empty] <= 1 + 1e-6).all()
        cut += part.value < part.whole * 0.999
        if balance(problem).y <= 1:
            assert part.value == pytest.approx(part.whole)
    assert cut > 20


def test_partial_plans_of_demands_far_beyond_all_capacities_respect_these() -> None:
    """A rounding error of such a demand exceeds a capacity, and the share that fits is as small as one."""
    for seed in range(30):
        network, made, graphs, problem = instance(seed, k=2)
        rng = np.random.Generator(np.random.PCG64(seed))
        demand = made.demand * 10.0 ** rng.integers(0 if seed % 2 else 8, 10, len(made))
        huge = FlowWorkload(made.publisher, made.ptr, made.receivers, demand, made.weight)
        part = find_most_valuable(network, huge, graphs)
        loads = make_problem(network, huge, part.graphs).loads(part.shares)
        assert (loads <= problem.capacity * (1 + 1e-9)).all(), seed
        assert part.value > 0
        assert part.value == pytest.approx(part.bound, rel=1e-5), seed


def test_with_many_flows_multiplicative_weights_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "MANY", 0)
    for seed in range(8):
        network, made, graphs, problem = instance(seed, peers=12, flows=40, k=2, rates=8)
        part = find_most_valuable(network, made, graphs)
        best = full_model(network, made, graphs)
        assert best - partial.ROUGH * part.whole <= part.value <= best * (1 + 1e-6), seed
        assert part.bound >= best * (1 - 1e-6), seed
        loads = make_problem(network, made, part.graphs).loads(part.shares)
        assert (loads <= problem.capacity * (1 + 1e-6)).all()


def test_undelivered_counts_receivers_on_single_paths() -> None:
    for seed in range(30):
        network, made, _, _ = instance(seed, rates=20)
        first = make_delivery_graphs(network, made, 1)
        lost, wanted = count_undelivered(network, made, first)
        equal = FlowWorkload(made.publisher, made.ptr, made.receivers, made.demand, np.ones(len(made)))
        assert wanted == made.deliveries()
        least, _ = undelivered_at_least(network, made, first)
        assert lost - 0.05 * wanted <= least <= lost + 1e-6 * wanted, seed
        assert wanted - lost == pytest.approx(full_model(network, equal, first), rel=1e-6)


@pytest.mark.parametrize(
    ("text", "goal"),
    [("min-usage", Goal("min-usage")), ("balance", Goal("balance")), ("blend:0.3", Goal("blend", 0.3))],
)
def test_goals_survive_their_text(text: str, goal: Goal) -> None:
    assert parse_goal(text) == goal
    assert str(goal) == text


@pytest.mark.parametrize("text", ["best", "blend", "blend:", "blend:2", "blend:-0.1", "blend:nan", ""])
def test_other_goals_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the goal must be min-usage, min-delay, on-time, balance or blend:B"):
        parse_goal(text)


def test_the_optimal_model_refuses_large_problems() -> None:
    network, made, *_ = instance(1, peers=8, flows=6, rates=50)
    with pytest.raises(ConfigError, match="the optimal model would have"):
        optimal(network, made, Goal("balance"))
