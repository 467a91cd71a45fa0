"""The printed scheme between clusters, in conversations and against brute force."""

from random import Random
from typing import Any

import pytest

from tests.strategies.clusters.interest.nets import ClusterNet
from wend.model.keys import make_key
from wend.strategies.esposito.cluster import next_cluster
from wend.strategies.esposito.messages import (
    ChildRegistered,
    ChosenParent,
    FindParent,
    MemberFollows,
    RegisterChild,
    TreeNeighbours,
)


def made(peers: int, clusters: int, **how: Any) -> ClusterNet:
    return ClusterNet(peers, clusters, strategy="esposito", **how)


def subscribed(net: ClusterNet, topics: int = 3) -> ClusterNet:
    for peer in list(net.peers):
        net.subscribe(peer, 0, f"topic = 't{peer % topics}'")
        if peer % 5 == 0:
            net.subscribe(peer, 1, "price > 50")
    net.run(25)
    return net


def publish_all(net: ClusterNet, draw: Random, events: int, pause: float = 0.2, topics: int = 3) -> None:
    for _ in range(events):
        event: dict[str, Any] = {"price": draw.randrange(100)}
        if draw.random() < 0.8:
            event["topic"] = f"t{draw.randrange(topics)}"
        net.publish(draw.choice(sorted(net.peers)), event)
        net.run(pause)


@pytest.mark.parametrize("seed", range(12))
def test_every_subscriber_gets_every_event_once_if_nothing_fails(seed: int) -> None:
    draw = Random(seed)
    clusters = draw.randint(1, 7)
    net = made(
        clusters * draw.randint(1, 4),
        clusters,
        coordinators=draw.randint(1, 3),
        backups=draw.randint(0, 2),
        multicast=draw.random() < 0.5,
        seed=seed,
    )
    subscribed(net)
    publish_all(net, Random(seed), 20)
    net.run(5)
    net.check()
    assert not net.refusals and not net.drops


def test_an_event_travels_to_the_root_and_down_each_tree() -> None:
    net = made(8, 4)
    for peer in net.peers:
        net.subscribe(peer, 0, "topic = 'a'")
    net.run(25)
    net.sent.clear()
    net.publish(4, {"topic": "a"})
    net.run(1)
    net.check()
    assert net.sent["EventDown"] == 2 * 3
    assert net.sent["EventToRoot"] <= 2 * 2  # for the topic, and for filters of another form
    assert net.sent["OfferEvent"] == 0


def test_a_join_ends_at_the_first_cluster_of_the_tree() -> None:
    """Peer 0 coordinates its cluster, which is on the tree; a join that reaches it goes no further."""
    net = made(4, 4, coordinators=1)
    for peer in net.peers:
        net.subscribe(peer, 0, "topic = 'a'")
    net.run(25)
    net.sent.clear()
    joiner = next(peer for peer in net.peers if peer != 0)
    net.say(joiner, 0, FindParent("topic a", 0, net.cluster(joiner)))
    net.run(0.5)
    assert net.sent["FindParent"] == 0 and net.sent["TreeNeighbours"] == 1


def test_parents_share_few_routers() -> None:
    """The path to the root of tree 0 goes by router r1 if it can, so that of tree 1 avoids it."""
    net = made(12, 6)
    net.paths = lambda a, b: (100 + min(a, b) // 6, 200 + max(a, b))
    for peer in net.peers:
        net.subscribe(peer, 0, "topic = 'a'")
    net.run(60)
    parents = net.parents()
    for tree in (0, 1):
        roots = [name for name in net.known if (name, "topic a", tree) not in parents]
        assert len(roots) == 1
    assert net.sent["AskPath"] > 0


def choose(net: ClusterNet, cluster: str, tree: int, parent: str) -> None:
    """The coordinators of a cluster tell each other of a parent."""
    actives = [slot.active for slot in net.slots(cluster)]
    net.say(actives[1 - tree], actives[tree], ChosenParent("topic a", tree, parent))


def figure_7() -> tuple[ClusterNet, str, str]:
    """A net, and a cluster with its child on tree 0. Of the links into the cluster, only that from the child is up."""
    net = made(10, 5)
    for peer in net.peers:
        net.subscribe(peer, 0, "topic = 'a'")
    net.run(25)
    roots = [next(name for name in net.known if (name, "topic a", tree) not in net.parents()) for tree in (0, 1)]
    parent, child = [name for name in net.known if name not in roots][:2]
    for below, above in ((parent, roots[0]), (child, parent)):
        choose(net, below, 0, above)
    for below in (parent, child):
        choose(net, below, 1, roots[1])
    net.run(1)
    net.cut = lambda sender, receiver: net.cluster(receiver) == parent and net.cluster(sender) not in (parent, child)
    return net, parent, child


def test_a_parent_that_misses_an_event_fetches_it_and_joins_again() -> None:
    """Figure 7: the child has the event from the other tree, and says so after the largest gap between the trees."""
    net, parent, child = figure_7()
    net.sent.clear()
    publisher = next(peer for peer in net.peers if net.cluster(peer) not in (parent, child))
    net.publish(publisher, {"topic": "a"})
    net.run(0.15)
    assert "OfferEvent" not in net.sent
    net.run(0.5)
    net.check()
    assert net.sent["FetchEvent"] == 1
    assert net.sent["OfferEvent"] == 2  # of the child, and then of the parent to its own parent on the other tree
    assert net.sent["FindParent"] == 2
    assert net.notices["reroute"] == 1


def test_without_a_child_on_another_tree_nobody_repairs_a_loss() -> None:
    net, parent, child = figure_7()
    net.cut = lambda sender, receiver: net.cluster(sender) != parent == net.cluster(receiver)
    publisher = next(peer for peer in net.peers if net.cluster(peer) not in (parent, child))
    net.publish(publisher, {"topic": "a"})
    net.run(1)
    net.cut = None
    net.run(60)
    missed = set(net.expected) - set(net.deliveries)
    assert {net.cluster(peer) for peer, *_ in missed} == {parent}


@pytest.mark.parametrize("backups", [1, 2])
def test_a_backup_takes_over_for_a_crashed_coordinator(backups: int) -> None:
    """16 peers in 4 clusters; peers 0 and 4 coordinate the first one."""
    net = subscribed(made(16, 4, backups=backups))
    publish_all(net, Random(3), 10)
    net.crash(0)
    publish_all(net, Random(4), 10, 0.1)  # the other trees bring these
    net.detect()
    net.run(1)
    publish_all(net, Random(5), 10)
    net.run(5)
    net.expected = [due for due in net.expected if due[0] != 0]
    net.deliveries = [got for got in net.deliveries if got[0] != 0]
    net.check()


def test_without_a_backup_the_places_are_joined_again() -> None:
    net = subscribed(made(8, 4, backups=0))
    net.crash(0)
    net.detect()
    net.run(25)
    publish_all(net, Random(6), 10)
    net.run(5)
    net.expected = [due for due in net.expected if due[0] != 0]
    net.check()


def test_subscribers_behind_a_single_link_lose_events_while_it_is_down() -> None:
    """Nothing repeats an event: if all trees share the link, what is published while it is down is lost."""
    net = subscribed(made(12, 4))
    net.cut = lambda sender, receiver: (net.cluster(sender) == "site1") != (net.cluster(receiver) == "site1")
    publish_all(net, Random(7), 10)
    net.cut = None
    net.run(60)
    assert set(net.deliveries) < set(net.expected)
    missed = set(net.expected) - set(net.deliveries)
    assert missed
    assert all((net.cluster(peer) == "site1") != (net.cluster(id_.publisher) == "site1") for peer, _, id_ in missed)


def test_clusters_leave_trees_without_subscribers() -> None:
    net = made(8, 4)
    for peer in net.peers:
        net.subscribe(peer, 0, "topic = 'a'")
    net.run(25)
    for peer in net.peers:
        net.unsubscribe(peer, 0)
    net.run(120)
    assert not net.parents()
    assert sum(net.status(peer)["places"] for peer in net.peers) == 0


def test_no_cluster_is_its_own_ancestor() -> None:
    """A parent that turns out to be a descendant is left."""
    net = made(6, 3, coordinators=1)
    for peer in net.peers:
        net.subscribe(peer, 0, "topic = 'a'")
    net.run(25)
    (child, group, tree), parent = next(iter(net.parents().items()))
    coordinators = {net.cluster(peer): peer for peer in reversed(net.peers)}
    net.say(coordinators[parent], coordinators[child], ChildRegistered(group, tree, (parent, child)))
    net.run(0)
    assert (child, group, tree) not in net.parents()
    net.run(25)
    assert (child, group, tree) in net.parents()


def test_strangers_are_refused() -> None:
    net = made(4, 2, coordinators=1, backups=0)
    net.say(1, 0, MemberFollows(("topic a",)))
    assert net.refusals["not-member"] == 1
    net.say(1, 0, RegisterChild("topic a", 0, "site0"))
    net.say(3, 0, TreeNeighbours("topic a", 0, "site1", (), (), (), ()))  # it is no coordinator
    assert net.refusals["not-coordinator"] == 2


def test_the_ring_leads_to_the_closest_cluster() -> None:
    names = [f"site{number}" for number in range(200)]
    for number in range(50):
        key = make_key("topic", str(number))
        ends = set()
        for start in names[:20]:
            hops = 0
            while (hop := next_cluster(start, names, key)) != start:
                start, hops = hop, hops + 1
            ends.add(start)
            assert hops <= 6
        assert len(ends) == 1
