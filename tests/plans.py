"""Plans made by hand, without planner, solver or compiled code."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from wend.model.plan import Plan, PlanHeader, fingerprint

Arcs = Sequence[tuple[int, int]]
Flow = tuple[int, tuple[int, ...], float, Sequence[tuple[float, Arcs]]]
"""(publisher, receivers, rate, its delivery graphs as (share, arcs))"""


def plan_of(peers: int, links: Iterable[tuple[int, int]], *flows: Flow, honest: bool = False) -> Plan:
    """With `honest`, its header and loads are true, so that it passes every check."""
    links = sorted((min(a, b), max(a, b)) for a, b in links)
    arcs = sorted([*links, *((b, a) for a, b in links)])
    graphs = [(f, share, tree) for f, (*_, trees) in enumerate(flows) for share, tree in trees]
    hops = sorted((a, g, b) for g, (*_, tree) in enumerate(graphs) for a, b in tree)
    receivers = [sorted(wanted) for _, wanted, *_ in flows]
    rates = np.array([rate for _, _, rate, _ in flows], dtype=np.float64)
    loads = ("before_msgs", "before_bps", "after_msgs", "after_bps")
    limits = ("capacity_msgs", "capacity_bps")
    tables = {
        "peers": {
            "peer": np.arange(peers, dtype=np.int32),
            "name": [str(p) for p in range(peers)],
            **{column: np.full(peers, np.nan) for column in "xy"},
            **{column: np.full(peers, np.inf) for column in limits},
            **{column: np.zeros(peers) for column in loads},
        },
        "arcs": {
            "a": np.array([a for a, _ in arcs], dtype=np.int32),
            "b": np.array([b for _, b in arcs], dtype=np.int32),
            "delay_ns": np.ones(len(arcs), dtype=np.int64),
            **{column: np.full(len(arcs), np.inf) for column in limits},
            **{column: np.zeros(len(arcs)) for column in loads},
        },
        "flows": {
            "flow": np.arange(len(flows), dtype=np.int32),
            "publisher": np.array([publisher for publisher, *_ in flows], dtype=np.int32),
            "receivers": np.array([r for each in receivers for r in each], dtype=np.int32),
            "receivers_ptr": np.concatenate(([0], np.cumsum([len(each) for each in receivers]))).astype(np.int64),
            "rate_msgs": rates,
            "rate_bps": 0 * rates,
            "weight": np.ones(len(flows)),
            **{column: np.full(len(flows), np.inf) for column in ("deadline_s", "deadline_factor")},
        },
        "graphs": {
            "graph": np.arange(len(graphs), dtype=np.int32),
            "flow": np.array([f for f, *_ in graphs], dtype=np.int32),
            "share": np.array([share for _, share, _ in graphs], dtype=np.float64),
            "level": np.ones(len(graphs), dtype=np.int32),
        },
        "hops": {
            "peer": np.array([a for a, *_ in hops], dtype=np.int32),
            "graph": np.array([g for _, g, _ in hops], dtype=np.int32),
            "next": np.array([b for *_, b in hops], dtype=np.int32),
        },
        "failures": {
            **{name: np.zeros(0, dtype=np.int32) for name in ("failure", "a", "b", "moved", "cut")},
            "highest_load": np.zeros(0),
        },
        "backups": {
            **{name: np.zeros(0, dtype=np.int32) for name in ("failure", "flow", "graph")},
            "share": np.zeros(0),
        },
    }
    head = PlanHeader(
        topology=fingerprint(peers, links), goal="by hand", k=1, ranking="none", partial=True, peers=peers,
        links=len(links), flows=len(flows), graphs=len(graphs), highest_load=0.0, highest_load_single=0.0, usage=0.0,
        usage_single=0.0, usage_unit="msg/s", delivered=0.0, wanted=0.0, value=0.0, whole_value=0.0,
    )  # fmt: skip
    return _honest(Plan(head, tables)) if honest else Plan(head, tables)


def _honest(plan: Plan) -> Plan:
    from wend.planning.plan_check import compute_loads

    messages, _ = compute_loads(plan)
    plan.arcs["after_msgs"] = messages
    plan.peers["after_msgs"] = np.bincount(plan.arcs["b"], weights=messages, minlength=plan.head.peers)
    rates, receivers = plan.flows["rate_msgs"], np.diff(plan.flows["receivers_ptr"])
    shares = np.bincount(plan.graphs["flow"], weights=plan.graphs["share"], minlength=plan.head.flows)
    head = msgspec.structs.replace(
        plan.head,
        usage=float(messages.sum()),
        delivered=float((receivers * shares) @ rates),
        wanted=float(receivers @ rates),
        value=float((receivers * shares) @ rates),
        whole_value=float(receivers @ rates),
    )
    return Plan(head, plan.tables)
