"""Events in clusters and between them, against brute force."""

from random import Random
from typing import Any

import pytest

from tests.strategies.clusters.interest.nets import ClusterNet
from wend.model.events import Event, EventId
from wend.model.keys import make_key
from wend.model.paths import count_shared_routers
from wend.strategies.clusters.interest.messages import (
    AddChild,
    AskParents,
    ChildAdded,
    ClusterEvent,
    EventAccepted,
    EventsGone,
    FetchEvents,
    GroupDigest,
    HaveEvent,
    HoldTrees,
    MemberWants,
    ParentChosen,
    ParentsFound,
    PossibleParents,
    RemoveChild,
    StreamDigest,
    TreeEvent,
)


def subscribed(net: ClusterNet, topics: int = 3) -> ClusterNet:
    for peer in list(net.peers):
        net.subscribe(peer, 0, f"topic = 't{peer % topics}'")
        if peer % 5 == 0:
            net.subscribe(peer, 1, "price > 50")
    net.run(15)
    return net


def publish_all(net: ClusterNet, draw: Random, events: int, pause: float = 0.2, topics: int = 3, **how: Any) -> None:
    for _ in range(events):
        event: dict[str, Any] = {"price": draw.randrange(100)}
        if draw.random() < 0.8:
            event["topic"] = f"t{draw.randrange(topics)}"
        net.publish(draw.choice(sorted(net.peers)), event, **how)
        net.run(pause)


def come_and_go(net: ClusterNet, draw: Random, events: int) -> None:
    """Publish while peers crash and return. All are back at the end."""
    down: list[int] = []
    for _ in range(events):
        net.run(draw.random() * 2)
        if draw.random() < 0.2 and len(down) < 3:
            down.append(draw.choice(sorted(net.peers)))
            net.crash(down[-1])
            net.run(1)
            net.detect()
        elif down and draw.random() < 0.3:
            net.join(down.pop(0))
            net.run(1)
        publish_all(net, draw, 1, 0, everybody=True)
    while down:
        net.join(down.pop())


@pytest.mark.parametrize("multicast", [True, False])
@pytest.mark.parametrize("clusters", [1, 2, 5])
def test_every_subscriber_gets_every_event_once(clusters: int, multicast: bool) -> None:
    net = subscribed(ClusterNet(20, clusters, multicast=multicast))
    publish_all(net, Random(1), 40)
    net.run(5)
    net.check()
    assert not net.refusals and not net.drops


@pytest.mark.parametrize("seed", range(4))
def test_loss_is_repaired(seed: int) -> None:
    net = subscribed(ClusterNet(16, 4, loss=0.1, seed=seed))
    net.run(30)  # joins may have got lost
    publish_all(net, Random(seed), 60)
    net.run(60)
    net.check()


def test_the_last_event_before_a_silence_is_repaired() -> None:
    net = subscribed(ClusterNet(12, 2))
    net.tamper = lambda sender, receiver, message: type(getattr(message, "body", None)).__name__ == "ClusterEvent"
    net.publish(3, {"topic": "t0"})
    net.run(0.3)
    net.tamper = None
    net.run(20)
    net.check()


def test_a_small_cluster_has_one_coordinator_for_all_trees() -> None:
    net = subscribed(ClusterNet(3, 3))
    publish_all(net, Random(2), 20)
    net.run(5)
    net.check()


@pytest.mark.parametrize("victims", [(0,), (0, 4), (0, 1), (0, 4, 8)])
def test_coordinators_crash_and_others_take_over(victims: tuple[int, ...]) -> None:
    """16 peers in 4 clusters; peers 0 and 4 coordinate the first one, 8 and 12 are their backups."""
    net = subscribed(ClusterNet(16, 4))
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


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_between_clusters_heals(seed: int) -> None:
    net = subscribed(ClusterNet(16, 4, seed=seed))
    draw = Random(seed)
    publish_all(net, draw, 10)
    one, other = draw.sample(range(4), 2)
    net.cut = lambda a, b: {a % 4, b % 4} == {one, other}
    publish_all(net, draw, 30)
    net.run(20)
    net.check()  # the other tree, or what neighbours have, brings all of it
    net.cut = lambda a, b: (a % 4 == one) != (b % 4 == one)
    publish_all(net, draw, 30)
    net.cut = None
    net.run(60)
    net.check()


@pytest.mark.parametrize("seed", range(6))
def test_crashes_and_returns_lose_nothing_that_was_kept(seed: int) -> None:
    draw = Random(seed)
    net = subscribed(ClusterNet(15, 3, loss=0.02, seed=seed, persistence=True))
    net.run(20)
    come_and_go(net, draw, 40)
    net.run(120)
    missing = [due for due in net.expected if due not in net.deliveries]
    assert not missing
    assert len(net.deliveries) == len(set(net.deliveries))
    assert not set(net.deliveries) - set(net.expected)


# ---------------------------------------------------------------- trees


def reaches_root(net: ClusterNet, group: str, tree: int) -> bool:
    """Whether every cluster but one has a parent, and nobody is its own ancestor."""
    parents = {cluster: parent for (cluster, of, t), parent in net.parents().items() if (of, t) == (group, tree)}
    for cluster in parents:
        seen = [cluster]
        while seen[-1] in parents:
            if parents[seen[-1]] in seen:
                return False
            seen.append(parents[seen[-1]])
    return len(parents) == net.clusters - 1


@pytest.mark.parametrize("seed", range(3))
def test_trees_reach_all_clusters_again_after_crashes_of_whole_clusters(seed: int) -> None:
    net = subscribed(ClusterNet(18, 6, seed=seed), topics=1)
    assert all(reaches_root(net, "topic t0", tree) for tree in range(2))
    lost = Random(seed).randrange(6)
    gone = [peer for peer in sorted(net.peers) if peer % 6 == lost]
    for peer in gone:
        net.crash(peer)
    net.detect()
    net.run(40)
    for peer in gone:
        net.join(peer)
    net.run(40)
    assert all(reaches_root(net, "topic t0", tree) for tree in range(2))


@pytest.mark.parametrize("seed", range(6))
def test_a_cluster_that_reaches_only_one_other_stays_in_the_trees(seed: int) -> None:
    """The other may be its child, or the root may be out of reach for all the rest."""
    net = subscribed(ClusterNet(15, 5, seed=seed), topics=1)
    net.run(20)
    draw = Random(seed)
    alone, friend = draw.sample(range(5), 2)
    net.cut = lambda a, b: alone in (a % 5, b % 5) and not {a % 5, b % 5} <= {alone, friend}
    net.run(40)
    publish_all(net, draw, 20, topics=1)
    net.run(20)
    net.check()


def shared_routers(diverse: bool, pause: float) -> int:
    """Of 8 clusters that follow one topic: how many routers the paths to the parents in both trees share."""
    net = ClusterNet(32, 8, diverse_parents=diverse)
    net.paths = lambda a, b: tuple(make_key(str(min(a, b)), str(max(a, b)), str(hop)) % 12 for hop in range(4))
    for peer in list(net.peers):
        net.subscribe(peer, 0, "topic = 't'")
        net.run(pause)
    net.run(60)
    parents, found = net.parents(), 0
    for cluster in range(8):
        paths = [
            net.paths(
                cluster + 8 * tree, int(parents[f"site{cluster}", "topic t", tree].removeprefix("site")) + 8 * tree
            )
            for tree in range(2)
            if (f"site{cluster}", "topic t", tree) in parents
        ]
        found += count_shared_routers(*paths) if len(paths) == 2 else 0
    return found


@pytest.mark.parametrize("pause", [2.0, 0.0])
def test_parents_are_chosen_so_that_trees_share_few_routers(pause: float) -> None:
    """One cluster joins after the other, or all at once: then better parents are found later."""
    assert 2 * shared_routers(True, pause) <= shared_routers(False, pause)


def test_a_cluster_that_nobody_follows_in_leaves_the_tree() -> None:
    net = subscribed(ClusterNet(12, 3), topics=1)
    for peer in (1, 4, 7, 10):
        net.unsubscribe(peer, 0)
        net.unsubscribe(peer, 1)
    net.run(60)
    publish_all(net, Random(1), 10, topics=1)
    net.run(5)
    net.check()


def test_an_event_that_one_tree_lacks_is_offered_to_it() -> None:
    """Nothing comes by tree 0, and no digests are told between clusters: neighbours say what they have."""
    net = subscribed(ClusterNet(16, 4), topics=1)
    publish_all(net, Random(1), 4, topics=1)
    net.tamper = lambda sender, receiver, message: (
        getattr(getattr(message, "body", None), "tree", -1) == 0
        and type(message.body).__name__ in ("TreeEvent", "GroupDigest")
    )
    publish_all(net, Random(2), 8, topics=1)
    net.run(5)
    net.check()
    assert net.sent["HaveEvent"] > 0


# ---------------------------------------------------------------- peers that make mistakes

STRANGER = 900


@pytest.mark.parametrize("message", [
    ClusterEvent("site0", (("topic t0", 1),), Event(EventId(STRANGER, 1, 1), {"topic": "t0"}), 0),
    TreeEvent("site0", 0, "site1", "topic t0", 1, Event(EventId(STRANGER, 1, 1), {"topic": "t0"}), 0, 1),
    MemberWants((("topic t9", 0),)),
    GroupDigest("topic t0", (StreamDigest(STRANGER, 1, 7),)),
    GroupDigest("topic t0", (StreamDigest(STRANGER, 1, 7),), "site0", 0),
    FetchEvents(3, 1, "topic t0", ((1, 9),), 1 << 60),
    FetchEvents(3, 1, "topic t0", ((1, 9),), 1 << 60, "site0", 0),
    AddChild("site0", 0, "topic t0", "site1"),
    AskParents("site0", 0, "topic t0", "site1"),
    HaveEvent("site0", 0, STRANGER, 1, "topic t0", 3),
    ParentChosen("topic t0", 0, "nowhere"),
    ParentsFound("topic t0", 0, ()),
], ids=lambda message: type(message).__name__)  # fmt: skip
def test_strangers_are_refused(message: Any) -> None:
    net = subscribed(ClusterNet(12, 3), topics=1)
    before = net.status(0)
    net.say(STRANGER, 0, message)
    assert sum(net.refusals.values()) == 1
    assert net.status(0) == before
    publish_all(net, Random(1), 5, topics=1)
    net.run(5)
    net.check()


def test_an_answer_that_nobody_asked_for_changes_nothing() -> None:
    net = subscribed(ClusterNet(12, 3), topics=1)
    publish_all(net, Random(1), 5, topics=1)
    for message in (
        EventsGone(3, 1, "topic t0", ((5, 1), (-4, 10**9))),
        EventAccepted(EventId(3, 1, 1), (0, 1, 7)),
        PossibleParents(0, "topic t0", "site1", (), (), ()),
        ChildAdded(5, "topic t0", "site1", ()),
        RemoveChild("site0", 9, "topic t0", "site1"),
        HoldTrees(7, (("topic t0", "site1", ()),)),
    ):
        net.say(3, 0, message)
    publish_all(net, Random(2), 5, topics=1)
    net.run(5)
    net.check()
