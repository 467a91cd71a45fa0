"""Two peers that cannot hear each other, while all others hear both: a link that is cut, and no peer that is dead."""

import pytest

from tests.strategies.tdo.test_landmarks import check_trees
from tests.strategies.tdo.worlds import LINKING, Underlay, World
from wend.model.paths import UNKNOWN
from wend.strategies.tdo.plugin import TdoLandmark

PEERS = 12
QUIET, HEALED = 40, 50
"""Periods after which the overlay has settled, and after which it has got over a change."""


class CutPair(World):
    """A world in which two peers may not hear each other."""

    pair: frozenset[int] = frozenset()

    def hears(self, sender: int, receiver: int) -> bool:
        return {sender, receiver} != self.pair

    def reached(self) -> set[int]:
        """By links that both ends know of and that are not cut."""
        found, fresh = set[int](), [0]
        while fresh:
            peer = fresh.pop()
            if peer not in found:
                found.add(peer)
                fresh += [o for o in self.links[peer] if peer in self.links[o] and {peer, o} != self.pair]
        return found


def settled(kind: str, seed: int) -> CutPair:
    """Everybody is linked; from here on, a link of peer 0 is cut."""
    world = CutPair(kind, Underlay(seed, PEERS - 1, PEERS), seed, tuple(range(PEERS)), k=3, degree=3)
    for peer in range(PEERS):
        world.at(0, "join", peer)
    world.run(QUIET)
    assert len(world.reached()) == PEERS
    world.pair = frozenset((0, min(world.links[0])))
    return world


@pytest.mark.parametrize("kind", [kind for kind in LINKING if kind not in ("tdo-landmark", "chain")])
def test_a_cut_link_does_not_split_the_overlay(kind: str) -> None:
    world = settled(kind, 1)
    world.run(QUIET + HEALED)
    assert len(world.reached()) == PEERS


def test_a_chain_that_is_cut_is_bridged() -> None:
    """Every path across would be cut at the same two peers."""
    for seed in (3, 11):
        world = settled("chain", seed)
        world.run(QUIET + HEALED)
        assert len(world.reached()) == PEERS, f"seed {seed}: {sorted(world.pair)} is cut"
        ends = [peer for peer, links in world.links.items() if UNKNOWN in links.values()]
        assert 2 <= len(ends) <= 4, f"seed {seed}: the leader of either side makes at most one bridge"
        world.pair = frozenset()
        world.run(QUIET + 2 * HEALED)
        assert len(world.reached()) == PEERS and world.asymmetric() == []


def guests_of(world: World) -> list[tuple[int, ...]]:
    members = list(world.members.values())
    assert all(isinstance(member, TdoLandmark) for member in members)
    return [member.overlay.guests for member in members]


def test_a_child_that_its_parent_cannot_reach_is_a_guest_until_it_can() -> None:
    guests = 0
    for seed in (0, 3, 5, 11):
        world = settled("tdo-landmark", seed)
        world.run(QUIET + HEALED)
        assert len(world.reached()) == PEERS, f"seed {seed}: {sorted(world.pair)} is cut"
        guests += sum(map(len, guests_of(world)))
        world.pair = frozenset()
        world.run(QUIET + 2 * HEALED)
        check_trees(world, seed)
        assert not any(guests_of(world))
    assert guests
