"""Trees of landmarks: where everyone belongs, in whatever order they came; and how messages bring them there."""

import pytest

from tests.strategies.tdo.worlds import PERIOD, Underlay, World, turbulent
from wend.model.paths import Path
from wend.model.randomness import stream
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Due, EndLink, Heard, MakeLink, Reroute, SendTo
from wend.protocol.ports import FindPath, PathFound, Refuse
from wend.strategies.tdo.messages import (
    Adopt,
    ChildAlive,
    Dissolve,
    Find,
    Gossip,
    JoinTree,
    MembershipMessage,
    ParentAlive,
    Quit,
    Renew,
    Shuffle,
)
from wend.strategies.tdo.paths import RENEW
from wend.strategies.tdo.plugin import TdoLandmark


def parent(underlay: Underlay, members: list[int], root: int, peer: int) -> int:
    """By definition: who stands for the last router on the way from the root at which some member is."""
    homes = underlay.homes
    path = underlay.path(root, peer)

    def stands(router: int) -> int:
        return root if router == homes[root] else min(m for m in members if homes[m] == router)

    if stands(path[-1]) != peer:
        return stands(path[-1])
    return next(stands(router) for router in path[-2::-1] if any(homes[m] == router for m in members))


def check_trees(world: World, seed: int) -> None:
    members = sorted(world.members)
    landmarks = world.members[members[0]].overlay.landmarks
    assert landmarks, f"seed {seed}"
    for root in landmarks:
        for peer in members:
            if peer == root:
                continue
            family = world.members[peer].overlay.families[root]
            assert family.parent == parent(world.underlay, members, root, peer), f"seed {seed}: {peer} below {root}"
            assert peer in world.members[family.parent].overlay.families[root].children, (
                f"seed {seed}: {peer} below {root}"
            )


def agreed(world: World) -> bool:
    return len({member.overlay.landmarks for member in world.members.values()}) == 1


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_a_tree_is_what_its_paths_say_whoever_came_first(loss: float) -> None:
    for seed in range(15):
        world = turbulent("tdo-landmark", seed, 80, k=2, loss=loss)
        if not agreed(world):  # somebody has just been elected
            world.run(100)
        assert agreed(world), f"seed {seed}"
        if loss == 0.0:
            check_trees(world, seed)


def test_the_same_peers_in_another_order_grow_the_same_trees() -> None:
    for seed in range(6):
        grown = []
        for order in range(3):
            underlay = Underlay(seed, 10, 8)
            world = World("tdo-landmark", underlay, seed, (0, 1), k=2)
            draw = stream(order, "order")
            for peer in range(8):
                world.at(float(draw.random()) * 10, "join", peer)
            world.run(60)
            check_trees(world, seed)
            roots = world.members[0].overlay.landmarks
            grown.append({(r, p, world.members[p].overlay.families[r].parent) for r in roots for p in range(8)})
        for root in {r for trees in grown for r, _, _ in trees}:
            trees = [{(p, q) for r, p, q in trees if r == root} for trees in grown]
            assert all(tree == trees[0] for tree in trees if tree and trees[0])


def test_about_k_landmarks_are_elected() -> None:
    world = World("tdo-landmark", Underlay(9, 20, 60), 9, (0, 1, 2), k=5)
    for peer in range(60):
        world.at(peer / 20, "join", peer)
    world.run(60)
    known = {member.overlay.landmarks for member in world.members.values()}
    assert len(known) == 1
    assert 5 <= len(known.pop()) <= 12
    assert all(30 < member.overlay.estimated_peers < 120 for member in world.members.values())
    check_trees(world, 9)


def test_where_all_landmarks_die_others_are_elected() -> None:
    world = World("tdo-landmark", Underlay(4, 8, 10), 4, (0, 1, 2), k=2)
    for peer in range(10):
        world.at(0.1 * peer, "join", peer)
    world.run(40)
    dead = world.members[0].overlay.landmarks
    for peer in dead:
        world.at(41, "crash", peer)
    world.run(160)
    assert len(world.components()) == 1 and world.asymmetric() == []
    assert not set(world.members[max(world.members)].overlay.landmarks) & set(dead)
    check_trees(world, 4)


def test_when_paths_change_the_trees_follow() -> None:
    for seed in range(3):
        world = World("tdo-landmark", Underlay(seed, 10, 8), seed, (0, 1), k=2)
        for peer in range(8):
            world.at(0.1 * peer, "join", peer)
        world.run(60)
        check_trees(world, seed)
        homes = world.underlay.homes
        world.underlay = Underlay(seed + 100, 10, 8)
        world.underlay.homes = homes
        world.run(360)
        check_trees(world, seed)
        assert len(world.components()) == 1 and world.asymmetric() == []
        believed = {(peer, other): path for peer, links in world.links.items() for other, path in links.items()}
        assert believed == {link: world.underlay.path(*link) for link in believed}


def test_the_work_of_renewing_does_not_grow_with_the_peers() -> None:
    def renewals(peers: int) -> float:
        world = World("tdo-landmark", Underlay(9, 10, peers), 9, (0, 1, 2), k=1)
        for peer in range(peers):
            world.at(peer / peers, "join", peer)
        world.run(60)
        before = world.said["Renew"]
        world.run(160)
        return (world.said["Renew"] - before) / len(world.members[0].overlay.landmarks)

    assert all(100 / RENEW / 2 < renewals(peers) < 2 * 100 / RENEW for peers in (6, 24))


# ---------------------------------------------------------------- message by message


def member(me: int, *landmarks: int) -> TdoLandmark:
    """One that knows these landmarks, and has asked them."""
    made = TdoLandmark(PeerConfig(peer=me, membership_k=len(landmarks) or 1, membership_period_ns=PERIOD))
    made.handle(0, Begun(()))
    rumour = Gossip(landmarks=tuple((peer, 1) for peer in landmarks))
    made.handle(0, Heard(99, Shuffle((), rumour, True)))
    made.handle(PERIOD, Due())
    return made


def landmark(me: int) -> TdoLandmark:
    made = TdoLandmark(PeerConfig(peer=me, membership_k=10**6, membership_period_ns=PERIOD))
    made.handle(0, Begun(()))
    turn = 0
    while not made.overlay.is_landmark:
        turn += 1
        made.handle(turn * PERIOD, Due())
    return made


def tell(to: TdoLandmark, sender: int, message: MembershipMessage) -> list[object]:
    return list(to.handle(to.rounds.number * PERIOD, Heard(sender, message)))


def take_in(root: TdoLandmark, peer: int, path: Path) -> list[object]:
    assert tell(root, peer, JoinTree()) == [FindPath(peer)]
    return list(root.handle(root.rounds.number * PERIOD, PathFound(peer, path)))


def test_a_landmark_adopts_passes_on_and_hands_over() -> None:
    root = landmark(1)
    assert take_in(root, 3, (10, 14, 15)) == [SendTo(3, Adopt(1, (10, 14, 15), ())), MakeLink(3, (10, 14, 15))]
    # behind 3: its business
    assert take_in(root, 4, (10, 14, 15, 16)) == [SendTo(3, Find(1, 4, (10, 14, 15, 16)))]
    # before 3: 3 becomes its child
    assert take_in(root, 2, (10, 14)) == [
        SendTo(2, Adopt(1, (10, 14), (), ((3, (10, 14, 15)),))),
        MakeLink(2, (10, 14)),
        EndLink(3),
    ]
    # neither
    assert take_in(root, 5, (10, 14)) == [SendTo(2, Find(1, 5, (10, 14)))]
    assert take_in(root, 6, (10, 19)) == [SendTo(6, Adopt(1, (10, 19), ())), MakeLink(6, (10, 19))]


def test_what_was_measured_once_is_not_measured_again() -> None:
    root = landmark(1)
    take_in(root, 3, (10, 14, 15))
    assert tell(root, 3, JoinTree()) == [SendTo(3, Adopt(1, (10, 14, 15), ()))]


def renewed(root: TdoLandmark, peer: int, before: Path, path: Path | None) -> list[object]:
    assert tell(root, peer, Renew(before)) == [FindPath(peer)]
    assert tell(root, peer, Renew(before)) == [], "it is being measured"
    return list(root.handle(root.rounds.number * PERIOD, PathFound(peer, path)))


def test_a_path_that_is_another_gives_another_place() -> None:
    root = landmark(1)
    take_in(root, 3, (10, 14, 15))
    take_in(root, 6, (10, 19))
    assert renewed(root, 3, (10, 14, 15), (10, 14, 15)) == []
    assert renewed(root, 3, (10, 14, 15), (10, 19, 15)) == [SendTo(6, Find(1, 3, (10, 19, 15))), EndLink(3)]
    assert tell(root, 3, JoinTree()) == [SendTo(6, Find(1, 3, (10, 19, 15)))]
    # a message that came late, and the peer goes by what was once: told again
    assert renewed(root, 3, (10, 14, 15), (10, 19, 15)) == [SendTo(6, Find(1, 3, (10, 19, 15)))]


@pytest.mark.parametrize("seen", [None, (10, None), (10, None, 15)])
def test_what_cannot_be_measured_again_stays(seen: Path | None) -> None:
    root = landmark(1)
    take_in(root, 3, (10, 14, 15))
    assert renewed(root, 3, (10, 14, 15), seen) == []
    assert tell(root, 3, JoinTree()) == [SendTo(3, Adopt(1, (10, 14, 15), ()))]


def test_who_is_no_landmark_any_more_says_so_when_asked_to_measure() -> None:
    peer = member(3, 1)
    assert tell(peer, 4, Renew((10, 14))) == [SendTo(4, Dissolve(3, 1 << 28))]


def test_a_link_over_another_path_says_so() -> None:
    root = landmark(1)
    take_in(root, 3, (10, 14, 15))
    assert renewed(root, 3, (10, 14, 15), (10, 18, 15)) == [
        SendTo(3, Adopt(1, (10, 18, 15), ())),
        Reroute(3, (10, 18, 15)),
    ]
    peer = member(3, 1)
    tell(peer, 1, Adopt(1, (10, 14, 15), ()))
    assert tell(peer, 1, Adopt(1, (10, 18, 15), ())) == [Reroute(1, (15, 18, 10))]


def test_who_gets_another_place_lets_its_children_go() -> None:
    peer = member(3, 1)
    tell(peer, 2, Adopt(1, (10, 14, 15), (10, 14), ((4, (10, 14, 15, 16)),)))
    assert tell(peer, 6, Adopt(1, (10, 15), (10,))) == [MakeLink(6, (15, 10)), EndLink(2), EndLink(4)]
    assert tell(peer, 4, ParentAlive((1,))) == [SendTo(4, ChildAlive((1,)))]
    # what was sent here before is no business of this peer any more
    assert tell(peer, 2, Find(1, 5, (10, 14, 15, 17))) == []


def test_who_is_adopted_with_children_adopts_them() -> None:
    peer = member(2, 1)
    assert tell(peer, 1, Adopt(1, (10, 14), (), ((3, (10, 14, 15)),))) == [
        SendTo(3, Adopt(1, (10, 14, 15), (10, 14))),
        MakeLink(3, (14, 15)),
        MakeLink(1, (14, 10)),
    ]


def test_a_late_message_of_a_parent_that_is_farther_away_changes_nothing() -> None:
    peer = member(3, 1)
    assert tell(peer, 2, Adopt(1, (10, 14, 15), (10, 14))) == [MakeLink(2, (15, 14))]
    assert tell(peer, 1, Adopt(1, (10, 14, 15), ())) == []


def test_of_two_peers_at_one_router_the_lower_has_the_children() -> None:
    peer = member(5, 1)
    tell(peer, 1, Adopt(1, (10, 14), (), ((7, (10, 14, 15)),)))
    assert tell(peer, 2, Adopt(1, (10, 14), (10, 14))) == [
        SendTo(2, Find(1, 7, (10, 14, 15))),
        MakeLink(2, (14,)),
        EndLink(1),
        EndLink(7),
    ]
    # and what is to be found a place goes to the one that has them
    assert tell(peer, 1, Find(1, 8, (10, 14, 16))) == [SendTo(2, Find(1, 8, (10, 14, 16)))]


def test_a_child_that_is_none_asks_the_landmark_again() -> None:
    peer = member(3, 1)
    tell(peer, 2, Adopt(1, (10, 14, 15), (10, 14)))
    assert tell(peer, 2, ChildAlive((1,))) == [SendTo(1, JoinTree()), EndLink(2)]
    other = member(2, 1)
    tell(other, 1, Adopt(1, (10, 14), ()))
    assert tell(other, 3, ParentAlive((1,))) == [SendTo(3, ChildAlive((1,)))]


def test_children_of_one_who_leaves_ask_its_parent() -> None:
    peer = member(3, 1)
    tell(peer, 2, Adopt(1, (10, 14, 15), (10, 14)))
    assert tell(peer, 2, Quit(((1, 1),))) == [SendTo(1, Find(1, 3, (10, 14, 15))), EndLink(2)]


def test_a_parent_that_cannot_be_is_not_believed() -> None:
    peer = member(3, 1)
    assert tell(peer, 2, Adopt(1, (10, 14, 15), (10, 19))) == [Refuse(2, "invalid-message", "Adopt")]
    assert tell(peer, 2, Find(1, 4, ())) == [Refuse(2, "invalid-message", "Find")]
    assert tell(peer, 2, Adopt(77, (10, 14, 15), (10, 14))) == []  # no landmark that is known
