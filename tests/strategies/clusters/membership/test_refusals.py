"""What `clusters` refuses, and how it is named where nobody gives a name."""

from typing import Any

import pytest

from tests.strategies.clusters.membership.net import ClusterNet
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Heard
from wend.protocol.ports import Refuse
from wend.strategies.clusters.membership.discovery import find_domain
from wend.strategies.clusters.membership.messages import (
    LAST_TERM,
    ClusterEntry,
    ClusterMessage,
    DirectoryDigest,
    DirectoryEntries,
    HeadBeacon,
    MemberBeat,
    Roster,
    RosterUpdate,
    SearchAnswer,
    Slot,
    settings_hash,
)
from wend.strategies.clusters.membership.settings import ClusterSettings

STRANGER = 99
AGREED = settings_hash(PeerConfig(peer=0).of(ClusterSettings))
ME = ((0, 1), (1, 1), (2, 1), (3, 1))


def settled() -> ClusterNet:
    net = ClusterNet()
    for peer in range(4):
        net.begin(peer, "plant", *([0] if peer else []))
    net.run(5)
    net.check()
    return net


def slots(term: int, active: int = 0, backup: int = 1) -> tuple[Slot, ...]:
    return (Slot(active, (backup,), term),) * 2


def refusals(net: ClusterNet, sender: int, message: ClusterMessage, peer: int = 0) -> list[str]:
    return [effect.code for effect in net.tell(peer, Heard(sender, message)) if isinstance(effect, Refuse)]


@pytest.mark.parametrize(
    ("sender", "message", "reason"),
    [
        (
            STRANGER,
            RosterUpdate("plant", AGREED, Roster(70, 2, ((0, 1), (2, 1)), slots(70, 2, 0))),
            "slots-of-nonmember",
        ),
        (
            STRANGER,
            RosterUpdate("quarry", AGREED, Roster(70, 0, ((0, 1), (1, 1)), slots(70))),
            "other-cluster",
        ),
        (STRANGER, HeadBeacon("quarry", AGREED, 70, STRANGER), "other-cluster"),
        (
            STRANGER,
            HeadBeacon("plant", AGREED + 1, 70, STRANGER),
            "cluster-settings-differ",
        ),
        (
            STRANGER,
            MemberBeat("plant", AGREED + 1, 1, 0, STRANGER),
            "cluster-settings-differ",
        ),
        (
            STRANGER,
            DirectoryEntries((ClusterEntry("plant", AGREED + 1, STRANGER, slots(70, STRANGER, 5), 1),)),
            "cluster-settings-differ",
        ),
        (STRANGER, SearchAnswer("quarry", "pit", ()), "answer-other-cluster"),
    ],
)
def test_who_does_not_belong_here_assigns_nothing(sender: int, message: Any, reason: str) -> None:
    net = settled()
    before = {peer: (one.slots, one.members) for peer, one in net.peers.items()}
    assert refusals(net, sender, message) == [reason]
    net.run(5)
    assert {peer: (one.slots, one.members) for peer, one in net.peers.items()} == before


@pytest.mark.parametrize(
    "message",
    [
        RosterUpdate("plant", AGREED, Roster(70, 1, ME, slots(70, 1, 9))),  # a backup that is no member
        RosterUpdate("plant", AGREED, Roster(70, 1, ME, slots(71, 1, 2))),  # slots of another term
        RosterUpdate("plant", AGREED, Roster(70, 9, ME, slots(70, 1, 2))),  # a head that is no member
        RosterUpdate("plant", AGREED, Roster(70, 1, ME, slots(70, 1, 1))),  # one peer twice in a slot
        RosterUpdate("plant", AGREED, Roster(70, 1, ME, (Slot(1, (2,), 70), Slot(2, (1,), 69)))),
        RosterUpdate("plant", AGREED, Roster(70, 1, ME, slots(70, 1, 2)[:1])),  # too few trees
        RosterUpdate("plant", AGREED, Roster(LAST_TERM, 1, ME, slots(LAST_TERM, 1, 2))),
        RosterUpdate("plant", AGREED, Roster(70, 1, ME[::-1], slots(70, 1, 2))),
        DirectoryEntries((ClusterEntry("", AGREED, 8, slots(7, 8, 9), 1),)),
        DirectoryEntries((ClusterEntry("quarry", AGREED, 8, slots(0, 8, 9), 1),)),
        DirectoryEntries((ClusterEntry("quarry", AGREED, 8, (), 1),)),
        DirectoryDigest(1, (("x" * 200, 1, 1, 1),)),
        MemberBeat("plant", AGREED, 0, 0, 1),
        HeadBeacon("plant", AGREED, 3, 1, age_ns=-1),
    ],
)
def test_what_cannot_be_is_refused(message: Any) -> None:
    net = settled()
    before = net.peers[0].slots, dict(net.peers[0].directory)
    assert refusals(net, 1, message) == ["invalid-message"]
    assert (net.peers[0].slots, dict(net.peers[0].directory)) == before


def test_two_lists_of_one_term_are_refused() -> None:
    net = settled()
    mine = net.peers[3].slots
    term = mine[0].term
    other = Roster(term, 0, ME, (Slot(2, (3,), term), Slot(3, (2,), term)))
    assert refusals(net, 1, RosterUpdate("plant", AGREED, other), peer=3) == ["slots-disagree"]
    assert refusals(net, 1, RosterUpdate("plant", AGREED, other), peer=0) == ["slots-disagree"]
    assert net.peers[3].slots == mine
    net.run(3)
    net.check(but=["slots-disagree"])


def test_a_term_that_somebody_made_up_does_not_last() -> None:
    """A roster with a high term from a member is adopted, but its head does not exist: the cluster elects another."""
    net = settled()
    net.begin(STRANGER, "plant", 0)
    net.run(5)
    made_up = Roster(1000, STRANGER, (*ME, (STRANGER, 1)), slots(1000, STRANGER, 1))
    net.crash(STRANGER)
    net.tell(2, Heard(STRANGER, RosterUpdate("plant", AGREED, made_up)))
    net.run(10)
    net.check()


def test_two_clusters_with_one_name() -> None:
    """They differ in a setting: each stays by itself, and counts what it refuses. Terms do not race."""
    net = ClusterNet()
    for peer in range(8):
        net.begin(peer, "plant", *([0] if peer else []), backups=1 if peer < 4 else 2)
    net.begin(20, "quarry", 0, 4)
    net.run(10)
    assert net.peers[0].members == (0, 1, 2, 3) and net.peers[7].members == (4, 5, 6, 7)
    assert net.refused["cluster-settings-differ"] > 0
    terms = net.peers[0].slots[0].term, net.peers[7].slots[0].term
    net.run(30)
    assert (net.peers[0].slots[0].term, net.peers[7].slots[0].term) == terms


def test_a_stated_domain_tells_clusters_with_one_name_apart() -> None:
    net = ClusterNet()
    net.begin(1, "plant", cluster_domain="10.1.0.0/16")
    net.begin(2, "plant", 1, cluster_domain="10.2.0.0/16")
    net.run(6)
    assert net.peers[1].members == (1,) and net.peers[2].members == (2,)
    assert {*net.refused} == {"cluster-settings-differ"}


def test_more_trees_than_members() -> None:
    net = ClusterNet(coordinators=5, backups=2)
    for peer in range(3):
        net.begin(peer, "plant", *([0] if peer else []))
    net.run(12)
    net.check()
    assert sum(count for (_, what), count in net.notices.items() if what == "cluster-small") == 1
    assert sorted(tree for one in net.peers.values() for tree in one.my_trees) == [0, 1, 2, 3, 4]


# ---------------------------------------------------------------- the name


def test_the_domain_of_a_path_is_its_first_router() -> None:
    assert find_domain((4, 5, None)) == "router 4"
    assert find_domain(("r9",)) == "router r9"
    assert find_domain((None, 5)) is find_domain(()) is find_domain(None) is None


def test_peers_without_a_name_form_clusters_by_their_router() -> None:
    net = ClusterNet()
    net.paths = {peer: (10 + peer % 2, 3, 4) for peer in range(8)}
    for peer in range(8):
        net.begin(peer, "", *([0] if peer else [1]))
        net.clusters[peer] = f"router {10 + peer % 2}"
    assert not any(one.has_joined for one in net.peers.values())
    net.run(10)
    net.check()
    assert net.peers[3].cluster_name == "router 11"


def test_a_peer_whose_path_nobody_knows_is_a_cluster_of_its_own() -> None:
    net = ClusterNet()
    net.paths = {7: None}
    net.begin(7, "", 1)
    net.run(5)
    assert net.peers[7].cluster_name == "peer 7" and net.peers[7].has_joined
