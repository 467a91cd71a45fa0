"""Chapter 5 of the thesis: plans played in the simulator, beside strategies that know no plan, at the same load.

The workload is that of chapter 4, one flow for so many of its messages, each of one message a second. Links serialise
and their queues are bounded, as in the thesis's simulator; so here plans are made for links, and only where `per` says
`node` for what the links of a peer bring together, which peers serialise then. What the balanced plan needs is what
*fits*: the links of a trial carry that over `load`, so at load 1 the fullest is full to the last message. Events are
evenly spaced, ACKs are not charged, nothing fails, and deadlines are so late that nobody gives up for want of time:
what is lost is lost to queues.

Above load 1 a plan carries the most valuable part, and publishers refuse the rest: `promised` is what is left
undelivered by the linear program, `undelivered` by the simulated peers.
"""

from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec
import numpy as np

from wend.drivers.sim.capacity import PEER_BUSY, QUEUE_FULL
from wend.drivers.sim.run import play
from wend.drivers.world import World
from wend.model.forwarding import Forwarding
from wend.model.plan import Plan
from wend.model.rates import Rate
from wend.model.scenario import STATED, Scenario
from wend.model.summary import Summary
from wend.pipeline.code import PARTS
from wend.pipeline.trials import Kind
from wend.planning.graphs import delivery_graphs, up_to
from wend.planning.make import make_plan
from wend.planning.models import TIGHT, balance, parse_goal
from wend.planning.network import FlowNetwork
from wend.planning.problem import problem_of
from wend.planning.workload import MESSAGES, FlowWorkload, write_workload
from wend.studies.campr_trials import Cell, network_of
from wend.studies.campr_trials import workload_of as cell_workload
from wend.topology.brite_flat import Growth
from wend.topology.graph import Overlay

GOALS = ("min-usage", "balance")
LATE = 1000.0
"""Deadlines, in shortest delays."""
DRAIN_S = 20.0


class Played(msgspec.Struct, frozen=True):
    strategy: Literal["min-usage", "balance", "d-tree", "multipath", "dcrd"]
    """A goal, whose plan is followed, or a strategy that knows no plan."""
    nodes: int = 100
    messages: int = 10_000
    popularity: float = 0.45
    load: float = 1.0
    """What is offered, over what fits."""
    growth: Growth = "attached"
    per: Literal["link", "node"] = "link"
    k: int = 4
    queue_msgs: int = 32
    duration_s: float = 10.0
    scale: int = 100
    """One flow for so many messages of the workload."""


FIGURES = ("undelivered", "promised", "graphs", "split", "dropped", "packets", "delay_s", "single_load")
"""Undelivered, by simulated peers and by the plan, as shares of what is wanted; delivery graphs per message, and the
share of messages that may take several; what queues dropped, and packets, each per delivery that is wanted; the delay
that 99 % stay below; how full the fullest link would be on single paths."""


def run_played(trial: Played, seed: int) -> dict[str, float]:
    workload = _workload(trial, seed)
    network, single_load = _network(trial, workload, seed)
    plan = _plan(trial, network, workload) if trial.strategy in GOALS else None
    with TemporaryDirectory() as folder:
        flows = Path(folder) / "flows.jsonl"
        write_workload(workload, flows, network.names)
        world = World(_scenario(trial, flows, seed), network.overlay)
        world.plan = Forwarding(plan) if plan is not None else None
        summary = play(world).summary
    delay_ms = summary.delay_ms.p99
    found = {
        "undelivered": 1.0 - summary.delivery,
        "dropped": _dropped(summary) / summary.expected,
        "packets": summary.transmissions / summary.expected,
        "delay_s": np.nan if delay_ms is None else delay_ms / 1000,
        "single_load": single_load,
    }
    return found if plan is None else found | _of_plan(plan)


def _dropped(summary: Summary) -> int:
    """By queues; a destination that is sent again may be dropped again."""
    first = sum(summary.drops.get(reason, 0) for reason in (QUEUE_FULL, PEER_BUSY))
    return first + sum(summary.notices.get(f"{reason} again", 0) for reason in (QUEUE_FULL, PEER_BUSY))


def _workload(trial: Played, seed: int) -> FlowWorkload:
    """A message a second for each flow; all are of one size, so capacities can be in messages."""
    cell = Cell(
        "honest",
        nodes=trial.nodes,
        messages=trial.messages,
        popularity=trial.popularity,
        growth=trial.growth,
        scale=trial.scale,
    )
    drawn = cell_workload(cell, seed)
    rates = drawn.demand[MESSAGES] / trial.scale
    return FlowWorkload(drawn.publisher, drawn.ptr, drawn.receivers, np.array([rates, 0 * rates]), drawn.weight)


def _network(trial: Played, workload: FlowWorkload, seed: int) -> tuple[FlowNetwork, float]:
    """Links (or peers) that carry what the balanced plan needs over the load, and how full single paths would fill
    them."""
    cell = Cell("honest", nodes=trial.nodes, growth=trial.growth, per=trial.per)
    unit = network_of(cell, seed, Rate(1.0))
    graphs = delivery_graphs(unit, workload, trial.k)
    needed = balance(problem_of(unit, workload, graphs)).y
    single = balance(problem_of(unit, workload, up_to(graphs, 1))).y
    capacity = needed / trial.load * (1 + TIGHT)
    links = unit.overlay.links
    if trial.per == "node":
        takes = tuple((msgs * capacity, inf) for msgs in unit.peer_capacity[MESSAGES].tolist())
        return FlowNetwork(Overlay(unit.peers, links, unit.names, takes)), single / capacity
    carry = [msgspec.structs.replace(link, capacity_msgs=capacity) for link in links]
    return FlowNetwork(Overlay(unit.peers, carry, unit.names)), single / capacity


def _plan(trial: Played, network: FlowNetwork, workload: FlowWorkload) -> Plan:
    return make_plan(network, workload, parse_goal(trial.strategy), trial.k, partial=trial.load > 1)


def _scenario(trial: Played, flows: Path, seed: int) -> Scenario:
    return Scenario(
        strategy="planned" if trial.strategy in GOALS else trial.strategy,
        seed=seed,
        peers=trial.nodes,
        capacity=STATED if trial.per == "link" else None,
        peer_capacity=STATED if trial.per == "node" else None,
        queue_msgs=trial.queue_msgs,
        pf=0.0,
        pl=0.0,
        topics=1,
        flows=str(flows),
        factor=LATE,
        duration_s=trial.duration_s,
        drain_s=DRAIN_S,
    )


def _of_plan(plan: Plan) -> dict[str, float]:
    """How many graphs a message may take; one that is left out takes none."""
    graphs = np.bincount(plan.graphs["flow"], minlength=plan.head.flows)
    rates = plan.flows["rate_msgs"] / plan.flows["rate_msgs"].sum()
    return {
        "promised": 1.0 - plan.head.delivered / plan.head.wanted,
        "graphs": float(rates @ graphs),
        "split": float(rates @ (graphs > 1)),
    }


def cost(trial: Played) -> float:
    """Roughly seconds: peers tell each other their links and wishes, then there is a packet or so per delivery."""
    telling = 2e-4 * trial.nodes**2
    wanted = trial.messages / trial.scale * trial.duration_s * 0.75 * trial.popularity * trial.nodes
    return telling + 5e-5 * wanted * (4.0 if trial.strategy == "dcrd" else 1.0)


PLAYED = Kind("played", Played, run_played, FIGURES, parts=(*PARTS, "planning", "studies/campr_trials.py"), cost=cost)
