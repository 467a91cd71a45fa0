"""Run a scenario: build the world, play it, and summarise the metrics."""

import gc
import time

import msgspec
import numpy as np

from wend.drivers.arrivals import ORACLE
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.detection import compute_detection_delays
from wend.drivers.sim.engine import Engine
from wend.drivers.sim.missing import explain_missing
from wend.drivers.sim.oracle import Oracle
from wend.drivers.summaries import count_deliveries, make_summary
from wend.drivers.world import World, build_world
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.summary import Summary
from wend.model.trace import Trace
from wend.model.units import Nanos
from wend.strategies import registry

STRATEGIES = (*registry.STRATEGIES, ORACLE)


class Outcome(msgspec.Struct, frozen=True):
    """The summary and the trace of a run, with its world."""

    summary: Summary
    trace: Trace
    world: World


def can_simulate(strategy: str) -> bool:
    """Whether a strategy can be simulated. It loads an external strategy, or raises an error that says why not."""
    registry.load("routing", strategy)
    return strategy == ORACLE or strategy in registry.STRATEGIES


def simulate(scenario: Scenario) -> Outcome:
    return play_world(build_world(scenario))


def play_world(world: World) -> Outcome:
    """Play a world that was built before, perhaps with its own failures."""
    strategy = world.scenario.strategy
    if not can_simulate(strategy):
        raise ConfigError(f"unknown strategy {strategy!r}: choose one of {', '.join(STRATEGIES)}, or MODULE:CLASS")
    began = time.perf_counter()
    run = Oracle(world) if strategy == ORACLE else Engine(world.for_strategy(strategy))
    collecting = gc.isenabled()
    gc.disable()  # a run and its summary make no cycles, and the collector would walk millions of live tuples
    try:
        run.run()
        return Outcome(summarise_run(run, time.perf_counter() - began), run.trace, world)
    finally:
        if collecting:
            gc.enable()


def summarise_run(run: Engine | Oracle, wall_s: float) -> Summary:
    """Summarise a run. Only expected deliveries count: no event is expected at a subscriber that was down or had left
    when it was published."""
    expected = sum(len(subscribers) for _, subscribers in run.expected.values())
    deliveries = run.trace.deliveries
    delay, deadline = deliveries.numbers("delay_ns", "deadline_ns").T.astype(np.float64)
    if run.world.scenario.peer_outages is not None or run.world.scenario.churn is not None:
        nobody: tuple[Nanos, tuple[PeerId, ...]] = (0, ())
        counts = np.array(
            [row[4] in run.expected.get(EventId(*row[1:4]), nobody)[1] for row in deliveries.rows()], dtype=np.bool_
        )
        delay, deadline = delay[counts], deadline[counts]
    return make_summary(
        count_deliveries(delay, deadline),
        publications=len(run.expected),
        expected=expected,
        data_packets=run.transmissions,
        data_packets_unicast=run.transmissions_unicast,
        control=run.control,
        drops=run.drops,
        notices=run.notices,
        wall_s=wall_s,
        trace_sha256=run.trace.sha256(),
        known=compute_detection_delays(run.world.overlay, run.world.faults, run.link_verdicts)
        if isinstance(run, Engine)
        else None,
        missing=explain_missing(run) if isinstance(run, Engine) else None,
    )
