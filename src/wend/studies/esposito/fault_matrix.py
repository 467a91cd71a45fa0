"""The matrix of faults and strategies: small random worlds, each with one kind of fault, played and judged.

The faults are those of esposito's taxonomy (section 2.2). `play(fault, strategy, seed)` plays one world and checks what
the strategy promises (`drivers/sim/checks.py`). Every fault begins with the first publication. In worlds with
persistence it heals early enough for all promises to be judged.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.sim.checks import SETTLE_NS, check
from wend.drivers.sim.run import Outcome, play_world
from wend.drivers.world import World, build_world
from wend.model.units import SECOND
from wend.protocol.plugins import Interest
from wend.strategies import registry
from wend.strategies.registry import INTEREST, linked_strategies

COMBINED = "combined"
"""Three of the faults in one world."""
STRATEGIES = tuple(name for name in registry.STRATEGIES if not registry.follows_plan(name))
"""All but the one that needs a plan."""
Draw = random.Random


class FaultRow(msgspec.Struct, frozen=True):
    """The result of one strategy in one world with one fault."""

    fault: str
    strategy: str
    seed: int
    expected: int
    delivered: int
    on_time: int
    doubled: int
    """Second and further notifications of one event to one subscription."""
    lost: int
    broken: tuple[str, ...]
    """The promises that do not hold, each with a sentence."""


def stores_events(strategy: str) -> bool:
    """Whether a strategy can store events for unreachable peers."""
    interest = INTEREST[registry.STRATEGIES[strategy].interest_for(persistence=True)]
    return issubclass(interest, Interest) and interest.durable


def make_fault_scenario(fault: str, strategy: str, seed: int) -> Scenario:
    """A random scenario of 10 to 16 peers with this fault. The seed alone determines it, so all strategies get it."""
    draw = random.Random(f"{fault} {seed}")
    persistence = draw.random() < 0.7
    duration, heal = draw.uniform(8.0, 14.0), draw.uniform(5.0, 9.0)
    fields: dict[str, Any] = {
        "seed": seed,
        "strategy": strategy,
        "peers": draw.choice([10, 12, 14, 16]),
        "degree": draw.choice([3, 4, 5]),
        "underlay": "power-law" if draw.random() < 0.25 else None,
        "pf": 0.0,
        "pl": 0.0,
        "topics": draw.randint(2, 4),
        "rate": draw.choice([1.0, 2.0]),
        "popularity": (0.3, 0.9),
        "factor": draw.choice([2.0, 3.0]),
        "transmissions": draw.choice([1, 2]),
        "ack": "round-trip",
        "estimator": "measured",  # as live peers do: the delays that a scenario states do not hold under faults
        "monitoring": f"{draw.choice([1, 5])}s",
        "warmup": f"{5 if strategy in linked_strategies() else 15}s",
        "duration": f"{duration}s",
        "heal": f"{heal}s",
        "drain": f"{2 + SETTLE_NS / SECOND}s",
        "persistence": persistence and stores_events(strategy),
    }
    if strategy not in linked_strategies():
        # peers repeat the state of crashed ones, several times before the world is judged
        fields |= {"beacon": "5s", "expiry": "15s", "cluster_beacon": "5s"}
    for one in draw.sample(FAULTS, 3) if fault == COMBINED else (fault,):
        fields |= _FIELDS[one](draw)
    return make_scenario(fields)


def make_fault_world(fault: str, strategy: str, seed: int) -> World:
    """The world of that scenario."""
    return build_world(make_fault_scenario(fault, strategy, seed))


def play_fault(fault: str, strategy: str, seed: int) -> FaultRow:
    """Play a random world with this fault, and judge it."""
    return judge_outcome(fault, play_world(make_fault_world(fault, strategy, seed)))


def judge_outcome(fault: str, outcome: Outcome) -> FaultRow:
    """The row of a world that was played."""
    rows = list(outcome.trace.deliveries.numbers("publisher", "incarnation", "sequence", "subscriber", "subscription"))
    summary, scenario = outcome.summary, outcome.world.scenario
    return FaultRow(
        fault=fault,
        strategy=scenario.strategy,
        seed=scenario.seed,
        expected=summary.expected,
        delivered=summary.delivered,
        on_time=summary.delivered_on_time,
        doubled=len(rows) - len({tuple(row.tolist()) for row in rows}),
        lost=summary.expected - summary.delivered,
        broken=tuple(map(str, check(outcome))),
    )


# ---------------------------------------------------------------- the faults


def _draw_failure_times(draw: Draw, up_s: float, down_s: float, **more: Any) -> dict[str, Any]:
    """Times of work and failure, with these means."""
    if draw.random() < 0.5:
        times = {"up": {"kind": "exponential", "mean_s": up_s}, "down": {"kind": "exponential", "mean_s": down_s}}
    else:
        times = {"up": {"kind": "uniform", "high_s": 2 * up_s}, "down": {"kind": "uniform", "high_s": 2 * down_s}}
    return {**times, **more}


_FIELDS: dict[str, Callable[[Draw], dict[str, Any]]] = {
    "loss": lambda draw: {"pl": draw.choice([0.01, 0.03, 0.06])},
    "reordering": lambda draw: {
        "reordering": draw.choice([0.05, 0.3]),
        "reordering_delay": draw.choice(["50ms", "1s"]),
    },
    "corruption": lambda draw: {"corruption": draw.choice([0.01, 0.03, 0.06])},
    "delay": lambda draw: {
        "delay_spikes": _draw_failure_times(draw, 3.0, 1.0, extra_ms=draw.choice([(20, 200), (200, 2000)]))
    },
    "congestion": lambda draw: {
        "congestion": _draw_failure_times(draw, 3.0, 1.5, load=draw.choice([(0.7, 1.0), (0.9, 1.5)]))
    },
    "partition": lambda draw: {"peer_partitions": _draw_failure_times(draw, 3.0, 2.0)},
    "link crash": lambda draw: {"outages": _draw_failure_times(draw, 4.0, 1.0)},
    "node crash": lambda draw: {"peer_outages": _draw_failure_times(draw, 12.0, 2.0)},
    "churn": lambda draw: {"churn": _draw_failure_times(draw, 12.0, 3.0)},
}
FAULTS = tuple(_FIELDS)
