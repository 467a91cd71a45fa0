"""Conversations with a peer that runs `adaptive`: what it skips, when it hedges, and what it makes of the answers."""

from itertools import count
from typing import Any

import pytest

from tests.protocol.talk import sent
from wend.model.events import Event, EventId, PeerId, Qos, Subscription, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import TX_SHIFT, Ack, Control, Data, FailureNews, Hello, Message
from wend.protocol.ports import Effect, Neighbour, Notice, Received, Send, Started, WakeAt, Woken
from wend.strategies.adaptive.plugin import Adaptive
from wend.strategies.link_state.plugin import LinkState
from wend.strategies.registry import make_peer, setting_groups
from wend.strategies.subscriptions.table import PeerInterest

ME, LEFT, MIDDLE, RIGHT, FAR = range(5)
# To FAR over LEFT takes 20 ms, over MIDDLE 30 ms, over RIGHT 40 ms. No way shares a link with another.
GRAPH = {
    (ME, LEFT): 10, (ME, MIDDLE): 15, (ME, RIGHT): 20,
    (LEFT, FAR): 10, (MIDDLE, FAR): 15, (RIGHT, FAR): 20,
}  # fmt: skip


class Talk:
    """A peer that knows the graph and that FAR wants topic `t`, with all neighbours heard at time 0."""

    def __init__(self, deadline_ms: int | None, **config: Any) -> None:
        defaults = {"estimator": "nominal", "margin_ns": 0, "monitoring_ns": 1000 * SECOND}
        made = PeerConfig(peer=ME, strategy="adaptive", **{**defaults, **config})
        made.check(setting_groups())
        self.peer = make_peer(made)
        self.numbers = count(1)
        self.now: Nanos = 0
        self.wake: Nanos = 0
        neighbours = tuple(Neighbour(n, GRAPH[ME, n] * MS) for n in (LEFT, MIDDLE, RIGHT))
        self(Started(neighbours, advertisements=("topic = 't'",)))
        for peer in (LEFT, MIDDLE, RIGHT, FAR):
            links = tuple((b if a == peer else a, delay * MS, 1.0) for (a, b), delay in GRAPH.items() if peer in (a, b))
            self.control(LinkState(peer, (1, 1), links))
        qos = Qos(deadline_ns=None if deadline_ms is None else deadline_ms * MS)
        self.control(PeerInterest(FAR, (1, 1), (Subscription(SubscriptionId(FAR, 0), "topic = 't'", qos),), ()))
        for neighbour in (LEFT, MIDDLE, RIGHT):
            self.hear(neighbour, Hello(1, True))

    def __call__(self, told: Any, at: Nanos | None = None) -> list[Effect]:
        self.now = self.now if at is None else at
        effects = self.peer.handle(self.now, told)
        for effect in effects:
            if isinstance(effect, WakeAt):
                self.wake = effect.time_ns
            if isinstance(effect, Send) and isinstance(effect.message, Control):
                effects += self(Received(effect.peer, Ack(effect.message.tx)))
        return effects

    def control(self, body: LinkState | PeerInterest) -> list[Effect]:
        plugin = "link-state" if isinstance(body, LinkState) else "flooded"
        return self(Received(LEFT, Control((1 << TX_SHIFT) + next(self.numbers), plugin, body)))

    def hear(self, sender: PeerId, message: Message, at: Nanos | None = None) -> list[Effect]:
        return self(Received(sender, message), at)

    def until(self, time: Nanos, hearing: tuple[PeerId, ...] = ()) -> list[Effect]:
        """Let time pass; these neighbours keep saying hello."""
        effects: list[Effect] = []
        while self.now < time:
            step = min(max(self.wake, self.now), self.now + 50 * MS, time)
            effects += self(Woken(), step)
            for neighbour in hearing:
                effects += self.hear(neighbour, Hello(1, True))
            if step == self.now and self.wake <= self.now < time:
                self.now += 1
        return effects

    def publish(self) -> list[tuple[PeerId, Data]]:
        return data(self(Publication({"topic": "t"})))


def data(effects: list[Effect]) -> list[tuple[PeerId, Data]]:
    return [(e.peer, e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, Data)]


def hops(packets: list[tuple[PeerId, Data]]) -> list[PeerId]:
    return sorted(hop for hop, _ in packets)


def notices(effects: list[Effect]) -> list[str]:
    return [e.what for e in effects if isinstance(e, Notice)]


def after_outages(talk: Talk) -> None:
    """RIGHT has often been away: links do fail around here. Then it is back."""
    for _ in range(15):
        talk.until(talk.now + SECOND, hearing=(LEFT, MIDDLE))
        talk.hear(RIGHT, Hello(1, True))
        talk.until(talk.now + 100 * MS, hearing=(LEFT, MIDDLE, RIGHT))


def test_ample_time_needs_no_second_copy() -> None:
    talk = Talk(deadline_ms=200)
    after_outages(talk)
    assert hops(talk.publish()) == [LEFT]


def test_without_a_deadline_nothing_is_hedged() -> None:
    talk = Talk(deadline_ms=None)
    after_outages(talk)
    assert hops(talk.publish()) == [LEFT]


def test_a_tight_packet_takes_two_routes() -> None:
    """20 ms over LEFT; if LEFT's link to FAR is down nothing else is in time from there. MIDDLE is apart."""
    talk = Talk(deadline_ms=35)
    after_outages(talk)
    packets = talk.publish()
    assert hops(packets) == [LEFT, MIDDLE]
    better, spare = (dict(packets)[hop].ranks[0] for hop in (LEFT, MIDDLE))
    assert better > spare > 0


def test_where_links_are_stable_a_tight_packet_takes_one_route() -> None:
    talk = Talk(deadline_ms=35)
    talk.until(600 * SECOND, hearing=(LEFT, MIDDLE, RIGHT))
    assert hops(talk.publish()) == [LEFT]


def test_none_never_hedges_and_tight_hedges_once() -> None:
    talk = Talk(deadline_ms=35, redundancy="none")
    after_outages(talk)
    assert hops(talk.publish()) == [LEFT]
    talk = Talk(deadline_ms=75)  # 40 ms are gone when a packet of RIGHT's is here
    after_outages(talk)
    event = Event(EventId(RIGHT, 1, 1), {"topic": "t"})
    fresh = Data((1 << TX_SHIFT) + next(talk.numbers), event, 20 * MS, (FAR,), (RIGHT,))
    assert len(data(talk.hear(RIGHT, fresh))) == 2
    again = Event(EventId(RIGHT, 1, 2), {"topic": "t"})
    hedged = Data((1 << TX_SHIFT) + next(talk.numbers), again, 20 * MS, (FAR,), (RIGHT,), ranks=(1,))
    assert len(data(talk.hear(RIGHT, hedged))) == 1


def test_one_answer_is_enough_for_a_hedge() -> None:
    talk = Talk(deadline_ms=35)
    after_outages(talk)
    packets = dict(talk.publish())
    talk.hear(MIDDLE, Ack(packets[MIDDLE].tx), talk.now + 30 * MS)
    effects = talk.until(talk.now + 100 * MS, hearing=(MIDDLE, RIGHT))
    assert data(effects) == []
    assert "copy-superseded" in notices(effects)


def test_a_third_route_only_if_both_were_in_vain() -> None:
    talk = Talk(deadline_ms=35)
    after_outages(talk)
    assert hops(talk.publish()) == [LEFT, MIDDLE]
    third = data(talk.until(talk.now + 60 * MS, hearing=(RIGHT,)))
    assert hops(third) == [RIGHT]


def test_a_silent_link_is_skipped_until_it_is_heard() -> None:
    talk = Talk(deadline_ms=200)
    talk.until(talk.now + 300 * MS, hearing=(MIDDLE, RIGHT))
    assert hops(talk.publish()) == [MIDDLE]
    talk.hear(LEFT, Hello(1, True))
    assert hops(talk.publish()) == [LEFT]


def test_a_link_that_hears_us_no_more_is_skipped() -> None:
    talk = Talk(deadline_ms=200)
    talk.hear(LEFT, Hello(1, False))
    assert hops(talk.publish()) == [MIDDLE]


def test_silence_withdraws_packets_in_flight() -> None:
    """The ACK of LEFT would be due after 20 ms, but its time is up 5 ms after the packet left."""
    talk = Talk(deadline_ms=None)
    talk.until(155 * MS, hearing=(MIDDLE, RIGHT))
    assert hops(talk.publish()) == [LEFT]
    again = data(talk.until(161 * MS, hearing=(MIDDLE, RIGHT)))
    assert hops(again) == [MIDDLE]


def test_an_unanswered_packet_condemns_its_link() -> None:
    talk = Talk(deadline_ms=200)
    assert hops(talk.publish()) == [LEFT]
    assert "link-down" in notices(talk.until(talk.now + 21 * MS, hearing=(MIDDLE, RIGHT)))
    assert hops(talk.publish()) == [MIDDLE]


def test_only_a_link_thought_down_is_fast_enough() -> None:
    """LEFT alone is in time, and perhaps back: it gets a copy, the sure way another."""
    talk = Talk(deadline_ms=25)
    after_outages(talk)
    talk.until(talk.now + 300 * MS, hearing=(MIDDLE, RIGHT))
    assert hops(talk.publish()) == [LEFT, MIDDLE]


@pytest.mark.parametrize("detect_ms", [60, 160])
def test_a_quiet_link_is_probed_once_per_detection_time(detect_ms: int) -> None:
    talk = Talk(deadline_ms=None, detection_ns=detect_ms * MS)
    effects = talk.until(10 * SECOND, hearing=(LEFT, MIDDLE, RIGHT))
    probes = hellos_to(LEFT, effects)
    assert 10_000 / detect_ms - 2 <= len(probes) <= 10_000 / (0.75 * 0.875 * detect_ms) + 2


def test_a_peer_that_carries_events_probes_its_quiet_links_twice_as_often_and_says_so() -> None:
    talk = Talk(deadline_ms=None)
    hellos = []
    for _ in range(50):
        talk.publish()  # all to LEFT
        effects = talk.until(talk.now + 200 * MS, hearing=(LEFT, MIDDLE, RIGHT))
        hellos += hellos_to(RIGHT, effects)
    assert len(hellos) == pytest.approx(10_000 / 80, rel=0.25)
    assert {h.within_ns for h in hellos[1:]} == {80 * MS}
    later = talk.until(talk.now + 8 * SECOND, hearing=(LEFT, MIDDLE, RIGHT))
    assert [m.within_ns for _, m in sent(later) if isinstance(m, Hello)][-1] == 160 * MS


def hellos_to(peer: int, effects: list[Effect]) -> list[Hello]:
    return [message for to, message in sent(effects) if isinstance(message, Hello) and to == peer]


def test_a_peer_that_carries_nothing_rests_until_the_next_event() -> None:
    talk = Talk(deadline_ms=None)
    all_three = (LEFT, MIDDLE, RIGHT)
    talk.until(talk.now + 11 * SECOND, hearing=all_three)
    resting = hellos_to(RIGHT, talk.until(talk.now + 10 * SECOND, hearing=all_three))
    assert {h.within_ns for h in resting} == {480 * MS}
    assert len(resting) == pytest.approx(10_000 / 480, rel=0.25)
    talk.publish()
    awake = hellos_to(RIGHT, talk.until(talk.now + 2 * SECOND, hearing=all_three))
    assert awake[0].within_ns == 80 * MS
    assert len(awake) == pytest.approx(2_000 / 80, rel=0.25)  # one rhythm, not the old one beside it


def test_an_event_that_comes_ends_the_rest_at_once() -> None:
    talk = Talk(deadline_ms=None)
    talk.until(talk.now + 20 * SECOND, hearing=(LEFT, MIDDLE, RIGHT))
    event = Event(EventId(LEFT, 1, 1), {"topic": "nobody"})
    talk.hear(LEFT, Data((1 << TX_SHIFT) + next(talk.numbers), event, 0, (ME,), (LEFT,)))
    at_once = talk.until(talk.now + MS, hearing=())
    assert {to for to, message in sent(at_once) if isinstance(message, Hello)} == {MIDDLE, RIGHT}


def test_data_and_acks_speak_for_themselves() -> None:
    talk = Talk(deadline_ms=None)
    probes = 0
    for number in range(1, 100):
        probes += len(hellos_to(LEFT, talk.until(talk.now + 50 * MS, hearing=(LEFT, MIDDLE, RIGHT))))
        event = Event(EventId(LEFT, 1, number), {"topic": "nobody"})
        talk.hear(LEFT, Data((1 << TX_SHIFT) + next(talk.numbers), event, 0, (ME,), (LEFT,)))
    assert probes <= 2


def test_a_link_that_is_heard_again_is_told_so_at_once() -> None:
    """Hellos are silent where data flows, so the other side would go on believing that it is not heard."""
    talk = Talk(deadline_ms=200)
    told = [e.message for e in talk.until(SECOND, hearing=(MIDDLE, RIGHT)) if isinstance(e, Send) and e.peer == LEFT]
    assert any(isinstance(m, Hello) and not m.hearing for m in told)
    event = Event(EventId(LEFT, 1, 1), {"topic": "nobody"})
    answer = talk.hear(LEFT, Data((1 << TX_SHIFT) + next(talk.numbers), event, 0, (ME,), (LEFT,)))
    assert Send(LEFT, Hello(1, True, news=(FailureNews(ME, (1, 2), 1, ()),))) in answer


def test_a_link_whose_packets_wait_in_queues_announces_longer_silences_at_once() -> None:
    """Round trips of 20 ms, and one of 200 ms: the next packet may come 180 ms later than LEFT expects it."""
    talk = Talk(deadline_ms=None, estimator="measured", monitoring_ns=5 * SECOND)
    everyone = (LEFT, MIDDLE, RIGHT)
    talk.until(SECOND, hearing=everyone)
    for round_trip_ms in (20, 20, 200):
        ((_, packet),) = talk.publish()
        talk.until(talk.now + round_trip_ms * MS, hearing=everyone)
        talk.publish()  # data speaks for itself, so no hello is due
        effects = talk.hear(LEFT, Ack(packet.tx)) + talk.until(talk.now + 1, hearing=())
        announced = [message.within_ns for to, message in sent(effects) if to == LEFT and isinstance(message, Hello)]
        assert announced == ([320 * MS] if round_trip_ms == 200 else [])
    later = talk.until(talk.now + 15 * SECOND, hearing=everyone)
    assert hellos_to(LEFT, later)[-1].within_ns == 480 * MS  # as that of any idle peer: the queue is long gone


def test_an_ack_proves_that_we_are_heard() -> None:
    talk = Talk(deadline_ms=200)
    packets = talk.publish()
    talk.hear(LEFT, Hello(1, False))
    assert hops(talk.publish()) == [MIDDLE]
    talk.hear(LEFT, Ack(packets[0][1].tx))
    assert hops(talk.publish()) == [LEFT]


def test_only_what_changes_the_graph_makes_the_peer_think_again() -> None:
    talk = Talk(deadline_ms=200)
    talk.publish()
    strategy = talk.peer.plugins["adaptive"]
    assert isinstance(strategy, Adaptive)
    before = strategy.routes
    assert before is not None
    links = tuple((b if a == FAR else a, delay * MS, 0.5) for (a, b), delay in GRAPH.items() if FAR in (a, b))
    talk.control(LinkState(FAR, (1, 2), links))  # less reliable, as far away as before
    assert strategy.routes is before
    talk.control(LinkState(FAR, (1, 3), tuple((peer, 2 * delay, 1.0) for peer, delay, _ in links)))
    assert strategy.routes is not before


def test_a_neighbour_that_was_heard_since_is_not_called_down_for_a_missing_answer() -> None:
    talk = Talk(deadline_ms=200)
    assert hops(talk.publish()) == [LEFT]
    talk.hear(LEFT, Hello(1, True), talk.now + 15 * MS)  # it left LEFT after the packet should have come
    effects = talk.until(talk.now + 10 * MS, hearing=())
    assert "link-down" not in notices(effects)
    assert hops(data(effects)) == [MIDDLE]


def test_a_link_dead_in_one_direction_goes_down_once_and_is_back_once() -> None:
    """LEFT is heard all the time, and says for a second that it hears nothing."""
    talk = Talk(deadline_ms=200)
    said = []
    for _ in range(20):
        said += talk.hear(LEFT, Hello(1, False, 50 * MS))
        said += talk.until(talk.now + 50 * MS, hearing=(MIDDLE, RIGHT))
    assert [e for e in said if isinstance(e, Notice) and e.what.startswith("link-")] == [Notice("link-down", LEFT)]
    assert hops(talk.publish()) == [MIDDLE]
    assert notices(talk.hear(LEFT, Hello(1, True))) == ["link-up"]
    assert hops(talk.publish()) == [LEFT]


def test_two_neighbours_that_both_heard_nothing_find_back_to_each_other() -> None:
    """Each last heard that the other does not hear it, and a silence followed."""
    talk = Talk(deadline_ms=200)
    talk.hear(LEFT, Hello(1, False, 50 * MS))
    talk.until(SECOND, hearing=(MIDDLE, RIGHT))
    answer = talk.hear(LEFT, Hello(1, False))
    assert Send(LEFT, Hello(1, True, news=(FailureNews(ME, (1, 1), 1, (LEFT,)),))) in answer
    assert notices(answer) == []
    assert notices(talk.hear(LEFT, Hello(1, True))) == ["link-up"]
