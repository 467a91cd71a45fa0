"""Replays: each recorded window, played in the simulator under each strategy and setting. A run is a row on Spark.

`sweep.py` distributes, stores and resumes the runs. Every run of a window has the same links, outages and flows; runs
with the same seed also have the same times of publication. So strategies can be compared pair by pair.

The first run of a window publishes at the recorded times, if they are known: it repeats what happened. The other runs
move the times, because it was chance which events met an outage, and the strategy is for other days.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import msgspec
from pyspark.sql import SparkSession

from wend.drivers.arrivals import ORACLE
from wend.drivers.recorded import DRAWN, MOVED, RECORDED, Recording, make_recorded_world
from wend.drivers.sim.run import STRATEGIES, can_simulate, play_world
from wend.drivers.world import World
from wend.model.choices import Redundancy
from wend.model.errors import ConfigError
from wend.model.flows import Flow, unambiguous_names
from wend.model.forwarding import read_forwarding
from wend.model.rates import Rate
from wend.model.units import SECOND
from wend.pipeline.code_hash import PARTS
from wend.pipeline.storage.versioned_tables import TableChange, TableFolder, frame_columns
from wend.pipeline.sweeps.sweep import LIMIT_S, SweepResult, run_sweep
from wend.pipeline.sweeps.trials import Trial, TrialKind, Trials
from wend.planning.flow_network import FlowNetwork
from wend.planning.flow_workload import make_workload
from wend.planning.models import parse_goal
from wend.planning.planner import make_plan
from wend.strategies.adaptive.plugin import AdaptiveSettings
from wend.strategies.registry import find_routing, follows_plan, load

METRICS = ("on_time", "delivery", "packets", "expected", "delay_p50_ms", "delay_p99_ms")
_PLAN_K = 4
_DELIVERIES_PER_S = 30_000


class ReplayFields(msgspec.Struct, frozen=True):
    """One window under one strategy."""

    strategy: str
    redundancy: str
    """Empty if the strategy has no such setting."""
    begin_ns: int
    duration_ns: int
    times: str
    """`recorded`, `moved` or `drawn`."""
    settings: str
    """Further settings of peers, as JSON."""
    recording: str
    """As JSON."""


def play_recording(fields: ReplayFields, seed: int) -> Mapping[str, float]:
    """Play one window. The metrics are shares of the expected deliveries, packets for each of them, and delays."""
    recording = _decode_recording(fields.recording)
    settings = {**msgspec.json.decode(fields.settings), "strategy": fields.strategy}
    if fields.redundancy:
        settings["redundancy"] = fields.redundancy
    world = make_recorded_world(recording, seed, settings, moved=fields.times != RECORDED)
    if fields.strategy != ORACLE and follows_plan(fields.strategy):
        _add_plan(world)
    summary = play_world(world).summary
    nothing = float("nan")
    return {
        "on_time": summary.on_time,
        "delivery": summary.delivery,
        "packets": summary.data_packets / summary.delivered if summary.delivered else nothing,
        "expected": summary.expected,
        "delay_p50_ms": nothing if summary.delay_ms.p50 is None else summary.delay_ms.p50,
        "delay_p99_ms": nothing if summary.delay_ms.p99 is None else summary.delay_ms.p99,
    }


@lru_cache(maxsize=4)
def _decode_recording(text: str) -> Recording:
    return msgspec.json.decode(text, type=Recording)


def _add_plan(world: World) -> None:
    """Plan for the links and flows of a world, and let its peers follow the plan."""
    peers = unambiguous_names(world.overlay.names)
    flows = [
        Flow(peers[topic.publisher], [peers[peer] for peer in topic.subscribers], SECOND / topic.period_ns)
        for topic in world.topics
    ]
    # If capacities are not known, a link has room for everything, and the plan balances the load.
    network = FlowNetwork(world.overlay, link=Rate(sum(SECOND / topic.period_ns for topic in world.topics)))
    plan = make_plan(network, make_workload(flows, network.names, "the workload"), parse_goal("balance"), _PLAN_K)
    with TemporaryDirectory(prefix="wend-plan-") as name:
        plan.write(Path(name) / "plan")
        world.plan = read_forwarding(Path(name) / "plan")


def _estimate_cost(fields: ReplayFields) -> float:
    recording = _decode_recording(fields.recording)
    deliveries = sum(flow.rate_msgs * len(flow.receivers) for flow in recording.flows)
    return 0.5 + deliveries * recording.duration_ns / SECOND / _DELIVERIES_PER_S


_REPLAY_PARTS = (*PARTS, "drivers/recorded.py", "planning")
REPLAYS = Trials((TrialKind("replay", ReplayFields, play_recording, METRICS, _REPLAY_PARTS, _estimate_cost),))


def make_variants(strategies: Sequence[str], redundancies: Sequence[str]) -> list[tuple[str, str]]:
    """Strategies with each redundancy, if they have that setting. Raises `ConfigError` for an unknown one."""
    allowed = get_args(Redundancy)
    for text in redundancies:
        if text not in allowed:
            raise ConfigError(f"unknown redundancy {text!r}: choose from {', '.join(allowed)}")
    pairs: list[tuple[str, str]] = []
    for name in strategies:
        load("routing", name)
        if not can_simulate(name):
            raise ConfigError(f"unknown strategy {name!r}: choose from {', '.join(STRATEGIES)}, or MODULE:CLASS")
        routing = None if name == ORACLE else find_routing(name)
        has = routing is not None and issubclass(routing.settings, AdaptiveSettings)
        pairs += [(name, text) for text in redundancies] if has else [(name, "")]
    if not pairs:
        raise ConfigError("name at least one strategy")
    return list(dict.fromkeys(pairs))


def run_replays(
    spark: SparkSession,
    windows: Sequence[Recording],
    chosen: Sequence[tuple[str, str]],
    out: Path,
    *,
    seeds: int,
    settings: Mapping[str, Any] | None = None,
    limit_s: float = LIMIT_S,
    quiet: bool = False,
) -> SweepResult:
    """Play all windows under all variants, with so many seeds each."""
    runs = []
    extra = msgspec.json.encode(dict(settings or {}), order="deterministic").decode()
    for window in windows:
        text = msgspec.json.encode(window).decode()
        for strategy, redundancy in chosen:
            for seed in range(1, seeds + 1):
                times = DRAWN if not window.has_times else RECORDED if seed == 1 else MOVED
                about = (window.begin_ns, window.duration_ns, times)
                runs.append(Trial("replay", ReplayFields(strategy, redundancy, *about, extra, text), seed))
    return run_sweep(spark, REPLAYS, runs, "replay", out, limit_s=limit_s, quiet=quiet)


def save_replays(spark: SparkSession, swept: SweepResult, out: str) -> None:
    """Make the results of a sweep the table `replays` of its folder."""
    tables = TableFolder(spark, out)
    names = ("strategy", "redundancy", "begin_ns", "duration_ns", "times", "seed", *METRICS, "error")
    frame = swept.results.select(*names).coalesce(1)
    base = tables.newest_version()
    former = base.table_files("replays") if base is not None else ()
    change = TableChange(frame_columns(frame), tables.write(frame, "replays"), frozenset(file.path for file in former))
    tables.commit(base, {"replays": change})
