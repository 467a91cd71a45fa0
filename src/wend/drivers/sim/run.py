"""From a scenario to its figures: build the world, play it, add it up."""

import gc
import time
from typing import Any

import msgspec
import numpy as np

from wend.drivers.sim import fates
from wend.drivers.sim.detection import known_after_ms
from wend.drivers.sim.engine import Engine
from wend.drivers.sim.oracle import Oracle
from wend.drivers.strategies import learn
from wend.drivers.world import World, build
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.scenario import Scenario
from wend.model.summary import LATE, Summary
from wend.model.trace import Trace
from wend.model.units import Nanos
from wend.protocol.messages import CONTROL
from wend.protocol.routing import ROUTING

STRATEGIES = (*ROUTING, "oracle")


class Outcome(msgspec.Struct, frozen=True):
    summary: Summary
    trace: Trace
    world: World


def simulate(scenario: Scenario) -> Outcome:
    return play(build(scenario))


def play(world: World) -> Outcome:
    """A world that was built already, perhaps with failures of its own."""
    strategy = world.scenario.strategy
    learn(strategy)
    if strategy not in (*STRATEGIES, *ROUTING):
        raise ConfigError(f"unknown strategy {strategy!r}: choose one of {', '.join(STRATEGIES)}, or MODULE:CLASS")
    began = time.perf_counter()
    made = Oracle(world) if strategy == "oracle" else Engine(world)
    collecting = gc.isenabled()
    gc.disable()  # no cycles are made in a run, and the collector would walk millions of live tuples
    try:
        made.run()
    finally:
        if collecting:
            gc.enable()
    return Outcome(summarise(made, time.perf_counter() - began), made.trace, world)


def summarise(made: Engine | Oracle, wall_s: float) -> Summary:
    """Only deliveries that were expected count: a subscriber that was down at the publication may be lucky."""
    expected = sum(len(subscribers) for _, subscribers in made.expected.values())
    deliveries = made.trace.deliveries
    delay, deadline = deliveries.numbers("delay_ns", "deadline_ns").T.astype(np.float64)
    if made.world.scenario.peer_outages is not None:
        nobody: tuple[Nanos, tuple[PeerId, ...]] = (0, ())
        counts = np.array(
            [row[4] in made.expected.get(EventId(*row[1:4]), nobody)[1] for row in deliveries.rows()], dtype=np.bool_
        )
        delay, deadline = delay[counts], deadline[counts]
    on_time = int((delay <= deadline).sum())
    delivered = len(delay)
    return Summary(
        delivery=_ratio(delivered, expected),
        on_time=_ratio(on_time, expected),
        packets_per_subscriber={
            "shared": _ratio(made.transmissions, expected),
            "unicast": _ratio(made.transmissions_unicast, expected),
        },
        publications=len(made.expected),
        expected=expected,
        delivered=delivered,
        delivered_on_time=on_time,
        transmissions=made.transmissions,
        transmissions_unicast=made.transmissions_unicast,
        control={name: made.control[name] for name in CONTROL},
        late_within=_late(delay, deadline),
        delay_ms=_delays(delay),
        drops=dict(sorted(made.drops.items())),
        notices=dict(sorted(made.notices.items())),
        outage_known_ms=_known(made) if isinstance(made, Engine) else {},
        missing=dict(sorted(fates.missing(made).items())) if isinstance(made, Engine) else {},
        trace_sha256=made.trace.sha256(),
        wall_s=wall_s,
    )


def _known(made: Engine) -> dict[str, float]:
    return known_after_ms(made.world.overlay, made.world.faults, made.noticed)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _late(delay: Any, deadline: Any) -> dict[str, float | None]:
    late = delay[delay > deadline] / deadline[delay > deadline]
    return {f"{bound:g}": float((late <= bound).mean()) if len(late) else None for bound in LATE}


def _delays(delay: Any) -> dict[str, float | None]:
    if not len(delay):
        return {"p50": None, "p99": None, "mean": None}
    p50, p99 = np.percentile(delay, [50, 99])
    return {"p50": float(p50) / 1e6, "p99": float(p99) / 1e6, "mean": float(delay.mean()) / 1e6}
