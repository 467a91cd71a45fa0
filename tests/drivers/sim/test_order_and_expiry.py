"""Order under failing links, and events past their ttl on busy links."""

import pytest

from tests.cores import pure_only
from tests.drivers.sim.client_checks import broken_promises
from tests.drivers.sim.client_engine import ClientEngine
from tests.drivers.sim.ordered_worlds import ordered_world, waits_ms
from wend.drivers.scenarios import Scenario
from wend.drivers.sim.capacity import CapacityNetwork, DropTailQueue, QueueDeparture
from wend.drivers.sim.drop_ledger import EXPIRED
from wend.drivers.world import build_world
from wend.model.units import SECOND, Nanos
from wend.protocol.messages import Data, Fragment

CAPACITY = 12
TTL_NS = SECOND // 2


@pytest.mark.parametrize("strategy", ["adaptive", "mrst"])
def test_ordered_subscriptions_get_all_events_in_order_and_some_later_than_others(strategy: str) -> None:
    engine = ordered_world(strategy, 600)
    engine.run()
    assert broken_promises(engine) == []
    waits = waits_ms(engine)
    assert waits.min() >= 0
    assert waits.max() > 0
    ages = [engine.delays[number] for number in engine.clients]
    assert all(plain.keys() == ordered.keys() for plain, ordered in zip(ages[::2], ages[1::2], strict=True))


def crowded(strategy: str, payload_bytes: int = 0) -> ClientEngine:
    """More events than the links carry, half of them with a ttl."""
    scenario = Scenario(
        strategy=strategy, peers=8, degree=3, topics=6, popularity=(0.5, 0.9), pf=0.0, pl=0.02, rate=10.0, queue=30,
        duration="4s", drain="10s", link_capacity=f"{CAPACITY}msg/s", transmissions=2, payload_bytes=payload_bytes,
    )  # fmt: skip
    return ClientEngine(build_world(scenario), (), (), (None, TTL_NS))


class LinkUse:
    """Counts the events that a link sends, and those that were past their ttl when their turn came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = self.expired = 0
        leave = CapacityNetwork.put_on_link

        def watched(network: CapacityNetwork, now: Nanos, leaving: QueueDeparture) -> None:
            message = leaving.message
            head = message.head if isinstance(message, Fragment) else message
            if isinstance(head, Data):
                took = SECOND // CAPACITY // (message.count if isinstance(message, Fragment) else 1)
                self.sent += 1
                self.expired += head.event.is_expired(head.age_ns - took)
            leave(network, now, leaving)

        monkeypatch.setattr(CapacityNetwork, "put_on_link", watched)


@pure_only
@pytest.mark.parametrize("strategy", ["adaptive", "dcrd", "d-tree", "multipath", "mrst"])
def test_an_event_past_its_ttl_never_takes_a_link_from_others(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use, engine = LinkUse(monkeypatch), crowded(strategy)
    engine.run()
    assert engine.drops[EXPIRED] > 50
    assert use.sent > 100
    assert (use.expired, engine.late) == (0, [])


@pure_only
def test_nor_do_fragments_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    use, engine = LinkUse(monkeypatch), crowded("d-tree", payload_bytes=3000)
    engine.run()
    assert engine.drops[EXPIRED] > 50
    assert use.sent > 100
    assert (use.expired, engine.late) == (0, [])


@pure_only
def test_a_queue_that_ignores_the_ttl_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DropTailQueue, "next_service_time", lambda queue, now: now)
    use, engine = LinkUse(monkeypatch), crowded("d-tree")
    engine.run()
    assert use.expired > 0
    assert engine.late == [], "the receiver drops them"
