"""Candidate graphs for the prices of links and peers, beyond unions of the k-th paths to all receivers.

A union takes detours to all receivers of a flow or to none. If both deadlines and loads matter, that is too coarse: a
good graph is short to the receivers that are in a hurry and avoids full links for the others. So the linear program is
solved, and its dual values price the capacities. For each flow, trees are grown at these prices. Those that are cheaper
than all graphs of the flow become candidates, and the program is solved again.

A tree grows by the cheapest path to its nearest receiver, until it has all (the heuristic of Takahashi and Matsuyama
for Steiner trees). Arcs in the tree cost nothing. The cost of a further arc is its price and a weight times its delay;
each weight of `WEIGHTS` gives a tree, from cheap to short.
"""

import numpy as np

from wend.model.compiled import compiled
from wend.planning.arrays import TOLERANCE, Flags, Floats, Ints, Longs, run_numbers, run_offsets
from wend.planning.candidate_paths import grow_array
from wend.planning.delivery_graphs import DeliveryGraphs, select_graphs, unite_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload
from wend.planning.graph_delays import compute_arc_times, fill_times, message_bits, receiver_limits
from wend.planning.master_problem import optimise, price_graphs
from wend.planning.problem import Objective, Problem, charged_rows, make_problem
from wend.topology.heap import pop, push

ROUNDS = 20
"""The most rounds of pricing and growing."""
WEIGHTS = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
"""The cost of a delay as long as the flow's mean deadline, in late receivers."""


def add_priced_trees(
    network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs, objective: Objective, limit: float
) -> DeliveryGraphs:
    """Add trees until none lowers the objective with all loads at most at `limit`, as far as the search can see."""
    limits = receiver_limits(network, workload)
    if limits is None:
        return graphs
    delay_costs = _compute_delay_costs(workload, limits)
    for _ in range(ROUNDS):
        problem = make_problem(network, workload, graphs)
        solution = optimise(problem, (objective,), limit=limit)
        if solution is None:
            break
        least = np.minimum.reduceat(_compute_costs(problem, objective, solution.prices), graphs.of_flow[:-1])
        trees = _grow_trees(network, workload, delay_costs, _compute_arc_prices(network, problem, solution.prices))
        costs = _compute_costs(make_problem(network, workload, trees), objective, solution.prices)
        whose = run_numbers(trees.of_flow)
        cheaper = np.flatnonzero(costs < least[whose] - TOLERANCE * np.abs(least).max())
        if not len(cheaper):
            break
        graphs = unite_graphs(graphs, select_graphs(trees, cheaper))
    return graphs


def _compute_delay_costs(workload: FlowWorkload, limits: Floats) -> Floats:
    """For each flow the cost of one late receiver for each mean deadline of delay; 0 without deadlines."""
    has_limit = np.isfinite(limits)
    whose = run_numbers(workload.ptr)
    flows = len(workload)
    counts = np.bincount(whose[has_limit], minlength=flows)
    sums = np.bincount(whose[has_limit], weights=limits[has_limit], minlength=flows)
    late = workload.weight * workload.demand[0]
    return np.asarray(np.divide(late * counts, sums, out=np.zeros(flows), where=sums > 0), dtype=np.float64)


def _compute_costs(problem: Problem, objective: Objective, prices: Floats) -> Floats:
    """The cost of each graph, with the prices of the rows that it loads."""
    return price_graphs(
        problem.of_flow, problem.ptr, problem.rows, problem.demand, problem.unit, prices, problem.costs(objective)
    )


def _compute_arc_prices(network: FlowNetwork, problem: Problem, prices: Floats) -> Floats:
    """By unit: what a unit of load on each arc costs."""
    totals = np.zeros((2, len(network.graph.head)))
    for rows in charged_rows(network):
        arcs = np.flatnonzero(rows >= 0)
        np.add.at(totals, (problem.unit[rows[arcs]], arcs), np.maximum(prices[rows[arcs]], 0.0))
    return totals


def _grow_trees(
    network: FlowNetwork, workload: FlowWorkload, delay_costs: Floats, arc_prices: Floats
) -> DeliveryGraphs:
    """A tree of each flow for each weight."""
    graph = network.graph
    lengths, arcs = _grow_all(
        graph.ptr, graph.tail, graph.head, workload.publisher, workload.ptr, workload.receivers, workload.demand,
        *compute_arc_times(network), message_bits(workload), delay_costs, arc_prices, WEIGHTS,
    )  # fmt: skip
    sizes = np.full(len(workload), len(WEIGHTS))
    return DeliveryGraphs(run_offsets(sizes), run_offsets(lengths), arcs, np.ones(len(lengths), dtype=np.int32))


@compiled
def _grow_all(
    ptr: Ints, tail: Ints, head: Ints, publisher: Ints, receiver_ptr: Longs, receivers: Ints, demand: Floats,
    travel: Floats, link: Floats, peer: Floats, bits: Floats, delay_costs: Floats, prices: Floats, weights: Floats,
) -> tuple[Ints, Ints]:  # fmt: skip
    peers = len(ptr) - 1
    lengths = np.zeros(len(publisher) * len(weights), dtype=np.int32)
    arcs = np.empty(16 * len(lengths) + peers, dtype=np.int32)
    used, count = 0, 0
    times, costs = np.zeros(len(head)), np.zeros(len(head))
    is_wanted = np.zeros(peers, dtype=np.bool_)
    in_tree, arrival, distance = np.zeros(peers, dtype=np.bool_), np.zeros(peers), np.zeros(peers)
    into = np.zeros(peers, dtype=np.int32)
    for f in range(len(publisher)):
        fill_times(travel, link, peer, bits[f], times)
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            is_wanted[receivers[j]] = True
        for weight in weights:
            per_second = weight * delay_costs[f]
            for arc in range(len(head)):
                costs[arc] = prices[0, arc] * demand[0, f] + prices[1, arc] * demand[1, f] + per_second * times[arc]
            arcs = grow_array(arcs, used, peers)
            start = used
            left = int(receiver_ptr[f + 1] - receiver_ptr[f])
            used = _grow_tree(
                ptr, tail, head, publisher[f], left, is_wanted, costs, times, per_second, in_tree, arrival, distance,
                into, arcs, used,
            )  # fmt: skip
            lengths[count] = used - start
            count += 1
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            is_wanted[receivers[j]] = False
    return lengths, arcs[:used].copy()


@compiled
def _grow_tree(
    ptr: Ints, tail: Ints, head: Ints, publisher: int, left: int, is_wanted: Flags, costs: Floats, times: Floats,
    per_second: float, in_tree: Flags, arrival: Floats, distance: Floats, into: Ints, arcs: Ints, used: int,
) -> int:  # fmt: skip
    """Append one tree to `arcs`, each arc after its predecessor. Returns the number of arcs in use. Dijkstra's
    algorithm goes on when a path has joined the tree, from the peers on it."""
    for node in range(len(distance)):
        distance[node] = np.inf
        in_tree[node] = False
    in_tree[publisher] = True
    arrival[publisher] = 0.0
    distance[publisher] = 0.0
    keys = np.empty(len(head) + 16)
    nodes = np.empty(len(head) + 16, dtype=np.int32)
    size = push(keys, nodes, np.int64(0), 0.0, np.int32(publisher))
    while size and left:
        so_far, here = keys[0], nodes[0]
        size = pop(keys, nodes, size)
        if so_far > distance[here]:
            continue
        if is_wanted[here] and not in_tree[here]:
            end = _append_path(tail, head, here, times, per_second, in_tree, arrival, distance, into, arcs, used)
            for i in range(used, end):
                node = head[arcs[i]]
                left -= is_wanted[node]
                keys, nodes = _make_entry(keys, nodes, size)
                size = push(keys, nodes, size, distance[node], node)
            used = end
            continue
        for arc in range(ptr[here], ptr[here + 1]):
            there = head[arc]
            total = distance[here] + costs[arc]
            if not in_tree[there] and total < distance[there]:
                distance[there] = total
                into[there] = arc
                keys, nodes = _make_entry(keys, nodes, size)
                size = push(keys, nodes, size, total, there)
    return used


@compiled
def _append_path(
    tail: Ints, head: Ints, target: int, times: Floats, per_second: float, in_tree: Flags, arrival: Floats,
    distance: Floats, into: Ints, arcs: Ints, used: int,
) -> int:  # fmt: skip
    """Append the path that leads to the target from the tree, and make its peers part of the tree. Returns the number
    of arcs in use."""
    length = 0
    node = target
    while not in_tree[node]:
        length += 1
        node = tail[into[node]]
    node = target
    for i in range(used + length - 1, used - 1, -1):
        arcs[i] = into[node]
        node = tail[into[node]]
    for i in range(used, used + length):
        node = head[arcs[i]]
        in_tree[node] = True
        arrival[node] = arrival[tail[arcs[i]]] + times[arcs[i]]
        distance[node] = per_second * arrival[node]
    return used + length


@compiled
def _make_entry(keys: Floats, nodes: Ints, size: int) -> tuple[Floats, Ints]:
    """A heap with room for one more entry: the same arrays, or larger copies."""
    if size < len(keys):
        return keys, nodes
    more_keys = np.empty(2 * len(keys))
    more_nodes = np.empty(2 * len(keys), dtype=np.int32)
    for i in range(size):
        more_keys[i] = keys[i]
        more_nodes[i] = nodes[i]
    return more_keys, more_nodes
