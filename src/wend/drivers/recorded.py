"""The world of a recording: links, outages and flows that were measured, to be played under any strategy.

Peers of a recording have any ids. In the world they have the numbers from 0 on, in the order of their ids.

If the time of every publication was recorded, a run publishes at these times, or shifts them: a seed draws an amount
for each flow, by which its times rotate within the recording. The gaps between publications stay the same, but other
events meet the outages. If only rates are known, a seed draws the times. It also draws losses; everything else is as
recorded.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from wend.drivers.scenarios import SIMULATED, Scenario
from wend.drivers.settings import read_values
from wend.drivers.workload import GOLDEN, Topic
from wend.drivers.world import World
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.randomness import stream
from wend.model.settings import declared_settings
from wend.model.units import SECOND, Nanos
from wend.protocol.config import LinkSettings
from wend.topology.faults import Intervals
from wend.topology.graph import Overlay, OverlayLink

WARMUP_NS = 5 * SECOND
DRAIN_NS = 5 * SECOND
RECORDED, MOVED, DRAWN = "recorded", "moved", "drawn"
"""Times of publication: as they were, at other times with the same gaps, or by the rates of flows."""
LIVE_DEFAULTS = {each.name: each.default for each in declared_settings(LinkSettings) if each.name in SIMULATED}
"""The defaults of live peers that simulated ones do not have, typed, by name."""


class RecordedLink(msgspec.Struct, frozen=True, array_like=True):
    """A link between two peers, a < b, with its outages: (from, until) since the start of the recording. Earlier
    outages have negative times."""

    a: PeerId
    b: PeerId
    delay_ns: Nanos
    loss: float = 0.0
    outages: tuple[tuple[Nanos, Nanos], ...] = ()


class RecordedFlow(msgspec.Struct, frozen=True, array_like=True):
    publisher: PeerId
    receivers: tuple[PeerId, ...]
    rate_msgs: float
    size_bytes: int = 0
    weight: float = 1.0
    deadlines_ns: tuple[Nanos, ...] = ()
    """By receiver; empty: the scenario's multiple of the shortest delay."""
    times_ns: tuple[Nanos, ...] = ()
    """The times of its publications since the start of the recording; empty if only the rate is known."""


class Recording(msgspec.Struct, frozen=True):
    """The links, outages and flows that peers recorded in one window of time."""

    begin_ns: Nanos
    """Unix time, to tell windows apart."""
    duration_ns: Nanos
    links: tuple[RecordedLink, ...]
    flows: tuple[RecordedFlow, ...]

    @property
    def has_times(self) -> bool:
        """Whether the time of every publication is known."""
        return all(flow.times_ns for flow in self.flows)

    @property
    def peers(self) -> tuple[PeerId, ...]:
        return tuple(sorted({peer for link in self.links for peer in (link.a, link.b)}))


def make_recorded_world(recording: Recording, seed: int, settings: Mapping[str, Any], *, moved: bool = True) -> World:
    """The world in which a recording happens again, for peers with these settings. With `moved`, the seed draws the
    times of publication. Flows from and to peers without links are left out. Raises `ConfigError` if nothing remains.
    """
    numbers = {peer: number for number, peer in enumerate(recording.peers)}
    links = [
        OverlayLink(numbers[link.a], numbers[link.b], max(1, link.delay_ns), min(max(link.loss, 0.0), 0.99))
        for link in recording.links
    ]
    if not links:
        raise ConfigError(f"the recording of {recording.begin_ns} has no links")
    overlay = Overlay(len(numbers), links, tuple(map(str, recording.peers)))
    topics, deadlines = _make_topics(recording, numbers, seed, moved)
    if not topics:
        raise ConfigError(f"the recording of {recording.begin_ns} has no flow between its peers")
    scenario = Scenario.from_values(
        {
            "topology": "full-mesh", "peers": len(numbers), "topics": 1, "seed": seed, "pf": 0.0,
            "duration": recording.duration_ns, "warmup": WARMUP_NS, "drain": DRAIN_NS,
            **LIVE_DEFAULTS, **read_values(Scenario, settings),
        }
    )  # fmt: skip
    down = [
        (number, max(0, WARMUP_NS + begin), WARMUP_NS + end)
        for number, link in enumerate(recording.links)
        for begin, end in link.outages
        if WARMUP_NS + end > 0
    ]
    return World(scenario, overlay, topics=topics, outages=Intervals(len(links), down), deadlines=deadlines)


def _make_topics(
    recording: Recording, numbers: Mapping[PeerId, int], seed: int, moved: bool
) -> tuple[tuple[Topic, ...], dict[tuple[PeerId, PeerId], Nanos]]:
    """A topic for each flow, and the deadlines by publisher and subscriber: the shortest of all flows."""
    topics: list[Topic] = []
    deadlines: dict[tuple[PeerId, PeerId], Nanos] = {}
    for number, flow in enumerate(recording.flows):
        publisher = numbers.get(flow.publisher)
        receivers = sorted({numbers[peer] for peer in flow.receivers if peer in numbers} - {publisher})
        if publisher is None or not receivers or flow.rate_msgs <= 0:
            continue
        period = max(1, round(SECOND / flow.rate_msgs))
        drawn = stream(seed, "recorded", "phase", number)
        times: tuple[Nanos, ...] = ()
        if flow.times_ns:
            times = _rotate_times(flow.times_ns, int(drawn.integers(recording.duration_ns)) if moved else 0, recording)
            phase, step = times[0], 0
        else:
            phase = int(drawn.integers(period))
            step = round(GOLDEN * period)  # publishers do not know of outages
        topics.append(
            Topic(
                f"flow{number}", publisher, tuple(receivers), phase, period, flow.size_bytes, flow.weight, step, times
            )
        )
        for peer, deadline in zip(flow.receivers, flow.deadlines_ns, strict=False):
            if peer in numbers and deadline > 0:
                pair = (publisher, numbers[peer])
                deadlines[pair] = min(deadline, deadlines.get(pair, deadline))
    return tuple(topics), deadlines


def _rotate_times(times_ns: tuple[Nanos, ...], by_ns: Nanos, recording: Recording) -> tuple[Nanos, ...]:
    """The times, rotated within the recording. Equal times become consecutive nanoseconds."""
    moved: list[Nanos] = []
    for time in sorted((time + by_ns) % recording.duration_ns for time in times_ns):
        moved.append(max(time, moved[-1] + 1) if moved else time)
    latest = recording.duration_ns - 1
    for place in reversed(range(len(moved))):  # none is pushed beyond the end
        if moved[place] <= latest:
            break
        moved[place] = latest
        latest -= 1
    return tuple(moved)
