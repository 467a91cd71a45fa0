"""Whether multicast works: found out, said once, and followed."""

from tests.strategies.clusters.membership.net import ClusterNet
from wend.strategies.clusters.membership.settings import ClusterSettings

WORKS, BLOCKED = "multicast-works", "multicast-blocked"


def cluster_of(count: int, **settings: object) -> ClusterNet:
    net = ClusterNet(**settings)  # type: ignore[arg-type]
    for peer in range(count):
        net.begin(peer, "plant", *([0] if peer else []))
    net.run(3)
    return net


def works(net: ClusterNet) -> list[int]:
    return [peer for peer, one in net.peers.items() if one.multicast_works]


def said(net: ClusterNet, what: str) -> list[int]:
    return sorted(peer for (peer, name), count in net.notices.items() if name == what and count == 1)


def test_multicast_that_works_is_found_and_said_once() -> None:
    net = cluster_of(6)
    assert works(net) == [0, 1, 2, 3, 4, 5]
    net.run(30)
    assert works(net) == said(net, WORKS) == [0, 1, 2, 3, 4, 5]
    assert said(net, BLOCKED) == []


def test_a_peer_alone_does_not_claim_that_it_reaches_others() -> None:
    net = cluster_of(1)
    net.run(30)
    assert works(net) == [] and not said(net, WORKS) and not said(net, BLOCKED)


def test_multicast_that_is_blocked_is_said_once_and_the_cluster_lives_by_unicast() -> None:
    net = cluster_of(6, multicast=False)
    net.run(30)
    assert works(net) == [] and said(net, BLOCKED) == [0, 1, 2, 3, 4, 5] and not said(net, WORKS)
    net.check()


def test_one_peer_that_nobody_hears_learns_so() -> None:
    for mute in range(6):
        net = ClusterNet()
        net.muted = {mute}
        for peer in range(6):
            net.begin(peer, "plant", *([0] if peer else []))
        net.run(20)
        assert works(net) == [peer for peer in range(6) if peer != mute]
        assert said(net, BLOCKED) == [mute]
        net.check()


def test_one_peer_that_hears_nobody_makes_all_use_unicast() -> None:
    net = cluster_of(6)
    net.deafened = {3}
    net.run(20)
    assert works(net) == [] and said(net, BLOCKED) == [0, 1, 2, 3, 4, 5]
    net.deafened = set()
    net.run(10)
    assert works(net) == [0, 1, 2, 3, 4, 5]


def test_a_pair_that_does_not_hear_each_other_is_found() -> None:
    net = cluster_of(6)
    net.run(10)
    net.no_cast = {(4, 5)}
    net.run(20)
    assert works(net) == [0, 1, 2, 3, 5]


def test_multicast_that_stops_and_returns() -> None:
    net = cluster_of(6)
    net.run(5)
    net.multicast = False
    net.run(20)
    assert works(net) == []
    net.check()
    net.multicast = True
    net.run(10)
    assert works(net) == [0, 1, 2, 3, 4, 5]


def test_a_join_does_not_stop_the_others() -> None:
    net = cluster_of(6)
    net.run(10)
    net.begin(6, "plant", 0)
    for _ in range(40):
        net.run(0.1)
        assert {*works(net)} >= {0, 1, 2, 3, 4, 5}
    assert works(net) == [*range(7)]


def test_losses_do_not_count_as_blocked() -> None:
    net = cluster_of(6, loss=0.1)
    net.run(10)
    for _ in range(60):
        net.run(1)
        assert works(net) == [0, 1, 2, 3, 4, 5]


def test_a_beacon_by_multicast_is_one_message() -> None:
    net = cluster_of(20)
    net.run(5)
    net.said.clear()
    net.run(10)
    periods = 10 * 1e9 / (net.config.of(ClusterSettings).cluster_detection_ns // 4)
    assert net.said["HeadBeacon"] <= periods + 1
