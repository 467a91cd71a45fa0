"""Random worlds with durable subscriptions: peers crash, are killed and stop in order, links fail, clients come and go.

`python -m tests.drivers.sim.durable_worlds 1000` plays so many worlds, prints the seeds that fail and what happened by
strategy. A second number is the first seed.
"""

from collections import Counter
from random import Random

from tests import world_command
from tests.drivers.sim import many_worlds
from tests.drivers.sim.client_checks import broken_promises, due
from tests.drivers.sim.client_engine import FIRST_NUMBER, ClientEngine, Restart
from tests.drivers.sim.clients import ClientPlan
from tests.drivers.sim.many_worlds import WorldTable
from tests.scenarios import random_scenario
from wend.drivers.sim.checks import check_properties
from wend.drivers.sim.run import Outcome, summarise_run
from wend.drivers.world import World, build_world
from wend.model.events import DurableOptions, Qos
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.ports import LocalSubscription

STRATEGIES = ("adaptive", "dcrd", "d-tree", "r-tree", "multipath", "planned", "mrst", "spt-k", "rendezvous")
KINDS = ("crashes", "kills", "stops", "mixed", "rolling")
DRAIN = "90s"
"""On a DHT the owner of a region that crashed with its replicas has all entries again when subscribers' peers have
renewed them (30 s), and publishers' peers ask it again 32 s later at most."""
FILTERS = ("true", 'topic = "t0"', "n < 5", "n >= 3", 'topic = "t0" and n < 8')


def world_of(seed: int, strategies: tuple[str, ...] = STRATEGIES) -> ClientEngine:
    draw = peer_stream(seed, "durable world")
    drawn = random_scenario(seed, strategies)
    scenario = drawn.with_(
        persistence=True,
        peer_outages=None,
        content=None,
        rate=draw.choice([3.0, 8.0]),
        duration="8s",
        heal="8s",
        drain=DRAIN,
        payload_bytes=draw.choice([0, 0, 0, 3000]),
        order_wait=draw.choice(["1s", "5s"]),
        pf=draw.choice([0.0, 0.1, 0.3]),
    )
    world = build_world(scenario).for_strategy(scenario.strategy)
    restarts = _rolling(world, draw) if (kind := draw.choice(KINDS)) == "rolling" else _some(world, draw, kind)
    calm = max([world.stop_ns, *(restart.until_ns for restart in restarts)]) + 2 * SECOND
    count = draw.randint(1, 2 * world.overlay.peers)
    plans = tuple(_client(world, draw, FIRST_NUMBER + number, calm) for number in range(count))
    ttls = draw.choice([(None,), (None,), (None, SECOND // 5, 3 * SECOND)])
    return ClientEngine(world, plans, restarts, ttls)


def _client(world: World, draw: Random, number: int, calm_ns: Nanos) -> ClientPlan:
    small = draw.random() < 0.15
    options = DurableOptions(
        f"c{number}",
        max_events=draw.choice([3, 10]) if small else 100_000,
        max_bytes=draw.choice([2000, 1 << 20]) if small else 1 << 26,
        max_age_ns=draw.choice([2, 60]) * SECOND if small else 3600 * SECOND,
    )
    qos = Qos(order=draw.random() < 0.4)
    if draw.random() < 0.1:
        qos = Qos(order=qos.order, expire=True, deadline_ns=draw.choice([200 * MS, 2 * SECOND]))
    steady = draw.random() < 0.2
    return ClientPlan(
        peer=draw.randrange(world.overlay.peers),
        subscription=LocalSubscription(number, draw.choice(FILTERS), qos, options),
        begin_ns=draw.choice([0, 0, world.begin_ns // 2, draw.randrange(world.stop_ns)]),
        end_ns=draw.randrange(world.begin_ns, world.stop_ns) if draw.random() < 0.1 else 1 << 62,
        window=draw.choice([1, 2, 5, 100]),
        read_ns=draw.choice([0, MS, 30 * MS, 300 * MS]),
        batch=draw.choice([1, 1, 3, 10]),
        forgets=draw.choice([0.0, 0.0, 0.1, 1.0]),
        connected_ns=1 << 62 if steady else draw.choice([SECOND // 2, 2 * SECOND]),
        away_ns=draw.choice([SECOND // 5, SECOND, 4 * SECOND]),
        calm_ns=calm_ns,
    )


def _some(world: World, draw: Random, kind: str) -> tuple[Restart, ...]:
    """Any peers, several times, some of them at once."""
    what = {"crashes": ("crash",), "kills": ("kill",), "stops": ("stop",), "mixed": ("crash", "kill", "stop")}[kind]
    found = []
    for peer in range(world.overlay.peers):
        at = world.begin_ns + draw.randrange(6 * SECOND)
        while draw.random() < 0.6 and at < world.stop_ns:
            until = at + draw.choice([50 * MS, 700 * MS, 2 * SECOND])
            found.append(Restart(peer, at, until, draw.choice(what)))  # type: ignore[arg-type]
            at = until + 1 + draw.randrange(3 * SECOND)
    return tuple(found)


def _rolling(world: World, draw: Random) -> tuple[Restart, ...]:
    """Every peer once, one after the other."""
    at, found = world.begin_ns + SECOND, []
    pause = 6 * SECOND // world.overlay.peers
    for peer in range(world.overlay.peers):
        found.append(Restart(peer, at, at + draw.randint(pause // 4, pause - 10 * MS), "stop"))
        at += pause
    return tuple(found)


def wrong_in(engine: ClientEngine) -> list[str]:
    """Play a world. Returns what is wrong, by the checks for clients and those of any run."""
    engine.run()
    outcome = Outcome(summarise_run(engine, 0.0), engine.trace, engine.world)
    return [*broken_promises(engine), *(str(v) for v in check_properties(outcome, ("safety", "integrity")))]


COLUMNS = (
    "kept", "due", "deliveries", "redeliveries", "fell out", "connections", "connections lost", "crash", "kill", "stop",
)  # fmt: skip


def play(seeds: range) -> int:
    """How many of these worlds are not as they should be."""
    return many_worlds.play(seeds, WorldTable(STRATEGIES, COLUMNS), world_of, wrong_in, _count)


def _count(engine: ClientEngine, found: Counter[str]) -> None:
    found.update(engine.happened)
    found["due"] += sum(len(due(engine, client)) for client in engine.clients.values())
    found["kept"] += sum(sent.receipt is not None and sent.receipt.kept for sent in engine.sent.values())
    found["fell out"] += sum(engine.room.values())


if __name__ == "__main__":
    world_command.main(play, __doc__)
