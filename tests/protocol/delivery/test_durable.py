"""Durable subscriptions: what a client has not confirmed comes again; nothing that it has confirmed does."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.protocol.delivery.subscriber import (
    GRACE_NS,
    ME,
    PUBLISHER,
    Subscriber,
    delivered,
    deliveries,
    dropped,
    durable,
    made,
    missed,
    noticed,
)
from wend.drivers.live.store.needed_records import NeededRecords
from wend.model.publication import Publication
from wend.model.units import SECOND
from wend.protocol.messages import Ack
from wend.protocol.ports import (
    Deliver,
    LocalSubscription,
    Persist,
    Receipt,
    Send,
    Stopping,
    Subscribed,
    Unsubscribed,
)
from wend.protocol.records import ConfirmedRecord, QueuedRecord


def test_an_event_is_stored_before_it_is_acknowledged_and_forgotten_when_it_is_confirmed() -> None:
    peer = Subscriber()
    peer.subscribe(durable())
    effects = peer.hear(made(1))
    stored = next(i for i, e in enumerate(effects) if isinstance(e, Persist) and isinstance(e.record, QueuedRecord))
    acked = next(i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Ack))
    assert stored < acked
    (got,) = deliveries(effects)
    assert not got.again
    assert [e for e in peer.confirm([got]) if isinstance(e, Persist)] == [Persist(ConfirmedRecord(1, (got.position,)))]
    peer.crash()
    assert delivered(peer.attach()) == []


def test_events_wait_while_the_client_is_away() -> None:
    peer = Subscriber()
    peer(Subscribed(durable()))
    assert delivered(e for n in (1, 2, 3) for e in peer.hear(made(n))) == []
    assert delivered(peer.attach()) == [1, 2, 3]


def test_what_a_client_has_not_confirmed_comes_again_and_says_so() -> None:
    peer = Subscriber()
    peer.subscribe(durable())
    first = [each for n in (1, 2, 3) for each in deliveries(peer.hear(made(n)))]
    peer.confirm(first[1:2])
    peer.detach()
    peer.hear(made(4))
    again = deliveries(peer.attach())
    assert [(each.event.id.sequence, each.again) for each in again] == [(1, True), (3, True), (4, False)]
    assert [each.position for each in again[:2]] == [first[0].position, first[2].position]


def test_a_crash_of_the_peer_loses_nothing_and_repeats_nothing_that_was_confirmed() -> None:
    peer = Subscriber()
    peer.subscribe(durable())
    first = [each for n in (1, 2, 3) for each in deliveries(peer.hear(made(n)))]
    peer.confirm(first[:1])
    peer.crash()
    assert delivered(peer.attach()) == [2, 3]
    assert delivered(peer.hear(made(3))) == [], "the backlog has it"
    assert delivered(peer.hear(made(4))) == [4]
    positions = [each.position for each in deliveries(peer.effects)]
    assert len(set(positions)) == 4, "a position is never used for another event"


def test_after_a_restart_it_is_announced_before_any_client_is_back() -> None:
    peer = Subscriber()
    peer.subscribe(durable(filter="n > 1"))
    peer.effects.clear()
    peer.crash()
    told = [e.message.body for e in peer.effects if isinstance(e, Send) and hasattr(e.message, "body")]
    assert any(s.filter == "n > 1" for body in told for s in getattr(body, "subscriptions", ()))


@pytest.mark.parametrize(("persistence", "announced"), [(True, ["n > 1", "n < 9"]), (False, ["n > 1"])])
def test_a_peer_that_will_be_back_withdraws_only_what_nobody_stores_for_it(
    persistence: bool, announced: list[str]
) -> None:
    peer = Subscriber(persistence=persistence)
    peer.subscribe(durable(filter="n > 1"))
    peer(Subscribed(LocalSubscription(2, "n < 9")))
    peer(Stopping(away_ns=60 * SECOND))
    said = peer.peer.subscriptions.interests[ME]  # type: ignore[attr-defined]
    assert [s.filter for s in said.subscriptions] == announced
    assert (said.durable, said.away_ns) == (True, 60 * SECOND)
    peer.crash()
    said = peer.peer.subscriptions.interests[ME]  # type: ignore[attr-defined]
    assert (said.durable, said.away_ns) == (True, 0)
    peer(Stopping())
    assert not peer.peer.subscriptions.interests[ME].subscriptions  # type: ignore[attr-defined]


def test_without_durable_subscriptions_it_is_away_for_the_grace_time() -> None:
    peer = Subscriber(grace_ns=GRACE_NS)
    peer(Subscribed(LocalSubscription(2, "n < 9")))
    peer(Stopping(away_ns=3600 * SECOND))
    said = peer.peer.subscriptions.interests[ME]  # type: ignore[attr-defined]
    assert (len(said.subscriptions), said.away_ns) == (1, GRACE_NS)


def test_a_client_gets_no_more_than_its_window() -> None:
    peer = Subscriber()
    peer.subscribe(durable(), window=2)
    for n in range(1, 6):
        peer.hear(made(n))
    got = deliveries(peer.effects)
    assert delivered(got) == [1, 2]
    assert delivered(peer.confirm(got[1:])) == [3]
    assert delivered(peer.confirm([got[0]])) == [4]


def test_a_full_backlog_drops_the_oldest_and_tells_the_client() -> None:
    peer = Subscriber()
    peer(Subscribed(durable(max_events=3)))
    for n in range(1, 6):
        peer.hear(made(n))
    assert dropped(peer.effects) == [(1, "backlog-full"), (2, "backlog-full")]
    effects = peer.attach()
    assert missed(effects) == [{"backlog-full": 2}]
    assert delivered(effects) == [3, 4, 5]
    peer.detach()
    assert missed(peer.attach()) == [], "told once"


def test_a_backlog_is_bounded_by_bytes() -> None:
    peer = Subscriber()
    peer(Subscribed(durable(max_bytes=10_000)))
    for n in range(1, 5):
        peer.hear(made(n, payload=bytes(4000)))
    effects = peer.attach()
    assert (delivered(effects), missed(effects)) == ([3, 4], [{"backlog-full": 2}])


def test_a_backlog_is_bounded_by_age() -> None:
    peer = Subscriber()
    peer(Subscribed(durable(max_age_ns=10 * SECOND)))
    peer.hear(made(1))
    peer.run(8 * SECOND)
    peer.hear(made(2))
    peer.run(3 * SECOND)
    assert dropped(peer.effects) == [(1, "max-age")]
    effects = peer.attach()
    assert (delivered(effects), missed(effects)) == ([2], [{"max-age": 1}])


def test_a_client_that_does_not_confirm_is_told_what_became_too_old() -> None:
    """At once, although no other event comes."""
    peer = Subscriber()
    peer.subscribe(durable(max_age_ns=10 * SECOND))
    peer.hear(made(1))
    assert missed(peer.run(11 * SECOND)) == [{"max-age": 1}]


def test_what_was_missed_is_told_after_a_crash_too() -> None:
    peer = Subscriber()
    peer(Subscribed(durable(max_events=1)))
    peer.hear(made(1))
    peer.hear(made(2))
    peer.crash()
    effects = peer.attach()
    assert (delivered(effects), missed(effects)) == ([2], [{"backlog-full": 1}])
    peer.crash()
    assert missed(peer.attach()) == []


def test_an_expired_event_leaves_the_backlog() -> None:
    peer = Subscriber()
    peer(Subscribed(durable()))
    peer.hear(made(1, ttl_ns=SECOND))
    peer.hear(made(2))
    peer.run(2 * SECOND)
    effects = peer.attach()
    assert (delivered(effects), missed(effects)) == ([2], [{"expired": 1}])
    assert dropped(effects) == [(1, "expired")]


def test_two_durable_subscriptions_confirm_each_for_itself() -> None:
    peer = Subscriber()
    peer.subscribe(durable("a", number=1))
    peer.subscribe(durable("b", number=2))
    a, b = deliveries(peer.hear(made(1)))
    peer.confirm([a], number=1)
    peer.crash()
    assert delivered(peer.attach(1)) == []
    assert delivered(peer.attach(2)) == [1]
    assert b.position != a.position


def test_unsubscribing_ends_the_backlog() -> None:
    peer = Subscriber()
    peer(Subscribed(durable()))
    peer.hear(made(1))
    peer(Unsubscribed(1))
    peer.crash()
    assert not peer.peer.durable
    peer(Subscribed(durable()))
    assert delivered(peer.attach()) == []


def test_an_event_of_a_client_here_is_stored_for_a_durable_subscription_here() -> None:
    peer = Subscriber(neighbours=())
    peer(Subscribed(durable()))
    effects = peer(Publication({"topic": "t"}))
    stored = [i for i, e in enumerate(effects) if isinstance(e, Persist) and isinstance(e.record, QueuedRecord)]
    promised = [i for i, e in enumerate(effects) if isinstance(e, Receipt)]
    assert len(stored) == len(promised) == 1
    assert stored < promised, "the receipt says that the event is kept"
    peer.crash()
    assert delivered(peer.attach()) == [1]


def test_a_redelivery_is_counted() -> None:
    peer = Subscriber()
    peer.subscribe(durable())
    peer.hear(made(1))
    peer.detach()
    assert noticed(peer.attach(), "redelivered") == 1


class DurableMachine(RuleBasedStateMachine):
    """Any order of events, confirmations, losses of the client and crashes, with the store compacted at times.

    The model: a set of events that the client has not confirmed. Nothing of it is lost, nothing else is delivered, and
    nothing comes twice to one attachment.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peer = Subscriber()
        self.peer(Subscribed(durable()))
        self.sequence = 0
        self.owed: set[int] = set()
        self.attached = False
        self.holds: dict[int, Deliver] = {}

    def _take(self, effects: list[object]) -> None:
        for each in effects:
            if isinstance(each, Deliver):
                assert each.event.id.sequence in self.owed
                assert each.event.id.sequence not in self.holds
                self.holds[each.event.id.sequence] = each

    @rule()
    def hear(self) -> None:
        self.sequence += 1
        self.owed.add(self.sequence)
        self._take(list(self.peer.hear(made(self.sequence))))

    @rule(number=st.integers(1, 5))
    def hear_again(self, number: int) -> None:
        if number <= self.sequence:
            self._take(list(self.peer.hear(made(number))))

    @precondition(lambda self: not self.attached)
    @rule(window=st.integers(1, 4))
    def attach(self, window: int) -> None:
        self.attached, self.holds = True, {}
        self._take(list(self.peer.attach(window=window)))

    @precondition(lambda self: self.attached)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        if self.holds:
            numbers = data.draw(st.sets(st.sampled_from(sorted(self.holds)), min_size=1))
            chosen = [self.holds.pop(number) for number in sorted(numbers)]
            self.owed -= numbers
            self._take(list(self.peer.confirm(chosen)))

    @rule()
    def detach(self) -> None:
        self.peer.detach()
        self.attached, self.holds = False, {}

    @rule()
    def crash(self) -> None:
        self.peer.crash()
        self.attached, self.holds = False, {}

    @rule()
    def compact(self) -> None:
        needed = NeededRecords()
        for record in self.peer.store:
            needed.add(record, b"")
        delivered_ones = [r for r in self.peer.store if type(r).__name__ == "DeliveredRecord"]
        self.peer.store = [*delivered_ones, *(r for r in needed.records() if not isinstance(r, bytes))]

    @invariant()
    def nothing_is_lost(self) -> None:
        (backlog,) = self.peer.peer.durable.values()
        assert Counter(entry.event.id.sequence for entry in backlog.entries.values()) == Counter(self.owed)


TestDurableMachine = DurableMachine.TestCase
TestDurableMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50)), unique=True, max_size=20))
def test_a_recalled_backlog_is_in_the_publishers_order(ids: list[tuple[int, int]]) -> None:
    peer = Subscriber(neighbours=(PUBLISHER,), order_wait_ns=10**15)
    peer(Subscribed(durable(order=True)))
    for incarnation, sequence in ids:
        before = [s for i, s in ids if i == incarnation and s < sequence]
        peer.hear(made(sequence, incarnation=incarnation, previous=max(before, default=0)))
    peer.crash()
    got = [each.event.id for each in deliveries(peer.attach())]
    assert sorted(ids) == sorted((id_.incarnation, id_.sequence) for id_ in got)
    for incarnation in (1, 2, 3):
        mine = [id_.sequence for id_ in got if id_.incarnation == incarnation]
        assert mine == sorted(mine)
