"""What the publisher's order costs: 20 publishers, failing links, and pairs of subscriptions with and without order.

`python -m tests.drivers.sim.ordered_worlds 20000` publishes so many events with each strategy, and prints how long
ordered subscriptions waited for each event after their unordered twins at the same peer had it.
"""

import sys

import numpy as np

from tests.drivers.sim.client_checks import broken_promises
from tests.drivers.sim.client_engine import FIRST_NUMBER, ClientEngine
from tests.drivers.sim.clients import ClientPlan
from wend.drivers.scenarios import Scenario
from wend.drivers.world import build_world
from wend.model.events import DurableOptions, Qos
from wend.model.random_stream import peer_stream
from wend.model.units import MS
from wend.protocol.ports import LocalSubscription

STRATEGIES = ("adaptive", "dcrd", "d-tree", "multipath", "mrst")
PUBLISHERS = 20
RATE = 10
PAIRS = 8


def ordered_world(strategy: str, events: int, seed: int = 1) -> ClientEngine:
    scenario = Scenario(
        seed=seed, strategy=strategy, persistence=True, peers=PUBLISHERS + 4, degree=4, topics=PUBLISHERS, rate=RATE,
        popularity=(0.01, 0.02), pf=0.1, pl=0.01, duration=f"{events / PUBLISHERS / RATE}s", drain="30s", warmup="4s",
        heal=f"{events / PUBLISHERS / RATE}s",
    )  # fmt: skip
    world = build_world(scenario)
    draw = peer_stream(seed, "ordered clients")
    plans = []
    for number in range(PAIRS):
        peer = draw.randrange(world.overlay.peers)
        wanted = " or ".join(f'topic = "t{topic}"' for topic in draw.sample(range(PUBLISHERS), 4))
        for order in (False, True):
            name = FIRST_NUMBER + 2 * number + order
            subscription = LocalSubscription(name, wanted, Qos(order=order), DurableOptions(str(name)))
            plans.append(ClientPlan(peer=peer, subscription=subscription, window=1 << 30))
    return ClientEngine(world, tuple(plans))


def waits_ms(engine: ClientEngine) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """By event and ordered subscription: how much later it came than to the twin."""
    found = [
        (age - engine.delays[number - 1][id_]) / MS
        for number, client in engine.clients.items()
        if client.plan.subscription.qos.order
        for id_, age in engine.delays.get(number, {}).items()
    ]
    return np.array(found, dtype=np.float64)


def main(events: int) -> int:
    bad = 0
    print("| strategy | events | ordered deliveries | held | mean ms | p99 ms | largest ms | skipped | overtaken |")
    for strategy in STRATEGIES:
        engine = ordered_world(strategy, events)
        engine.run()
        wrong, waits = broken_promises(engine), waits_ms(engine)
        bad += bool(wrong)
        print(
            f"| {strategy} | {len(engine.sent)} | {len(waits)} | {(waits > 0).mean():.1%} | {waits.mean():.2f} | "
            f"{np.percentile(waits, 99):.1f} | {waits.max():.0f} | {engine.notices['order-skipped']} | "
            f"{engine.drops['overtaken']} |",
            flush=True,
        )
        for what in wrong[:3]:
            print(what)
    return bad


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
