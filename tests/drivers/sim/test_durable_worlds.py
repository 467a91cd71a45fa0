"""Random worlds with durable subscriptions: nothing that was kept is lost, and nothing that was confirmed comes again.

`python -m tests.drivers.sim.durable_worlds 1000` plays many. Rules that are broken on purpose must be found out.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cores import pure_only
from tests.drivers.sim.client_checks import due
from tests.drivers.sim.durable_worlds import STRATEGIES, world_of, wrong_in
from wend.model.units import Nanos
from wend.protocol.delivery.durable import DurableSubscriptions
from wend.protocol.delivery.order import PublisherOrder
from wend.protocol.messages import Ack
from wend.protocol.peer import Peer
from wend.protocol.ports import Effect, Input, Persist, Send
from wend.protocol.records import ConfirmedRecord, DeliveredRecord, QueuedRecord


@pytest.mark.parametrize("seed", range(16))
def test_nothing_is_lost_doubled_or_out_of_order(seed: int) -> None:
    engine = world_of(seed)
    assert wrong_in(engine) == []
    assert engine.happened["deliveries"] > 0


@pytest.mark.parametrize("seed", [283, 435, 730, 818, 840])
def test_peers_of_a_dht_that_crash_together_lose_nothing_and_deliver_nothing_late(seed: int) -> None:
    engine = world_of(seed)
    assert engine.scenario.strategy == "rendezvous"
    assert wrong_in(engine) == []


def test_the_worlds_have_all_that_can_go_wrong() -> None:
    engines = [world_of(seed) for seed in range(200)]
    restarts = [restart.kind for engine in engines for restart in engine.restarts]
    assert {engine.scenario.strategy for engine in engines} == set(STRATEGIES)
    assert min(restarts.count(kind) for kind in ("crash", "kill", "stop")) > 50


# ---------------------------------------------------------------- broken on purpose


def confirm_without_record(
    self: Any, now: Nanos, number: int, positions: tuple[int, ...], ids: Any, effects: Any
) -> None:
    made: list[Effect] = []
    confirm(self, now, number, positions, ids, made)
    effects += [e for e in made if not (isinstance(e, Persist) and isinstance(e.record, ConfirmedRecord))]


def detach_and_forget(self: Any, number: int) -> None:
    backlog = self.backlogs.get(number)
    if backlog is not None:
        backlog.client_window = 0
        backlog.in_flight.clear()
        backlog.in_flight_bytes = 0


def ack_first(self: Peer, now: Nanos, event: Input) -> list[Effect]:
    """The ACK, and the record that the event was delivered, before the record of the backlog."""
    effects = handle(self, now, event)
    late = [e for e in effects if isinstance(e, Persist) and isinstance(e.record, QueuedRecord)]
    if not late:
        return effects
    first = [e for e in effects if isinstance(e, Send) and isinstance(e.message, Ack)]
    first += [e for e in effects if isinstance(e, Persist) and isinstance(e.record, DeliveredRecord)]
    return [*first, *(e for e in effects if e not in late and e not in first), *late]


def held_is_released(self: Any, id_: Any, previous: int, stream: Any) -> bool:
    return True


confirm, handle = DurableSubscriptions.confirm, Peer.handle


@pure_only
@pytest.mark.parametrize(
    ("where", "name", "broken", "found_as"),
    [
        (DurableSubscriptions, "confirm", confirm_without_record, "though it was confirmed"),
        (DurableSubscriptions, "detach", detach_and_forget, "is lost"),
        (Peer, "handle", ack_first, "is lost"),
        (PublisherOrder, "_has_predecessor", held_is_released, "comes after"),
    ],
)
def test_a_broken_rule_is_found_out(
    where: type, name: str, broken: Callable[..., Any], found_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, broken)
    for seed in (*range(40), 52, 75, 148):
        if any(found_as in wrong for wrong in wrong_in(world_of(seed))):
            return
    pytest.fail(f"no world shows that {name} is broken")


def test_something_is_due() -> None:
    engine = world_of(0)
    engine.run()
    assert sum(len(due(engine, client)) for client in engine.clients.values()) > 0
