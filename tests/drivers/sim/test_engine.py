"""Virtual time: what arrives, when, and in what order."""

import msgspec
import pytest

from tests.cores import pure_only
from wend.drivers.scenarios import Scenario, make_scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.engine import Engine
from wend.drivers.world import build_world
from wend.model.units import SECOND
from wend.protocol.messages import Data
from wend.protocol.peer import Peer
from wend.protocol.ports import Effect, Input, Received, Send
from wend.strategies.registry import linked_strategies
from wend.topology.faults import Intervals

TWO = Scenario(
    topology="full-mesh", peers=2, topics=1, popularity=(1.0, 1.0), pf=0.0, pl=0.0, duration="3s", drain="2s"
)


def test_a_packet_takes_the_delay_of_its_link() -> None:
    outcome = simulate(TWO)
    delay = outcome.world.overlay.links[0].delay_ns
    assert len(outcome.trace.deliveries) == outcome.summary.publications == 3
    assert set(outcome.trace.deliveries.column("delay_ns")) == {delay}


def test_a_failure_is_decided_when_the_packet_is_sent() -> None:
    world = build_world(TWO.with_(trace_level="hops"))
    topic = world.topics[0]
    first = world.begin_ns + topic.phase_ns
    world.faults = Intervals(1, [(0, first + 1, first + SECOND // 2)])  # fails just after the first packet left
    engine = Engine(world)
    engine.run()
    assert len(engine.trace.deliveries) == 3
    world.faults = Intervals(1, [(0, first, first + 1)])
    engine = Engine(world)
    engine.run()
    assert len(engine.trace.deliveries) == 2
    assert list(engine.trace.hops.column("arrived")).count(0) >= 1


@pytest.mark.parametrize("ack", ["free", "round-trip"])
def test_an_ack_that_arrives_as_its_timer_expires_is_in_time(ack: str) -> None:
    outcome = simulate(TWO.with_(ack=ack))
    assert outcome.summary.data_packets == 3
    assert "late-ack" not in outcome.summary.notices


def test_free_acks_are_never_lost_and_real_ones_are() -> None:
    lossy = TWO.with_(pl=0.2, duration="200s")
    assert "duplicate" not in simulate(lossy.with_(ack="free", transmissions=3)).summary.notices
    assert simulate(lossy.with_(ack="round-trip", transmissions=3)).summary.notices["duplicate"] > 0


def test_losses_are_as_frequent_as_asked() -> None:
    outcome = simulate(TWO.with_(pl=0.25, duration="2000s", ack="free", strategy="d-tree"))
    assert outcome.summary.delivery == pytest.approx(0.75, abs=0.04)


def test_every_transmission_is_counted_once() -> None:
    outcome = simulate(Scenario(peers=8, degree=3, topics=3, duration="10s", trace_level="hops", strategy="multipath"))
    hops = list(outcome.trace.hops.rows())
    assert len(hops) == outcome.summary.data_packets
    assert sum(row[6] for row in hops) == outcome.summary.data_packets_unicast


CRASHING = {"up": {"kind": "fixed", "mean_s": 2.0}, "down": {"kind": "fixed", "mean_s": 1.0}}


@pytest.mark.parametrize("strategy", sorted(linked_strategies()))
def test_a_peer_that_returns_has_a_new_incarnation_and_publishes_again(strategy: str) -> None:
    scenario = make_scenario(
        {"strategy": strategy, "peers": 6, "degree": 3, "topics": 2, "pf": 0.0, "duration": "10s",
         "peer_outages": CRASHING, "rate": 4.0}
    )  # fmt: skip
    outcome = simulate(scenario)
    incarnations = set(outcome.trace.publications.column("incarnation"))
    assert {1, 2, 3} <= incarnations
    ids = [row[1:4] for row in outcome.trace.publications.rows()]
    assert len(set(ids)) == len(ids)
    assert outcome.summary.notices["publisher-down"] > 0
    assert {2, 3} <= set(outcome.trace.deliveries.column("incarnation"))


def test_a_peer_that_is_down_hears_and_says_nothing() -> None:
    world = build_world(TWO.with_(trace_level="hops", persistence=True, drain="10s"))
    subscriber = world.topics[0].subscribers[0]
    start, until = world.begin_ns, world.stop_ns + SECOND
    world.peer_faults = Intervals(2, [(subscriber, start, until)])
    engine = Engine(world)
    engine.run()
    times = list(engine.trace.deliveries.column("time_ns"))
    assert len(times) == 3
    assert min(times) > until
    assert not [row for row in engine.trace.hops.rows() if row[1] == subscriber and start <= row[0] < until]


def test_without_persistence_who_is_down_at_the_publication_is_not_expected() -> None:
    world = build_world(TWO)
    world.peer_faults = Intervals(2, [(world.topics[0].subscribers[0], world.begin_ns, world.stop_ns)])
    engine = Engine(world)
    engine.run()
    assert [subscribers for _, subscribers in engine.expected.values()] == [()] * 3


def test_the_same_peer_object_is_never_shared() -> None:
    engine = Engine(build_world(TWO))
    engine.run()
    assert engine.peers[0] is not engine.peers[1]


@pure_only
def test_messages_pass_by_reference_and_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Data] = []
    handle = Peer.handle

    def spy(peer: Peer, now: int, event: Input) -> list[Effect]:
        if isinstance(event, Received) and isinstance(event.message, Data):
            taken.append(event.message)
        return handle(peer, now, event)

    monkeypatch.setattr(Peer, "handle", spy)
    engine = Engine(build_world(TWO))
    engine.run()
    assert taken
    with pytest.raises(AttributeError):
        taken[0].age_ns = 0  # type: ignore[misc]
    assert all(issubclass(kind, msgspec.Struct) for kind in (Data, Send, Received))


def test_control_settles_in_a_calm_network() -> None:
    """After the warm-up only ACKs flow: nothing is repeated for ever."""
    short, long = (
        simulate(Scenario(peers=8, degree=3, topics=3, pf=0.0, pl=0.0, duration=f"{d}s", strategy="dcrd")).summary
        for d in (5.0, 50.0)
    )
    assert {k: v for k, v in short.control.items() if k != "acks"} == {
        k: v for k, v in long.control.items() if k != "acks"
    }
