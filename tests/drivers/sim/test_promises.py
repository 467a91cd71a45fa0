"""A thousand small worlds in which links and peers fail and heal: no strategy breaks what it promises.

A seed that fails is printed; `random_scenario(seed, STRATEGIES)` replays it.
"""

from collections import Counter
from typing import Any

import pytest

from tests.cores import pure_only
from tests.scenarios import large_scenario, random_scenario, roaming_scenario
from tests.strategies.tdo.worlds import LINKING
from wend.drivers.scenarios import Scenario
from wend.drivers.sim import simulate
from wend.drivers.sim.checks import check, promised_properties
from wend.drivers.sim.engine import Engine
from wend.drivers.world import World, build_world
from wend.model.events import Event, EventId, PeerId, SubscriptionId
from wend.model.units import Nanos
from wend.protocol.config import DeliverySettings, PeerConfig
from wend.protocol.plugins import Arrived, Forward, GiveUp, PluginEffect, PluginInput, View
from wend.protocol.records import PendingRecord, Record, ReleasedRecord
from wend.strategies.dcrd.plugin import Dcrd
from wend.strategies.registry import ROUTING, linked_strategies
from wend.strategies.source_trees.plugin import DelayTree

STRATEGIES = tuple(sorted(linked_strategies()))
CHUNK = 50


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_no_strategy_breaks_what_it_promises(first: int) -> None:
    broken = {}
    for seed in range(first, first + CHUNK):
        if violations := check(simulate(random_scenario(seed, STRATEGIES))):
            broken[seed] = [str(v) for v in violations]
    assert not broken, "\n".join(f"seed {seed}: {found[0]}" for seed, found in broken.items())


def test_nor_on_links_that_peers_choose_while_they_come_and_go() -> None:
    """Publishers crash before anybody has heard of them, and a landmark may take long to be elected."""
    for seed in range(24):
        outcome = simulate(roaming_scenario(seed, STRATEGIES, LINKING).with_(persistence=True, drain="60s"))
        assert len(promised_properties(outcome.world)) == 5
        assert [str(v) for v in check(outcome)] == [], seed


def test_events_in_fragments_outlive_the_peers_that_have_some_of_them() -> None:
    for seed in range(30):
        outcome = simulate(large_scenario(seed, STRATEGIES))
        assert len(promised_properties(outcome.world)) == 5
        assert [str(v) for v in check(outcome)] == []


def test_the_worlds_fail_enough() -> None:
    """Every strategy is judged for all that is promised, under failing links, failing peers and losses."""
    judged: Counter[str] = Counter()
    for seed in range(400):
        world = build_world(random_scenario(seed, STRATEGIES))
        failing = list(world.faults.outages()) and list(world.peer_faults.outages())
        if failing and len(promised_properties(world)) == 5:
            judged[world.scenario.strategy] += 1
    assert set(judged) == set(STRATEGIES)
    assert min(judged.values()) >= 5


def unreleased(records: list[Record]) -> set[EventId]:
    left: set[EventId] = set()
    for record in records:
        if isinstance(record, PendingRecord):
            left.add(record.event.id)
        elif isinstance(record, ReleasedRecord):
            left.discard(record.id)
    return left


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_once_all_has_healed_nobody_answers_for_anything(strategy: str) -> None:
    for seed in range(60):
        scenario = random_scenario(seed, (strategy,))
        if not scenario.of(DeliverySettings).persistence:
            continue
        engine = Engine(build_world(scenario))
        engine.run()
        for peer, records in zip(engine.peers, engine.stores, strict=True):
            assert peer is not None
            status = peer.status()
            assert not unreleased(records), (strategy, seed, peer.me)
            assert (status.waiting, status.in_flight) == (0, 0), (strategy, seed, peer.me)
            assert peer.unfinished() == set(), (strategy, seed, peer.me)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_small_retry_queue_drops_aloud_and_breaks_no_promise(strategy: str) -> None:
    for seed in range(8):
        scenario = random_scenario(seed, (strategy,)).with_(
            persistence=True, drain="23s", retry_limit=1, pf=0.6, rate=5.0, outages=None
        )
        assert check(simulate(scenario)) == []


# ---------------------------------------------------------------- broken on purpose


class Forgetful(DelayTree):
    """Accepts packets and drops every third in silence."""

    count = 0

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if isinstance(event, Arrived):
            Forgetful.count += 1
            if Forgetful.count % 3 == 0:
                return []
        return super().handle(now, event, view)


class Impatient(DelayTree):
    """Gives up for good, though packets are to be stored."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        return [e for e in super().handle(now, event, view) if not isinstance(e, GiveUp)]


class Inventor(DelayTree):
    """Sends along an event that nobody published."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        effects = super().handle(now, event, view)
        made = [e for e in effects if isinstance(e, Forward)][:1]
        return effects + [
            Forward(e.peer, _invented(e.event), e.born_ns, e.dests, e.path) for e in made if e.event.id.sequence < 1000
        ]


def _invented(event: Event) -> Event:
    id_ = EventId(event.id.publisher, event.id.incarnation, event.id.sequence + 1000)
    return Event(id_, event.attributes)


class Stutterer(DelayTree):
    """Makes every subscriber hear everything twice."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        plain: Any = view.interest.table
        if not hasattr(plain, "stutters"):
            local = plain.local
            plain.stutters = True
            plain.local = lambda *args: local(*args) * 2
        return super().handle(now, event, view)


class Gossip(DelayTree):
    """Tells who never asked."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        plain: Any = view.interest.table
        local = type(plain).local
        plain.local = lambda event, view: local(plain, event, view) or ((SubscriptionId(view.me, 0), None),)
        effects = super().handle(now, event, view)
        if isinstance(event, Arrived) and event.sender == view.me:
            effects += [Forward(n, event.event, event.born_ns, (n,), ()) for n in view.neighbours]
        return effects


class Suppressor(Dcrd):
    """Acknowledges and drops any second copy, as if the first could not be dropped in turn."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._seen: set[tuple[EventId, PeerId]] = set()

    def _on_arrived(self, now: Nanos, packet: Arrived, view: View) -> list[PluginEffect]:
        seen = self._seen
        dests = tuple(d for d in packet.dests if packet.sender == view.me or (packet.event.id, d) not in seen)
        seen.update((packet.event.id, d) for d in packet.dests)
        if not dests:
            return []
        return super()._on_arrived(now, Arrived(packet.sender, packet.event, packet.born_ns, dests, packet.path), view)


@pytest.mark.parametrize(
    ("strategy", "caught"),
    [
        (Forgetful, {"agreement", "validity"}),
        (Impatient, {"agreement", "validity"}),
        (Inventor, {"safety"}),
        pytest.param(Stutterer, {"integrity"}, marks=pure_only),
        pytest.param(Gossip, {"safety"}, marks=pure_only),
        (Suppressor, {"agreement"}),
    ],
)
def test_a_broken_strategy_is_caught(strategy: type, caught: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROUTING, "broken", strategy)
    monkeypatch.setattr("wend.drivers.sim.run.STRATEGIES", (*STRATEGIES, "broken"))
    found: set[str] = set()
    for seed in range(60):
        found |= {v.property for v in check(simulate(random_scenario(seed, ("broken",))))}
        if caught <= found:
            return
    pytest.fail(f"{strategy.__name__} breaks {caught}, found only {found}")


def test_a_violation_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROUTING, "broken", Inventor)
    monkeypatch.setattr("wend.drivers.sim.run.STRATEGIES", (*STRATEGIES, "broken"))
    scenario: Scenario = random_scenario(4, ("broken",))
    one, two = ([str(v) for v in check(simulate(scenario))] for _ in range(2))
    assert one == two
    assert one
    assert all("(broken, seed 4)" in text for text in one)
    assert isinstance(build_world(scenario), World)
