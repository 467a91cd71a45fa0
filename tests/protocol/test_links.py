"""Estimates of links, expectations about routes, interest, and the failure detector, as a peer uses them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cores import pure_only
from tests.holdings import held
from tests.protocol.talk import QUIET, A, B, C, D, S, T, Talk, event, sent, tx, wanting
from wend.model.errors import ConfigError
from wend.model.events import PeerId, Subscription
from wend.model.publication import Publication
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.link.estimator import MAX_TIMEOUT_NS
from wend.protocol.link.link import Link
from wend.protocol.messages import Ack, Control, Data, Hello, Message
from wend.protocol.ports import (
    Advertised,
    Effect,
    LinkAdded,
    LinkRemoved,
    LocalSubscription,
    Neighbour,
    Notice,
    Received,
    Refuse,
    Started,
    Subscribed,
    Woken,
)
from wend.strategies.dcrd.expectations import Expectations
from wend.strategies.flooded.plugin import FloodedInterest
from wend.strategies.registry import make_peer
from wend.strategies.subscriptions import table as subscriptions
from wend.strategies.subscriptions.table import PeerInterest


def link(estimator: str = "measured", ack: str = "round-trip") -> Link:
    return Link(B, 10 * MS, 1.0, PeerConfig(peer=A, estimator=estimator, ack=ack, margin_ns=0))


@pytest.mark.parametrize(("ack", "timeout"), [("free", 10 * MS), ("round-trip", 20 * MS)])
def test_nominal_links_stay_what_they_are_said_to_be(ack: str, timeout: int) -> None:
    nominal = link("nominal", ack)
    assert nominal.timeout_ns == timeout
    for _ in range(50):
        nominal.record_ack(77 * MS, False)
    assert not nominal.end_period()
    assert (nominal.delay_ns, nominal.reliability, nominal.timeout_ns) == (10 * MS, 1.0, timeout)


@given(st.integers(1 * MS, 500 * MS))
def test_measured_links_find_the_delay(round_trip: int) -> None:
    measured = link()
    for _ in range(200):
        measured.record_ack(round_trip, False)
    measured.end_period()
    assert measured.delay_ns == pytest.approx(round_trip / 2, rel=0.12, abs=2.1 * MS)
    assert measured.timeout_ns >= round_trip - 8


@given(st.integers(0, 200), st.integers(0, 200))
def test_measured_links_find_the_reliability_and_forget_it_slowly(answered: int, missed: int) -> None:
    measured = link()
    for _ in range(missed):
        measured.on_timeout()
    for _ in range(answered):
        measured.record_ack(20 * MS, False)
    measured.end_period()
    expected = (answered + 20) / (answered + missed + 20)
    assert measured.reliability == pytest.approx(expected, abs=0.021)
    for _ in range(60):
        before = measured.reliability
        measured.end_period()
        assert measured.reliability >= before
    assert measured.reliability == pytest.approx(1.0, abs=0.021)


def test_a_first_guess_that_is_too_long_gives_way_to_the_first_answer_and_is_told_later() -> None:
    measured = link()
    measured.record_ack(17 * MS, False)  # near enough
    assert measured.delay_ns == 10 * MS
    measured.record_ack(2 * MS, False)
    assert measured.delay_ns == 1 * MS
    measured.record_ack(30 * MS, False)  # a busy host's
    assert measured.delay_ns == 1 * MS
    assert measured.end_period()  # the others have yet to hear of it
    assert not measured.end_period()


def test_what_was_measured_is_renewed_once_in_a_period_only() -> None:
    measured = link()
    measured.record_ack(20 * MS, False)
    assert not measured.end_period()
    measured.record_ack(2 * MS, False)
    assert measured.delay_ns == 10 * MS
    assert measured.end_period()
    assert measured.delay_ns == 1 * MS


def test_late_answers_do_not_make_a_link_wait_without_bound() -> None:
    found = link("measured")
    for _ in range(20):
        found.record_ack(90 * SECOND, retransmitted=False)
    assert found.timeout_ns == MAX_TIMEOUT_NS


def test_the_round_trip_of_a_retransmission_is_ambiguous() -> None:
    measured = link()
    assert measured.estimator is not None
    before = measured.estimator.srtt_ns
    measured.record_ack(900 * MS, True)
    assert measured.estimator.srtt_ns == before


# ---------------------------------------------------------------- <d, r> in the peer


def with_lists(**config: object) -> Talk:
    """B's events for S: D claims to be nearer than C."""
    talk = Talk(wants=(S,), **config)
    offer = PeerInterest(B, (1, 1), (), ("topic = 't'",))
    talk.heard = talk.peer.handle(QUIET // 2, _received(B, talk.reliable(B, offer)))
    for sender, delay in ((C, 40.0), (D, 5.0)):
        batch = Expectations(1, ((B, S),), (delay * MS,), (1.0,))
        talk.heard += talk.peer.handle(QUIET // 2, _received(sender, talk.reliable(sender, batch)))
    talk.settle(QUIET // 2)
    return talk


def _received(sender: int, message: Message) -> Received:
    return Received(sender, message)


def test_the_sending_list_is_in_the_order_of_theorem_1() -> None:
    talk = with_lists()
    assert hops(talk.hear(0, B, Data(tx(150), event(), 0, (S,), (B,)))) == [D]
    assert hops(talk.wake(40 * MS)) == [C], "D did not answer"


def hops(effects: list[Effect]) -> list[PeerId]:
    return [to for to, m in sent(effects) if isinstance(m, Data)]


def test_expectations_of_a_neighbour_are_forgotten_when_it_restarts_and_only_then() -> None:
    talk = with_lists()
    talk.peer.links[D].on_give_up()
    talk.peer.links[D].on_control_given_up()  # it missed something, and is told everything when it is heard
    told = [m.body for to, m in sent(talk.hear(0, D, Ack(tx(1)))) if isinstance(m, Control)]
    assert any(isinstance(body, PeerInterest) for body in told)
    assert hops(talk.hear(0, B, Data(tx(150), event(1), 0, (S,), (B,)))) == [D]
    talk.hear(1 * MS, D, Hello(2, True))
    talk.wake(1 * SECOND)
    assert hops(talk.hear(1 * SECOND, B, Data(tx(151), event(2), 0, (S,), (B,)))) == [C]


def test_news_are_gathered_and_told_in_one_batch_per_neighbour() -> None:
    talk = with_lists()
    better = Expectations(2, ((B, S),), (1.0 * MS,), (1.0,))
    assert all(not isinstance(m, Control) for _, m in sent(talk.hear(0, C, talk.reliable(C, better))))
    told = [(to, m.body) for to, m in sent(talk.wake(50 * MS)) if isinstance(m, Control)]
    assert [to for to, _ in told] == [B, C, D]
    assert {body.pairs for _, body in told} == {((B, S),)}


# ---------------------------------------------------------------- interest


@pure_only
def test_caches_of_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_CACHED", 10)
    interest = FloodedInterest(PeerConfig(peer=A))
    for n in range(1000):
        interest.table.targets(event(topic=f"t{n}"))
        assert max(held(interest).values()) <= 10


def test_a_subscription_with_the_number_of_another_replaces_it() -> None:
    talk = Talk(wants=())
    for topic in ("x", "y"):
        talk(0, Subscribed(LocalSubscription(1, f"topic = '{topic}'")))
    assert talk.peer.subscriptions.targets(event(topic="x")) == ()
    assert talk.peer.subscriptions.targets(event(topic="y")) == (A,)


def test_an_advertised_topic_is_not_advertised_again() -> None:
    talk = Talk()
    assert len(sent(talk(0, Advertised("topic = 't'")))) == 3
    assert [type(m) for _, m in sent(talk(1 * MS, Publication({"topic": "t"})))] == [Data]


def test_a_neighbour_may_not_subscribe_for_another() -> None:
    talk = Talk(wants=())
    forged = PeerInterest(S, (1, 9), (*_wants(S), *_wants(T)), ())
    talk.hear(0, B, talk.reliable(B, forged))
    assert talk.peer.subscriptions.targets(event()) == (S,)


def _wants(peer: int) -> tuple[Subscription, ...]:
    return wanting(peer).subscriptions


# ---------------------------------------------------------------- probing


def test_a_silent_link_seems_down_after_the_detection_time_is_noticed_and_is_up_when_heard() -> None:
    talk = Talk("adaptive", quiet=False, detection_ns=160 * MS, graph={(A, C): 10, (C, S): 10}, wants=(S,))
    link, noticed = talk.peer.links[C], []
    assert link.is_working(159 * MS)
    assert not link.is_working(161 * MS)
    for now in range(0, 400 * MS, 5 * MS):
        noticed += [now for e in talk.peer.handle(now, Woken()) if e == Notice("link-down", C)]
    assert len(noticed) == 1
    assert noticed[0] <= 2 * 160 * MS + 2 * 10 * MS
    assert Notice("link-up", C) in talk.peer.handle(400 * MS, _received(C, Hello(1, True)))
    assert link.is_working(401 * MS)


def test_a_link_with_traffic_needs_no_hellos() -> None:
    talk = Talk("adaptive", quiet=False, detection_ns=160 * MS, graph={(A, C): 10, (C, S): 10}, wants=(S,))
    hellos = 0
    for step in range(1, 100):
        now = step * 20 * MS
        hellos += sum(isinstance(m, Hello) for _, m in sent(talk.peer.handle(now, Woken())))
        data = Data(tx(1000 + step), event(step, C), 0, (A,), (C,))
        talk.peer.handle(now, _received(C, data))  # the ACK speaks for the link
    assert hellos == 1  # the first one, before there was traffic


# ---------------------------------------------------------------- links that are given and removed


def test_an_added_neighbour_is_told_everything_and_used() -> None:
    talk = Talk("dcrd")
    effects = talk(0, LinkAdded(Neighbour(S, 5 * MS)))
    assert Notice("linked", S) in effects
    told = {message.plugin for peer, message in sent(effects) if peer == S and isinstance(message, Control)}
    assert told == {"link-state", "flooded"}
    assert talk.peer.view.neighbours == (B, C, D, S)
    published = talk(MS, Publication({"topic": "t"}))
    assert S in {peer for peer, message in sent(published) if isinstance(message, Data)}


def test_what_is_in_flight_over_a_removed_link_takes_another_route() -> None:
    talk = Talk("dcrd")
    talk.hear(0, C, Hello(1, True))
    arrived = talk.hear(0, B, Data(tx(99), event(), 0, (S,), (B,)))
    assert [peer for peer, message in sent(arrived) if isinstance(message, Data)] == [C]
    effects = talk(MS, LinkRemoved(C))
    assert Notice("unlinked", C) in effects
    assert [peer for peer, message in sent(effects) if isinstance(message, Data)] == [D]
    assert talk.peer.view.neighbours == (B, D)
    assert talk.hear(2 * MS, C, Hello(1, True)) == [Refuse(C, "not-neighbour")]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (LinkAdded(Neighbour(A, MS)), "peer 0 cannot be linked with itself"),
        (LinkAdded(Neighbour(B, MS)), "peer 0 is linked with peer 1 already"),
        (LinkRemoved(S), "peer 0 is not linked with peer 4"),
    ],
)
def test_a_link_that_cannot_be_changed_is_the_callers_mistake(change: LinkAdded | LinkRemoved, sentence: str) -> None:
    talk = Talk("dcrd")
    with pytest.raises(ConfigError, match=sentence):
        talk(0, change)
    assert talk.peer.view.neighbours == (B, C, D)


def test_an_event_before_the_peer_has_joined_is_noticed() -> None:
    for joins in (True, False):
        peer = make_peer(PeerConfig(peer=A))
        peer.handle(0, Started((), contacts_follow=joins))
        assert (Notice("published-early", A) in peer.handle(0, Publication({"topic": "t"}))) == joins
