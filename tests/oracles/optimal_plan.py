"""The optimal models (thesis, section 3.6.1): every message has its own links. For tiny networks only.

A binary variable for each link and message says whether the message takes the link. The printed constraint, that a
peer sends only messages that it receives, lets two peers send a message to each other in a cycle. So here each receiver
also gets a unit of flow from the publisher over the links of the message. Messages are integral, as in the thesis.
"""

import highspy
import numpy as np

from wend.model.errors import ConfigError
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import MESSAGES, FlowWorkload
from wend.planning.models import Goal
from wend.planning.problem import charged_rows, make_capacity_rows
from wend.planning.solver import LinearProgram

LARGEST = 20_000
"""The most columns that the solver can handle in acceptable time."""


def optimal(network: FlowNetwork, workload: FlowWorkload, goal: Goal) -> float | None:
    """The least usage (in messages/s on links) or the least y; None if it is infeasible. Rates must be integers."""
    if goal.kind == "blend":
        raise ConfigError("the optimal model has the goals min-usage and balance, not blend")
    graph, rows, charged = network.graph, make_capacity_rows(network), charged_rows(network)
    arcs = len(graph.head)
    messages = [f for f, rate in enumerate(workload.demand[MESSAGES]) for _ in range(round(float(rate)))]
    columns = sum(arcs * (1 + len(workload.flow_receivers(f))) for f in messages)
    if columns > LARGEST:
        raise ConfigError(f"the optimal model would have {columns} columns, more than {LARGEST}")
    size_bits = workload.demand[1] / workload.demand[0]
    entries: list[tuple[int, int, float]] = []
    low: list[float] = []
    high: list[float] = []

    def row(lower: float, upper: float) -> int:
        low.append(lower)
        high.append(upper)
        return len(low) - 1

    inf = highspy.kHighsInf
    binding = [row(-inf, 0.0) for _ in rows.capacity]
    entries += [(r, 0, -1.0) for r in binding]
    column = 1
    whole = [False]
    for f in messages:
        takes = column
        column += arcs
        whole += [True] * arcs
        for arc in range(arcs):
            for r in charged[:, arc]:
                if r >= 0:
                    load = float(size_bits[f]) if rows.unit[r] else 1.0
                    entries.append((binding[r], takes + arc, load / float(rows.capacity[r])))
        for receiver in workload.flow_receivers(f).tolist():
            draws = column
            column += arcs
            whole += [False] * arcs
            for arc in range(arcs):
                within = row(-inf, 0.0)
                entries += [(within, draws + arc, 1.0), (within, takes + arc, -1.0)]
            for peer in range(network.peers):
                if peer != workload.publisher[f]:
                    need = 1.0 if peer == receiver else 0.0
                    balance = row(need, need)
                    for arc in range(graph.ptr[peer], graph.ptr[peer + 1]):
                        entries += [(balance, draws + int(graph.back[arc]), 1.0), (balance, draws + arc, -1.0)]
    return _solve(goal, entries, low, high, column, np.array(whole))


def _solve(
    goal: Goal,
    entries: list[tuple[int, int, float]],
    low: list[float],
    high: list[float],
    columns: int,
    whole: np.ndarray,
) -> float | None:
    entries.sort(key=lambda entry: (entry[1], entry[0]))
    index = np.array([entry[0] for entry in entries], dtype=np.int32)
    value = np.array([entry[2] for entry in entries])
    ptr = np.searchsorted(np.array([entry[1] for entry in entries]), np.arange(columns + 1)).astype(np.int32)
    usage = goal.kind == "min-usage"
    model = LinearProgram()
    model.load(
        cost=np.where(whole, 1.0 if usage else 0.0, 0.0) + (0.0 if usage else 1.0) * (np.arange(columns) == 0),
        lower=np.zeros(columns),
        upper=np.where(np.arange(columns) == 0, 1.0 if usage else highspy.kHighsInf, 1.0),
        row_lower=np.array(low),
        row_upper=np.array(high),
        ptr=ptr,
        index=index,
        value=value,
        whole=whole,
    )
    answer = model.solve()
    return None if answer is None else answer.objective
