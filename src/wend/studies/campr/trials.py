"""One cell of the thesis's Table 4.1 on one seed: a network, a workload, and the losses at each capacity.

Capacities have units here. A message is a flow of one message a second of `size_kbit`. A link carries 20 to 60 Mbit/s.
A peer receives as much as its links together carry (`per = "node"`, the thesis's model), or each link has its own
limit (`per = "link"`, as in a network). Loads are linear, so one model per k gives the capacity per link that this k
*needs*, and this answers for every capacity of the grid.

On single paths, full peers drop messages evenly: a traditional network has no solver that knows which message to drop.
If no plan fits, the balanced plan loses in the same manner. In section 3.6.3 a solver chooses the drops with the least
loss; `least_at` asks for that loss. The receivers' floor is the loss under any routing, because a receiver gets no
more than its links carry.

The strategy `honest` is this model. `printed` is the thesis's own program (`printed.py`), where a capacity is a
number of messages that are all sent at once.
"""

from collections.abc import Callable
from functools import cache
from math import inf, nan
from time import process_time
from typing import Literal, TypeVar

import msgspec
import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import WendError
from wend.model.randomness import stream
from wend.model.rates import Rate
from wend.pipeline.sweeps.trials import TrialKind
from wend.planning.arrays import Floats, Ints, Longs
from wend.planning.delivery_graphs import DeliveryGraphs, limit_k, make_delivery_graphs
from wend.planning.flow_network import AGGREGATE, FlowNetwork
from wend.planning.flow_workload import BITS, FlowWorkload, WorkloadBuilder
from wend.planning.models import Solution, balance
from wend.planning.partial_plan import undelivered_at_least
from wend.planning.problem import make_problem
from wend.studies.campr import printed
from wend.studies.campr.brite_flat import Growth, grow
from wend.studies.campr.receivers_floor import compute_floor, compute_floor_loss
from wend.topology.graph import Overlay, OverlayLink

CAPACITIES = (20, 30, 40, 50, 60)
KBIT, MBIT = 1e3, 1e6
PRINTED_MOST_K = 10
"""The thesis tried up to 100, and says that almost all of its models are solved below 10."""
FEW = 3
Result = TypeVar("Result")
_SAME = 1e-6
_ROUNDS, _SWINGS = 400, 40


class CellTrial(msgspec.Struct, frozen=True):
    strategy: Literal["honest", "printed"]
    nodes: int = 100
    messages: int = 1000
    popularity: float = 0.45
    growth: Growth = "attached"
    per: Literal["node", "link"] = "node"
    size_kbit: float = 16.0
    most_k: int = 5
    scale: int = 1
    """Only one message of `scale` is drawn, and stands for all of them: the same load with less computation."""
    least_at: int = 0
    """A capacity per link at which to find the least possible loss of single paths; 0 for none."""
    charged: bool = False
    """Whether publishing uses the publisher's own capacity. Sections 3.6.2 and 3.6.3 bound all nodes of a delivery
    graph, so literally it does. Section 3.6.1 bounds only what a node receives."""


EACH = ("single", "lost", "planned", "floor", "k", "solved", "paths_s", "model_s", "paths_share")
"""Metrics for each capacity, such as `single_20`. Shares are of the wanted deliveries. `hops` is the mean number of
hops of a delivery on single paths, `intake` the share of all messages that a peer receives there. `paths_s` is the time
for paths and delivery graphs up to the required k, `model_s` that for building and solving the models, `paths_share`
the first over both."""
METRICS = (
    "wanted",
    "needed_floor",
    "needed_1",
    "needed",
    "least",
    "hops",
    "intake",
    *(f"{metric}_{capacity}" for metric in EACH for capacity in CAPACITIES),
)


def run_cell(cell: CellTrial, seed: int) -> dict[str, float]:
    _compile_functions()
    return (_run_cell_exactly if cell.strategy == "honest" else _run_printed_program)(cell, seed)


class Stopwatch:
    """The processor time for paths and for models, summed over k."""

    def __init__(self) -> None:
        self._paths_s = [0.0]
        self._model_s = [0.0]

    def time_paths(self, find: Callable[..., Result], *arguments: object) -> Result:
        return self._time(self._paths_s, find, arguments)

    def time_model(self, solve: Callable[..., Result], *arguments: object) -> Result:
        return self._time(self._model_s, solve, arguments)

    @staticmethod
    def _time(sums: list[float], work: Callable[..., Result], arguments: tuple[object, ...]) -> Result:
        began = process_time()
        result = work(*arguments)
        sums.append(sums[-1] + process_time() - began)
        return result

    def metrics(self, k: int, capacity: int) -> dict[str, float]:
        """The times until a plan with k paths fits this capacity; none if k is 0."""
        paths_s, model_s = (self._paths_s[k], self._model_s[k]) if k else (nan, nan)
        each = {"paths_s": paths_s, "model_s": model_s, "paths_share": paths_s / max(paths_s + model_s, 1e-9)}
        return {f"{name}_{capacity}": value for name, value in each.items()}


def make_network(cell: CellTrial, seed: int, link: Rate) -> FlowNetwork:
    overlay = grow(cell.nodes, cell.growth, seed=seed)
    if cell.per == "link":
        return FlowNetwork(overlay, link=link)
    network = FlowNetwork(overlay, link=link, peer=AGGREGATE)
    network.arc_capacity[:] = inf  # the sum over its links limits a peer, not each link
    return network


def draw_messages(cell: CellTrial, seed: int) -> tuple[list[int], list[Ints]]:
    """Draw publishers, and the receivers of each message (section 4.3). A small workload is a prefix of a large one."""
    receiving = stream(seed, "campr", "receivers", cell.nodes).permutation(cell.nodes)[: round(0.75 * cell.nodes)]
    publishing = stream(seed, "campr", "publishers", cell.nodes).permutation(cell.nodes)[: max(cell.nodes // 10, 2)]
    reach = len(receiving)
    around, spread = cell.popularity * reach, min(cell.popularity, 1 - cell.popularity) * reach
    drawn = stream(seed, "campr", "counts").uniform(
        around - spread, around + spread, max(cell.messages // cell.scale, 1)
    )
    counts = np.clip(np.rint(drawn), 1, reach).astype(int)
    chosen = stream(seed, "campr", "choices", cell.nodes)
    return publishing.tolist(), [chosen.choice(receiving, n, replace=False).astype(np.int32) for n in counts.tolist()]


def draw_cell_workload(cell: CellTrial, seed: int) -> FlowWorkload:
    publishers, receivers = draw_messages(cell, seed)
    builder = WorkloadBuilder()
    for number, wanted in enumerate(receivers):
        builder.add(
            publishers[number % len(publishers)], wanted, float(cell.scale), cell.scale * cell.size_kbit * KBIT, 1.0
        )
    return builder.build()


def charge_publishers(network: FlowNetwork, workload: FlowWorkload) -> tuple[FlowNetwork, FlowWorkload]:
    """Make publishing use capacity: an extra peer, with one link to the publisher, publishes for it."""
    overlay, peers = network.overlay, network.peers
    publishers, number = np.unique(workload.publisher, return_inverse=True)
    sources = [OverlayLink(int(p), peers + i, 0) for i, p in enumerate(publishers)]
    wider = FlowNetwork(Overlay(peers + len(sources), [*overlay.links, *sources]), link=Rate(1.0))
    wider.arc_capacity[:] = inf
    wider.peer_capacity[:, :peers] = network.peer_capacity
    publisher = (peers + number).astype(np.int32)
    return wider, FlowWorkload(publisher, workload.ptr, workload.receivers, workload.demand, workload.weight)


def _make_inputs(cell: CellTrial, seed: int, link: Rate) -> tuple[FlowNetwork, FlowWorkload]:
    network, workload = make_network(cell, seed, link), draw_cell_workload(cell, seed)
    return charge_publishers(network, workload) if cell.charged else (network, workload)


def _run_cell_exactly(cell: CellTrial, seed: int) -> dict[str, float]:
    network, workload = _make_inputs(cell, seed, Rate(MBIT, bits=True))
    floor = compute_floor(network, workload)
    metrics = {"wanted": workload.deliveries(), "needed_floor": floor}
    needed: list[float] = []
    spent = Stopwatch()
    while not needed or (len(needed) < cell.most_k and _may_help(floor, needed[-1], len(needed))):
        graphs = spent.time_paths(make_delivery_graphs, network, workload, len(needed) + 1)
        best = spent.time_model(_solve_balanced, network, workload, graphs)
        needed.append(min([best.y, *needed[-1:]]))
    single = limit_k(graphs, 1)
    floors = {capacity: compute_floor_loss(network, workload, capacity) for capacity in CAPACITIES}
    everything = np.ones(len(workload))
    metrics |= {"needed_1": needed[0], "needed": needed[-1]}
    metrics |= {
        "hops": _compute_mean_hops(network, workload, single),
        "intake": len(single.arcs) / len(workload) / cell.nodes,
    }
    if cell.least_at:
        within, _ = _make_inputs(cell, seed, Rate(cell.least_at * MBIT, bits=True))
        lost, deliveries = undelivered_at_least(within, workload, single)
        metrics["least"] = max(lost / deliveries, compute_floor_loss(within, workload))
    for capacity in CAPACITIES:
        k = next((i for i, need in enumerate(needed, 1) if need <= capacity * (1 + _SAME)), 0)
        alone = compute_dropped_share(network, workload, single, everything, capacity)
        metrics |= {
            f"single_{capacity}": alone,
            f"lost_{capacity}": alone * metrics["wanted"],
            f"planned_{capacity}": 0.0
            if k
            else compute_dropped_share(network, workload, graphs, best.shares, capacity),
            f"floor_{capacity}": floors[capacity],
            f"k_{capacity}": k or nan,
            f"solved_{capacity}": float(k > 0),
            **spent.metrics(k, capacity),
        }
    return metrics


def _solve_balanced(network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs) -> Solution:
    return balance(make_problem(network, workload, graphs))


def _may_help(floor: float, needed: float, k: int) -> bool:
    """Whether one more path could make another capacity of the grid suffice. A capacity below the floor never
    suffices. A few paths are tried in any case, because they reduce the loss."""
    if k < FEW and needed > min(CAPACITIES):
        return True
    return any(floor <= capacity < needed for capacity in CAPACITIES)


def compute_dropped_share(
    network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs, shares: Floats, capacity: float
) -> float:
    """The share of lost deliveries if every full peer (or link) drops its excess evenly.

    A message that is dropped early does not load the peers behind, so a fixed-point iteration finds the shares."""
    graph = network.graph
    per_link = bool(np.isfinite(network.arc_capacity[BITS]).any())
    place = np.arange(len(graph.head), dtype=np.int32) if per_link else graph.head
    limit = (network.arc_capacity if per_link else network.peer_capacity)[BITS] * capacity
    delivered, change = _compute_delivered_load(
        workload.publisher, workload.ptr, workload.receivers, workload.demand[BITS],
        graphs.of_flow, graphs.ptr, graphs.arcs, shares, graph.tail, graph.head, place, limit, _ROUNDS, _SWINGS,
    )  # fmt: skip
    if change > _SAME:
        raise WendError(f"the drops of full peers have not converged after {_ROUNDS} rounds")
    demand = float(np.diff(workload.ptr) @ workload.demand[BITS])
    return max(1.0 - delivered / demand, 0.0)


def _compute_mean_hops(network: FlowNetwork, workload: FlowWorkload, single: DeliveryGraphs) -> float:
    graph = network.graph
    hops = _count_hops(
        workload.publisher, workload.ptr, workload.receivers, single.ptr, single.arcs, graph.tail, graph.head
    )
    return float(hops / len(workload.receivers))


@compiled
def _count_hops(
    publisher: Ints, receivers_ptr: Longs, receivers: Ints, ptr: Longs, arcs: Ints, tail: Ints, head: Ints
) -> int:
    """The sum of hops over all receivers, with one graph for each flow."""
    depth = np.zeros(np.max(head) + 1, dtype=np.int64)
    total = 0
    for f in range(len(ptr) - 1):
        depth[publisher[f]] = 0
        for j in range(ptr[f], ptr[f + 1]):
            depth[head[arcs[j]]] = depth[tail[arcs[j]]] + 1
        for j in range(receivers_ptr[f], receivers_ptr[f + 1]):
            total += depth[receivers[j]]
    return total


@compiled
def _compute_delivered_load(
    publisher: Ints, receivers_ptr: Longs, receivers: Ints, demand: Floats,
    of_flow: Longs, ptr: Longs, arcs: Ints, shares: Floats, tail: Ints, head: Ints, place: Ints,
    limit: Floats, rounds: int, swings: int,
) -> tuple[float, float]:  # fmt: skip
    """The delivered load, and the largest change of a passing share in the last round. Peers that feed each other can
    oscillate between two states, so after `swings` rounds each step goes only half of the distance."""
    passes = np.ones(len(limit))
    wants = np.full(np.max(head) + 1, -1, dtype=np.int32)
    arrives = np.zeros(len(wants))
    delivered, change = 0.0, 1.0
    for number in range(rounds):
        offered = np.zeros(len(limit))
        delivered = 0.0
        for f in range(len(of_flow) - 1):
            for j in range(receivers_ptr[f], receivers_ptr[f + 1]):
                wants[receivers[j]] = f
            for g in range(of_flow[f], of_flow[f + 1]):
                if shares[g] <= 0:
                    continue
                amount = shares[g] * demand[f]
                arrives[publisher[f]] = 1.0
                for j in range(ptr[g], ptr[g + 1]):
                    here = head[arcs[j]]
                    comes = arrives[tail[arcs[j]]]
                    offered[place[arcs[j]]] += amount * comes
                    arrives[here] = comes * passes[place[arcs[j]]]
                    if wants[here] == f:
                        delivered += amount * arrives[here]
        change = 0.0
        for r in range(len(limit)):
            fits = 1.0 if offered[r] <= limit[r] else limit[r] / offered[r]
            change = max(change, abs(fits - passes[r]))
            passes[r] = fits if number < swings else (fits + passes[r]) / 2
        if change < 1e-9:
            break
    return delivered, change


def _run_printed_program(cell: CellTrial, seed: int) -> dict[str, float]:
    publishers, receivers = draw_messages(cell, seed)
    messages: list[printed.Message] = [
        (publishers[number % (len(publishers) - 1)], wanted.tolist()) for number, wanted in enumerate(receivers)
    ]
    graph = make_network(cell, seed, Rate(1.0)).graph
    needed: list[float] = []
    spent = Stopwatch()
    while not needed or (needed[-1] > min(CAPACITIES) and len(needed) < PRINTED_MOST_K):
        k = len(needed) + 1
        flows = spent.time_paths(printed.count_flows, graph, messages, k)
        needed.append(cell.scale * spent.time_model(printed.compute_needed_capacity, graph, flows, k))
    one = printed.find_single_graphs(graph, messages)
    wanted = float(cell.scale * sum(len(each) for each in receivers))
    metrics = {"wanted": wanted, "needed_1": needed[0], "needed": needed[-1]}
    for capacity in CAPACITIES:
        k = next((i for i, need in enumerate(needed, 1) if need <= capacity * (1 + _SAME)), 0)
        lost = cell.scale * printed.count_lost(make_network(cell, seed, Rate(capacity / cell.scale)), one)
        metrics |= {
            f"single_{capacity}": lost / wanted,
            f"lost_{capacity}": lost,
            f"k_{capacity}": k or nan,
            f"solved_{capacity}": float(k > 0),
            **spent.metrics(k, capacity),
        }
    return metrics


@cache
def _compile_functions() -> None:
    """Run a tiny cell of each strategy, so that no timing includes the compilation by numba."""
    tiny = CellTrial("honest", nodes=12, messages=6, most_k=2, size_kbit=1e6)
    _run_cell_exactly(tiny, 1)
    _run_printed_program(tiny, 1)


def estimate_cost(cell: CellTrial) -> float:
    """Estimate the seconds: they grow with messages and receivers."""
    size = cell.messages / cell.scale / 10_000 * cell.nodes / 300
    return 1.0 + (7.0 if cell.strategy == "printed" else 4.0) * size


OWN_PARTS = tuple(f"studies/campr/{name}.py" for name in ("brite_flat", "printed", "receivers_floor"))
CELLS = TrialKind(
    "cell", CellTrial, run_cell, METRICS, parts=("model", "topology", "planning", *OWN_PARTS), cost=estimate_cost
)
