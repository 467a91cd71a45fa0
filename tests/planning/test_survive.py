"""Plans that survive the failure of any single link: against brute force, and in the simulator, failure by failure."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from benchmarks.survive import LOAD, MAPS, K, SurvivablePlan, fit_plan
from tests.planning.nets import networks, overlay, workload
from wend.model.errors import ConfigError
from wend.model.plan import Plan, read_plan
from wend.model.rates import Rate
from wend.planning import failure_routes
from wend.planning.delivery_graphs import make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import Flow, FlowWorkload, draw_workload, make_workload
from wend.planning.models import balance, parse_goal
from wend.planning.path_ranking import find_ranking
from wend.planning.plan_check import check_plan, shares_after
from wend.planning.planner import make_plan
from wend.planning.problem import make_problem
from wend.topology.graph import Overlay

BALANCE = parse_goal("balance")
Pair = tuple[int, int]


# ---------------------------------------------------------------- the oracle: plain Python, from the plan's tables


def reachable(links: set[Pair], start: int) -> set[int]:
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for a, b in links:
            if here in (a, b) and a + b - here not in found:
                found.add(a + b - here)
                todo.append(a + b - here)
    return found


def simulate_by_hand(plan: Plan, failed: Pair) -> float:
    """Send every flow by its shares after a failure; the highest load of a link. Fails if a receiver gets less."""
    number = list(zip(plan.failures["a"].tolist(), plan.failures["b"].tolist(), strict=True)).index(failed)
    links = {(a, b) for a, b in zip(plan.arcs["a"].tolist(), plan.arcs["b"].tolist(), strict=True) if a < b} - {failed}
    shares = shares_after(plan, number)
    following: dict[tuple[int, int], list[int]] = {}
    for peer, graph, hop in zip(*(plan.hops[c].tolist() for c in ("peer", "graph", "next")), strict=True):
        following.setdefault((graph, peer), []).append(hop)
    loads: dict[Pair, float] = {}
    for flow, publisher in enumerate(plan.flows["publisher"].tolist()):
        ptr = plan.flows["receivers_ptr"]
        wanted = set(plan.flows["receivers"][ptr[flow] : ptr[flow + 1]].tolist()) & reachable(links, publisher)
        got = dict.fromkeys(wanted, 0.0)
        for graph in np.flatnonzero((plan.graphs["flow"] == flow) & (shares > 0)).tolist():
            todo = [publisher]
            while todo:
                here = todo.pop()
                for hop in following.get((graph, here), ()):
                    assert (min(here, hop), max(here, hop)) in links, "a route crosses the failed link"
                    loads[here, hop] = loads.get((here, hop), 0.0) + shares[graph] * plan.flows["rate_msgs"][flow]
                    if hop in got:
                        got[hop] += shares[graph]
                    todo.append(hop)
        assert all(abs(share - 1) < 1e-6 for share in got.values()), (
            "a receiver does not get everything, or gets it twice"
        )
    capacity = {
        (a, b): c for a, b, c in zip(*(plan.arcs[n].tolist() for n in ("a", "b", "capacity_msgs")), strict=True)
    }
    return max((load / capacity[arc] for arc, load in loads.items()), default=0.0)


@given(networks(most=6), st.integers(0, 2**32), st.integers(1, 4))
def test_after_every_failure_all_receivers_get_everything_within_the_capacities(
    network: FlowNetwork, seed: int, flows: int
) -> None:
    plan = fit_plan(network, workload(network, np.random.Generator(np.random.PCG64(seed)), flows), 0.9)
    assert check_plan(plan, network) == []
    links = [(link.a, link.b) for link in network.overlay.links]
    highest = [simulate_by_hand(plan, failed) for failed in links]
    assert max(highest) == pytest.approx(plan.head.highest_load_failed, rel=1e-5)
    told = dict(
        zip(
            zip(plan.failures["a"].tolist(), plan.failures["b"].tolist(), strict=True),
            plan.failures["highest_load"],
            strict=True,
        )
    )
    assert [told[each] for each in links] == pytest.approx(highest, rel=1e-5, abs=1e-9)


@given(networks(most=6), st.integers(0, 2**32), st.integers(1, 4))
def test_no_choice_of_the_candidate_routes_is_better_after_the_worst_failure(
    network: FlowNetwork, seed: int, flows: int
) -> None:
    """Plan each failure anew, on a network that never had the link."""
    made = workload(network, np.random.Generator(np.random.PCG64(seed)), flows)
    plan = fit_plan(network, made, 0.9)
    best = 0.0
    for link in network.overlay.links:
        rest = [each for each in network.overlay.links if each is not link]
        kept = {(each.a, each.b) for each in rest}
        if not kept:
            continue
        left = FlowNetwork(Overlay(network.peers, rest), link=Rate(10.0))
        whose = np.repeat(np.arange(len(made)), np.diff(made.ptr))
        sides = [reachable(kept, int(p)) for p in made.publisher]
        keep = np.array([r in sides[f] for f, r in zip(whose.tolist(), made.receivers.tolist(), strict=True)])
        some = np.unique(whose[keep])
        if len(some):
            ptr = np.concatenate(([0], np.cumsum(np.bincount(whose[keep], minlength=len(made))[some]))).astype(np.int64)
            part = FlowWorkload(
                made.publisher[some], ptr, made.receivers[keep], made.demand[:, some], made.weight[some]
            )
            graphs = make_delivery_graphs(left, part, K, find_ranking("bottleneck-disjoint"))
            best = max(best, balance(make_problem(left, part, graphs)).y)
    assert plan.head.highest_load_failed == pytest.approx(best, rel=1e-5, abs=1e-9)


@given(networks(most=5), st.integers(0, 2**32), st.integers(1, 3))
def test_brute_force_over_all_paths_is_a_bound_and_never_far(network: FlowNetwork, seed: int, flows: int) -> None:
    """For flows with one receiver: a linear program over all simple paths, for each failure."""
    rng = np.random.Generator(np.random.PCG64(seed))
    made = workload(network, rng, flows)
    single = FlowWorkload(
        made.publisher, np.arange(len(made) + 1), made.receivers[made.ptr[:-1]], made.demand, made.weight
    )
    plan = fit_plan(network, single, 0.9)
    capacity = {
        (a, b): float(min(network.arc_capacity[:, network.graph.arc(a, b)]))
        for link in network.overlay.links
        for a, b in ((link.a, link.b), (link.b, link.a))
    }
    worst = 0.0
    for link in network.overlay.links:
        arcs = {arc for arc in capacity if arc not in ((link.a, link.b), (link.b, link.a))}
        worst = max(worst, best_split(single, arcs, capacity))
    assert worst <= plan.head.highest_load_failed * (1 + 1e-6) + 1e-9
    assert plan.head.highest_load_failed <= 2 * worst + 1e-9


def best_split(flows: FlowWorkload, arcs: set[Pair], capacity: dict[Pair, float]) -> float:
    columns = []
    for flow in range(len(flows)):
        for path in simple_paths(arcs, int(flows.publisher[flow]), int(flows.receivers[flow])):
            columns.append((flow, path))
    if not columns:
        return 0.0
    rows = sorted(arcs)
    loads = np.zeros((len(rows), len(columns) + 1))
    shares = np.zeros((len(flows), len(columns) + 1))
    for place, (flow, path) in enumerate(columns):
        shares[flow, place] = 1.0
        for arc in pairwise(path):
            loads[rows.index(arc), place] = flows.demand[0, flow] / capacity[arc]
    loads[:, -1] = -1.0
    routed = shares.any(axis=1)
    cost = np.append(np.zeros(len(columns)), 1.0)
    found = linprog(cost, A_ub=loads, b_ub=np.zeros(len(rows)), A_eq=shares[routed], b_eq=np.ones(routed.sum()))
    assert found.success
    return float(found.fun)


def simple_paths(arcs: set[Pair], start: int, end: int) -> list[tuple[int, ...]]:
    done, open_ = [], [(start,)]
    while open_:
        path = open_.pop()
        if path[-1] == end:
            done.append(path)
            continue
        open_ += [(*path, b) for a, b in arcs if a == path[-1] and b not in path]
    return done


@given(networks(most=6), st.integers(0, 2**32), st.integers(1, 4))
def test_routes_do_not_depend_on_the_memory_for_problems(network: FlowNetwork, seed: int, flows: int) -> None:
    made = workload(network, np.random.Generator(np.random.PCG64(seed)), flows)
    made.demand = made.demand / 1000
    plans = []
    for room in (failure_routes.MAX_HELD_BYTES, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failure_routes, "MAX_HELD_BYTES", room)
            plans.append(make_plan(network, made, parse_goal("min-usage"), K, survive=1))
    assert plans[0].id == plans[1].id and plans[0].content_hash == plans[1].content_hash


# ---------------------------------------------------------------- examples


def test_a_value_that_is_reached_only_within_the_tolerance_of_the_solver_can_be_held() -> None:
    """Two flows to peer 2, at a load at which exact arithmetic cannot repeat the usage of the first stage."""
    links = [(0, 2, 1, 20.0), (0, 3, 3, 20.0), (0, 4, 3, 10.0), (1, 2, 2, 20.0), (1, 3, 2, 30.0), (2, 3, 1, 10.0),
             (3, 4, 1, 10.0)]  # fmt: skip
    network = FlowNetwork(overlay(5, links))
    made = make_workload([Flow(4, [2], 3.0, 100, weight=3.0), Flow(1, [2], 2.0, 100)], network.names)
    plan = fit_plan(network, made, 0.9)
    assert check_plan(plan, network) == [] and plan.head.highest_load_failed == pytest.approx(0.9)


def test_an_overload_after_a_failure_is_refused_by_name() -> None:
    ring = FlowNetwork(overlay(3, [(0, 1, 1, 10.0), (1, 2, 1, 10.0), (0, 2, 1, 10.0)]))
    flows = FlowWorkload(
        np.array([0, 1], dtype=np.int32), np.array([0, 1, 2]), np.array([2, 2], dtype=np.int32),
        np.array([[6.0, 6.0], [0.0, 0.0]]), np.ones(2),
    )  # fmt: skip
    assert make_plan(ring, flows, BALANCE, K).head.highest_load == pytest.approx(0.6)
    sentence = "does not survive the failure of link 1-2 with k = 4: at best, link 0 -> 2 would carry 12 msg/s"
    with pytest.raises(ConfigError, match=sentence):
        make_plan(ring, flows, BALANCE, K, survive=1)
    for wrong in ({"survive": 2}, {"survive": 1, "partial": True}):
        with pytest.raises(ConfigError):
            make_plan(ring, flows, BALANCE, K, **wrong)  # type: ignore[arg-type]


def test_a_bridge_cuts_receivers_off_and_the_plan_says_so(tmp_path: Path) -> None:
    line = FlowNetwork(overlay(4, [(0, 1, 1, 10.0), (1, 2, 1, 10.0), (0, 2, 1, 10.0), (2, 3, 1, 10.0)]))
    flows = FlowWorkload(
        np.array([0], dtype=np.int32), np.array([0, 2]), np.array([1, 3], dtype=np.int32),
        np.array([[5.0], [0.0]]), np.ones(1),
    )  # fmt: skip
    plan = make_plan(line, flows, BALANCE, K, survive=1)
    assert check_plan(plan, line) == []
    assert plan.failures["cut"].tolist() == [0, 0, 0, 1]
    plan.write(tmp_path / "plan")
    again = read_plan(tmp_path / "plan")
    assert again.id == plan.id and again.published_flows(0) == plan.published_flows(0)
    assert {edge[:2] for edge in again.published_flows(0)[0].backups} >= {(2, 3)}


def test_a_plan_whose_failures_are_wrong_is_found_out() -> None:
    ring = FlowNetwork(overlay(4, [(0, 1, 1, 10.0), (1, 2, 1, 10.0), (2, 3, 1, 10.0), (0, 3, 1, 10.0)]))
    flows = draw_workload(4, 4, popularity=0.5, seed=1, publishers=0.5)

    def broken(table: str, column: str, change: float) -> list[str]:
        plan = make_plan(ring, flows, BALANCE, K, survive=1)
        values = plan.tables[table][column]
        plan.tables[table][column] = (values + change).astype(values.dtype)
        return check_plan(plan)

    assert check_plan(make_plan(ring, flows, BALANCE, K, survive=1)) == []
    for table, column, change in (
        ("failures", "highest_load", 0.1), ("failures", "a", 1), ("backups", "share", 0.1), ("backups", "graph", 1),
        ("backups", "failure", 1), ("backups", "failure", 99),
    ):  # fmt: skip
        assert broken(table, column, change), f"{table}.{column}"


# ---------------------------------------------------------------- real maps, failure by failure


@pytest.mark.parametrize("name", [MAPS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in MAPS[1:])])
def test_no_single_failure_of_a_real_map_drops_an_event(name: str, tmp_path: Path) -> None:
    survivor = SurvivablePlan(name, tmp_path)
    assert check_plan(survivor.plan, survivor.network) == [] and not survivor.plan.failures["cut"].any()
    assert survivor.plan.head.highest_load_failed == pytest.approx(LOAD, rel=1e-5)
    assert survivor.plan.head.highest_load < 0.7
    for link in range(len(survivor.overlay.links)):
        outcome = survivor.run(link)
        assert outcome.summary.delivery == 1.0 and not outcome.summary.drops, survivor.overlay.links[link]


def test_without_failover_the_same_failures_drop_events(tmp_path: Path) -> None:
    survivor = SurvivablePlan(MAPS[0], tmp_path, "planned")
    assert any(survivor.run(link).summary.drops for link in range(3))
