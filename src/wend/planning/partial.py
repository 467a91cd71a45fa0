"""When not everything fits: the most valuable part that does, and who loses what.

A message is worth its flow's weight to each receiver. A part of a delivery graph that is closed towards the
publisher serves some of the receivers, so a slow receiver need not hold up the others. There are far too many such
parts to list; they are found as they are needed: prices of the rows that bind tell, by one pass over each tree
from its leaves, which part is worth more than it costs. When no part is, the linear program is solved
over all of them.

With thousands of flows that would take long, because the program's first prices are wild. So there the prices come from
a price war first: each row raises its price while it is asked for more than it has and lowers it while it is
not. Every round of it also proves a bound. The linear program starts from what flows take at its end, looks for
more near its prices, and stops within `ROUGH` of the bound. Most flows then have a single part, and need no row.
Where only the amount is wanted and not the plan, the war's bound is enough (`undelivered_at_least`).

With the first graphs alone and equal weights this is the thesis's count of undelivered messages
(section 3.6.3), which drops where it hurts least.
"""

from itertools import pairwise
from typing import NamedTuple

import highspy
import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import ConfigError
from wend.planning.arrays import Floats, Ints, Longs
from wend.planning.graphs import DeliveryGraphs
from wend.planning.models import DUST
from wend.planning.network import FlowNetwork
from wend.planning.problem import charges, problem_of, rows_of
from wend.planning.solver import LinearProgram
from wend.planning.workload import MESSAGES, FlowWorkload

GAP, ROUGH = 1e-7, 1e-3
"""Of what could be had at most: what may be missing to the proven best, with few flows and with many."""
MANY = 400
"""Flows from which a price war pays."""
ROUNDS = 240
"""Of the price war."""
TRUST = (0.9, 0.7, 0.4, 0.0)
"""How much the war's prices count beside the program's when parts are looked for, until some are found."""
LEAST = 1e-12
"""Of what could be had at most: what a part must be worth to become a column."""
EAGER = 0.7
"""How much a price changes in the first round, relatively, for twice the load that fits."""

Piece = tuple[Ints, Longs, Ints, Ints, Floats]
"""Parts of trees: their flows; where each begins; arcs; levels; gains."""


class PartialSolution(NamedTuple):
    """The graphs that are used, with shares of a flow that sum to at most one."""

    graphs: DeliveryGraphs
    shares: Floats
    value: float
    """Weighted deliveries per second."""
    whole: float
    """The same if everything fitted."""
    bound: float
    """No part is worth more than this."""


def most_valuable(network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs) -> PartialSolution:
    return _Generator(network, workload, graphs).run()


def undelivered(network: FlowNetwork, workload: FlowWorkload, first: DeliveryGraphs) -> tuple[float, float]:
    """Deliveries per second that single paths must at least drop, and those that are wanted.

    `first` holds one graph for each flow."""
    part = most_valuable(network, _equal(workload), first)
    return part.whole - part.value, part.whole


def undelivered_at_least(network: FlowNetwork, workload: FlowWorkload, first: DeliveryGraphs) -> tuple[float, float]:
    """The same from below, proven by prices alone: near, and fast where flows are many."""
    generator = _Generator(network, _equal(workload), first)
    _, bound = generator._war()
    return max(generator.whole - bound * generator.scale, 0.0), generator.whole


def _equal(workload: FlowWorkload) -> FlowWorkload:
    """The same flows, none worth more than another."""
    ones = np.ones(len(workload))
    return FlowWorkload(workload.publisher, workload.ptr, workload.receivers, workload.demand, ones)


class _Generator:
    """Columns are parts of trees; more come until the prices say that none would help."""

    def __init__(self, network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs) -> None:
        self.network, self.workload, self.graphs = network, workload, graphs
        self.rows = rows_of(network)
        self.charged = charges(network)
        self.worth = workload.weight * workload.demand[MESSAGES]
        self.whole = float(np.diff(workload.ptr) @ self.worth)
        self.scale = self._most() or 1.0
        """The solver's tolerances are absolute: in units of this the best part is worth about 1."""
        self.model = LinearProgram()
        self.pieces: list[Piece] = []
        """What columns there are, in their order."""
        self.sizes: list[Floats] = []
        """For each of them how often its demand fills what it loads most; at least 1. A column counts in units of
        that: else the solver's trifle of a flow could be more than a whole capacity."""
        self.column = np.full(len(workload), -1, dtype=np.int32)
        """A flow's last column; and its row, once it has two."""
        self.row = np.full(len(workload), -1, dtype=np.int32)

    def run(self) -> PartialSolution:
        if not self.whole:
            raise ConfigError("every flow has a weight of 0, so no part of the workload is worth more than another")
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
        best, bound = self._war() if many else (np.zeros(rows), np.inf)
        piece = self._fresh(self._price(best)[1], np.zeros(flows), best)
        self._add(piece if len(piece[0]) else self._price(np.zeros(rows))[1])
        while True:
            answer = self.model.solve()
            assert answer is not None, "to send nothing is always feasible"
            reached = -answer.objective
            # A trifle below zero would pay a flow for hops that lead to nobody.
            duals = np.maximum(-answer.row_duals[:rows], 0.0)
            rents = self._rents(duals)
            # Between the war's prices and the program's: near the former, flows ask only for what makes a difference.
            for trust in TRUST if many else (0.0,):
                prices = trust * best + (1 - trust) * duals
                worth, piece = self._price(prices)
                total = float(worth.sum() + prices.sum())
                if total < bound:
                    best, bound = prices, total
                piece = self._fresh(piece, rents, duals)
                if len(piece[0]):
                    break
            if not len(piece[0]) or bound - reached <= (ROUGH if many else GAP):
                return self._part(answer.values, bound)
            self._add(piece)

    def _most(self) -> float:
        """No part is worth more than if every receiver had its widest way for itself."""
        w, g = self.workload, self.graphs
        return float(_most_of_each(
            w.publisher, w.ptr, w.receivers, w.demand, g.of_flow, g.ptr, g.arcs, self.network.graph.tail,
            self.network.graph.head, self.charged, self.rows.unit, self.rows.capacity, self.network.peers,
        ) @ self.worth)  # fmt: skip

    def _war(self) -> tuple[Floats, float]:
        """Prices near the best ones, and the bound that they prove."""
        rows = len(self.rows.capacity)
        contested = np.zeros(rows, dtype=bool)
        prices = np.zeros(rows)
        best, bound = prices, np.inf
        for number in range(ROUNDS):
            worth, piece = self._price(prices)
            total = float(worth.sum() + prices.sum())
            if total < bound:
                best, bound = prices, total
            loads, _ = self._charges(piece, prices)
            # A price starts when its row is first asked for too much; together they are worth at most everything.
            anew = ~contested & (loads > 1)
            contested |= anew
            prices = np.where(anew, 0.5 / rows, prices)
            step = np.clip(EAGER / np.sqrt(number + 1) * (loads - 1), -1, 1)
            prices = np.where(contested, np.maximum(prices, GAP / rows) * np.exp(step), 0.0)
        return best, bound

    def _price(self, prices: Floats) -> tuple[Floats, Piece]:
        """What the best part of each flow is worth beyond its prices, and the parts."""
        w, g = self.workload, self.graphs
        worth, flow, ptr, arcs, levels, gains = _best_parts(
            w.publisher, w.ptr, w.receivers, w.demand, self.worth / self.scale, g.of_flow, g.ptr, g.arcs, g.level,
            self.network.graph.tail, self.network.graph.head, self.charged, self.rows.unit,
            prices / self.rows.capacity,
        )  # fmt: skip
        return worth, (flow, ptr, arcs, levels, gains)

    def _net(self, piece: Piece, prices: Floats) -> Floats:
        """What each part is worth beyond its prices."""
        return piece[-1] - self._charges(piece, prices)[1]

    def _charges(self, piece: Piece, prices: Floats) -> tuple[Floats, Floats]:
        """What the parts load each row with, as a share of its capacity, and what each part pays."""
        flow, ptr, arcs, *_ = piece
        capacity = self.rows.capacity
        loads, costs = _charged(flow, ptr, arcs, self.workload.demand, self.charged, self.rows.unit, prices / capacity)
        return loads / capacity, costs

    def _rents(self, prices: Floats) -> Floats:
        """For each flow the most that one of its columns is worth."""
        rents = np.zeros(len(self.workload))
        for piece in self.pieces:
            np.maximum.at(rents, piece[0], self._net(piece, prices))
        return rents

    def _fresh(self, piece: Piece, rents: Floats, prices: Floats) -> Piece:
        """The parts that are worth more than what their flows have."""
        flow, ptr, arcs, levels, gains = piece
        keep = np.flatnonzero(self._net(piece, prices) > rents[flow] + LEAST)
        spans = [arcs[ptr[c] : ptr[c + 1]] for c in keep]
        starts = np.concatenate(([0], np.cumsum(np.diff(ptr)[keep]))).astype(np.int64)
        return flow[keep], starts, np.concatenate([*spans, arcs[:0]]), levels[keep], gains[keep]

    def _add(self, piece: Piece) -> None:
        """Columns; and rows for the flows that have a second one by that: alone, a share needs only its bound."""
        flow, ptr, arcs, _, gains = piece
        before = sum(len(each[0]) for each in self.pieces)
        self.pieces.append(piece)
        starts, index, value, sizes = _part_columns(
            flow, ptr, arcs, self.workload.demand, self.charged, self.rows.unit, self.rows.capacity, self.row
        )
        self.sizes.append(sizes)
        self.model.add(-gains / sizes, starts, index, value, upper=sizes)
        second = flow[(self.column[flow] >= 0) & (self.row[flow] < 0)]
        self.row[second] = self.model.rows + np.arange(len(second), dtype=np.int32)
        numbers = before + np.arange(len(flow), dtype=np.int32)
        both = np.column_stack([self.column[second], numbers[np.isin(flow, second)]]).ravel()
        units = 1 / np.concatenate(self.sizes)[both]
        self.model.add_rows(np.ones(len(second)), 2 * np.arange(len(second), dtype=np.int32), both, units)
        self.column[flow] = numbers

    def _part(self, values: Floats, bound: float) -> PartialSolution:
        flow = np.concatenate([np.zeros(0, dtype=np.int32), *(piece[0] for piece in self.pieces)])
        chosen = np.flatnonzero(values > DUST)
        chosen = chosen[np.argsort(flow[chosen], kind="stable")]
        spans = [(piece[2][a:b]) for piece in self.pieces for a, b in pairwise(piece[1])]
        levels = np.concatenate([np.zeros(0, dtype=np.int32), *(piece[3] for piece in self.pieces)])
        gains = np.concatenate([np.zeros(0), *(piece[4] for piece in self.pieces)])
        taken = [spans[c] for c in chosen]
        graphs = DeliveryGraphs(
            np.searchsorted(flow[chosen], np.arange(len(self.workload) + 1)).astype(np.int64),
            np.concatenate(([0], np.cumsum([len(t) for t in taken]))).astype(np.int64),
            np.concatenate([np.zeros(0, dtype=np.int32), *taken]),
            levels[chosen],
        )
        shares = self._shaved(values[chosen] / np.concatenate(self.sizes)[chosen], graphs)
        value = float(shares @ gains[chosen]) * self.scale
        return PartialSolution(graphs, shares, value, self.whole, bound * self.scale)

    def _shaved(self, shares: Floats, graphs: DeliveryGraphs) -> Floats:
        """Without what the solver's rounding has too much of a flow or of a capacity."""
        asked = problem_of(self.network, self.workload, graphs)
        flow = np.repeat(np.arange(len(self.workload)), np.diff(graphs.of_flow))
        sums = np.bincount(flow, weights=shares, minlength=len(self.workload))
        shares = shares / np.maximum(sums, 1.0)[flow]
        over = np.ones(len(shares))
        whose = np.repeat(np.arange(len(shares)), np.diff(asked.ptr))
        np.maximum.at(over, whose, (asked.loads(shares) / asked.capacity)[asked.rows])
        return shares / over


@compiled
def _best_parts(
    publisher: Ints, receiver_ptr: Longs, receivers: Ints, demand: Floats, worth: Floats,
    of_flow: Longs, ptr: Longs, arcs: Ints, level: Ints, tail: Ints, head: Ints, charged: Ints, unit: Ints,
    prices: Floats,
) -> tuple[Floats, Ints, Longs, Ints, Ints, Floats]:  # fmt: skip
    flows = len(publisher)
    peers = 0
    for arc in range(len(head)):
        peers = max(peers, head[arc] + 1)
    best_of = np.zeros(flows)
    flow = np.empty(flows, dtype=np.int32)
    starts = np.zeros(flows + 1, dtype=np.int64)
    levels = np.empty(flows, dtype=np.int32)
    gains = np.empty(flows)
    out = np.empty(1024, dtype=np.int32)
    wants = np.full(peers, -1, dtype=np.int32)
    below = np.zeros(peers)
    inside = np.full(peers, -1, dtype=np.int32)
    kept = np.zeros(peers)
    used, count = 0, 0
    for f in range(flows):
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            wants[receivers[j]] = f
        best, best_graph = 0.0, -1
        for turn in range(2):
            # First which graph is best, then once more along that one, to write its part down.
            first, last = (of_flow[f], of_flow[f + 1]) if turn == 0 else (best_graph, best_graph + 1)
            if first < 0:
                continue
            for g in range(first, last):
                for j in range(ptr[g + 1] - 1, ptr[g] - 1, -1):
                    here = head[arcs[j]]
                    total = below[here] + (worth[f] if wants[here] == f else 0.0)
                    for kind in range(len(charged)):
                        row = charged[kind, arcs[j]]
                        if row >= 0:
                            total -= prices[row] * demand[unit[row], f]
                    below[here] = 0.0
                    kept[here] = total
                    if total > 0:
                        below[tail[arcs[j]]] += total
                total = below[publisher[f]]
                below[publisher[f]] = 0.0
                if turn == 0 and total > best:
                    best, best_graph = total, g
        best_of[f] = best
        if best_graph < 0:
            continue
        if used + peers > len(out):
            grown = np.empty(2 * len(out) + peers, dtype=np.int32)
            for j in range(used):
                grown[j] = out[j]
            out = grown
        inside[publisher[f]] = f
        gain = 0.0
        for j in range(ptr[best_graph], ptr[best_graph + 1]):
            here = head[arcs[j]]
            if inside[tail[arcs[j]]] == f and kept[here] > 0:
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
        best_of,
        flow[:count].copy(),
        starts[: count + 1].copy(),
        out[:used].copy(),
        levels[:count].copy(),
        gains[:count].copy(),
    )


@compiled
def _charged(
    flow: Ints, ptr: Longs, arcs: Ints, demand: Floats, charged: Ints, unit: Ints, prices: Floats
) -> tuple[Floats, Floats]:
    """What the parts together take of each row, and what each of them must pay."""
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
def _part_columns(
    flow: Ints, ptr: Longs, arcs: Ints, demand: Floats, charged: Ints, unit: Ints, capacity: Floats, own: Ints
) -> tuple[Ints, Ints, Floats, Floats]:
    """Columns in units of their sizes, and these."""
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
def _most_of_each(
    publisher: Ints, receiver_ptr: Longs, receivers: Ints, demand: Floats, of_flow: Longs, ptr: Longs, arcs: Ints,
    tail: Ints, head: Ints, charged: Ints, unit: Ints, capacity: Floats, peers: int,
) -> Floats:  # fmt: skip
    """For each flow its receivers, each counted as the share that the widest of its ways lets through alone."""
    found = np.zeros(len(publisher))
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
            found[f] += widest[receivers[j]]
    return found
