"""Conversations with a peer whose links are full: what waits, what takes another route, and what routing is told."""

from itertools import count

import pytest

from tests.strategies.adaptive.test_adaptive import FAR, LEFT, ME, MIDDLE, RIGHT, Talk, data, hops, notices
from wend.model.events import Event, EventId, Qos, Subscription, SubscriptionId
from wend.model.publication import Publication
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.link.waiting import HEADER_BYTES
from wend.protocol.messages import TX_SHIFT, Ack, Control, Data, Hello
from wend.protocol.peer import Peer
from wend.protocol.ports import (
    Deliver,
    Drop,
    Effect,
    LocalSubscription,
    Neighbour,
    Notice,
    Paused,
    Receipt,
    Received,
    Refuse,
    Started,
    Subscribed,
    Woken,
)
from wend.strategies.adaptive.spread_trees import SpreadTree
from wend.strategies.link_state.plugin import LinkState
from wend.strategies.registry import make_peer
from wend.strategies.subscriptions.table import PeerInterest

WINDOW = 10
"""The packets that a new link takes at once."""


def burst(talk: Talk, count: int) -> list[Effect]:
    return [effect for _ in range(count) for effect in talk(Publication({"topic": "t"}))]


def test_a_burst_waits_for_acks_and_each_ack_lets_the_next_one_through() -> None:
    talk = Talk(deadline_ms=None)
    first = data(burst(talk, WINDOW + 2))
    assert hops(first) == [LEFT] * WINDOW
    assert data(talk.hear(LEFT, Ack(first[0][1].tx), talk.now + 20 * MS)) != []


def test_a_packet_that_would_be_too_late_behind_others_takes_another_route_at_once() -> None:
    talk = Talk(deadline_ms=60)
    first = data(burst(talk, WINDOW))
    for _, packet in first:  # the link takes 20 ms for a round trip
        talk.hear(LEFT, Ack(packet.tx), talk.now + 2 * MS)
    packets = data(burst(talk, 8 * WINDOW))
    assert {hop for hop, _ in packets} >= {LEFT, MIDDLE}


def test_what_no_route_brings_in_time_waits_and_is_delivered_late() -> None:
    talk = Talk(deadline_ms=25)  # only LEFT is in time
    effects = burst(talk, 3 * WINDOW)
    assert [e for e in effects if isinstance(e, Drop)] == []
    assert len(talk.peer.unfinished()) == 3 * WINDOW


def test_the_send_queue_is_bounded_and_publishers_are_told() -> None:
    talk = Talk(deadline_ms=None, send_queue_limit=64 * 1024)
    receipts = [e for e in burst(talk, 1200) if isinstance(e, Receipt)]
    assert not receipts[0].congested
    assert receipts[-1].congested
    dropped = [e for e in burst(talk, 100) if isinstance(e, Drop)]
    assert {drop.code for drop in dropped} == {"send-queue-full"}


def test_a_neighbour_that_gets_more_than_it_can_take_is_not_called_down_before_it_is_silent_for_too_long() -> None:
    """A round trip takes 20 ms. LEFT is busy with the first packets, and answers none of them for 60 ms."""
    talk = Talk(deadline_ms=None)
    sent_ = data(burst(talk, 2 * WINDOW))
    effects = talk.until(talk.now + 60 * MS, hearing=(MIDDLE, RIGHT))
    assert data(effects) == [] and "link-down" not in notices(effects)
    for _, packet in sent_:
        effects += talk.hear(LEFT, Ack(packet.tx))
    assert hops(data(effects)) == [LEFT] * WINDOW
    silent = talk.until(talk.now + SECOND, hearing=(MIDDLE, RIGHT))
    assert Notice("link-down", LEFT) in silent
    assert MIDDLE in hops(data(silent))


def test_nothing_is_poured_into_an_outage() -> None:
    talk = Talk(deadline_ms=None)
    effects = talk.until(SECOND)  # nobody is heard
    assert notices(effects).count("link-down") == 3
    assert len(data(burst(talk, 50))) <= 2 * 3
    probes = 0
    for _ in range(50):
        probes += len(data(burst(talk, 5))) + len(data(talk.until(talk.now + 20 * MS)))
    assert 0 < probes <= 3 * 4  # of each link, one in 320 ms


def test_events_avoid_a_route_that_is_full_further_on_one_class_after_the_other() -> None:
    talk = Talk(deadline_ms=200)
    assert hops(talk.publish()) == [LEFT]
    links = ((ME, 10 * MS, 1.0), (FAR, 10 * MS, 1.0))
    talk.control(LinkState(LEFT, (1, 2), links, (), (0, 60 * MS)))

    def taken(count: int) -> list[int]:
        found = []
        for _ in range(count):
            talk.until(talk.now + 10 * MS, (LEFT, MIDDLE, RIGHT))
            for hop, packet in talk.publish():
                found.append(hop)
                talk.hear(hop, Ack(packet.tx))
        return found

    first = taken(30)
    assert {*first} == {LEFT, MIDDLE}
    assert first[:5].count(LEFT) > 2
    taken(100)
    assert {*taken(16)} == {MIDDLE}
    talk.control(LinkState(LEFT, (1, 3), links))
    assert hops(talk.publish()) == [LEFT]


def test_a_peer_on_the_route_follows_the_tree_of_a_packet_unless_its_link_is_down() -> None:
    talk = Talk(deadline_ms=200)
    talk.until(SECOND, (LEFT, MIDDLE, RIGHT))
    numbers = count(1)

    def arrives() -> list[tuple[int, Data]]:
        number = next(numbers)
        event = Event(EventId(LEFT, 1, number), {"topic": "t"})
        tree = SpreadTree(((ME, RIGHT), (RIGHT, FAR)))
        return data(talk.hear(LEFT, Data((1 << TX_SHIFT) + 1000 + number, event, 0, (FAR,), (LEFT,), tree)))

    ((hop, packet),) = arrives()
    assert (hop, packet.header) == (RIGHT, SpreadTree(((RIGHT, FAR),)))
    talk.until(2 * SECOND, (LEFT, MIDDLE))
    assert hops(arrives()) == [MIDDLE]


def test_prices_that_do_not_fit_the_links_are_refused() -> None:
    talk = Talk(deadline_ms=200)
    links = ((ME, 10 * MS, 1.0), (FAR, 10 * MS, 1.0))
    for prices in ((1,), (1, -1), (1, 1 << 62)):
        effects = talk.control(LinkState(LEFT, (1, 2), links, (), prices))
        assert Refuse(LEFT, "invalid-link-state") in effects


def test_an_event_that_waited_while_many_others_overtook_it_is_delivered() -> None:
    talk = Talk(deadline_ms=None, send_queue_limit=1 << 20)
    talk(Subscribed(LocalSubscription(1, "topic = 't'")), SECOND)
    numbers = count(1)

    def arrives(sequence: int) -> list[Effect]:
        event = Event(EventId(FAR, 1, sequence), {"topic": "t"})
        return talk.hear(LEFT, Data((1 << TX_SHIFT) + 1000 + next(numbers), event, 0, (ME,), (FAR, LEFT)))

    longest = (1 << 20) // HEADER_BYTES  # as many may wait for one link
    for sequence in (longest, 1):
        assert [e.event.id.sequence for e in arrives(sequence) if isinstance(e, Deliver)] == [sequence]
    assert "duplicate" in notices(arrives(1))
    assert [e.code for e in (arrives(longest + 2), arrives(2))[1] if isinstance(e, Drop)] == ["beyond-duplicate-filter"]


def test_a_peer_that_did_not_run_blames_no_link() -> None:
    talk = Talk(deadline_ms=None)
    talk.publish()
    later = talk.now + 2 * SECOND
    talk(Paused(2 * SECOND), later)
    assert "link-down" not in notices(talk(Woken(), later))
    for neighbour in (LEFT, MIDDLE, RIGHT):
        talk.hear(neighbour, Hello(1, True), later + 10 * MS)
    assert notices(talk.until(later + 15 * MS)) == []


def test_a_peer_that_did_not_run_still_finds_a_link_that_is_down() -> None:
    talk = Talk(deadline_ms=None)
    later = talk.now + 2 * SECOND
    talk(Paused(2 * SECOND), later)
    assert notices(talk.until(later + SECOND)).count("link-down") == 3


def test_a_late_ack_over_a_busy_link_whose_neighbour_is_heard_is_no_failure() -> None:
    talk = Talk(deadline_ms=None)
    burst(talk, 2 * WINDOW)
    talk.hear(LEFT, Hello(1, True), talk.now + 15 * MS)
    assert notices(talk.until(talk.now + 20 * MS)) == []


def test_but_a_packet_waits_for_only_so_long() -> None:
    talk = Talk(deadline_ms=None)
    burst(talk, 2 * WINDOW)
    assert "reroute" in notices(talk.until(talk.now + 300 * MS, hearing=(LEFT, MIDDLE, RIGHT)))


def leaf(deadline_ms: int | None) -> Peer:
    """A peer with one link, whose neighbour wants topic `t`."""
    peer = make_peer(PeerConfig(peer=ME, strategy="adaptive", estimator="nominal", margin_ns=0))
    peer.handle(0, Started((Neighbour(LEFT, 10 * MS),), advertisements=("topic = 't'",)))
    qos = Qos(deadline_ns=None if deadline_ms is None else deadline_ms * MS)
    wanted = PeerInterest(LEFT, (1, 1), (Subscription(SubscriptionId(LEFT, 0), "topic = 't'", qos),), ())
    links = LinkState(LEFT, (1, 1), ((ME, 10 * MS, 1.0),))
    for number, (plugin, body) in enumerate((("link-state", links), ("flooded", wanted)), 1):
        peer.handle(0, Received(LEFT, Control((1 << TX_SHIFT) + number, plugin, body)))
    peer.handle(0, Received(LEFT, Hello(1, True)))
    return peer


@pytest.mark.parametrize("deadline_ms", [None, 60])
def test_a_peer_with_one_link_has_no_tree_to_choose_and_queues_by_deadline(deadline_ms: int | None) -> None:
    peer = leaf(deadline_ms)
    sent_ = data([effect for _ in range(3 * WINDOW) for effect in peer.handle(MS, Publication({"topic": "t"}))])
    assert [(hop, packet.dests, packet.header) for hop, packet in sent_] == [(LEFT, (LEFT,), None)] * WINDOW
    assert len(peer.unfinished()) == 3 * WINDOW
    later: list[Effect] = []
    for _, packet in sent_:
        later += peer.handle(21 * MS, Received(LEFT, Ack(packet.tx)))
    assert [packet.event.id.sequence for _, packet in data(later)][:3] == [WINDOW + 1, WINDOW + 2, WINDOW + 3]
