"""The program of the thesis as its Appendix A prints it, with its defects, to explain the figures of chapter 4.

The program differs from the text:

- a known path *replaces* the delivery graph instead of joining it, so the graph of a message ends as the path to its
  last receiver;
- a receiver on a known path is recorded but not added;
- a graph without a further path stays empty, and the solver may use it at no cost, though it reaches nobody;
- the last publisher never publishes.

Receivers outside the graph count neither as delivered nor as lost. Only the study uses this module.

There is one deviation: here publishing uses no capacity of the publisher. In the printed program it does, and then
hardly any cell would have the solution that the thesis reports.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from wend.planning.arrays import Ints
from wend.planning.candidate_paths import find_paths
from wend.planning.delivery_graphs import DeliveryGraphs
from wend.planning.flow_network import CsrGraph, FlowNetwork
from wend.planning.flow_workload import MESSAGES, FlowWorkload
from wend.planning.models import balance
from wend.planning.partial_plan import find_most_valuable
from wend.planning.problem import Problem

Nodes = tuple[int, ...]
Message = tuple[int, Sequence[int]]
"""The publisher, and the receivers in the order of the draw."""


class PrintedProgram:
    """`get_trees` of the Appendix for one k. It remembers paths from message to message."""

    def __init__(self, graph: CsrGraph, k: int) -> None:
        self.graph = graph
        self.k = k
        self._own: dict[int, list[list[Nodes]]] = {}
        self._known: dict[int, dict[int, list[Nodes]]] = {}
        self._passed: dict[int, dict[int, int]] = {}
        """By publisher and peer: the first known receiver whose paths all pass this peer."""

    def find_trees(self, publisher: int, receivers: Sequence[int]) -> tuple[Nodes, ...]:
        """The k delivery graphs of a message, as lists of nodes. A graph without a path is empty."""
        known = self._known.setdefault(publisher, {})
        trees: list[Nodes] = [()] * self.k
        for receiver in self._select_relevant(publisher, receivers):
            if receiver == publisher:
                trees = [(*tree, publisher) for tree in trees]
            elif receiver in known:
                trees = list(known[receiver])
            elif (held := self._find_contained(publisher, receiver)) is not None:
                self._store(publisher, receiver, held)
            else:
                self._store(publisher, receiver, self.find_paths_from(publisher)[receiver])
                trees = [_merge_path(tree, path) for tree, path in zip(trees, known[receiver], strict=True)]
        return tuple(trees)

    def _select_relevant(self, publisher: int, receivers: Sequence[int]) -> Sequence[int]:
        """If all receivers are known, only the last one has an effect (and the publisher, if it comes later)."""
        if not set(receivers) - {publisher} <= self._known[publisher].keys():
            return receivers
        last = next((i for i in range(len(receivers) - 1, -1, -1) if receivers[i] != publisher), 0)
        return receivers[last:]

    def _find_contained(self, publisher: int, receiver: int) -> list[Nodes] | None:
        """Find the first known receiver whose paths all pass this one; return the paths up to this one."""
        other = self._passed.get(publisher, {}).get(receiver)
        if other is None:
            return None
        return [path[: path.index(receiver) + 1] for path in self._known[publisher][other]]

    def _store(self, publisher: int, receiver: int, paths: list[Nodes]) -> None:
        self._known[publisher][receiver] = paths
        passed = self._passed.setdefault(publisher, {})
        for peer in set(paths[0]).intersection(*paths[1:]):
            passed[peer] = min(receiver, passed.get(peer, receiver))

    def find_paths_from(self, publisher: int) -> list[list[Nodes]]:
        if publisher not in self._own:
            everyone = np.arange(len(self.graph.ptr) - 1, dtype=np.int32)
            paths = find_paths(self.graph, publisher, everyone, self.k, spare_ends=True)
            self._own[publisher] = [
                [self._list_nodes(publisher, paths.arcs[paths.ptr[p] : paths.ptr[p + 1]]) for p in range(first, last)]
                + [()] * (self.k - (last - first))
                for first, last in zip(paths.first[:-1].tolist(), paths.first[1:].tolist(), strict=True)
            ]
        return self._own[publisher]

    def _list_nodes(self, publisher: int, arcs: Ints) -> Nodes:
        return (publisher, *self.graph.head[arcs].tolist())


def _merge_path(tree: Nodes, path: Nodes) -> Nodes:
    return (*tree, *(node for node in path if node not in tree))


FlowCounts = dict[tuple[Nodes, ...], int]
"""Delivery graphs, without the publisher -> the number of messages that have them."""


def count_flows(graph: CsrGraph, messages: Iterable[Message], k: int) -> FlowCounts:
    """Find the delivery graphs of all messages. Messages with the same graphs are one flow."""
    program = PrintedProgram(graph, k)
    found = Counter((publisher, program.find_trees(publisher, receivers)) for publisher, receivers in messages)
    flows: FlowCounts = {}
    for (publisher, all_trees), count in found.items():
        trees = tuple(tuple(node for node in tree if node != publisher) for tree in all_trees)
        if all(trees):  # an empty one carries any number of messages, to nobody
            flows[trees] = flows.get(trees, 0) + count
    return flows


def compute_needed_capacity(graph: CsrGraph, flows: FlowCounts, k: int) -> float:
    """The least capacity per link, in messages, at which the program's load-balancing model has a solution. The
    capacity of a node is the sum over its links."""
    if not flows:
        return 0.0
    members = [sorted(set(tree)) for trees in flows for tree in trees]
    count = len(flows)
    degree = np.diff(graph.ptr).astype(float)
    problem = Problem(
        of_flow=np.arange(count + 1, dtype=np.int64) * k,
        ptr=np.concatenate(([0], np.cumsum([len(m) for m in members]))).astype(np.int64),
        rows=np.fromiter(chain.from_iterable(members), dtype=np.int32),
        hops=np.zeros(count * k),
        delay=np.zeros(count * k),
        moved=np.zeros(count * k),
        late=np.zeros(count * k),
        demand=np.array([list(flows.values()), [0] * count], dtype=float),
        usage_unit=MESSAGES,
        unit=np.zeros(len(degree), dtype=np.int32),
        capacity=degree,
        base=np.zeros(len(degree)),
    )
    return balance(problem).y


class SingleGraphs(NamedTuple):
    """The single delivery graphs of a workload, as the program makes them. Equal graphs are one flow."""

    workload: FlowWorkload
    graphs: DeliveryGraphs


def find_single_graphs(graph: CsrGraph, messages: Iterable[Message]) -> SingleGraphs:
    program = PrintedProgram(graph, 1)
    flows: dict[tuple[Nodes, Nodes], int] = {}
    for publisher, receivers in messages:
        (tree,) = program.find_trees(publisher, receivers)
        wanted = set(receivers)
        on_it = tuple(sorted({node for node in tree if node in wanted and node != publisher}))
        if on_it:
            flows[tree, on_it] = flows.get((tree, on_it), 0) + 1
    arcs = [_list_arcs(graph, program, tree) for tree, _ in flows]
    count = len(flows)
    receivers_ptr = np.concatenate(([0], np.cumsum([len(on_it) for _, on_it in flows]))).astype(np.int64)
    workload = FlowWorkload(
        np.array([tree[0] for tree, _ in flows], dtype=np.int32),
        receivers_ptr,
        np.array([node for _, on_it in flows for node in on_it], dtype=np.int32),
        np.array([list(flows.values()), [0] * count], dtype=float),
        np.ones(count),
    )
    graphs = DeliveryGraphs(
        np.arange(count + 1, dtype=np.int64),
        np.concatenate(([0], np.cumsum([len(each) for each in arcs]))).astype(np.int64),
        np.array([arc for each in arcs for arc in each], dtype=np.int32),
        np.ones(count, dtype=np.int32),
    )
    return SingleGraphs(workload, graphs)


def _list_arcs(graph: CsrGraph, program: PrintedProgram, tree: Nodes) -> list[int]:
    """The arcs of a tree. With one path each, the last arc of its own path leads to a node."""
    publisher = tree[0]
    arcs = []
    for node in tree:
        if node != publisher:
            before = program.find_paths_from(publisher)[node][0][-2]
            first, last = graph.ptr[before : before + 2]
            arcs.append(int(first + np.searchsorted(graph.head[first:last], node)))
    return arcs


def count_lost(network: FlowNetwork, one: SingleGraphs) -> float:
    """The messages that receivers on the graphs lose, by the undelivered model (section 3.6.3)."""
    best = find_most_valuable(network, one.workload, one.graphs)
    return max(best.whole - best.value, 0.0)
