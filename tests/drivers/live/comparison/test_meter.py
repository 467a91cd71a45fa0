"""The metrics of a live overlay stay exact, and their cost stays bounded."""

from collections import deque

import pytest

from wend.drivers.live.comparison import meter
from wend.drivers.live.comparison.meter import SettledTotals, TrackedPublication
from wend.drivers.live.comparison.overlay import LiveOverlay
from wend.drivers.live.peer import LivePeer
from wend.drivers.scenarios import make_scenario
from wend.drivers.sim.network import Agenda, Network
from wend.drivers.world import build_world
from wend.model.events import Event, EventId
from wend.model.summary import Delays, Late
from wend.model.trace import Trace
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Ack, Control, Data, Fragment, PlainMessage
from wend.protocol.ports import Send
from wend.strategies.tdo.messages import ProbePing
from wend.strategies.trees.messages import Complete, SequencedMessage
from wend.strategies.trees.routing import TreeHeader


def test_counts_are_exact_and_percentiles_come_from_a_bounded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "SAMPLE", 500)
    world = build_world(
        make_scenario({"peers": 6, "degree": 3, "topics": 1, "duration": "5s", "popularity": (1.0, 1.0)})
    )
    topic = world.topics[0]
    one = topic.subscribers[0]
    deadline = world.deadline_ns(topic.publisher, one)
    totals = SettledTotals(world)
    for number in range(2000):
        flight = TrackedPublication(0, topic)
        flight.arrived[one] = deadline * (number + 1) // 1000  # half of them late, up to twice the deadline
        totals.add(flight)
    summary = totals.summary(*[meter.Counter() for _ in range(3)], 1)
    assert (summary.delivered, summary.delivered_on_time) == (2000, 1000)
    assert summary.late == Late(0.25, 0.5, 0.75)
    assert summary.delay_ms.mean * MS == pytest.approx(deadline, rel=0.01)
    assert totals.sample_size == 500
    assert summary.delay_ms.p50 * MS == pytest.approx(deadline, rel=0.15)
    assert summary.delay_ms.p99 * MS == pytest.approx(2 * deadline, rel=0.05)


def test_nothing_is_said_of_what_was_not_there() -> None:
    world = build_world(
        make_scenario({"peers": 4, "degree": 3, "topics": 1, "duration": "5s", "popularity": (1.0, 1.0)})
    )
    totals, topic = SettledTotals(world), world.topics[0]
    totals.add(TrackedPublication(0, topic))
    lost = totals.summary(*[meter.Counter() for _ in range(3)], 1)
    assert lost.delay_ms == Delays()
    flight = TrackedPublication(0, topic)
    flight.arrived[topic.subscribers[0]] = 1 * MS
    totals.add(flight)
    punctual = totals.summary(*[meter.Counter() for _ in range(3)], 1)
    assert punctual.delay_ms == Delays(p50=1.0, p99=1.0, mean=1.0)
    assert punctual.late == Late()


def test_the_price_is_counted_as_the_simulator_counts_it() -> None:
    """Trees have control packets of their own, and copies that name nobody."""
    scenario = make_scenario({"strategy": "mrst", "peers": 4, "degree": 3, "topics": 2, "duration": "5s"})
    world = build_world(scenario)
    meter_, network = meter.Meter(world), Network(world, Agenda(), Trace(), [])
    event = Event(EventId(0, 1, 1), {"topic": "t"}, b"x")
    meter_.on_published(event.id, flight := TrackedPublication(0, world.topics[0]))
    head = Data(1, event, 0, (), header=TreeHeader((1, 0, 1), 0))
    control = [
        Control(9, "mrst-trees", SequencedMessage((1, 0, 1), 1, Complete())),
        PlainMessage("chain", ProbePing(1)),
        Ack(1),
    ]
    fragments = [Fragment(3, 3, 0, 2, event.id, b"x", head), Fragment(4, 3, 1, 2, event.id, b"x")]
    a, b = world.overlay.links[0].a, world.overlay.links[0].b
    peer = LivePeer(PeerConfig(peer=a, strategy="mrst"), counters=meter_)
    peer.add_peer(b, ("127.0.0.1", 9))
    for message in (*control, Data(2, event, 0, (1, 2)), head, *fragments):
        peer.perform([Send(b, message)])
        network.send(0, a, b, message)
    peer.close()
    summary = meter_.summary(1)
    assert summary.control == {name: count for name, count in network.control.items() if count}
    assert sum(summary.control.values()) == sum(meter_.control.values()) == 3
    assert (flight.packets, flight.unicast) == (network.transmissions, network.transmissions_unicast) == (4, 5)
    assert (meter_.data, meter_.data_unicast) == (4, 5)


def test_each_direction_of_a_link_loses_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build_world(make_scenario({"peers": 6, "degree": 3, "topics": 1, "duration": "5s"}))
    overlay = LiveOverlay(world, "dcrd", lambda: 0, deque())
    seeds: list[int] = []
    monkeypatch.setattr(LivePeer, "add_peer", lambda *_, seed, **__: seeds.append(seed))
    overlay.link_peers(lambda: 0)
    assert len(seeds) == len(set(seeds)) == 2 * len(world.overlay.links)
    overlay.close()
