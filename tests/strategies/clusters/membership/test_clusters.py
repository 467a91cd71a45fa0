"""`clusters`: joining, crashes, hand-overs, partitions, and what they cost."""

from collections.abc import Callable

import pytest

from tests.strategies.clusters.membership.net import DETECTION, LONGEST, ClusterNet
from tests.strategies.clusters.membership.worlds import messages_per_member
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND
from wend.protocol.plugins import Unanswered
from wend.protocol.ports import ContactFound
from wend.strategies.clusters.membership.messages import Slot, slot_holders

TRIP = 2 * LONGEST
HAND_OVER = DETECTION + 2 * TRIP
"""How long an election and the hand-over may take after a crash."""


def cluster_of(count: int, **settings: object) -> ClusterNet:
    """One cluster, `plant`, at rest; the members begin one after the other and know the first."""
    net = ClusterNet(**settings)  # type: ignore[arg-type]
    net.begin(0, "plant")
    net.run(1)
    for peer in range(1, count):
        net.begin(peer, "plant", 0)
        net.run(0.1)
    net.run(4)
    net.check()
    return net


def time_until(net: ClusterNet, done: Callable[[], bool], most: int = 20 * DETECTION) -> int:
    """How long it takes, to a millisecond."""
    begin = net.now
    while not done():
        assert net.now - begin < most, net.mistakes()
        net.run(0.001)
    return net.now - begin


def all_know(net: ClusterNet, slots_fit: Callable[[tuple[Slot, ...]], bool]) -> Callable[[], bool]:
    return lambda: all(slots_fit(peer.slots) for peer in net.peers.values())


def head_of(net: ClusterNet, peer: int) -> int:
    return net.peers[peer].status()["head"]


# ---------------------------------------------------------------- joining


def test_a_peer_that_knows_nobody_speaks_for_all_trees() -> None:
    net = ClusterNet()
    net.begin(7, "plant")
    assert not net.peers[7].has_joined
    net.run(2)
    (alone,) = net.peers.values()
    assert alone.has_joined and alone.members == (7,) and alone.my_trees == (0, 1)
    assert net.notices[7, "cluster-small"] == 1
    assert alone.status()["active/1"] == 1 and alone.status()["members"] == 1
    net.begin(3, "plant", 7)
    net.run(4)
    assert net.peers[7].my_trees == (0,) and net.peers[3].my_trees == (1,)
    assert net.peers[7].my_backups == (1,) and net.peers[3].my_backups == (0,)


def test_peers_that_begin_together_become_one_cluster_without_multicast() -> None:
    net = ClusterNet(multicast=False)
    for peer in range(12):
        net.begin(peer, "plant", *(other for other in range(12) if other != peer))
    net.run(6)
    net.check()


def test_a_contact_of_another_cluster_leads_to_the_own_one() -> None:
    net = ClusterNet(multicast=False)
    net.begin(0, "north")
    for peer in range(1, 8):
        net.begin(peer, "north", 0)
    net.run(3)
    net.begin(20, "south", 7)
    net.run(3)
    net.begin(21, "south", 6)  # neither 6 nor 7 knows the directory: their coordinators do
    assert not net.peers[6].directory and not net.peers[7].directory
    net.run(0.9)
    assert net.peers[21].members == (20, 21)
    net.run(4)
    net.check()


def test_a_contact_may_be_found_later() -> None:
    net = ClusterNet(multicast=False)
    net.begin(0, "plant")
    net.run(3)
    net.begin(1, "plant", contacts_follow=True)
    net.run(1)
    assert not net.peers[1].has_joined
    net.tell(1, ContactFound(0))
    net.run(3)
    net.check()


def test_a_peer_whose_contacts_are_its_own_addresses_is_the_first() -> None:
    net = ClusterNet(multicast=False)
    net.begin(1, "plant", contacts_follow=True)
    net.tell(1, ContactFound(1))
    net.run(1)
    assert net.peers[1].has_joined


def test_clusters_that_began_apart_merge_when_a_contact_leads_from_one_to_the_other() -> None:
    net = ClusterNet(multicast=False)
    for peer in (1, 2, 3):
        net.begin(peer, "plant", *([1] if peer > 1 else []))
    for peer in (5, 6, 7):
        net.begin(peer, "plant", *([5] if peer > 5 else []))
    net.run(4)
    assert net.peers[1].members == (1, 2, 3) and net.peers[6].members == (5, 6, 7)
    net.tell(7, ContactFound(2))
    net.run(4)
    net.check()


def test_who_joins_disturbs_no_coordinator() -> None:
    net = cluster_of(6)
    before = [slot.active for slot in net.peers[0].slots]
    for peer in (90, 91, 92):
        net.begin(peer, "plant", 3)
    net.begin(93, "plant", 3)
    net.run(4)
    net.check()
    assert [slot.active for slot in net.peers[0].slots] == before


# ---------------------------------------------------------------- crashes


@pytest.mark.parametrize("multicast", [True, False])
@pytest.mark.parametrize("tree", [0, 1])
def test_a_backup_takes_over_within_a_detection_time_and_two_round_trips(tree: int, multicast: bool) -> None:
    for pause in range(0, 250, 50):  # the phase of the heartbeats
        net = cluster_of(8, multicast=multicast)
        net.run(pause / 1000)
        slots = net.peers[0].slots
        lost, (heir,) = slots[tree].active, slots[tree].backups
        others = [slot.active for number, slot in enumerate(slots) if number != tree]
        net.crash(lost)
        assert time_until(net, all_know(net, lambda now: now[tree].active == heir)) <= HAND_OVER  # noqa: B023
        assert [s.active for number, s in enumerate(net.peers[heir].slots) if number != tree] == others
        net.run(4)
        net.check()


def test_a_crash_of_a_member_without_a_role_changes_no_slot() -> None:
    net = cluster_of(8)
    plain = next(peer for peer in net.peers if peer not in slot_holders(net.peers[0].slots))
    before = [(slot.active, slot.backups) for slot in net.peers[0].slots]
    net.crash(plain)
    gone = all_gone(net, plain)
    assert time_until(net, gone) <= HAND_OVER
    net.run(4)
    assert [(slot.active, slot.backups) for slot in net.peers[0].slots] == before


def all_gone(net: ClusterNet, *gone: int) -> Callable[[], bool]:
    return lambda: all(not {*peer.members} & {*gone} for peer in net.peers.values())


@pytest.mark.parametrize("multicast", [True, False])
def test_all_coordinators_and_backups_at_once_heal_in_a_few_detection_times(multicast: bool) -> None:
    net = cluster_of(12, multicast=multicast)
    gone = slot_holders(net.peers[0].slots)
    assert len(gone) == 4
    net.crash(*gone)
    assert time_until(net, all_gone(net, *gone)) <= 2 * DETECTION
    net.run(4)
    net.check()


def test_half_of_a_cluster_at_once() -> None:
    net = cluster_of(16)
    net.crash(*range(0, 16, 2))
    assert time_until(net, all_gone(net, *range(0, 16, 2))) <= 6 * DETECTION
    net.run(4)
    net.check()


def test_who_leaves_is_gone_after_a_round_trip() -> None:
    for leaver in range(8):
        net = cluster_of(8)
        net.leave(leaver)
        assert time_until(net, all_gone(net, leaver)) <= 2 * TRIP
        net.run(4)
        net.check()


def test_a_restart_hands_the_slots_over_at_once() -> None:
    for peer in range(6):
        net = cluster_of(6)
        before = net.peers[peer].slots
        mine = [(tree, slot.backups) for tree, slot in enumerate(before) if slot.active == peer]
        net.crash(peer)
        net.begin(peer, "plant", (peer + 1) % 6)
        done = lambda: net.peers[peer].has_joined  # noqa: B023, E731
        assert time_until(net, done) <= DETECTION
        for tree, backups in mine:
            assert net.peers[peer].slots[tree].active in backups
        net.run(4)
        net.check()


def test_a_message_without_an_answer_hastens_the_probes() -> None:
    net = cluster_of(5)
    lost = head_of(net, 0)
    net.crash(lost)
    heir = next(peer for peer in slot_holders(net.peers[next(iter(net.peers))].slots) if peer != lost)
    assert net.peers[heir].believes_live(lost)
    net.tell(heir, Unanswered(lost))
    assert not net.peers[heir].believes_live(lost)
    assert time_until(net, all_gone(net, lost)) <= DETECTION // 2 + TRIP


def test_round_trips_are_measured() -> None:
    net = cluster_of(4)
    assert net.peers[0].round_trip_ns(99) == 100 * MS
    net.run(60)
    assert all(net.peers[0].round_trip_ns(peer) <= TRIP for peer in (1, 2, 3))


@pytest.mark.parametrize("seed", range(4))
def test_who_lives_stays_and_backups_inherit(seed: int) -> None:
    """One event at a time, and rest between them: each coordinator stays, or a backup of its slot follows."""
    draw = peer_stream(seed, "steady")
    trees, backups = draw.choice([(1, 1), (2, 1), (2, 2), (3, 1)])
    net = ClusterNet(seed, multicast=draw.random() < 0.5, coordinators=trees, backups=backups)
    for peer in range(trees + 3):
        net.begin(peer, "plant", *([0] if peer else []))
    net.run(8)
    for number in range(12):
        before = net.peers[min(net.peers)].slots
        peer = draw.choice([*slot_holders(before), *net.peers])  # those with a role are the interesting ones
        gone = {peer}
        if draw.random() < 0.3 or len(net.peers) <= trees + 1:
            gone = set()
            net.begin(100 * (seed + 1) - number, "plant", peer)
        elif draw.random() < 0.5:
            net.crash(peer)
        else:
            net.leave(peer)
        net.run(5)
        net.check()
        for old, new in zip(before, net.peers[min(net.peers)].slots, strict=True):
            live = [one for one in old.holders if one not in gone]
            assert new.active in ([old.active] if old.active in live else live)


# ---------------------------------------------------------------- partitions


@pytest.mark.parametrize("multicast", [True, False])
def test_both_parts_of_a_partition_are_served_and_merge(multicast: bool) -> None:
    net = cluster_of(10, multicast=multicast)
    net.split(range(5))
    net.run(6)
    net.check()
    terms = [net.peers[peer].slots[0].term for peer in (0, 9)]
    net.heal()
    net.run(10)
    net.check()
    assert net.peers[0].slots[0].term > max(terms)


def test_after_a_merge_the_coordinators_of_one_part_stay() -> None:
    net = cluster_of(10)
    net.split(range(5))
    net.run(6)
    actives = [{slot.active for slot in net.peers[peer].slots} for peer in (0, 9)]
    net.heal()
    net.run(6)
    assert {slot.active for slot in net.peers[0].slots} in actives


def test_a_member_that_only_others_hear_stays_a_member() -> None:
    net = cluster_of(8, multicast=False)
    head = head_of(net, 0)
    for peer in net.peers:
        if peer in slot_holders(net.peers[0].slots):
            continue
        net.cut |= {(head, peer), (peer, head)}
        term = net.peers[peer].slots[0].term
        net.run(10)
        net.check()
        assert net.peers[peer].slots[0].term == term
        net.cut.clear()
        break


def test_a_peer_joins_that_only_other_coordinators_hear() -> None:
    net = cluster_of(5, multicast=False)
    head = head_of(net, 0)
    net.cut |= {(head, 9), (9, head)}
    net.begin(9, "plant", next(peer for peer in net.peers if peer != head))
    net.run(8)
    net.check()


def test_heads_that_do_not_hear_each_other_do_not_fight() -> None:
    net = cluster_of(8, multicast=False)
    head, second = slot_holders(net.peers[0].slots)[:2]
    net.cut |= {(head, second), (second, head)}
    term = net.peers[0].slots[0].term
    net.run(20)
    net.check()
    assert net.peers[0].slots[0].term == term


# ---------------------------------------------------------------- the directory


def two_clusters(**settings: object) -> ClusterNet:
    net = ClusterNet(**settings)  # type: ignore[arg-type]
    for peer in range(10):
        net.begin(peer, "north" if peer < 5 else "south", *([0] if peer else []))
    net.run(8)
    net.check()
    return net


def test_a_new_coordinator_is_known_elsewhere_after_a_delay() -> None:
    net = two_clusters(directory_ns=1000 * SECOND)
    lost = net.peers[5].slots[1].active
    net.crash(lost)
    speaking = [peer for peer in range(5) if net.peers[peer].directory]
    done = lambda: all(net.peers[peer].directory["south"][1].active != lost for peer in speaking)  # noqa: E731
    assert time_until(net, done) <= HAND_OVER + TRIP


def test_a_cluster_that_is_gone_expires_and_may_come_back() -> None:
    net = two_clusters(directory_ns=SECOND // 4)
    net.crash(*range(5, 10))
    net.run(12)
    assert net.peers[0].directory.keys() == {"north"}
    net.check()
    for peer in range(5, 10):
        net.begin(peer, "south", 0)
    net.run(8)
    net.check()


def test_members_without_a_role_know_only_their_own_cluster() -> None:
    net = two_clusters()
    for peer in net.peers.values():
        speaks = bool(peer.my_trees or peer.my_backups)
        assert set(peer.directory) == ({"north", "south"} if speaks else set())
        assert peer.status()["clusters"] == (2 if speaks else 0)
        assert peer.believes_live(0 if peer.me >= 5 else 5) == speaks
        assert peer.me not in peer.informants() and {*peer.informants()} >= {*slot_holders(peer.slots)} - {peer.me}


@pytest.mark.parametrize("multicast", [True, False])
def test_traffic_does_not_grow_with_the_members_of_other_clusters(multicast: bool) -> None:
    """`worlds.py` has the same for 200 members."""
    few, many = (messages_per_member(40, others, multicast) for others in (6, 12))
    for before, after, most in zip(few, many, (2.0, 6.0), strict=True):
        assert 0.95 * before <= after <= 1.05 * before <= most
