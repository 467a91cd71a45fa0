"""Chapter 5 of the thesis: simulations of plans, beside strategies without a plan, at the same load.

The workload is that of chapter 4. One flow stands for `scale` of its messages and has one message a second. Links
serialise and their queues are bounded, as in the thesis's simulator, so plans are made for links. If `per` is `node`,
plans are made for the sum over a peer's links, and peers serialise what they receive. The capacity that the balanced
plan needs is the capacity at which everything *fits*. The links of a trial have that capacity divided by `load`, so at
load 1 the fullest link is exactly full. Events are evenly spaced, ACKs use no capacity, nothing fails, and deadlines
never bind. So queues cause all losses.

With `at_once`, all messages of one second are published at the same moment, as in the thesis's simulation. There a
capacity is a number of messages, so the length of queues is stated as a share of the messages that a link carries in
that second (`queue_share`).

Above load 1 a plan carries the most valuable messages, and publishers refuse the rest. `promised` is the share that
the linear program leaves undelivered, `undelivered` the share that the simulated peers do.
"""

from math import ceil, inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec
import numpy as np

from wend.drivers.scenarios import Scenario
from wend.drivers.sim.drop_ledger import PEER_BUSY, QUEUE_FULL
from wend.drivers.sim.run import play_world
from wend.drivers.workload import Topic, make_topics
from wend.drivers.world import World
from wend.model.forwarding import Forwarding
from wend.model.plan import Plan
from wend.model.rates import Rate
from wend.model.scenario import STATED
from wend.model.summary import Summary
from wend.model.units import SECOND
from wend.pipeline.code_hash import PARTS
from wend.pipeline.sweeps.trials import TrialKind
from wend.planning.delivery_graphs import limit_k, make_delivery_graphs
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import MESSAGES, FlowWorkload, write_workload
from wend.planning.models import TIGHT, balance, parse_goal
from wend.planning.planner import make_plan
from wend.planning.problem import make_problem
from wend.studies.campr.brite_flat import Growth
from wend.studies.campr.trials import OWN_PARTS, CellTrial, draw_cell_workload, make_network
from wend.topology.graph import Overlay

GOALS = ("min-usage", "balance")
LATE = 1000.0
"""Deadlines, as a multiple of the shortest delay."""
DRAIN_S = 20.0


class SimulatedTrial(msgspec.Struct, frozen=True):
    strategy: Literal["min-usage", "balance", "d-tree", "multipath", "dcrd", "adaptive"]
    """The goal of a plan, or a strategy without a plan."""
    nodes: int = 100
    messages: int = 10_000
    popularity: float = 0.45
    load: float = 1.0
    """The offered load over the load that fits."""
    growth: Growth = "attached"
    per: Literal["link", "node"] = "link"
    k: int = 4
    queue_msgs: int = 32
    duration_s: float = 10.0
    scale: int = 100
    """One flow stands for this many messages of the workload."""
    at_once: bool = False
    """Whether all messages of one second are published at the same moment; `duration_s` does not apply."""
    queue_share: float = 0.0
    """The length of queues as a share of what a link carries in a second; 0 for `queue_msgs`."""


METRICS = ("undelivered", "promised", "graphs", "split", "dropped", "packets", "delay_s", "single_load")
"""`undelivered` by the simulated peers and `promised` by the plan, as shares of the wanted deliveries; `graphs` per
message, and the share of messages with several (`split`); `dropped` by queues and `packets`, per wanted delivery;
the 99th percentile of the delay; the load of the fullest link on single paths (`single_load`)."""


def run_simulated(trial: SimulatedTrial, seed: int) -> dict[str, float]:
    workload = draw_simulated_workload(trial, seed)
    network, single_load = make_simulated_network(trial, workload, seed)
    plan = make_simulated_plan(trial, network, workload) if trial.strategy in GOALS else None
    with TemporaryDirectory() as folder:
        flows = Path(folder) / "flows.jsonl"
        write_workload(workload, flows, network.names)
        scenario = _make_scenario(trial, flows, network, seed)
        topics = _publish_at_once(make_topics(scenario, network.overlay)) if trial.at_once else None
        world = World(scenario, network.overlay, topics=topics)
        world.plan = Forwarding(plan) if plan is not None else None
        summary = play_world(world).summary
    delay_ms = summary.delay_ms.p99
    metrics = {
        "undelivered": 1.0 - summary.delivery,
        "dropped": _count_dropped(summary) / summary.expected,
        "packets": summary.data_packets / summary.expected,
        "delay_s": np.nan if delay_ms is None else delay_ms / 1000,
        "single_load": single_load,
    }
    return metrics if plan is None else metrics | _measure_plan(plan)


def _count_dropped(summary: Summary) -> int:
    """Drops by queues. A destination may be dropped again after a retransmission."""
    first = sum(summary.drops.get(reason, 0) for reason in (QUEUE_FULL, PEER_BUSY))
    return first + sum(summary.notices.get(f"{reason}-again", 0) for reason in (QUEUE_FULL, PEER_BUSY))


def draw_simulated_workload(trial: SimulatedTrial, seed: int) -> FlowWorkload:
    """One message a second for each flow. All have one size, so capacities are in messages."""
    cell = CellTrial(
        "honest",
        nodes=trial.nodes,
        messages=trial.messages,
        popularity=trial.popularity,
        growth=trial.growth,
        scale=trial.scale,
    )
    drawn = draw_cell_workload(cell, seed)
    rates = drawn.demand[MESSAGES] / trial.scale
    return FlowWorkload(drawn.publisher, drawn.ptr, drawn.receivers, np.array([rates, 0 * rates]), drawn.weight)


def make_simulated_network(trial: SimulatedTrial, workload: FlowWorkload, seed: int) -> tuple[FlowNetwork, float]:
    """The network whose links (or peers) have the capacity that the balanced plan needs, divided by the load; also the
    load of the fullest on single paths."""
    cell = CellTrial("honest", nodes=trial.nodes, growth=trial.growth, per=trial.per)
    unit = make_network(cell, seed, Rate(1.0))
    graphs = make_delivery_graphs(unit, workload, trial.k)
    needed = balance(make_problem(unit, workload, graphs)).y
    single = balance(make_problem(unit, workload, limit_k(graphs, 1))).y
    capacity = needed / trial.load * (1 + TIGHT)
    links = unit.overlay.links
    if trial.per == "node":
        takes = tuple((msgs * capacity, inf) for msgs in unit.peer_capacity[MESSAGES].tolist())
        return FlowNetwork(Overlay(unit.peers, links, unit.names, takes)), single / capacity
    carry = [msgspec.structs.replace(link, capacity_msgs=capacity) for link in links]
    return FlowNetwork(Overlay(unit.peers, carry, unit.names)), single / capacity


def make_simulated_plan(trial: SimulatedTrial, network: FlowNetwork, workload: FlowWorkload) -> Plan:
    return make_plan(network, workload, parse_goal(trial.strategy), trial.k, partial=trial.load > 1)


def _publish_at_once(topics: tuple[Topic, ...]) -> tuple[Topic, ...]:
    """Topics that publish the messages of one second within a microsecond."""
    times = (tuple(range(round(SECOND / topic.period_ns))) for topic in topics)
    return tuple(
        msgspec.structs.replace(topic, phase_ns=0, times_ns=moments)
        for topic, moments in zip(topics, times, strict=True)
    )


def _make_scenario(trial: SimulatedTrial, flows: Path, network: FlowNetwork, seed: int) -> Scenario:
    capacities = network.arc_capacity if trial.per == "link" else network.peer_capacity
    return Scenario(
        strategy="planned" if trial.strategy in GOALS else trial.strategy,
        seed=seed,
        peers=trial.nodes,
        link_capacity=STATED if trial.per == "link" else None,
        peer_capacity=STATED if trial.per == "node" else None,
        queue=ceil(trial.queue_share * capacities[MESSAGES].max()) or trial.queue_msgs,
        pf=0.0,
        pl=0.0,
        topics=1,
        flows=str(flows),
        factor=LATE,
        duration="1s" if trial.at_once else f"{trial.duration_s}s",
        drain=f"{DRAIN_S}s",
    )


def _measure_plan(plan: Plan) -> dict[str, float]:
    """The graphs per message. A message outside the plan has none."""
    graphs = np.bincount(plan.graphs["flow"], minlength=plan.head.flows)
    rates = plan.flows["rate_msgs"] / plan.flows["rate_msgs"].sum()
    return {
        "promised": 1.0 - plan.head.delivered / plan.head.wanted,
        "graphs": float(rates @ graphs),
        "split": float(rates @ (graphs > 1)),
    }


def estimate_cost(trial: SimulatedTrial) -> float:
    """Estimate the seconds: peers flood links and subscriptions, then send about a packet per delivery."""
    flooding = 2e-4 * trial.nodes**2
    duration_s = 1.0 if trial.at_once else trial.duration_s
    deliveries = trial.messages / trial.scale * duration_s * 0.75 * trial.popularity * trial.nodes
    return flooding + 5e-5 * deliveries * (4.0 if trial.strategy in ("dcrd", "adaptive") else 1.0)


SIMULATED = TrialKind(
    "simulated",
    SimulatedTrial,
    run_simulated,
    METRICS,
    parts=(*PARTS, "planning", *OWN_PARTS, "studies/campr/trials.py"),
    cost=estimate_cost,
)
