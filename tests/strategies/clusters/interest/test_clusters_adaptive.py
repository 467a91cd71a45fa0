"""Events between clusters over links of coordinators: the conversations of `clusters`, and what only links have."""

from random import Random
from typing import Any

import pytest

import wend
from tests.strategies.clusters.interest.nets import ClusterNet
from tests.strategies.clusters.interest.test_clusters import come_and_go, publish_all, subscribed
from wend.drivers.sim.checks import check
from wend.model.events import Event, EventId, Qos
from wend.model.units import SECOND
from wend.protocol.messages import Data
from wend.protocol.ports import LocalSubscription, Received, Subscribed
from wend.strategies.clusters.interest.messages import (
    ClusterEvent,
    ClusterFollows,
    EventNumbers,
    FetchEvents,
    GroupDigest,
    MemberDeadlines,
    MemberWants,
    StreamDigest,
    TreeEvent,
)
from wend.strategies.clusters.membership.directory import MAX_LINKED, coordinator_links, ring_neighbours
from wend.strategies.clusters.membership.messages import Slot

ADAPTIVE = "clusters-adaptive"


def linked(peers: int, clusters: int, **how: Any) -> ClusterNet:
    return ClusterNet(peers, clusters, strategy=ADAPTIVE, **{"detection_ns": 4 * SECOND, **how})


@pytest.mark.parametrize("multicast", [True, False])
@pytest.mark.parametrize("clusters", [1, 2, 5])
def test_every_subscriber_gets_every_event_once(clusters: int, multicast: bool) -> None:
    net = subscribed(linked(20, clusters, multicast=multicast))
    publish_all(net, Random(1), 30)
    net.run(5)
    net.check()
    assert not net.drops and set(net.refusals) <= {"not-neighbour"}  # the other end makes a link a moment later


@pytest.mark.parametrize("seed", range(2))
def test_loss_is_repaired(seed: int) -> None:
    net = subscribed(linked(16, 4, loss=0.1, seed=seed))
    net.run(30)
    publish_all(net, Random(seed), 40)
    net.run(30)
    net.check()


def test_a_packet_that_no_route_brings_is_repaired() -> None:
    net = subscribed(linked(12, 3), topics=1)
    net.tamper = lambda sender, receiver, message: isinstance(message, Data)
    net.publish(3, {"topic": "t0"})
    net.run(10)
    net.check()
    assert net.sent["TreeEvent"] > 0


@pytest.mark.parametrize("victims", [(0,), (0, 4), (0, 1), (0, 4, 8)])
def test_coordinators_crash_and_others_take_over(victims: tuple[int, ...]) -> None:
    net = subscribed(linked(16, 4))
    draw = Random(3)
    publish_all(net, draw, 10)
    for peer in victims:
        net.crash(peer)
    publish_all(net, draw, 10, 0.1)
    net.detect()
    publish_all(net, draw, 10)
    net.run(40)
    net.expected = [due for due in net.expected if due[0] not in victims]
    net.deliveries = [got for got in net.deliveries if got[0] not in victims]
    net.check()


def test_an_event_takes_another_route_around_a_cut_between_clusters() -> None:
    net = subscribed(linked(16, 4, detection_ns=SECOND), topics=1)
    net.cut = lambda a, b: {a % 4, b % 4} == {0, 1}
    net.tamper = lambda sender, receiver, message: bool(getattr(getattr(message, "body", None), "to", ""))
    net.run(3)
    publish_all(net, Random(1), 20, topics=1)
    net.check()  # though clusters tell each other nothing


def test_an_event_goes_to_the_other_coordinator_of_a_cluster_if_no_route_to_the_first_is_left() -> None:
    net = subscribed(linked(16, 4, detection_ns=SECOND), topics=1)
    net.tamper = lambda sender, receiver, message: bool(getattr(getattr(message, "body", None), "to", ""))
    net.crash(1)
    net.run(2)  # its links are down, and nobody has elected another
    net.publish(0, {"topic": "t0"})
    net.run(2)
    net.check()
    assert not net.drops


@pytest.mark.parametrize("seed", range(2))
def test_a_cluster_that_was_cut_off_gets_what_it_missed(seed: int) -> None:
    net = subscribed(linked(16, 4, seed=seed))
    draw = Random(seed)
    one = draw.randrange(4)
    net.cut = lambda a, b: (a % 4 == one) != (b % 4 == one)
    publish_all(net, draw, 30)
    net.cut = None
    net.run(60)
    net.check()


@pytest.mark.parametrize("seed", range(2))
def test_crashes_and_returns_lose_nothing_that_was_stored(seed: int) -> None:
    draw = Random(seed)
    net = subscribed(linked(15, 3, loss=0.02, seed=seed, persistence=True))
    net.run(20)
    come_and_go(net, draw, 30)
    net.run(60)
    net.check()


def test_only_clusters_that_follow_an_event_get_packets() -> None:
    net = linked(12, 3)
    net.subscribe(1, 0, "topic = 'a'")
    net.run(15)
    net.publish(0, {"topic": "b"})
    net.run(0.5)
    assert not net.sent["Data"]
    net.publish(0, {"topic": "a"})
    net.run(0.5)
    net.check()
    packets = net.sent["Data"]
    assert packets
    net.unsubscribe(1, 0)
    net.run(1)
    net.publish(0, {"topic": "a"})
    net.run(0.5)
    assert net.sent["Data"] == packets


def test_the_tightest_deadline_of_a_cluster_is_known_to_others() -> None:
    net = linked(12, 2)
    event = Event(EventId(2, 1, 1), {"topic": "a"})
    for peer, qos in ((1, Qos()), (5, Qos(deadline_ns=900)), (7, Qos(deadline_ns=400)), (9, Qos(factor=2.0))):
        subscription = LocalSubscription(0, f"topic = '{'a' if peer < 9 else 'b'}'", qos)
        net.tell(peer, Subscribed(subscription))
    net.run(11)
    coordinator = net.peers[0]
    graph = coordinator.view.graph
    assert coordinator.interest.deadline_ns(event, 0, 1, graph) == 400  # type: ignore[attr-defined]
    other = Event(EventId(2, 1, 1), {"topic": "b"})
    due = coordinator.interest.deadline_ns(other, 0, 1, graph)  # type: ignore[attr-defined]
    assert due == 2 * graph.distances(0)[1]
    neither = Event(EventId(2, 1, 1), {"topic": "c"})
    assert coordinator.interest.deadline_ns(neither, 0, 1, graph) is None  # type: ignore[attr-defined]


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("clusters", [1, 2, MAX_LINKED, MAX_LINKED + 1, 40])
def test_both_ends_of_a_link_agree_and_links_connect_all_coordinators(clusters: int) -> None:
    directory = {f"site{at:02}": (Slot(2 * at), Slot(2 * at + 1)) for at in range(clusters)}
    links = {2 * at + tree: coordinator_links(2 * at + tree, f"site{at:02}", directory)
             for at in range(clusters) for tree in range(2)}  # fmt: skip
    assert all(one in links[other] for one, found in links.items() for other in found)
    reached, open_ = {0}, [0]
    while open_:
        found = [peer for peer in links[open_.pop()] if peer not in reached]
        reached.update(found)
        open_ += found
    assert len(reached) == 2 * clusters
    assert max(map(len, links.values())) <= max(MAX_LINKED, 1 + 2 * clusters.bit_length())
    assert coordinator_links(999, "site00", directory) == ()


def test_more_clusters_than_have_links_to_all_others() -> None:
    net = subscribed(linked(MAX_LINKED + 2, MAX_LINKED + 2), topics=1)
    publish_all(net, Random(1), 10, topics=1)
    net.run(1)
    net.check()


def test_a_ring_of_one_has_no_neighbours() -> None:
    assert ring_neighbours(["a"], "a") == []
    assert ring_neighbours(["a", "b"], "a") == ["b"]


# ---------------------------------------------------------------- peers that make mistakes

STRANGER = 900
EVENT = Event(EventId(STRANGER, 1, 1), {"topic": "t0"})


@pytest.mark.parametrize("message", [
    ClusterFollows("site0", 0, (("topic t9", None, None),), ("topic t0",), True),
    MemberDeadlines((("topic t0", 1, None),)),
    ClusterEvent("site0", (("topic t0", 1),), EVENT, 0),
    TreeEvent("site0", 0, "site1", "topic t0", 1, EVENT, 0, 1),
    MemberWants((("topic t9", 0),)),
    GroupDigest("topic t0", (StreamDigest(STRANGER, 1, 7),), "site0", 0),
    FetchEvents(3, 1, "topic t0", ((1, 9),), 1 << 60, "site0", 0),
], ids=lambda message: type(message).__name__)  # fmt: skip
def test_strangers_are_refused(message: Any) -> None:
    net = subscribed(linked(12, 3), topics=1)
    net.refusals.clear()
    before = net.status(0)
    net.say(STRANGER, 0, message)
    assert sum(net.refusals.values()) == 1
    assert net.status(0) == before


@pytest.mark.parametrize(("dests", "header"), [
    ((), EventNumbers("site1", (("topic t0", 1),))),
    ((0,), None),
    ((0, 2), None),
])  # fmt: skip
def test_a_packet_without_destinations_or_numbers_delivers_nothing(dests: tuple[int, ...], header: Any) -> None:
    net = subscribed(linked(12, 3), topics=1)
    sent = net.sent["Data"]
    net.tell(0, Received(1, Data(1 << 40 | 1 << 20, EVENT, 0, dests, (1,), header)))
    net.run(1)
    net.check()
    assert net.sent["Data"] == sent
    assert not net.status(0)["held"]


# ---------------------------------------------------------------- in the simulator


@pytest.mark.parametrize("persistence", [False, True])
def test_promises_hold_in_the_simulator(persistence: bool) -> None:
    made = wend.simulate(
        wend.Scenario(
            strategy=ADAPTIVE, topology="full-mesh", peers=16, clusters=4, pf=0.02, warmup="10s", duration="4s",
            drain="22s", topics=3, persistence=persistence,
        )
    )  # fmt: skip
    assert made.summary.delivered == made.summary.expected > 0
    assert not check(made)
    assert made.summary.notices["linked"] > 0
