"""Persistence on trees: a record is stored before the ACK, so whoever crashes and returns has lost nothing."""

import pytest

from tests.cores import pure_only
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check, promised_properties
from wend.drivers.sim.engine import Engine
from wend.drivers.sim.run import play_world
from wend.drivers.world import build_world
from wend.model.units import SECOND, Nanos
from wend.protocol.messages import Ack, Data
from wend.protocol.peer import Peer
from wend.protocol.ports import Effect, Input, Persist, Received, Send
from wend.protocol.records import PendingRecord
from wend.topology.faults import Intervals

PEERS = 8
TREES = ("mrst", "spt-k")


def kept(**changes: object) -> Scenario:
    fields = {"peers": PEERS, "degree": 3, "pf": 0.0, "pl": 0.01, "topics": 3, "rate": 4.0, "duration": "5s"}
    return Scenario(strategy="mrst", persistence=True, drain="25s").with_(**{**fields, **changes})


@pytest.mark.parametrize("strategy", TREES)
def test_whoever_crashes_and_returns_nothing_is_lost(strategy: str) -> None:
    for dead in range(0, PEERS, 2):
        world = build_world(kept(strategy=strategy))
        start = world.begin_ns + 2 * SECOND + dead * 37_000_000
        world.peer_faults = Intervals(PEERS, [(dead, start, start + 1 * SECOND)])
        outcome = play_world(world)
        assert len(promised_properties(world)) == 5
        assert check(outcome) == []
        assert outcome.summary.missing == {}, dead


def test_one_who_is_away_for_long_gets_it_all_when_it_is_back() -> None:
    """For longer than trees wait for anybody: those that stand meanwhile do not have it."""
    world = build_world(kept(popularity=(1.0, 1.0)))
    dead = next(p for p in range(PEERS) if all(p != topic.publisher for topic in world.topics))
    world.peer_faults = Intervals(PEERS, [(dead, world.begin_ns + SECOND, world.stop_ns + 4 * SECOND)])
    engine = Engine(world)
    engine.run()
    got = {tuple(row[1:4]) for row in engine.trace.deliveries.rows() if row[4] == dead}
    wanted = {id_ for id_, (_, subscribers) in engine.expected.items() if dead in subscribers}
    assert got == wanted and len(wanted) > 20
    assert engine.notices["stored"] > 0


@pure_only
@pytest.mark.parametrize("strategy", TREES)
def test_what_is_acknowledged_is_stored_first(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, seen = Peer.handle, [0]

    def watched(self: Peer, now: Nanos, event: Input) -> list[Effect]:
        effects = handle(self, now, event)
        if isinstance(event, Received) and isinstance(event.message, Data):
            data = event.message
            carried = set(data.dests) - {self.me}
            stored: set[int] = set()
            for effect in effects:
                if isinstance(effect, Persist) and isinstance(effect.record, PendingRecord):
                    stored |= set(effect.record.dests) if effect.record.event.id == data.event.id else set()
                if effect == Send(event.sender, Ack(data.tx)) and not any(_again(e) for e in effects):
                    assert carried <= stored
                    seen[0] += bool(carried)
        return effects

    monkeypatch.setattr(Peer, "handle", watched)
    simulate(kept(strategy=strategy, pl=0.05))
    assert seen[0] > 50


def _again(effect: Effect) -> bool:
    return getattr(effect, "what", None) == "duplicate"


@pytest.mark.parametrize("warmup_s", [1.0, 20.0])
def test_peers_that_choose_their_links_store_events_too(warmup_s: float) -> None:
    """Also what is published before anybody has heard of all who want it."""
    scenario = kept(
        topology="full-mesh", membership="tdo-landmark", warmup=f"{warmup_s}s", pf=0.05, heal="5s", drain="30s"
    )
    outcome = simulate(scenario)
    assert check(outcome) == [] and outcome.summary.missing == {}
    assert warmup_s > 1.0 or outcome.summary.notices["queued"] > 0


def test_a_target_spares_trees_here_too() -> None:
    s = simulate(kept(reliability=0.9)).summary
    assert s.notices["trees-spared"] > 0
    assert s.data_packets < 0.8 * simulate(kept()).summary.data_packets
    assert s.delivered == s.expected
