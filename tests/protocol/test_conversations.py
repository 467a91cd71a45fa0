"""What a peer answers, word for word."""

from itertools import pairwise

import pytest

from tests.protocol.talk import GRAPH, LATER, QUIET, A, B, C, D, S, T, Talk, event, sent, tx, wanting
from wend.model.events import Qos, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import MS, SECOND
from wend.protocol.messages import Ack, Control, Data, Hello
from wend.protocol.plugins import UPSTREAM_TRIES
from wend.protocol.plugins.copy_ranks import fork
from wend.protocol.ports import (
    Deliver,
    Drop,
    LocalSubscription,
    Notice,
    Receipt,
    Refuse,
    Send,
    Subscribed,
    Unsubscribed,
    WakeAt,
)
from wend.strategies.link_state.plugin import LinkState
from wend.strategies.multipath.plugin import SourceRoutes
from wend.strategies.subscriptions.table import PeerInterest

FIRST = fork(0, A)
SECOND_COPY = fork(FIRST, A)
BACK = fork(SECOND_COPY, A)


def packet(number: int = 1, dests: tuple[int, ...] = (S,), path: tuple[int, ...] = (B,), sequence: int = 1) -> Data:
    return Data(tx(number + 100), event(sequence), 5 * MS, dests, path)


def own(effects: list, index: int = 0) -> int:
    """The number that the peer gave its n-th data packet."""
    return [m.tx for _, m in sent(effects) if isinstance(m, Data)][index]


@pytest.mark.parametrize("strategy", ["dcrd", "d-tree", "r-tree"])
def test_a_packet_is_acknowledged_and_sent_on(strategy: str) -> None:
    talk = Talk(strategy)
    answer = talk.hear(0, B, packet())
    on = Data(own(answer), event(), 15 * MS, (S,), (B, A))
    assert answer == [Send(B, Ack(packet().tx)), Send(C, on), WakeAt(20 * MS)]


def test_one_copy_per_next_hop_for_several_destinations() -> None:
    talk = Talk(wants=(S, T, D))
    answer = talk.hear(0, B, packet(dests=(D, S, T)))
    to_d = Data(own(answer), event(), 15 * MS, (D,), (B, A))
    to_c = Data(own(answer, 1), event(), 15 * MS, (S, T), (B, A))
    assert answer == [Send(B, Ack(packet().tx)), Send(D, to_d), Send(C, to_c), WakeAt(20 * MS)]


def test_with_free_acks_the_timer_is_one_way() -> None:
    answer = Talk(ack="free").hear(0, B, packet())
    assert answer[-1] == WakeAt(10 * MS)


def test_an_ack_ends_the_wait() -> None:
    talk = Talk()
    number = own(talk.hear(0, B, packet()))
    assert talk.hear(20 * MS, C, Ack(number)) == [WakeAt(LATER - QUIET)]
    assert sent(talk.wake(20 * MS)) == []


def test_expiry_goes_to_the_next_neighbour_then_upstream_then_gives_up() -> None:
    talk = Talk()
    talk.hear(0, B, packet())
    answer = talk.wake(20 * MS)
    over_d = Data(own(answer), event(), 35 * MS, (S,), (B, A), None, (FIRST,))
    assert answer == [Notice("reroute", C), Send(D, over_d), WakeAt(60 * MS)]
    answer = talk.wake(60 * MS)
    back = Data(own(answer), event(), 75 * MS, (S,), (B, A), None, (BACK,))
    assert answer == [Notice("reroute", D), Send(B, back), WakeAt(80 * MS)]
    for again in range(1, UPSTREAM_TRIES):
        now = 60 * MS + again * 20 * MS
        repeated = Data(back.tx, event(), 15 * MS + now, (S,), (B, A), None, (BACK,))
        assert talk.wake(now) == [Send(B, repeated), WakeAt(now + 20 * MS)]
    assert talk.wake(60 * MS + UPSTREAM_TRIES * 20 * MS) == [
        Drop(event().id, (S,), "no-return-route"),
        WakeAt(LATER - QUIET),
    ]


def test_a_packet_handed_back_goes_on_to_those_not_in_its_path() -> None:
    talk = Talk()
    number = own(talk.hear(0, B, packet()))
    talk.hear(20 * MS, C, Ack(number))
    returned = Data(tx(1), event(), 30 * MS, (S,), (B, A, C))
    answer = talk.hear(40 * MS, C, returned)
    on = Data(own(answer), event(), 40 * MS, (S,), (B, A, C, A))
    assert answer == [Send(C, Ack(tx(1))), Send(D, on), WakeAt(80 * MS)]


def test_upstream_stands_before_the_first_occurrence_in_the_path() -> None:
    talk = Talk()
    answer = talk.hear(0, D, Data(tx(1), event(), 0, (S,), (B, A, C, A, D)))
    assert [(to, message.path) for to, message in sent(answer) if isinstance(message, Data)] == [
        (B, (B, A, C, A, D, A))
    ]


def test_the_publisher_gives_up_when_its_list_is_exhausted() -> None:
    talk = Talk(graph={(A, C): 10, (C, S): 10}, wants=(S,))
    answer = talk(0, Publication({"topic": "t"}))
    made = next(e.id for e in answer if isinstance(e, Receipt))
    first = next(m for _, m in sent(answer) if isinstance(m, Data))
    assert (first.dests, first.path, first.age_ns) == ((S,), (A,), 0)
    assert Drop(made, (S,), "no-route-left") in talk.wake(20 * MS)


@pytest.mark.parametrize(("strategy", "m"), [("dcrd", 2), ("d-tree", 2), ("multipath", 2), ("d-tree", 3)])
def test_m_transmissions_keep_their_number(strategy: str, m: int) -> None:
    talk = Talk(strategy, transmissions=m, graph={(A, B): 10, (A, C): 10, (C, S): 10}, wants=(S,))
    header = SourceRoutes(((C, S),)) if strategy == "multipath" else None
    answer = talk.hear(0, B, Data(tx(101), event(), 5 * MS, (S,), (B,), header))
    first = next(message for to, message in sent(answer) if to == C)
    for again in range(1, m):
        ((to, second),) = sent(talk.wake(again * 20 * MS))
        assert (to, second.tx, second.age_ns) == (C, first.tx, first.age_ns + again * 20 * MS)
    assert all(to != C for to, _ in sent(talk.wake(m * 20 * MS)))


def test_a_tree_drops_what_its_link_does_not_answer() -> None:
    talk = Talk("d-tree")
    talk.hear(0, B, packet(dests=(S, T)))
    assert talk.wake(20 * MS) == [Drop(event().id, (S, T), "no-answer"), WakeAt(LATER - QUIET)]


def test_multipath_sends_two_copies_on_routes_that_share_the_fewest_links() -> None:
    talk = Talk("multipath", wants=(S,))
    copies = [(to, m.header) for to, m in sent(talk(0, Publication({"topic": "t"}))) if isinstance(m, Data)]
    assert copies == [(C, SourceRoutes(((S,),))), (D, SourceRoutes(((S,),)))]


def test_multipath_sends_routes_with_a_common_hop_as_one_packet() -> None:
    talk = Talk("multipath", graph={(A, C): 10, (C, S): 10, (C, D): 10, (D, S): 10}, wants=(S,))
    copies = [(to, m.dests, m.header) for to, m in sent(talk(0, Publication({"topic": "t"}))) if isinstance(m, Data)]
    assert copies == [(C, (S, S), SourceRoutes(((S,), (D, S))))]


def test_a_repeated_transmission_is_acknowledged_and_suppressed() -> None:
    talk = Talk()
    talk.hear(0, B, packet())
    assert talk.hear(1 * MS, B, packet()) == [Send(B, Ack(packet().tx)), Notice("duplicate", B)]


def test_another_copy_of_what_was_accepted_is_acknowledged_and_suppressed() -> None:
    talk = Talk()
    higher = Data(tx(150), event(), 5 * MS, (S,), (B,), None, (FIRST,))
    talk.hear(0, B, higher)
    again = Data(tx(1), event(), 9 * MS, (S,), (B, D))
    assert talk.hear(1 * MS, D, again) == [Send(D, Ack(tx(1))), Notice("duplicate", D)]


def test_a_higher_copy_goes_on() -> None:
    talk = Talk()
    talk.hear(0, B, packet())
    again = Data(tx(1), event(), 9 * MS, (S,), (B, D), None, (FIRST,))
    assert [to for to, m in sent(talk.hear(1 * MS, D, again)) if isinstance(m, Data)] == [C]


def test_a_lost_ack_does_not_notify_twice() -> None:
    talk = Talk(mine=(LocalSubscription(3, "topic = 't'", Qos(deadline_ns=50 * MS)),))
    for_me = packet(dests=(A,))
    assert talk.hear(0, B, for_me) == [
        Deliver(SubscriptionId(A, 3), event(), 15 * MS, 50 * MS),
        Send(B, Ack(for_me.tx)),
    ]
    assert talk.hear(1 * MS, B, for_me) == [Send(B, Ack(for_me.tx)), Notice("duplicate", B)]
    other_way = Data(tx(1), event(), 30 * MS, (A,), (B, C))
    assert talk.hear(2 * MS, C, other_way) == [Notice("duplicate", A), Send(C, Ack(tx(1)))]


def test_a_deadline_may_be_a_factor_on_the_shortest_delay() -> None:
    talk = Talk(mine=(LocalSubscription(0, "topic = 't'", Qos(factor=3.0)), LocalSubscription(1, "topic = 't'")))
    told = [e for e in talk.hear(0, B, packet(dests=(A,))) if isinstance(e, Deliver)]
    assert told == [
        Deliver(SubscriptionId(A, 0), event(), 15 * MS, 30 * MS),
        Deliver(SubscriptionId(A, 1), event(), 15 * MS, None),
    ]


@pytest.mark.parametrize("settings", [{}, {"persistence": True, "stores": False}])
def test_a_restarted_peer_does_not_notify_what_a_former_incarnation_may_have(settings: dict[str, bool]) -> None:
    talk = Talk(mine=(LocalSubscription(0, "topic = 't'"),), **settings)
    before = Data(tx(101), event(), QUIET + 1 * SECOND, (A,), (B,))
    assert talk.hear(0, B, before) == [
        Drop(event().id, (A,), "before-incarnation"),
        Send(B, Ack(tx(101))),
    ]


# ---------------------------------------------------------------- whom it believes


def test_who_is_no_neighbour_is_refused() -> None:
    assert Talk().hear(0, S, packet()) == [Refuse(S, "not-neighbour")]


def test_an_ack_from_another_than_the_receiver_is_refused() -> None:
    talk = Talk()
    number = own(talk.hear(0, B, packet()))
    assert talk.hear(1 * MS, D, Ack(number)) == [Refuse(D, "unexpected-ack")]
    assert talk.hear(2 * MS, C, Ack(number)) == [WakeAt(LATER - QUIET)]


def test_an_ack_of_nothing_is_counted() -> None:
    assert Talk().hear(0, C, Ack(tx(999))) == [Notice("late-ack", C)]


@pytest.mark.parametrize("message", [packet(), Control(tx(9), "link-state", LinkState(S, (9, 9), ())), Hello(1, True)])
def test_a_message_from_an_earlier_incarnation_is_refused(message: Data | Control | Hello) -> None:
    talk = Talk()
    talk.hear(0, B, Hello(2, True))
    talk.settle(QUIET)
    answer = [e for e in talk.hear(1 * MS, B, message) if not isinstance(e, WakeAt)]
    assert answer == [Refuse(B, "earlier-incarnation")]


def test_a_restarted_neighbour_is_told_everything_and_its_numbers_begin_anew() -> None:
    talk = Talk()
    talk.hear(0, B, packet())
    answer = talk.hear(1 * MS, B, Data(tx(101, incarnation=2), event(2), 0, (S,), (B,)))
    bodies = [m.body for to, m in sent(answer) if to == B and isinstance(m, Control)]
    assert [b.origin for b in bodies if isinstance(b, LinkState)] == [A, B, C, D, S, T]
    assert [b.origin for b in bodies if isinstance(b, PeerInterest)] == [A, S, T]
    assert [to for to, m in sent(answer) if isinstance(m, Data)] == [C]


def test_impossible_link_states_are_refused_and_not_believed() -> None:
    talk = Talk()
    for links in (((C, -5, 1.0),), ((C, 0, 1.0),), ((C, 5, float("nan")),), ((C, 5, 2.0),)):
        answer = talk.hear(0, B, talk.reliable(B, LinkState(S, (9, 9), links)))
        assert Refuse(B, "invalid-link-state") in answer
    assert talk.peer.view.graph.distances(A)[S] == 20 * MS


def test_an_unreadable_filter_of_another_is_noticed_and_not_believed() -> None:
    talk = Talk()
    bad = wanting(S, topic="'", version=2)
    assert Refuse(B, "filter-syntax") in talk.hear(0, B, talk.reliable(B, bad))
    assert [to for to, m in sent(talk(0, Publication({"topic": "t"}))) if isinstance(m, Data)] == [C]


# ---------------------------------------------------------------- interest


def test_a_subscription_floods_and_its_end_too() -> None:
    talk = Talk()
    answer = talk(0, Subscribed(LocalSubscription(7, "topic = 'x'")))
    told = [(to, m.body) for to, m in sent(answer) if isinstance(m, Control)]
    assert [to for to, _ in told] == [B, C, D]
    assert {s.filter for _, body in told for s in body.subscriptions} == {"topic = 'x'"}
    answer = talk(1 * MS, Unsubscribed(7))
    assert [m.body.subscriptions for _, m in sent(answer) if isinstance(m, Control)] == [(), (), ()]


def test_what_is_learned_goes_on_to_all_but_the_sender_once() -> None:
    talk = Talk()
    news = wanting(S, topic="y", version=2)
    assert [to for to, m in sent(talk.hear(0, B, talk.reliable(B, news))) if isinstance(m, Control)] == [C, D]
    assert [to for to, m in sent(talk.hear(0, C, talk.reliable(C, news))) if isinstance(m, Control)] == []


@pytest.mark.parametrize("text", ["", "topic", "topic =", "temperature >", "topic = 'a' or 1", "t" * 20_000])
def test_a_bad_filter_of_ours_is_refused(text: str) -> None:
    (refusal,) = Talk()(0, Subscribed(LocalSubscription(1, text)))
    assert isinstance(refusal, Refuse)
    assert refusal.peer == A


def test_a_topic_too_long_to_advertise_is_refused_not_raised() -> None:
    answer = Talk(wants=(B, C, D))(0, Publication({"topic": "x" * 20_000}))
    assert [type(e) for e in answer if not isinstance(e, WakeAt)] == [Refuse, Receipt]


def test_a_publication_without_advertisement_advertises() -> None:
    answer = Talk()(0, Publication({"topic": "t"}))
    told = [m.body.advertisements for _, m in sent(answer) if isinstance(m, Control)]
    assert told == [("topic = 't'",)] * 3
    assert [m.dests for _, m in sent(answer) if isinstance(m, Data)] == [(S, T)]


def test_own_subscribers_are_notified_at_once() -> None:
    talk = Talk(mine=(LocalSubscription(0, "topic = 't'"),), wants=())
    answer = talk(0, Publication({"topic": "t"}, b"x"))
    made = next(e.event for e in answer if isinstance(e, Deliver))
    assert (made.id.publisher, made.payload) == (A, b"x")
    assert Receipt(made.id, (A,), False) in answer


def test_nobody_is_to_get_what_nobody_wants() -> None:
    answer = Talk()(0, Publication({"temperature": 15}))
    assert [e.targets for e in answer if isinstance(e, Receipt)] == [()]
    told = [m.body for _, m in sent(answer) if isinstance(m, Control)]
    assert {body.advertisements for body in told if isinstance(body, PeerInterest)} == {("true",)}  # no topic to offer
    assert not any(isinstance(m, Data) for _, m in sent(answer))


# ---------------------------------------------------------------- control, timers


def test_control_is_repeated_with_patience_and_told_anew_when_the_neighbour_is_heard() -> None:
    talk = Talk("d-tree", graph={(A, C): 10, (C, S): 10}, wants=(S,))
    times, answer = [0], talk(0, Subscribed(LocalSubscription(7, "topic = 'x'")))
    while Notice("control-lost", C) not in answer:
        times.append(answer[-1].time_ns)
        answer = talk.wake(times[-1])
        assert len(sent(answer)) <= 1
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps == [min(20 * MS << k, 1 * SECOND) for k in range(20)]
    answer = talk.hear(times[-1] + SECOND, C, Ack(tx(1)))
    told = [m.body for _, m in sent(answer) if isinstance(m, Control)]
    assert [b.origin for b in told if isinstance(b, LinkState)] == [A, C, S]
    assert [len(b.subscriptions) for b in told if isinstance(b, PeerInterest)] == [1, 1]


def test_a_neighbour_that_missed_something_is_knocked_at_until_it_answers() -> None:
    talk = Talk("d-tree", graph={(A, C): 10, (C, S): 10}, wants=(S,), monitoring_ns=QUIET + 60 * SECOND)
    answer = talk(0, Subscribed(LocalSubscription(7, "topic = 'x'")))
    while Notice("control-lost", C) not in answer:
        answer = talk.wake(answer[-1].time_ns)
    ((to, knock),) = sent(talk.wake(60 * SECOND))
    assert (to, knock) == (C, Control(knock.tx, "", None))
    told = [m.body for _, m in sent(talk.hear(61 * SECOND, C, Ack(knock.tx))) if isinstance(m, Control)]
    assert any(isinstance(body, PeerInterest) and body.origin == A for body in told)


def test_a_newer_state_replaces_the_one_not_yet_acknowledged() -> None:
    talk = Talk(graph={(A, C): 10, (C, S): 10}, wants=(S,))
    talk(0, Subscribed(LocalSubscription(7, "topic = 'x'")))
    ((_, newer),) = sent(talk(1 * MS, Subscribed(LocalSubscription(8, "topic = 'y'"))))
    repeated = [m for _, m in sent(talk.wake(30 * MS))]
    assert repeated == [newer]


def test_a_spurious_wake_up_is_harmless() -> None:
    talk = Talk()
    talk.hear(0, B, packet())
    assert talk.wake(1 * MS) == [WakeAt(20 * MS)]
    assert sent(talk.wake(19 * MS)) == []
    assert [to for to, _ in sent(talk.wake(25 * MS))] == [D]


def test_the_graph_is_as_drawn() -> None:
    assert Talk().peer.view.graph.distances(A) == {A: 0, B: 10 * MS, C: 10 * MS, D: 20 * MS, S: 20 * MS, T: 20 * MS}
    assert len(GRAPH) == 6


def test_a_delivery_that_waited_is_older_and_otherwise_the_same() -> None:
    fields = (SubscriptionId(A, 3), event(), 15 * MS, 50 * MS, 7, True, True)
    later = Deliver(*fields).delayed_by(5 * MS)
    shown = tuple(getattr(later, name) for name in Deliver.__match_args__)
    assert shown == (*fields[:2], 20 * MS, *fields[3:])
