"""Strategies on a DHT in whole peers on `pastry`, in the large simulator: random worlds against brute force."""

from random import Random

import pytest

from tests.drivers.sim.delivery_accounts import account, brute_force
from tests.drivers.sim.uniform_latencies import UniformLatencies
from wend.drivers.sim.dht_simulation import DhtConfig, DhtSimulation
from wend.drivers.sim.dht_workload import (
    PeerChange,
    TimedPublication,
    TimedSubscription,
    TimedUnsubscription,
    Workload,
    find_due_pairs,
)
from wend.model.events import Range
from wend.model.units import MS, SECOND
from wend.strategies.registry import STRATEGIES

KEY_BASED = sorted(name for name, made in STRATEGIES.items() if made.membership == "pastry")
JOINED = 12 * SECOND
"""By then all peers, which begin at once and each know one other, are in one ring."""
SETTLING = JOINED + 20 * SECOND
DOMAINS = {f"a{i}": [1, 32] for i in range(4)}


def random_filter(draw: Random) -> str:
    sides = draw.sample(sorted(DOMAINS), draw.randint(1, 3))
    parts = [f"{name} in [{low}, {low + draw.randrange(32)}]" for name in sides for low in [draw.randint(1, 32)]]
    return (" or " if draw.random() < 0.2 else " and ").join(parts)


def random_event(draw: Random) -> dict[str, object]:
    values = {name: draw.randint(1, 32) for name in draw.sample(sorted(DOMAINS), draw.randint(1, 4))}
    if draw.random() < 0.3:
        name = draw.choice(sorted(values))
        return {**values, name: Range(values[name], values[name] + draw.randrange(8))}
    return values


def random_workload(seed: int, peers: int, changes: tuple[PeerChange, ...], begin: int, events: int) -> Workload:
    """Subscriptions at the start, some of them ended and made again; events from `begin` on."""
    draw = Random(seed)
    gone = {peer for change in changes for peer in change.peers}
    subscriptions, ended = [], []
    for number in range(2 * peers):
        peer = number % peers
        subscriptions.append(TimedSubscription(JOINED + number * 10 * MS, peer, number, random_filter(draw)))
        if draw.random() < 0.3 and peer not in gone:
            ended.append(TimedUnsubscription(JOINED + 3 * SECOND + number * 10 * MS, peer, number))
            again = TimedSubscription(JOINED + 6 * SECOND + number * 10 * MS, peer, number + 1000, random_filter(draw))
            subscriptions.append(again)
    publishers = [peer for peer in range(peers) if peer not in gone]
    published = [
        TimedPublication(begin + n * 50 * MS, draw.choice(publishers), random_event(draw))  # type: ignore[arg-type]
        for n in range(events)
    ]
    return Workload(sorted(subscriptions), ended, published, changes)


def play(strategy: str, workload: Workload, peers: int, seed: int, until: int, **settings: object) -> DhtSimulation:
    if strategy.startswith("dmm"):
        settings["domains"] = DOMAINS
    config = DhtConfig(peers=peers, strategy=strategy, settings=settings, seed=seed)
    simulation = DhtSimulation(config, UniformLatencies(seed), workload)
    simulation.run(until)
    return simulation


@pytest.mark.parametrize("strategy", KEY_BASED)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_missing_false_or_doubled(strategy: str, seed: int) -> None:
    workload = random_workload(seed, 16, (), SETTLING, 40)
    simulation = play(strategy, workload, 16, seed, SETTLING + 60 * SECOND, hop_acks=bool(seed % 2))
    found = account(workload, find_due_pairs(workload, brute_force(workload), SECOND), simulation.results)
    assert (found.delivered, found.undue, found.repeated) == (found.due, 0, 0)
    assert found.due > 0


@pytest.mark.parametrize("seed", range(4))
def test_after_crashes_everything_published_later_arrives_once(seed: int) -> None:
    """5 of 20 peers crash at once, whichever regions they own; the ring knows it after its detection time."""
    gone = tuple(sorted(Random(seed).sample(range(20), 5)))
    crash = PeerChange(SETTLING, "crash", gone)
    workload = random_workload(seed, 20, (crash,), SETTLING + 45 * SECOND, 60)
    simulation = play("rendezvous", workload, 20, seed, SETTLING + 60 * SECOND)
    found = account(workload, find_due_pairs(workload, brute_force(workload), SECOND), simulation.results)
    assert (found.delivered, found.undue, found.repeated) == (found.due, 0, 0)
