"""Checks of a plan, from its files alone and independent of the code that makes plans.

Each fault is one sentence. Of each kind the first few faults are shown and the rest counted. If a stage finds faults,
later stages do not run, because they rely on it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wend.model.compiled import compiled
from wend.model.plan import Plan, fingerprint
from wend.model.rates import Rate
from wend.planning.arrays import TOLERANCE, Flags, Floats, Ints, Longs, run_numbers
from wend.planning.flow_network import FlowNetwork
from wend.planning.plan_delay_check import find_delay_faults

SHOWN = 5
SUFFIX = ("msgs", "bps")

Capacities = Sequence[Floats] | Floats
"""By unit, of all arcs or of all peers."""
_FINE, _TWICE, _BACK, _ORPHAN, _UNREACHED, _DEAD_END = range(6)


def check_plan(plan: Plan, network: FlowNetwork | None = None) -> list[str]:
    """Every fault, in the order of the files; empty for a sound plan. With `network`, check its capacities, too."""
    for stage in (
        _check_shape,
        _check_topology,
        _check_flows,
        _check_graphs,
        _check_hops,
        _check_trees,
        _check_loads,
        find_delay_faults,
        _check_failures,
    ):
        problems = list(stage(plan))
        if problems:
            return problems
    return [] if network is None else list(_check_network(plan, network))


def _limit_sentences(sentences: list[str]) -> Iterator[str]:
    yield from sentences[:SHOWN]
    if len(sentences) > SHOWN:
        yield f"... and {len(sentences) - SHOWN} more of this kind"


def _check_shape(plan: Plan) -> Iterator[str]:
    head = plan.head
    for name, table, count in (
        ("peers", plan.peers["peer"], head.peers),
        ("arcs", plan.arcs["a"], 2 * head.links),
        ("flows", plan.flows["flow"], head.flows),
        ("graphs", plan.graphs["graph"], head.graphs),
        ("failures", plan.failures["failure"], head.links if head.survive else 0),
    ):
        if len(table) != count:
            yield f"plan.json states {count} {name}, but there are {len(table)}"
        elif name != "arcs" and not np.array_equal(table, np.arange(count)):
            yield f"{name} are not numbered from 0"


def _check_topology(plan: Plan) -> Iterator[str]:
    a, b, peers = plan.arcs["a"], plan.arcs["b"], plan.head.peers
    if ((a < 0) | (a >= peers) | (b < 0) | (b >= peers) | (a == b)).any():
        yield "an arc is a loop or leads out of the network"
        return
    key = a.astype(np.int64) * peers + b
    if (np.diff(key) <= 0).any():
        yield "arcs are not sorted, or one occurs twice"
    elif not np.array_equal(np.sort(b.astype(np.int64) * peers + a), key):
        yield "an arc has no counterpart in the other direction"
    elif (
        fingerprint(peers, [(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True) if x < y]) != plan.head.topology
    ):
        yield "the plan is for another topology than its own arcs: the fingerprint does not match"
    names = plan.peers["name"]
    for suffix in SUFFIX:
        for which, table in (("link", plan.arcs), ("peer", plan.peers)):
            bad = np.flatnonzero(~(table[f"capacity_{suffix}"] > 0))
            where = [f"{names[a[i]]} -> {names[b[i]]}" if which == "link" else names[i] for i in bad]
            yield from _limit_sentences([f"{which} {w} has no capacity above 0" for w in where])


def _check_flows(plan: Plan) -> Iterator[str]:
    flows, peers = plan.flows, plan.head.peers
    ptr, receivers = flows["receivers_ptr"], flows["receivers"]
    whose = run_numbers(ptr)
    inner = np.ones(len(receivers), dtype=bool)
    inner[ptr[:-1][np.diff(ptr) > 0]] = False
    falls = np.append(False, np.diff(receivers) <= 0) & inner if len(receivers) else inner
    for bad, what in (
        (
            np.flatnonzero((flows["publisher"] < 0) | (flows["publisher"] >= peers)),
            "has a publisher that does not exist",
        ),
        (np.flatnonzero(np.diff(ptr) == 0), "has no receiver"),
        (np.unique(whose[(receivers < 0) | (receivers >= peers)]), "has a receiver that does not exist"),
        (np.unique(whose[falls]), "names its receivers twice or out of order"),
        (np.unique(whose[receivers == flows["publisher"][whose]]), "is received by its own publisher"),
        (np.flatnonzero(~_are_positive(flows["rate_msgs"])), "has no rate above 0"),
        (
            np.flatnonzero(~_are_counts(flows["rate_bps"]) | ~_are_counts(flows["weight"])),
            "has a negative size or weight",
        ),
    ):
        yield from _limit_sentences([f"flow {f} {what}" for f in bad])


def _are_positive(values: Floats) -> Any:
    return np.isfinite(values) & (values > 0)


def _are_counts(values: Floats) -> Any:
    return np.isfinite(values) & (values >= 0)


def _check_graphs(plan: Plan) -> Iterator[str]:
    flow, share = plan.graphs["flow"], plan.graphs["share"]
    if ((flow < 0) | (flow >= plan.head.flows)).any():
        bad = np.flatnonzero((flow < 0) | (flow >= plan.head.flows))
        yield from _limit_sentences(
            [f"delivery graph {g} belongs to flow {flow[g]}, which does not exist" for g in bad]
        )
        return
    if (np.diff(flow) < 0).any():
        yield "delivery graphs are not sorted by flow"
    backup = np.zeros(len(share), dtype=bool)
    known = (plan.backups["graph"] >= 0) & (plan.backups["graph"] < len(share))
    backup[plan.backups["graph"][known]] = True
    bad = np.flatnonzero(~((_are_positive(share) | (backup & (share == 0))) & (share <= 1 + TOLERANCE)))
    yield from _limit_sentences([f"delivery graph {g} carries a share of {share[g]:g}, not one in 0..1" for g in bad])
    if len(bad):
        return
    sums = np.bincount(flow, weights=share, minlength=plan.head.flows)
    wrong = sums > 1 + TOLERANCE if plan.head.partial else np.abs(sums - 1) > TOLERANCE
    for f in np.flatnonzero(wrong)[: SHOWN + 1]:
        if not sums[f]:
            yield f"flow {f} has no delivery graph"
        else:
            yield f"the shares of flow {f} sum to {sums[f]:g}, not to {'at most 1' if plan.head.partial else '1'}"


def _check_hops(plan: Plan) -> Iterator[str]:
    peer, graph, following = plan.hops["peer"], plan.hops["graph"], plan.hops["next"]
    peers, graphs = plan.head.peers, plan.head.graphs
    bad = np.flatnonzero((graph < 0) | (graph >= graphs))
    yield from _limit_sentences(
        [f"a hop of peer {peer[h]} is for delivery graph {graph[h]}, which does not exist" for h in bad]
    )
    arcs = plan.arcs["a"].astype(np.int64) * peers + plan.arcs["b"]
    key = peer.astype(np.int64) * peers + following
    known = (peer >= 0) & (peer < peers) & (following >= 0) & (following < peers) & np.isin(key, arcs)
    none = [f"a hop leads from {peer[h]} to {following[h]}, but they have no link" for h in np.flatnonzero(~known)]
    yield from _limit_sentences(none)
    if known.all() and not len(bad) and len(peer):
        step = (np.diff(peer), np.diff(graph), np.diff(following))
        if not ((step[0] > 0) | ((step[0] == 0) & ((step[1] > 0) | ((step[1] == 0) & (step[2] > 0))))).all():
            yield "hops are not sorted by peer, graph and next hop, or one occurs twice"


def _sort_hops_by_graph(plan: Plan) -> tuple[Longs, Ints, Ints]:
    order = np.argsort(plan.hops["graph"], kind="stable")
    ptr = np.searchsorted(plan.hops["graph"][order], np.arange(plan.head.graphs + 1))
    return ptr.astype(np.int64), plan.hops["peer"][order], plan.hops["next"][order]


def _check_trees(plan: Plan) -> Iterator[str]:
    ptr, tails, heads = _sort_hops_by_graph(plan)
    flow = plan.graphs["flow"]
    code, place = _find_tree_faults(
        ptr, tails, heads, flow, plan.flows["publisher"], plan.flows["receivers_ptr"], plan.flows["receivers"],
        plan.head.peers, plan.head.partial | (plan.graphs["share"] == 0),
    )  # fmt: skip
    names = plan.peers["name"]
    what = {
        _TWICE: "brings messages to {} twice",
        _BACK: "leads back to its publisher {}",
        _ORPHAN: "has a hop from {}, which the messages never reach",
        _UNREACHED: "does not reach receiver {}",
        _DEAD_END: "ends at {}, which is not a receiver",
    }
    for kind, sentence in what.items():
        bad = np.flatnonzero(code == kind)
        yield from _limit_sentences(
            [f"delivery graph {g} of flow {flow[g]} " + sentence.format(names[place[g]]) for g in bad]
        )


@compiled
def _tree_fault(
    g: int, begin: int, end: int, tails: Ints, heads: Ints, source: int,
    parent: Ints, stamp: Longs, rooted: Longs, sends: Longs,
) -> tuple[int, int]:  # fmt: skip
    """The code of the first fault of a graph, `begin` to `end`, as a tree from the source, and the peer at which it is.

    `stamp`, `rooted` and `sends` get the number of the graph for peers that it enters, reaches and leaves."""
    code, place = _FINE, 0
    rooted[source] = g
    for j in range(begin, end):
        there = heads[j]
        if there == source:
            code, place = _BACK, there
        elif stamp[there] == g:
            code, place = _TWICE, there
        stamp[there] = g
        parent[there] = tails[j]
        sends[tails[j]] = g
    if code != _FINE:
        return code, place
    for j in range(begin, end):
        here, steps = heads[j], 0
        while rooted[here] != g and stamp[here] == g and steps <= len(parent):
            here = parent[here]
            steps += 1
        if rooted[here] != g:
            return _ORPHAN, tails[j]
        here = heads[j]
        while rooted[here] != g:
            rooted[here] = g
            here = parent[here]
    return _FINE, 0


@compiled
def _find_tree_faults(
    ptr: Longs, tails: Ints, heads: Ints, flow: Ints, publisher: Ints, receiver_ptr: Longs, receivers: Ints, peers: int,
    partial: Flags,
) -> tuple[Ints, Ints]:  # fmt: skip
    """For each graph the code of its first fault, and the peer at which it is. A partial graph may leave receivers
    out."""
    graphs = len(ptr) - 1
    code = np.zeros(graphs, dtype=np.int32)
    place = np.zeros(graphs, dtype=np.int32)
    parent = np.full(peers, -1, dtype=np.int32)
    stamp = np.full(peers, -1, dtype=np.int64)
    rooted = np.full(peers, -1, dtype=np.int64)
    sends = np.full(peers, -1, dtype=np.int64)
    wants = np.full(peers, -1, dtype=np.int64)
    for g in range(graphs):
        f = flow[g]
        code[g], place[g] = _tree_fault(g, ptr[g], ptr[g + 1], tails, heads, publisher[f], parent, stamp, rooted, sends)
        if code[g]:
            continue
        for j in range(receiver_ptr[f], receiver_ptr[f + 1]):
            wants[receivers[j]] = g
            if rooted[receivers[j]] != g and not partial[g]:
                code[g], place[g] = _UNREACHED, receivers[j]
        if code[g]:
            continue
        for j in range(ptr[g], ptr[g + 1]):
            if sends[heads[j]] != g and wants[heads[j]] != g:
                code[g], place[g] = _DEAD_END, heads[j]
    return code, place


def compute_loads(plan: Plan, shares: Floats | None = None) -> Floats:
    """The load of each arc, by unit, computed from the hops; with other shares of the graphs, if they are given."""
    peers = plan.head.peers
    shares = plan.graphs["share"] if shares is None else shares
    arcs = plan.arcs["a"].astype(np.int64) * peers + plan.arcs["b"]
    which = np.searchsorted(arcs, plan.hops["peer"].astype(np.int64) * peers + plan.hops["next"])
    carried = shares[plan.hops["graph"]]
    flow = plan.graphs["flow"][plan.hops["graph"]]
    rates = (plan.flows["rate_msgs"], plan.flows["rate_bps"])
    return np.array([np.bincount(which, weights=carried * rate[flow], minlength=len(arcs)) for rate in rates])


def _all_loads(
    plan: Plan, loads: Floats, arcs: Capacities, peers: Capacities
) -> Iterator[tuple[str, int, Floats, Floats]]:
    """For links and peers, in both units: the word for them, the unit, and all their loads and capacities."""
    for unit in range(len(SUFFIX)):
        into = np.bincount(plan.arcs["b"], weights=loads[unit], minlength=plan.head.peers).astype(float)
        yield "link", unit, loads[unit], arcs[unit]
        yield "peer", unit, into, peers[unit]


def _plan_capacities(plan: Plan) -> tuple[Capacities, Capacities]:
    arcs, peers = ([table[f"capacity_{suffix}"] for suffix in SUFFIX] for table in (plan.arcs, plan.peers))
    return arcs, peers


def highest_load(plan: Plan, loads: Floats, arcs: Capacities, peers: Capacities) -> float:
    """The highest utilisation of a link or peer by these loads of the links, in both units."""
    each = _all_loads(plan, loads, arcs, peers)
    return max(float((load / capacity).max(initial=0.0)) for *_, load, capacity in each)


def _find_overloads(plan: Plan, loads: Floats, arcs: Capacities, peers: Capacities) -> Iterator[str]:
    names = plan.peers["name"]
    for which, unit, load, capacity in _all_loads(plan, loads, arcs, peers):
        for i in np.flatnonzero(load > capacity * (1 + TOLERANCE))[:SHOWN]:
            where = f"{names[plan.arcs['a'][i]]} -> {names[plan.arcs['b'][i]]}" if which == "link" else names[i]
            carried, can = Rate(float(load[i]), bool(unit)), Rate(float(capacity[i]), bool(unit))
            yield f"{which} {where} carries {carried} and can carry {can}"


def _check_loads(plan: Plan) -> Iterator[str]:
    loads, capacities = compute_loads(plan), _plan_capacities(plan)
    yield from _find_overloads(plan, loads, *capacities)
    for which, number, load, _ in _all_loads(plan, loads, *capacities):
        table = plan.arcs if which == "link" else plan.peers
        if not np.allclose(load, table[f"after_{SUFFIX[number]}"], rtol=TOLERANCE, atol=TOLERANCE):
            yield f"the stated loads of {which}s are not those of the hops"
    reached = _count_reached(plan)
    unit = 0 if plan.head.usage_unit == "msg/s" else 1
    rate, weight = plan.flows["rate_msgs"], plan.flows["weight"]
    sizes = np.diff(plan.flows["receivers_ptr"])
    for name, stated, actual in (
        ("highest_load", plan.head.highest_load, highest_load(plan, loads, *capacities)),
        ("usage", plan.head.usage, float(loads[unit].sum())),
        ("delivered", plan.head.delivered, float(reached @ rate)),
        ("wanted", plan.head.wanted, float(sizes @ rate)),
        ("value", plan.head.value, float(reached @ (rate * weight))),
        ("whole_value", plan.head.whole_value, float(sizes @ (rate * weight))),
    ):
        if not np.isclose(stated, actual, rtol=TOLERANCE):
            yield f"plan.json states that {name} is {stated:g}, but it is {actual:g}"


def _count_reached(plan: Plan) -> Floats:
    """The number of receivers that a message of each flow reaches, on average."""
    flow = plan.graphs["flow"][plan.hops["graph"]].astype(np.int64)
    peers = plan.head.peers
    whose = run_numbers(plan.flows["receivers_ptr"])
    is_receiver = np.zeros(plan.head.flows * peers, dtype=bool)
    is_receiver[whose * peers + plan.flows["receivers"]] = True
    share = plan.graphs["share"][plan.hops["graph"]] * is_receiver[flow * peers + plan.hops["next"]]
    return np.asarray(np.bincount(flow, weights=share, minlength=plan.head.flows), dtype=np.float64)


def find_losses(plan: Plan) -> list[tuple[int, int, float]]:
    """The losses: flow, receiver and the share of the messages that does not reach it, the largest loss first."""
    peers = plan.head.peers
    flow = plan.graphs["flow"][plan.hops["graph"]].astype(np.int64)
    key = flow * peers + plan.hops["next"]
    whose = run_numbers(plan.flows["receivers_ptr"])
    pairs = whose * peers + plan.flows["receivers"]
    got = np.bincount(key, weights=plan.graphs["share"][plan.hops["graph"]], minlength=plan.head.flows * peers)[pairs]
    short = np.flatnonzero(got < 1 - TOLERANCE)
    missing = (1 - got[short]) * plan.flows["rate_msgs"][whose[short]]
    order = short[np.lexsort((pairs[short], -missing))]
    return [(int(whose[i]), int(plan.flows["receivers"][i]), float(1 - got[i])) for i in order]


def shares_after(plan: Plan, failure: int) -> Floats:
    """The shares of all graphs after a failure. Flows that it cuts off completely send nothing."""
    mine = plan.backups["failure"] == failure
    moved = np.isin(plan.graphs["flow"], plan.backups["flow"][mine])
    shares = np.where(moved, 0.0, plan.graphs["share"])
    shares[plan.backups["graph"][mine]] = plan.backups["share"][mine]
    if plan.failures["cut"][failure]:
        shares[np.setdiff1d(_find_crossing(plan, failure), plan.backups["graph"][mine])] = 0.0
    return np.asarray(shares, dtype=np.float64)


def _find_crossing(plan: Plan, failure: int) -> Longs:
    """The graphs that cross the link of a failure."""
    a, b = int(plan.failures["a"][failure]), int(plan.failures["b"][failure])
    tail, head = plan.hops["peer"], plan.hops["next"]
    over = ((tail == a) & (head == b)) | ((tail == b) & (head == a))
    return np.unique(plan.hops["graph"][over]).astype(np.int64)


def _check_failures(plan: Plan) -> Iterator[str]:
    """After each failure: no graph in use crosses the link, shares sum to one, and no capacity is exceeded."""
    failures = plan.failures
    if not _has_valid_backups(plan):
        yield "a backup names a failure or a delivery graph that does not exist, or one of another flow"
        return
    ends = {(min(a, b), max(a, b)) for a, b in zip(plan.arcs["a"].tolist(), plan.arcs["b"].tolist(), strict=True)}
    if plan.head.survive and set(zip(failures["a"].tolist(), failures["b"].tolist(), strict=True)) != ends:
        yield "the failures are not those of all links"
        return
    highest = 0.0
    for number in range(len(failures["failure"])):
        shares = shares_after(plan, number)
        load = highest_load(plan, compute_loads(plan, shares), *_plan_capacities(plan))
        highest = max(highest, load)
        yield from _check_after_failure(plan, number, shares, load)
    if not np.isclose(plan.head.highest_load_failed, highest, rtol=TOLERANCE, atol=TOLERANCE):
        yield f"plan.json states that highest_load_failed is {plan.head.highest_load_failed:g}, but it is {highest:g}"


def _has_valid_backups(plan: Plan) -> bool:
    """Whether every backup names a failure, and a delivery graph of its flow."""
    failure, graph, flow = (plan.backups[name] for name in ("failure", "graph", "flow"))
    if not _are_within(graph, plan.head.graphs) or not _are_within(failure, len(plan.failures["failure"])):
        return False
    return bool((plan.graphs["flow"][graph] == flow).all())


def _are_within(numbers: Ints, count: int) -> bool:
    return bool(((numbers >= 0) & (numbers < count)).all())


def _check_after_failure(plan: Plan, number: int, shares: Floats, load: float) -> Iterator[str]:
    failures, names, flow = plan.failures, plan.peers["name"], plan.graphs["flow"]
    where = f"after a failure of {names[failures['a'][number]]}-{names[failures['b'][number]]}"
    crossing = _find_crossing(plan, number)
    for g in crossing[shares[crossing] > 0][:SHOWN]:
        yield f"{where}, delivery graph {g} of flow {flow[g]} still crosses the link"
    sums = np.bincount(flow, weights=shares, minlength=plan.head.flows)
    lacking = np.flatnonzero(np.abs(sums - 1) > TOLERANCE)
    if len(lacking) and not failures["cut"][number]:
        yield f"{where}, the shares of flow {lacking[0]} sum to {sums[lacking[0]]:g}, not to 1"
    if load > 1 + TOLERANCE:
        yield f"{where}, a link or peer carries {load:g} times its capacity"
    stated = failures["highest_load"][number]
    if not np.isclose(load, stated, rtol=TOLERANCE, atol=TOLERANCE):
        yield f"{where}, the highest load is {load:g}, not {stated:g}"


def _check_network(plan: Plan, network: FlowNetwork) -> Iterator[str]:
    """The faults of the plan on a network, which may have changed since the plan was made."""
    if network.fingerprint != plan.head.topology:
        yield (
            f"the plan is for another topology ({plan.head.topology[:12]}, {plan.head.peers} peers), "
            f"not for this one ({network.fingerprint[:12]}, {network.peers} peers)"
        )
        return
    yield from _find_overloads(plan, compute_loads(plan), network.arc_capacity, network.peer_capacity)
