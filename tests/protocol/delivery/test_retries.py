"""Retries: how often, in which order, and what they cost while a destination is away."""

from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from tests.cores import pure_only
from tests.protocol.talk import A, B, C, D, S, T, Talk, event, sent, tx
from wend.drivers.scenarios import make_scenario
from wend.drivers.sim import engine
from wend.drivers.world import build_world
from wend.model.errors import ConfigError
from wend.model.events import EventId, PeerId
from wend.model.publication import Publication
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.delivery.retry_pauses import FIRST_NS, RetryPauses
from wend.protocol.delivery.retry_queue import RetryQueue
from wend.protocol.messages import Control, Data
from wend.protocol.peer import Peer
from wend.protocol.plugins import GiveUp
from wend.protocol.ports import Drop, Effect, Input, LocalSubscription, PeerForgotten, Receipt, Send
from wend.protocol.records import PendingRecord
from wend.strategies.subscriptions.table import PeerInterest
from wend.topology.faults import Intervals


def waiting_queue(sequences: Iterable[int], dests: tuple[PeerId, ...] = (S,)) -> RetryQueue:
    queue = RetryQueue(1000, 10**9)
    for sequence in sequences:
        add(queue, sequence, dests)
    return queue


def add(queue: RetryQueue, sequence: int, dests: tuple[PeerId, ...] = (S,)) -> None:
    queue.accept(PendingRecord(event(sequence), 0, dests))
    queue.wait(GiveUp(event(sequence), 0, dests, "no-route"), None)


def take(queue: RetryQueue, now: Nanos, count: int = 99) -> list[int]:
    return [taken.event.id.sequence for taken in queue.take(now, count)]


def fail_often(pauses: RetryPauses, times: int) -> Nanos:
    """Let the events for a destination fail whenever they are tried. Return the time of the last failure."""
    now = pauses.next_attempt((S,))
    for _ in range(times - 1):
        pauses.fail(now, (S,))
        now = pauses.next_attempt((S,))
    pauses.fail(now, (S,))
    return now


def test_events_leave_in_the_order_of_publication() -> None:
    queue = waiting_queue([5, 2, 9, 1])
    assert take(queue, 0, 3) == [1, 2, 5]
    add(queue, 2)
    assert take(queue, 0) == [2, 9]
    assert queue.next_attempt() is None


def test_an_event_that_is_served_elsewhere_leaves_its_lane() -> None:
    queue = waiting_queue([1, 2, 3])
    queue.abandon(event(2).id, (S,))
    assert take(queue, 0) == [1, 3]


def test_destinations_take_turns() -> None:
    queue = waiting_queue(range(10))
    for sequence in range(10, 20):
        add(queue, sequence, (T,))
    assert take(queue, 0, 4) == [0, 1, 10, 11]
    add(queue, 0)
    assert take(queue, 0, 4) == [0, 2, 12, 13]


def test_a_destination_that_fails_again_gets_one_event_at_a_time_and_less_and_less_often() -> None:
    queue = waiting_queue(range(20))
    now, pauses = 0, []
    queue.pauses.fail(now, (S,))
    assert take(queue, FIRST_NS - 1) == []
    assert len(take(queue, FIRST_NS)) == 20, "after the first pause all may go"
    now = FIRST_NS
    for _ in range(6):
        for sequence in range(20):
            add(queue, sequence)
            queue.pauses.fail(now, (S,))
        soonest = queue.next_attempt()
        assert soonest is not None
        pauses.append((soonest - now) // SECOND)
        assert take(queue, soonest - 1) == []
        now = soonest
        assert take(queue, now) == [0]
        assert take(queue, now) == [], "the others wait for the probe"
        now += 1
    assert pauses == [2, 4, 8, 16, 16, 16]
    assert len(take(queue, now + FIRST_NS)) == 19, "the probe did not come back"


@pytest.mark.parametrize("reached", ["acknowledged", "link"])
def test_a_destination_that_is_back_gets_its_events(reached: str) -> None:
    queue = waiting_queue(range(20))
    now = fail_often(queue.pauses, 4)
    assert take(queue, now) == []
    if reached == "link":  # it may be the wrong one
        queue.pauses.shorten(now)
        assert take(queue, now) == [0]
    queue.pauses.end(S)
    assert len(take(queue, now)) >= 19


def test_a_packet_for_several_leaves_when_one_of_them_may_have_it() -> None:
    queue = waiting_queue([1], (S, T))
    queue.pauses.fail(0, (S, T))
    queue.pauses.end(T)
    assert take(queue, 0) == [1]


def test_only_a_few_new_events_probe_a_destination_that_is_long_away() -> None:
    pauses = RetryPauses(10)
    now = fail_often(pauses, 8)
    passed = []
    for tenth in range(1, 300):
        moment = now + tenth * SECOND // 10
        if pauses.may_try(moment, S):
            passed.append(tenth)
            pauses.fail(moment + SECOND // 20, (S,))
    assert 4 <= len(passed) <= 9, passed
    pauses.end(S)
    assert pauses.may_try(now, S)


def test_pauses_are_bounded() -> None:
    pauses = RetryPauses(3)
    pauses.fail(0, (A, B, C, D, S))
    assert len(pauses) == 3


@pure_only
def test_a_peer_that_never_returns_costs_little_however_many_events_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = make_scenario(
        {
            "strategy": "adaptive", "topology": "regular", "peers": 6, "degree": 3, "seed": 3, "topics": 6, "rate": 5.0,
            "popularity": (1.0, 1.0), "factor": 3.0, "pf": 0.0, "persistence": True, "estimator": "measured",
            "monitoring": "1s", "warmup": "4s", "duration": "60s", "heal": "90s", "drain": "20s",
        }
    )  # fmt: skip
    world = build_world(scenario)
    gone = 3
    world.peer_faults = Intervals(6, [(gone, 10 * SECOND, 1000 * SECOND)])
    sends: Counter[int] = Counter()
    handle = Peer.handle

    def count(self: Peer, now: Nanos, told: Input) -> list[Effect]:
        effects = handle(self, now, told)
        sends[now // (10 * SECOND)] += sum(
            isinstance(e, Send) and isinstance(e.message, Data) and gone in e.message.dests for e in effects
        )
        return effects

    monkeypatch.setattr(Peer, "handle", count)
    run = engine.Engine(world)
    run.run()
    waiting = {id_ for peer in run.peers if peer is not None for id_ in peer.responsible_ids}
    assert len(waiting) > 1000, "nothing for the peer was dropped"
    for period in (3, 4, 5):
        assert 0 < sends[period] < 600, sends
    assert sends[7] < 60, sends


def test_new_events_in_publishers_order_wait_behind_earlier_ones() -> None:
    queue = waiting_queue([1])
    assert queue.has_waiting(S, event(1).id.publisher)
    assert not queue.has_waiting(T, event(1).id.publisher)
    queue.abandon(EventId(event(1).id.publisher, event(1).id.incarnation, 1), (S,))
    assert not queue.has_waiting(S, event(1).id.publisher)


def test_nothing_is_stored_for_a_peer_that_is_forgotten() -> None:
    talk = Talk("d-tree", persistence=True)
    talk.hear(0, B, Data(tx(101), event(1), 5 * MS, (S,), (B,)))
    talk.wake(20 * MS)
    told = talk(SECOND, PeerForgotten(S))
    (forgotten,) = {m.body for _, m in sent(told) if isinstance(m, Control)}
    assert (forgotten.origin, forgotten.version, forgotten.away_ns) == (S, (1, 2), 1)
    told = [effect for ms in range(1000, 40_000, 10) for effect in talk.wake(ms * MS)]
    assert {(e.id, e.dests, e.code) for e in told if isinstance(e, Drop)} == {(event(1).id, (S,), "subscriber-away")}
    (receipt,) = [e for e in talk(40 * SECOND, Publication({"topic": "t"})) if isinstance(e, Receipt)]
    assert receipt.targets == (T,)


def test_a_peer_that_nobody_knows_cannot_be_forgotten() -> None:
    with pytest.raises(ConfigError, match="knows no subscriptions of peer 99"):
        Talk(persistence=True)(0, PeerForgotten(99))


def test_a_peer_that_runs_after_all_announces_its_interest_again() -> None:
    talk = Talk(persistence=True, mine=(LocalSubscription(0, "topic = 't'"),))
    mine = talk.peer.subscriptions.interests[A]
    gone = msgspec.structs.replace(mine, version=(mine.version[0], mine.version[1] + 1), away_ns=1)
    told = talk.hear(SECOND, B, talk.reliable(B, gone))
    again = {m.body for _, m in sent(told) if isinstance(m, Control) and isinstance(m.body, PeerInterest)}
    assert [(each.origin, each.version, each.away_ns) for each in again] == [
        (A, (mine.version[0], mine.version[1] + 2), 0)
    ]
    assert [each.subscriptions for each in again] == [mine.subscriptions]
