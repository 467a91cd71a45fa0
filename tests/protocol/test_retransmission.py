"""Retransmission at its edges: late, old, repeated and withdrawn packets."""

import pytest

from tests.protocol.talk import A, B, C, D, S, T, Talk, event, sent, tx, wanting
from wend.model.publication import Publication
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.delivery.automatic_offers import AUTO_OFFERS, AUTO_OFFERS_CHARS
from wend.protocol.link.copa import Copa
from wend.protocol.link.estimator import MAX_TIMEOUT_NS
from wend.protocol.link.in_flight import OutgoingControl
from wend.protocol.link.link import Link
from wend.protocol.link.link_sender import LinkSender
from wend.protocol.link.retransmission import Retransmission
from wend.protocol.messages import Ack, Control, Data, Fragment
from wend.protocol.plugins import FLOODED, Forward
from wend.protocol.ports import (
    Drop,
    Effect,
    LocalSubscription,
    Notice,
    Refuse,
    Send,
    Subscribed,
    Unsent,
)
from wend.protocol.timers import Timers


def test_a_packet_older_than_the_window_is_refused_and_not_acknowledged() -> None:
    talk = Talk()
    talk.hear(0, B, Data(tx(10_000), event(2), 0, (A,), (B,)))
    answer = talk.hear(0, B, Data(tx(3_000), event(1), 0, (A,), (B,)))
    assert Refuse(B, "before-window") in answer
    assert sent(answer) == []


def test_control_that_comes_late_is_learned_all_the_same() -> None:
    talk = Talk(wants=())
    late = talk.reliable(B, wanting(S))
    talk.hear(0, B, Data(tx(10_000), event(1), 0, (A,), (B,)))
    talk.hear(0, B, late)
    assert talk.peer.subscriptions.targets(event(2)) == (S,)


def test_a_number_of_a_far_incarnation_is_a_number_like_any_other() -> None:
    talk = Talk()
    far = tx(7, incarnation=1 << 35)
    assert (B, Ack(far)) in sent(talk.hear(0, B, Data(far, event(1), 0, (A,), (B,))))


def test_an_answer_to_a_retransmission_makes_the_next_packet_wait_longer() -> None:
    link = Link(B, 20 * MS, 1.0, PeerConfig(peer=A, estimator="measured"))
    before = link.timeout_ns
    link.record_ack(300 * MS, retransmitted=True)
    assert link.timeout_ns == min(300 * MS, 2 * before)
    for _ in range(20):
        link.record_ack(60 * SECOND, retransmitted=True)
    assert link.timeout_ns == MAX_TIMEOUT_NS
    for _ in range(100):
        link.record_ack(40 * MS, retransmitted=False)
    assert link.timeout_ns < 60 * MS


@pytest.mark.parametrize(("held", "round_trip"), [(0, 40), (3, 37), (39, 30), (-5, 40)])
def test_the_time_for_which_an_ack_was_held_is_no_part_of_the_round_trip(held: int, round_trip: int) -> None:
    config = PeerConfig(peer=A, estimator="measured")
    links = {C: Link(C, 10 * MS, 1.0, config)}
    retransmission = Retransmission(config, links, Timers(), *[lambda *_: None] * 3)
    effects: list[Effect] = []
    retransmission.forward(0, Forward(C, event(1), 0, (S,)), effects)
    (sent_,) = [effect.message for effect in effects if isinstance(effect, Send)]
    assert isinstance(sent_, Data)
    retransmission.on_ack(40 * MS, links[C], Ack(sent_.tx, held_ns=held * MS), [])
    estimator = links[C].estimator
    assert estimator is not None and estimator.srtt_ns == round_trip * MS  # of a lie, at most 10 ms are believed


@pytest.mark.parametrize(("held", "round_trip"), [(0, 80), (39, 41), (79, 30)])
def test_congestion_control_does_not_count_the_time_for_which_a_busy_host_read_nothing(
    held: int, round_trip: int
) -> None:
    config = PeerConfig(peer=A, estimator="measured")
    sender = LinkSender(Copa(5 * MS), 1 << 20)
    links = {C: Link(C, 10 * MS, 1.0, config, sender=sender)}
    retransmission = Retransmission(config, links, Timers(), *[lambda *_: None] * 3)
    effects: list[Effect] = []
    retransmission.forward(0, Forward(C, event(1), 0, (S,)), effects)
    (sent_,) = [effect.message for effect in effects if isinstance(effect, Send)]
    assert isinstance(sent_, Data)
    retransmission.on_ack(80 * MS, links[C], Ack(sent_.tx, held_ns=held * MS), [])
    assert sender.controller.least_ns == round_trip * MS


def test_over_a_short_link_a_timer_allows_for_a_neighbour_that_does_not_run() -> None:
    for margin_ms, least_ms in ((0, 0), (5, 40)):
        link = Link(C, MS, 1.0, PeerConfig(peer=A, estimator="measured", margin_ns=margin_ms * MS))
        assert link.timeout_ns >= least_ms * MS
        for _ in range(100):
            link.record_ack(MS, retransmitted=False)
        assert max(1, least_ms) * MS <= link.timeout_ns <= max(2, least_ms) * MS


def test_after_a_pause_timers_wait_as_long_again_and_no_longer() -> None:
    config = PeerConfig(peer=A, estimator="nominal", margin_ns=0)
    links, timers, failed = {C: Link(C, 10 * MS, 1.0, config)}, Timers(), []
    noted = [lambda now, forward, _: failed.append(now), *[lambda *_: None] * 2]
    retransmission = Retransmission(config, links, timers, *noted)
    retransmission.forward(0, Forward(C, event(1), 0, (S,)), [])
    due = links[C].timeout_ns
    retransmission.on_pause(due, 3 * MS)
    retransmission.forward(due, Forward(C, event(2), 0, (S,)), [])  # it knows of no pause
    timers.run(due, [])
    assert failed == []
    timers.run(due + 3 * MS, [])
    assert failed == [due + 3 * MS]
    timers.run(2 * due, [])
    assert failed == [due + 3 * MS, 2 * due]


def test_a_packet_that_returns_is_not_withdrawn() -> None:
    config = PeerConfig(peer=A, estimator="nominal")
    links = {C: Link(C, 10 * MS, 1.0, config)}
    retransmission = Retransmission(config, links, Timers(), *[lambda *_: None] * 3)
    onward, back = Forward(C, event(1), 0, (S,)), Forward(C, event(2), 0, (S,), tries=10)
    for forward in (onward, back):
        retransmission.forward(0, forward, [])
    assert retransmission.withdraw(C) == [onward]
    assert retransmission.packets_in_flight() == [back]


@pytest.mark.parametrize("control_waits", [False, True])
def test_control_waits_for_an_answer_as_long_as_it_may_queue(control_waits: bool) -> None:
    config, timers = PeerConfig(peer=A, estimator="nominal", margin_ns=0), Timers()
    link = Link(C, 10 * MS, 1.0, config, 30 * SECOND, control_waits)
    retransmission = Retransmission(config, {C: link}, timers, *[lambda *_: None] * 3)
    retransmission.control.send(0, OutgoingControl(C, FLOODED, None, wanting(A)), [])
    retransmission.forward(0, Forward(C, event(1), 0, (S,)), [])
    told, sent_on = (time for time, *_ in sorted(timers.heap, key=lambda timer: timer[1]))
    assert sent_on == link.timeout_ns > 30 * SECOND
    assert told == (link.timeout_ns if control_waits else link.timeout_ns - 30 * SECOND)


def test_a_packet_that_could_not_be_sent_is_dropped_and_no_link_is_blamed() -> None:
    talk = Talk()
    answer = talk(0, Publication({"topic": "t"}, b"x" * 3000))
    [first, *others] = [m for p, m in sent(answer) if p == C and isinstance(m, Data | Fragment)]
    assert [e.dests for e in talk(0, Unsent(C, first)) if isinstance(e, Drop)] == [(S, T)]
    assert [e for m in others for e in talk(0, Unsent(C, m)) if isinstance(e, Drop)] == []
    told = next(m for p, m in sent(talk(0, Subscribed(LocalSubscription(1, "topic = 'u'")))) if p == C)
    assert Notice("control-lost", C) in talk(0, Unsent(C, told))
    for now in range(100, 3000, 100):
        again = [m for p, m in sent(talk.wake(now * MS)) if p == C]
        assert not any(isinstance(m, Data | Fragment | Control) for m in again)
    assert (talk.peer.links[C].unanswered.fails, talk.peer.links[C].missed, talk.peer.unfinished()) == (0, False, set())


def test_a_peer_says_so_when_it_publishes_before_its_neighbours_told_their_interest() -> None:
    """Of those further away it cannot say so: nobody knows whom it does not know."""
    early = Notice("published-early", A)
    talk = Talk(wants=(B, C))
    answer = talk(0, Publication({"topic": "t"}))
    assert early in answer
    talk.hear(0, B, talk.reliable(B, wanting(D, "u")))
    assert early not in talk(0, Publication({"topic": "t"})), "though nothing was heard from S and T"
    alone = Talk(graph={(A, B): 10}, wants=(B,))
    assert early not in alone(0, Publication({"topic": "t"}))


def test_topics_that_are_only_published_are_advertised_up_to_a_bound() -> None:
    talk = Talk()
    for number in range(AUTO_OFFERS + 5):
        answer = talk(0, Publication({"topic": f"topic {number}"}))
    assert talk.peer.subscriptions.advertised[0] == AUTO_OFFERS
    assert Notice("not-advertised", A) in answer
    talk = Talk()
    for number in range(5):
        answer = talk(0, Publication({"topic": str(number) * (AUTO_OFFERS_CHARS // 4)}))
    assert talk.peer.subscriptions.advertised[0] == 3
    assert Notice("not-advertised", A) in answer
