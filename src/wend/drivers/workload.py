"""The workload of a scenario: its topics, their publishers and subscribers, and the times of publications.

Topics are drawn, or one is made of each flow of a file. With content, subscriptions are filters over attributes.
"""

from bisect import bisect_right
from collections.abc import Iterator
from math import sqrt
from pathlib import Path as File

import msgspec

from wend.drivers.scenarios import Scenario
from wend.model.errors import ConfigError
from wend.model.events import Attributes, PeerId
from wend.model.flows import check_flows, read_flows
from wend.model.randomness import stream
from wend.model.scenario import Content
from wend.model.units import SECOND, Nanos
from wend.topology.graph import Overlay

GOLDEN = (sqrt(5) - 1) / 2
NEVER_NS: Nanos = 1 << 62
TOPICS = 10
"""The default number of topics, unless there are fewer peers."""


class Topic(msgspec.Struct, frozen=True, gc=False):
    """A topic with its publisher, its subscribers and the times of its publications."""

    name: str
    publisher: PeerId
    subscribers: tuple[PeerId, ...]
    phase_ns: Nanos
    period_ns: Nanos
    payload_bytes: int = 0
    weight: float = 1.0
    """The value of an event to each subscriber."""
    step_ns: Nanos = 0
    """By how much the time within the period moves from one period to the next."""
    times_ns: tuple[Nanos, ...] = ()
    """The times of its publications since the start of the first period, sorted, if they are given. The first one
    is the phase."""

    def next_time(self, since_ns: Nanos) -> Nanos:
        """The time of the publication that follows the one at `since_ns`. Both count from the start of the first
        period."""
        if self.times_ns:
            place = bisect_right(self.times_ns, since_ns)
            return self.times_ns[place] if place < len(self.times_ns) else NEVER_NS
        number = since_ns // self.period_ns + 1
        return number * self.period_ns + (self.phase_ns + number * self.step_ns) % self.period_ns

    def publication_times(self, begin_ns: Nanos, stop_ns: Nanos) -> Iterator[Nanos]:
        """The times of publications: once in every period from `begin_ns` on, until `stop_ns`."""
        since = self.phase_ns
        while begin_ns + since < stop_ns:
            yield begin_ns + since
            since = self.next_time(since)


class WorkloadEvent(msgspec.Struct, frozen=True, gc=False):
    """The attributes of one event, its subscribers, and the number of their subscriptions to it."""

    name: str
    attributes: Attributes
    subscribers: tuple[PeerId, ...]
    number: int


def make_topics(s: Scenario, overlay: Overlay) -> tuple[Topic, ...]:
    """The topics of a scenario: those of its flows, or drawn ones."""
    return _draw_topics(s, overlay.peers) if s.flows is None else _make_flow_topics(s, overlay)


def _draw_topics(s: Scenario, peers: int) -> tuple[Topic, ...]:
    """Section IV-A: publishers on random peers; each topic draws Ps, each peer subscribes with Ps."""
    count = min(TOPICS, peers) if s.topics is None else s.topics
    if count > peers:
        raise ConfigError(f"{count} topics need {count} publishers, but there are {peers} peers")
    rng = stream(s.seed, "workload", "topics")
    publishers = rng.permutation(peers)[:count].tolist()
    period = max(1, round(SECOND / s.rate_hz))
    step = round(GOLDEN * period) if s.pace == "moving" else 0
    topics = []
    for number, publisher in enumerate(publishers):
        share = rng.uniform(*s.popularity)
        wants = rng.random(peers) < share
        phase = int(rng.integers(period))
        subscribers = tuple(p for p in range(peers) if wants[p] and p != publisher)
        topics.append(Topic(f"t{number}", publisher, subscribers, phase, period, s.payload_bytes, step_ns=step))
    return tuple(topics)


def _make_flow_topics(s: Scenario, overlay: Overlay) -> tuple[Topic, ...]:
    """Make a topic of each flow. Phases follow the golden ratio, so that no two flows start at the same time."""
    path = File(str(s.flows))
    topics = []
    for number, flow in enumerate(check_flows(read_flows(path), overlay.names, str(path))):
        receivers = tuple(sorted({*flow.receivers} - {flow.publisher}))
        period = max(1, round(SECOND / flow.rate_msgs))
        phase = int((number + 1) * GOLDEN % 1 * period)
        size = round(flow.size_bytes)
        topics.append(Topic(f"flow{number}", flow.publisher, receivers, phase, period, size, flow.weight))
    if not any(topic.subscribers for topic in topics):
        raise ConfigError(f"{path} has no flow that anybody wants")
    return tuple(topics)


def draw_attributes(content: Content, publisher: PeerId, number: int, seed: int) -> Attributes:
    """The attributes of an event, by its number among those of its publisher."""
    drawn = stream(seed, "workload", "events", publisher, number)
    values = drawn.integers(1, content.domain + 1, content.attributes).tolist()
    return {"source": publisher, **{_attribute_name(i): v for i, v in enumerate(values)}}


def draw_filters(content: Content, peers: int, seed: int) -> tuple[str, ...]:
    """For each peer, a conjunction of ranges with random attributes, number, position and width.

    No peer subscribes to its own events: such a delivery would cross no link.
    """
    rng = stream(seed, "workload", "filters")
    widest = max(1, round(content.width * content.domain))
    filters = []
    for peer in range(peers):
        count = int(rng.integers(content.predicates[0], content.predicates[1] + 1))
        chosen = sorted(rng.permutation(content.attributes)[:count].tolist())
        parts = [f"source != {peer}"]
        for index in chosen:
            width = int(rng.integers(1, widest + 1))
            low = int(rng.integers(1, content.domain - width + 2))
            parts.append(f"{_attribute_name(index)} in [{low}, {low + width - 1}]")
        filters.append(" and ".join(parts))
    return tuple(filters)


def _attribute_name(index: int) -> str:
    return f"a{index}"
