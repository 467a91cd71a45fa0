"""Partial plans: if a workload does not fit, the most valuable part of it that does.

A delivered message is worth its flow's weight. A subtree of a delivery graph, from the publisher on, serves some of the
receivers, so a slow receiver does not delay the others. There are far too many subtrees to list, so column generation
finds them: given the prices (dual values) of the binding rows, one pass over each tree from its leaves finds the
subtree whose value exceeds its price by most. When every subtree costs at least its value, the linear program is
optimal over all of them.

With thousands of flows that would take long, because the program's first prices jump. So multiplicative weights come
first: the price of a row rises while its demand exceeds its capacity and falls otherwise. Every round also proves an
upper bound. The linear program starts from the subtrees at the best prices, looks for more near these prices, and stops
within `ROUGH` of the bound. Most flows then have a single subtree and need no row. If only the lost value is wanted and
not the plan, the bound is enough (`undelivered_at_least`).

With the first graph of each flow and equal weights this is the thesis's number of undelivered messages (section 3.6.3),
which drops messages such that the total loss is least.
"""

from itertools import pairwise
from typing import NamedTuple

import highspy
import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.planning.arrays import Floats, Ints, Longs, run_numbers, run_offsets
from wend.planning.candidate_paths import grow_array
from wend.planning.delivery_graphs import DeliveryGraphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import MESSAGES, FlowWorkload
from wend.planning.models import DUST
from wend.planning.problem import charged_rows, make_capacity_rows, make_problem
from wend.planning.solver import LinearProgram

GAP, ROUGH = 1e-7, 1e-3
"""The accepted gap to the proven bound, as a share of the highest possible value: with few flows, and with many."""
MANY = 400
"""With more flows than this, multiplicative weights come first."""
ROUNDS = 240
"""The rounds of multiplicative weights."""
TRUST = (0.9, 0.7, 0.4, 0.0)
"""Weights of the best known prices against the program's duals in the search for subtrees, tried in this order."""
LEAST = 1e-12
"""The least value of a column beyond its price, as a share of the highest possible value."""
EAGER = 0.7
"""The relative change of a price in the first round if its row has twice the load that fits."""

Subtrees = tuple[Ints, Longs, Ints, Ints, Floats]
"""Several subtrees: their flows, the offsets of their arcs, the arcs, the levels and the values."""


class PartialSolution(NamedTuple):
    """The subtrees in use. The shares of a flow sum to at most one."""

    graphs: DeliveryGraphs
    shares: Floats
    value: float
    """Weighted deliveries per second."""
    whole: float
    """The value if everything fitted."""
    bound: float
    """An upper bound of the value of any partial plan."""


def find_most_valuable(network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs) -> PartialSolution:
    return _Generator(network, workload, graphs).run()


def count_undelivered(network: FlowNetwork, workload: FlowWorkload, first: DeliveryGraphs) -> tuple[float, float]:
    """The deliveries per second that single paths drop at least, and the total.

    `first` has one graph for each flow."""
    part = find_most_valuable(network, _weigh_equally(workload), first)
    return part.whole - part.value, part.whole


def undelivered_at_least(network: FlowNetwork, workload: FlowWorkload, first: DeliveryGraphs) -> tuple[float, float]:
    """A lower bound of `undelivered`, from prices alone. It is near, and fast with many flows."""
    generator = _Generator(network, _weigh_equally(workload), first)
    _, bound = generator.multiplicative_weights()
    return max(generator.whole - bound * generator.scale, 0.0), generator.whole


def _weigh_equally(workload: FlowWorkload) -> FlowWorkload:
    """The same flows with equal weights."""
    ones = np.ones(len(workload))
    return FlowWorkload(workload.publisher, workload.ptr, workload.receivers, workload.demand, ones, workload.deadline)


class _Generator:
    """The linear program over subtrees, to which `run` adds columns until no subtree is worth its price."""

    def __init__(self, network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs) -> None:
        self.network, self.workload, self.graphs = network, workload, graphs
        self.rows = make_capacity_rows(network)
        self.charged = charged_rows(network)
        self.worth = workload.weight * workload.demand[MESSAGES]
        self.whole = float(np.diff(workload.ptr) @ self.worth)
        self.scale = self._upper_bound() or 1.0
        """The solver's tolerances are absolute. In this unit the best value is about 1."""
        self.model = LinearProgram()
        self.pieces: list[Subtrees] = []
        """The columns, in their order."""
        self.sizes: list[Floats] = []
        """For each column its demand divided by the tightest capacity on it, at least 1. It is the unit of the column:
        else a rounding error of the solver could exceed a whole capacity."""
        self.column = np.full(len(workload), -1, dtype=np.int32)
        """The last column of each flow. `row` is its row, once it has two columns."""
        self.row = np.full(len(workload), -1, dtype=np.int32)

    def run(self) -> PartialSolution:
        if not self.whole:
            raise ConfigError("every flow has a weight of 0, so every part of the workload has the same value")
        flows, rows = len(self.workload), len(self.rows.capacity)
        free = highspy.kHighsInf
        self.model.load(
            cost=np.zeros(0),
            lower=np.zeros(0),
            upper=np.zeros(0),
            row_lower=np.full(rows, -free),
            row_upper=np.ones(rows),
            ptr=np.zeros(1, dtype=np.int32),
            index=np.zeros(0, dtype=np.int32),
            value=np.zeros(0),
        )
        many = flows > MANY
        best, bound = self.multiplicative_weights() if many else (np.zeros(rows), np.inf)
        piece = self._select_better(self._price_subtrees(best)[1], np.zeros(flows), best)
        self._add_columns(piece if len(piece[0]) else self._price_subtrees(np.zeros(rows))[1])
        while True:
            answer = self.model.solve()
            assert answer is not None, "sending nothing is always feasible"
            reached = -answer.objective
            # A dual slightly below zero would pay a flow for hops that reach no receiver.
            duals = np.maximum(-answer.row_duals[:rows], 0.0)
            rents = self._rents(duals)
            # Prices between the best known ones and the duals: near the former, fewer and more useful subtrees qualify.
            for trust in TRUST if many else (0.0,):
                prices = trust * best + (1 - trust) * duals
                worth, piece = self._price_subtrees(prices)
                total = float(worth.sum() + prices.sum())
                if total < bound:
                    best, bound = prices, total
                piece = self._select_better(piece, rents, duals)
                if len(piece[0]):
                    break
            if not len(piece[0]) or bound - reached <= (ROUGH if many else GAP):
                return self._solution(answer.values, bound)
            self._add_columns(piece)

    def _upper_bound(self) -> float:
        """An upper bound: the value if every receiver had its widest path for itself."""
        w, g = self.workload, self.graphs
        return float(_widest_path_shares(
            w.publisher, w.ptr, w.receivers, w.demand, g.of_flow, g.ptr, g.arcs, self.network.graph.tail,
            self.network.graph.head, self.charged, self.rows.unit, self.rows.capacity, self.network.peers,
        ) @ self.worth)  # fmt: skip

    def multiplicative_weights(self) -> tuple[Floats, float]:
        """Prices near the best ones, and the bound that they prove."""
        rows = len(self.rows.capacity)
        contested = np.zeros(rows, dtype=bool)
        prices = np.zeros(rows)
        best, bound = prices, np.inf
        for number in range(ROUNDS):
            worth, piece = self._price_subtrees(prices)
            total = float(worth.sum() + prices.sum())
            if total < bound:
                best, bound = prices, total
            loads, _ = self._charges(piece, prices)
            # A row gets a price when its demand first exceeds its capacity.
            anew = ~contested & (loads > 1)
            contested |= anew
            prices = np.where(anew, 0.5 / rows, prices)
            step = np.clip(EAGER / np.sqrt(number + 1) * (loads - 1), -1, 1)
            prices = np.where(contested, np.maximum(prices, GAP / rows) * np.exp(step), 0.0)
        return best, bound

    def _price_subtrees(self, prices: Floats) -> tuple[Floats, Subtrees]:
        """For each flow the value of its best subtree beyond its price, and these subtrees."""
        w, g = self.workload, self.graphs
        worth, flow, ptr, arcs, levels, gains = _best_subtrees(
            w.publisher, w.ptr, w.receivers, w.demand, self.worth / self.scale, g.of_flow, g.ptr, g.arcs, g.level,
            self.network.graph.tail, self.network.graph.head, self.charged, self.rows.unit,
            prices / self.rows.capacity,
        )  # fmt: skip
        return worth, (flow, ptr, arcs, levels, gains)

    def _net_values(self, piece: Subtrees, prices: Floats) -> Floats:
        """The value of each subtree beyond its price."""
        return piece[-1] - self._charges(piece, prices)[1]

    def _charges(self, piece: Subtrees, prices: Floats) -> tuple[Floats, Floats]:
        """The utilisation of each row by the subtrees, and the price of each subtree."""
        flow, ptr, arcs, *_ = piece
        capacity = self.rows.capacity
        loads, costs = _charge_subtrees(
            flow, ptr, arcs, self.workload.demand, self.charged, self.rows.unit, prices / capacity
        )
        return loads / capacity, costs

    def _rents(self, prices: Floats) -> Floats:
        """For each flow the highest value of a column beyond its price."""
        rents = np.zeros(len(self.workload))
        for piece in self.pieces:
            np.maximum.at(rents, piece[0], self._net_values(piece, prices))
        return rents

    def _select_better(self, piece: Subtrees, rents: Floats, prices: Floats) -> Subtrees:
        """The subtrees that are better than all columns of their flows."""
        flow, ptr, arcs, levels, gains = piece
        keep = np.flatnonzero(self._net_values(piece, prices) > rents[flow] + LEAST)
        spans = [arcs[ptr[c] : ptr[c + 1]] for c in keep]
        starts = run_offsets(np.diff(ptr)[keep])
        return flow[keep], starts, np.concatenate([*spans, arcs[:0]]), levels[keep], gains[keep]

    def _add_columns(self, piece: Subtrees) -> None:
        """Add columns, and rows for the flows that now have two. With one column, its upper bound is enough."""
        flow, ptr, arcs, _, gains = piece
        before = sum(len(each[0]) for each in self.pieces)
        self.pieces.append(piece)
        starts, index, value, sizes = _subtree_columns(
            flow, ptr, arcs, self.workload.demand, self.charged, self.rows.unit, self.rows.capacity, self.row
        )
        self.sizes.append(sizes)
        self.model.add(-gains / sizes, starts, index, value, upper=sizes)
        second = flow[(self.column[flow] >= 0) & (self.row[flow] < 0)]
        self.row[second] = self.model.row_count + np.arange(len(second), dtype=np.int32)
        numbers = before + np.arange(len(flow), dtype=np.int32)
        both = np.column_stack([self.column[second], numbers[np.isin(flow, second)]]).ravel()
        units = 1 / np.concatenate(self.sizes)[both]
        self.model.add_rows(np.ones(len(second)), 2 * np.arange(len(second), dtype=np.int32), both, units)
        self.column[flow] = numbers

    def _solution(self, values: Floats, bound: float) -> PartialSolution:
        flow = np.concatenate([np.zeros(0, dtype=np.int32), *(piece[0] for piece in self.pieces)])
        chosen = np.flatnonzero(values > DUST)
        chosen = chosen[np.argsort(flow[chosen], kind="stable")]
        spans = [(piece[2][a:b]) for piece in self.pieces for a, b in pairwise(piece[1])]
        levels = np.concatenate([np.zeros(0, dtype=np.int32), *(piece[3] for piece in self.pieces)])
        gains = np.concatenate([np.zeros(0), *(piece[4] for piece in self.pieces)])
        used = [spans[c] for c in chosen]
        graphs = DeliveryGraphs(
            np.searchsorted(flow[chosen], np.arange(len(self.workload) + 1)).astype(np.int64),
            run_offsets([len(arcs) for arcs in used]),
            np.concatenate([np.zeros(0, dtype=np.int32), *used]),
            levels[chosen],
        )
        shares = self._scale_down(values[chosen] / np.concatenate(self.sizes)[chosen], graphs)
        value = float(shares @ gains[chosen]) * self.scale
        return PartialSolution(graphs, shares, value, self.whole, bound * self.scale)

    def _scale_down(self, shares: Floats, graphs: DeliveryGraphs) -> Floats:
        """Shares scaled down if the solver's rounding exceeds a flow or a capacity."""
        problem = make_problem(self.network, self.workload, graphs)
        flow = run_numbers(graphs.of_flow)
        sums = np.bincount(flow, weights=shares, minlength=len(self.workload))
        shares = shares / np.maximum(sums, 1.0)[flow]
        over = np.ones(len(shares))
        whose = run_numbers(problem.ptr)
        np.maximum.at(over, whose, (problem.loads(shares) / problem.capacity)[problem.rows])
        return shares / over


@compiled
def _value_nodes(
    f: int, begin: int, end: int, publisher: int, arcs: Ints, tail: Ints, head: Ints, wants: Ints, worth: float,
    demand: Floats, charged: Ints, unit: Ints, prices: Floats, below: Floats, net: Floats,
) -> float:  # fmt: skip
    """Compute for each node of a graph, `arcs[begin:end]`, what the best subtree from it on is worth beyond its price
    (`net`). Returns that of the best subtree from the publisher on. `below` is 0 before and after."""
    for j in range(end - 1, begin - 1, -1):
        here = head[arcs[j]]
        total = below[here] + (worth if wants[here] == f else 0.0)
        for kind in range(len(charged)):
            row = charged[kind, arcs[j]]
            if row >= 0:
                total -= prices[row] * demand[unit[row], f]
        below[here] = 0.0
        net[here] = total
        if total > 0:
            below[tail[arcs[j]]] += total
    best = float(below[publisher])
    below[publisher] = 0.0
    return best


@compiled
def _best_subtrees(
    publisher: Ints, receiver_ptr: Longs, receivers: Ints, demand: Floats, worth: Floats,
    of_flow: Longs, ptr: Longs, arcs: Ints, level: Ints, tail: Ints, head: Ints, charged: Ints, unit: Ints,
    prices: Floats,
) -> tuple[Floats, Ints, Longs, Ints, Ints, Floats]:  # fmt: skip
    flows = len(publisher)
    peers = np.max(head) + 1
    best_of = np.zeros(flows)
    flow = np.empty(flows, dtype=np.int32)
    starts = np.zeros(flows + 1, dtype=np.int64)
    levels = np.empty(flows, dtype=np.int32)
    gains = np.empty(flows)
    out = np.empty(1024, dtype=np.int32)
    wants = np.full(peers, -1, dtype=np.int32)
    below = np.zeros(peers)
    inside = np.full(peers, -1, dtype=np.int32)
    net = np.zeros(peers)
    used, count = 0, 0
    for f in range(flows):
        source = publisher[f]
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            wants[receivers[j]] = f
        best, best_graph = 0.0, -1
        for g in range(of_flow[f], of_flow[f + 1]):
            total = _value_nodes(
                f, ptr[g], ptr[g + 1], source, arcs, tail, head, wants, worth[f], demand, charged, unit, prices, below,
                net,
            )  # fmt: skip
            if total > best:
                best, best_graph = total, g
        best_of[f] = best
        if best_graph < 0:
            continue
        begin, end = ptr[best_graph], ptr[best_graph + 1]
        _value_nodes(
            f, begin, end, source, arcs, tail, head, wants, worth[f], demand, charged, unit, prices, below, net
        )
        out = grow_array(out, used, peers)
        inside[source] = f
        gain = 0.0
        for j in range(begin, end):
            here = head[arcs[j]]
            if inside[tail[arcs[j]]] == f and net[here] > 0:
                inside[here] = f
                out[used] = arcs[j]
                used += 1
                if wants[here] == f:
                    gain += worth[f]
        flow[count] = f
        levels[count] = level[best_graph]
        gains[count] = gain
        count += 1
        starts[count] = used
    return (
        best_of, flow[:count].copy(), starts[: count + 1].copy(), out[:used].copy(), levels[:count].copy(),
        gains[:count].copy(),
    )  # fmt: skip


@compiled
def _charge_subtrees(
    flow: Ints, ptr: Longs, arcs: Ints, demand: Floats, charged: Ints, unit: Ints, prices: Floats
) -> tuple[Floats, Floats]:
    """The load of all subtrees on each row, and the price of each subtree."""
    loads = np.zeros(len(prices))
    costs = np.zeros(len(flow))
    for c in range(len(flow)):
        for j in range(ptr[c], ptr[c + 1]):
            for kind in range(len(charged)):
                row = charged[kind, arcs[j]]
                if row >= 0:
                    loads[row] += demand[unit[row], flow[c]]
                    costs[c] += prices[row] * demand[unit[row], flow[c]]
    return loads, costs


@compiled
def _subtree_columns(
    flow: Ints, ptr: Longs, arcs: Ints, demand: Floats, charged: Ints, unit: Ints, capacity: Floats, own: Ints
) -> tuple[Ints, Ints, Floats, Floats]:
    """The columns of subtrees, in units of their sizes, and the sizes."""
    starts = np.zeros(len(flow) + 1, dtype=np.int32)
    index = np.empty(len(flow) + len(arcs) * len(charged), dtype=np.int32)
    value = np.empty(len(index))
    sizes = np.ones(len(flow))
    used = 0
    for c in range(len(flow)):
        if own[flow[c]] >= 0:
            index[used] = own[flow[c]]
            value[used] = 1.0
            used += 1
        for j in range(ptr[c], ptr[c + 1]):
            for kind in range(len(charged)):
                row = charged[kind, arcs[j]]
                if row >= 0:
                    index[used] = row
                    value[used] = demand[unit[row], flow[c]] / capacity[row]
                    sizes[c] = max(sizes[c], value[used])
                    used += 1
        for at in range(starts[c], used):
            value[at] /= sizes[c]
        starts[c + 1] = used
    return starts, index[:used].copy(), value[:used].copy(), sizes


@compiled
def _widest_path_shares(
    publisher: Ints, receiver_ptr: Longs, receivers: Ints, demand: Floats, of_flow: Longs, ptr: Longs, arcs: Ints,
    tail: Ints, head: Ints, charged: Ints, unit: Ints, capacity: Floats, peers: int,
) -> Floats:  # fmt: skip
    """For each flow the sum over its receivers of the share of the flow that fits on the receiver's widest path."""
    totals = np.zeros(len(publisher))
    width = np.zeros(peers)
    widest = np.zeros(peers)
    for f in range(len(publisher)):
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            widest[receivers[j]] = 0.0
        width[publisher[f]] = 1.0
        for g in range(of_flow[f], of_flow[f + 1]):
            for j in range(ptr[g], ptr[g + 1]):
                here = width[tail[arcs[j]]]
                for kind in range(len(charged)):
                    row = charged[kind, arcs[j]]
                    if row >= 0 and here * demand[unit[row], f] > capacity[row]:
                        here = capacity[row] / demand[unit[row], f]
                width[head[arcs[j]]] = here
                widest[head[arcs[j]]] = max(widest[head[arcs[j]]], here)
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            totals[f] += widest[receivers[j]]
    return totals
