"""What strategies deliver in time under overload, beside the best that any strategy could (`on_time_bound.py`).

20 peers of degree 5, whose links carry 200 messages/s in each direction, nothing fails, and deadlines are 3 times the
shortest delay. With 40 events/s of each of 10 topics the busiest link of a shortest-path tree is about full; this is
load 1. All strategies run in the same worlds: a seed decides everything but the strategy.

`python -m benchmarks.overload`; `--json` for machines, `--strategies adaptive,d-tree`, `--rates 20,80`, `--seeds N`,
`--duration SECONDS`, `--curve FILE` for the data of the picture in docs/explanation/congestion.md. A strategy may come
with settings: `adaptive:redundancy=none`. `planned` follows a plan that is made for each world, with as few paths to
each receiver as the load needs.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.on_time_bound import on_time_bound
from wend.drivers.scenarios import make_scenario
from wend.drivers.sim.run import simulate
from wend.drivers.world import World, build_world
from wend.model.errors import ConfigError
from wend.model.plan import Plan
from wend.model.rates import BITS_PER_BYTE
from wend.model.summary import Summary
from wend.model.units import SECOND
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import FlowWorkload, WorkloadBuilder
from wend.planning.models import Goal
from wend.planning.planner import make_plan
from wend.topology.graph import Overlay

STRATEGIES = ("adaptive", "d-tree", "dcrd")
RATES = (20.0, 40.0, 60.0, 80.0, 120.0)
FITS = 40.0
"""The rate per topic at which a tree's busiest link is about full."""
PATHS = 8
"""The paths to each receiver from which a plan chooses, at most."""
WORLD: dict[str, Any] = {"peers": 20, "degree": 5, "link_capacity": "200msg/s", "pf": 0.0, "factor": 3.0}


class StrategyMeans(msgspec.Struct, frozen=True):
    """The means over all seeds, for one strategy and rate."""

    strategy: str
    rate: float
    on_time: float
    delivered: float
    packets: float
    """Data packets per expected delivery."""


class Load(msgspec.Struct, frozen=True):
    """One offered load: the best possible, and what strategies achieved."""

    rate: float
    load: float
    """Relative to the rate that fits."""
    bound: float
    strategies: list[StrategyMeans]


def world_bound(world: World) -> float:
    """The highest share of a world's deliveries that can be in time, if nothing fails."""
    return on_time_bound(_network(world), _workload(world), world.deadline_ns, world.scenario.duration_ns).share


def _network(world: World) -> FlowNetwork:
    return FlowNetwork(Overlay(world.overlay.peers, world.overlay.links, world.overlay.names, world.peer_capacity))


def _workload(world: World) -> FlowWorkload:
    builder = WorkloadBuilder()
    for topic in world.topics:
        rate = SECOND / topic.period_ns
        builder.add(topic.publisher, topic.subscribers, rate, rate * BITS_PER_BYTE * topic.payload_bytes, topic.weight)
    return builder.build()


def measure(strategies: list[str], rate: float, seeds: int, duration_s: float) -> Load:
    """All strategies at one rate, in the worlds of all seeds."""
    fields = [{**WORLD, "rate": rate, "seed": seed, "duration": f"{duration_s}s"} for seed in range(1, seeds + 1)]
    bound = float(np.mean([world_bound(build_world(make_scenario(world))) for world in fields]))
    found = []
    for named in strategies:
        strategy, settings = _parse_strategy(named)
        runs = []
        for world in fields:
            print(f"rate {rate:g}, seed {world['seed']}: {named} ...", file=sys.stderr, flush=True)
            runs.append(_run({**world, **settings, "strategy": strategy}))
        means = np.mean([(run.on_time, run.delivery, run.packets.shared) for run in runs], axis=0).tolist()
        found.append(StrategyMeans(named, rate, *means))
    return Load(rate, rate / FITS, bound, found)


def _run(fields: dict[str, Any]) -> Summary:
    if fields["strategy"] != "planned":
        return simulate(make_scenario(fields)).summary
    world = build_world(make_scenario({**fields, "strategy": "d-tree"}))
    with tempfile.TemporaryDirectory() as folder:
        _plan(world).write(Path(folder))
        return simulate(make_scenario({**fields, "plan": folder})).summary


def _plan(world: World) -> Plan:
    network, workload, goal = _network(world), _workload(world), Goal("min-usage")
    for k in range(1, PATHS):
        try:
            return make_plan(network, workload, goal, k)
        except ConfigError:  # it needs more paths
            continue
    return make_plan(network, workload, goal, PATHS, partial=True)


def _parse_strategy(named: str) -> tuple[str, dict[str, str]]:
    """A strategy and its settings, from `adaptive:redundancy=none`. A plug-in from outside is `MODULE:CLASS`."""
    parts = named.split(":")
    settings = [part.split("=", 1) for part in parts if "=" in part]
    return ":".join(part for part in parts if "=" not in part), dict(settings)


def load_table(loads: list[Load]) -> Table:
    names = [each.strategy for each in loads[0].strategies]
    table = Table(title="on time, and its share of the best possible | delivered")
    for title in ("load", "rate", "best", *names):
        table.add_column(title, justify="right")
    for load in loads:
        cells = [
            f"{each.on_time:6.1%} {each.on_time / load.bound:5.2f} |{each.delivered:6.1%}" for each in load.strategies
        ]
        table.add_row(f"{load.load:g}", f"{load.rate:g}", f"{load.bound:.1%}", *cells)
    return table


def _add_to_curve(path: Path, loads: list[Load]) -> None:
    """Write the results. Those of other strategies at the same rates stay in the file."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"made by": [], "loads": []}
    stored = {load["rate"]: load["strategies"] for load in before["loads"]}
    merged = []
    for load in loads:
        mine = {each.strategy for each in load.strategies}
        others = [each for each in stored.get(load.rate, []) if each["strategy"] not in mine]
        merged.append({**msgspec.to_builtins(load), "strategies": [*msgspec.to_builtins(load.strategies), *others]})
    command = " ".join(["python -m benchmarks.overload", *sys.argv[1:]])
    made = {"made by": [*before["made by"], command], "loads": merged}
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--json", action="store_true")
    asked.add_argument("--strategies", default=",".join(STRATEGIES), help="separated by commas")
    asked.add_argument("--rates", default=",".join(f"{rate:g}" for rate in RATES), help="events per second and topic")
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--duration", type=float, default=10.0, help="simulated seconds")
    asked.add_argument("--curve", type=Path, metavar="FILE", help="also add the results to this file")
    given = asked.parse_args()
    try:
        rates = [float(rate) for rate in given.rates.split(",")]
        if given.seeds < 1:
            raise ConfigError("measure at least one seed")
        loads = [measure(given.strategies.split(","), rate, given.seeds, given.duration) for rate in rates]
    except ConfigError as error:
        asked.error(str(error))
    except ValueError:
        asked.error(f"rates are numbers, got {given.rates}")
    if given.curve is not None:
        _add_to_curve(given.curve, loads)
    if given.json:
        print(json.dumps(msgspec.to_builtins(loads), indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 60 + 30 * len(loads[0].strategies)).print(load_table(loads))


if __name__ == "__main__":
    main()
