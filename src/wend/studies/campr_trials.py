"""One cell of the thesis's Table 4.1 on one seed: a network, a workload, and what fits at which capacity.

Capacities have units here. A message is a flow of one message a second of `size_kbit`; a link carries 20 to 60
Mbit/s, and a peer receives as much as its links together bring (`per = "node"`, the thesis's model), or each link
carries its own (`per = "link"`, what a network has). Loads are linear, so one model per k gives the capacity per
link that this k *needs*, and with it the answer for every capacity of the grid.

What single paths lose is what full peers drop, evenly among all that would pass: a traditional network has no
solver that knows which message to drop. Where no plan fits, the balanced one loses in the same way. Section 3.6.3 has
a solver choose the drops that hurt least; what it must lose at least is found where `least_at` asks for it. The
receivers' floor is what no routing can deliver: a receiver takes in no more than its links bring.

Strategy `honest` is that; `printed` is the thesis's own program (`campr_printed`), where a capacity is a count of
messages that are all sent at once.
"""

from functools import cache
from math import inf, nan
from time import process_time
from typing import Literal

import msgspec
import numpy as np

from wend.model.compiled import compiled
from wend.model.errors import WendError
from wend.model.randomness import stream
from wend.model.rates import Rate
from wend.pipeline.trials import Kind
from wend.planning.arrays import Floats, Ints, Longs
from wend.planning.graphs import DeliveryGraphs, delivery_graphs, up_to
from wend.planning.models import balance
from wend.planning.network import AGGREGATE, FlowNetwork
from wend.planning.partial import undelivered_at_least
from wend.planning.problem import problem_of
from wend.planning.required import floor_loss, receivers_floor
from wend.planning.workload import BITS, FlowWorkload, WorkloadBuilder
from wend.studies import campr_printed
from wend.topology.brite_flat import Growth, grown
from wend.topology.graph import Overlay, OverlayLink

CAPACITIES = (20, 30, 40, 50, 60)
KBIT, MBIT = 1e3, 1e6
PRINTED_MOST_K = 10
"""The thesis tried a hundred, and says that almost all of its models are solved below this."""
FEW = 3
_SAME = 1e-6
_ROUNDS, _SWINGS = 400, 40


class Cell(msgspec.Struct, frozen=True):
    strategy: Literal["honest", "printed"]
    nodes: int = 100
    messages: int = 1000
    popularity: float = 0.45
    growth: Growth = "attached"
    per: Literal["node", "link"] = "node"
    size_kbit: float = 16.0
    most_k: int = 5
    scale: int = 1
    """One message of so many is drawn, and counts as all of them: the same load with less to compute."""
    least_at: int = 0
    """A capacity per link, to find what single paths lose where every drop is the one that hurts least."""
    charged: bool = False
    """Whether what a peer publishes takes up its own room. Sections 3.6.2 and 3.6.3 bound all nodes of a delivery
    graph, so to the letter it does; 3.6.1 bounds what is sent to a node, and speaks of receiving."""


EACH = ("single", "lost", "planned", "floor", "k", "solved", "paths_s", "model_s")
"""Figures that a cell has for each capacity, `single_20` and so on. Shares are of the deliveries that are wanted.
`hops` is how many a delivery takes on single paths, `taken` the share of all messages that a peer takes in there."""
FIGURES = (
    "wanted",
    "needed_floor",
    "needed_1",
    "needed",
    "least",
    "hops",
    "taken",
    *(f"{figure}_{capacity}" for figure in EACH for capacity in CAPACITIES),
)


def run_cell(cell: Cell, seed: int) -> dict[str, float]:
    _compile()
    return (_honest if cell.strategy == "honest" else _printed)(cell, seed)


def network_of(cell: Cell, seed: int, link: Rate) -> FlowNetwork:
    overlay = grown(cell.nodes, cell.growth, seed=seed)
    if cell.per == "link":
        return FlowNetwork(overlay, link=link)
    network = FlowNetwork(overlay, link=link, peer=AGGREGATE)
    network.arc_capacity[:] = inf  # the links' sum binds, not the links
    return network


def draw_messages(cell: Cell, seed: int) -> tuple[list[int], list[Ints]]:
    """Publishers, and the receivers of each message (section 4.3). A smaller workload is how a larger one begins."""
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


def workload_of(cell: Cell, seed: int) -> FlowWorkload:
    publishers, receivers = draw_messages(cell, seed)
    builder = WorkloadBuilder()
    for number, wanted in enumerate(receivers):
        builder.add(
            publishers[number % len(publishers)], wanted, float(cell.scale), cell.scale * cell.size_kbit * KBIT, 1.0
        )
    return builder.build()


def charge_publishers(network: FlowNetwork, workload: FlowWorkload) -> tuple[FlowNetwork, FlowWorkload]:
    """The same, but every message comes to its publisher through a door: a peer of its own with one link."""
    overlay, peers = network.overlay, network.peers
    publishers, number = np.unique(workload.publisher, return_inverse=True)
    doors = [OverlayLink(int(p), peers + i, 0) for i, p in enumerate(publishers)]
    wider = FlowNetwork(Overlay(peers + len(doors), [*overlay.links, *doors]), link=Rate(1.0))
    wider.arc_capacity[:] = inf
    wider.peer_capacity[:, :peers] = network.peer_capacity
    publisher = (peers + number).astype(np.int32)
    return wider, FlowWorkload(publisher, workload.ptr, workload.receivers, workload.demand, workload.weight)


def _world(cell: Cell, seed: int, link: Rate) -> tuple[FlowNetwork, FlowWorkload]:
    network, workload = network_of(cell, seed, link), workload_of(cell, seed)
    return charge_publishers(network, workload) if cell.charged else (network, workload)


def _honest(cell: Cell, seed: int) -> dict[str, float]:
    network, workload = _world(cell, seed, Rate(MBIT, bits=True))
    floor = receivers_floor(network, workload)
    found = {"wanted": workload.deliveries(), "needed_floor": floor}
    needed: list[float] = []
    spent: list[tuple[float, float]] = []
    while not needed or (len(needed) < cell.most_k and _may_help(floor, needed[-1], len(needed))):
        began = process_time()
        graphs = delivery_graphs(network, workload, len(needed) + 1)
        at = process_time()
        best = balance(problem_of(network, workload, graphs))
        before = spent[-1] if spent else (0.0, 0.0)
        spent.append((before[0] + at - began, before[1] + process_time() - at))
        needed.append(min([best.y, *needed[-1:]]))
    single = up_to(graphs, 1)
    floors = {capacity: floor_loss(network, workload, capacity) for capacity in CAPACITIES}
    everything = np.ones(len(workload))
    found |= {"needed_1": needed[0], "needed": needed[-1]}
    found |= {"hops": _mean_hops(network, workload, single), "taken": len(single.arcs) / len(workload) / cell.nodes}
    if cell.least_at:
        within, _ = _world(cell, seed, Rate(cell.least_at * MBIT, bits=True))
        lost, wanted = undelivered_at_least(within, workload, single)
        found["least"] = max(lost / wanted, floor_loss(within, workload))
    for capacity in CAPACITIES:
        k = next((i for i, need in enumerate(needed, 1) if need <= capacity * (1 + _SAME)), 0)
        alone = _dropped(network, workload, single, everything, capacity)
        found |= {
            f"single_{capacity}": alone,
            f"lost_{capacity}": alone * found["wanted"],
            f"planned_{capacity}": 0.0 if k else _dropped(network, workload, graphs, best.shares, capacity),
            f"floor_{capacity}": floors[capacity],
            f"k_{capacity}": k or nan,
            f"solved_{capacity}": float(k > 0),
            f"paths_s_{capacity}": spent[k - 1][0] if k else nan,
            f"model_s_{capacity}": spent[k - 1][1] if k else nan,
        }
    return found


def _may_help(floor: float, needed: float, k: int) -> bool:
    """Whether another path could make one more capacity of the grid suffice: none below the floor ever does. Where a
    capacity does not suffice a few paths are tried all the same, to lose less."""
    if k < FEW and needed > min(CAPACITIES):
        return True
    return any(floor <= capacity < needed for capacity in CAPACITIES)


def _dropped(
    network: FlowNetwork, workload: FlowWorkload, graphs: DeliveryGraphs, shares: Floats, capacity: float
) -> float:
    """The share of deliveries that is lost where every full peer (or link) drops evenly what is too much for it.

    What is dropped early does not burden those behind, so what passes is found by going round until it stays."""
    graph = network.graph
    per_link = bool(np.isfinite(network.arc_capacity[BITS]).any())
    place = np.arange(len(graph.head), dtype=np.int32) if per_link else graph.head
    room = (network.arc_capacity if per_link else network.peer_capacity)[BITS] * capacity
    delivered, change = _deliver(
        workload.publisher, workload.ptr, workload.receivers, workload.demand[BITS],
        graphs.of_flow, graphs.ptr, graphs.arcs, shares, graph.tail, graph.head, place, room, _ROUNDS, _SWINGS,
    )  # fmt: skip
    if change > _SAME:
        raise WendError(f"what full peers drop has not settled after {_ROUNDS} rounds")
    wanted = float(np.diff(workload.ptr) @ workload.demand[BITS])
    return max(1.0 - delivered / wanted, 0.0)


def _mean_hops(network: FlowNetwork, workload: FlowWorkload, single: DeliveryGraphs) -> float:
    graph = network.graph
    hops = _hops(workload.publisher, workload.ptr, workload.receivers, single.ptr, single.arcs, graph.tail, graph.head)
    return float(hops / len(workload.receivers))


@compiled
def _hops(
    publisher: Ints, receivers_ptr: Longs, receivers: Ints, ptr: Longs, arcs: Ints, tail: Ints, head: Ints
) -> int:
    """Over all receivers, one graph for each flow."""
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
def _deliver(
    publisher: Ints, receivers_ptr: Longs, receivers: Ints, demand: Floats,
    of_flow: Longs, ptr: Longs, arcs: Ints, shares: Floats, tail: Ints, head: Ints, place: Ints,
    room: Floats, rounds: int, swings: int,
) -> tuple[float, float]:  # fmt: skip
    """What is delivered, and by how much that which passes still changed in the last round. Peers that feed each other
    can swing between two states for ever; after so many rounds each goes only half of the way."""
    passes = np.ones(len(room))
    wants = np.full(np.max(head) + 1, -1, dtype=np.int32)
    arrives = np.zeros(len(wants))
    delivered, change = 0.0, 1.0
    for number in range(rounds):
        offered = np.zeros(len(room))
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
        for r in range(len(room)):
            fits = 1.0 if offered[r] <= room[r] else room[r] / offered[r]
            change = max(change, abs(fits - passes[r]))
            passes[r] = fits if number < swings else (fits + passes[r]) / 2
        if change < 1e-9:
            break
    return delivered, change


def _printed(cell: Cell, seed: int) -> dict[str, float]:
    publishers, receivers = draw_messages(cell, seed)
    messages: list[campr_printed.Message] = [
        (publishers[number % (len(publishers) - 1)], wanted.tolist()) for number, wanted in enumerate(receivers)
    ]
    graph = network_of(cell, seed, Rate(1.0)).graph
    needed: list[float] = []
    while not needed or (needed[-1] > min(CAPACITIES) and len(needed) < PRINTED_MOST_K):
        needed.append(cell.scale * campr_printed.needed_capacity(graph, messages, len(needed) + 1))
    one = campr_printed.single(graph, messages)
    wanted = float(cell.scale * sum(len(each) for each in receivers))
    found = {"wanted": wanted, "needed_1": needed[0], "needed": needed[-1]}
    for capacity in CAPACITIES:
        k = next((i for i, need in enumerate(needed, 1) if need <= capacity * (1 + _SAME)), 0)
        lost = cell.scale * campr_printed.lost(network_of(cell, seed, Rate(capacity / cell.scale)), one)
        found |= {
            f"single_{capacity}": lost / wanted,
            f"lost_{capacity}": lost,
            f"k_{capacity}": k or nan,
            f"solved_{capacity}": float(k > 0),
        }
    return found


@cache
def _compile() -> None:
    """Compiled code is loaded before anything is timed."""
    tiny = Cell("honest", nodes=12, messages=6, most_k=2, size_kbit=1e6)
    _honest(tiny, 1)


def cost(cell: Cell) -> float:
    """Roughly seconds: short paths for the printed program, models that grow with the receivers for the honest one."""
    size = cell.messages / cell.scale / 10_000 * cell.nodes / 300
    return 1.0 + (60.0 if cell.strategy == "printed" else 40.0) * size


CELLS = Kind(
    "cell", Cell, run_cell, FIGURES, parts=("model", "topology", "planning", "studies/campr_printed.py"), cost=cost
)
