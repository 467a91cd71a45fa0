"""Properties of all memberships: once quiet they are symmetric and in one piece, whoever came, went or crashed."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.strategies.tdo.worlds import LINKING, PERIOD, Underlay, World, turbulent
from wend.model.errors import ConfigError
from wend.model.paths import Path
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Due, Heard, SendTo
from wend.strategies.registry import plugin
from wend.strategies.tdo.messages import Gossip, Join, ProbePing, ProbePong, Shuffle
from wend.strategies.tdo.plugin import Farthest, Nearest

QUIET = 120
"""Periods after which the last news of who is there is old."""


def rumour(*peers: int) -> Shuffle:
    """An answer to a shuffle: these peers are there."""
    return Shuffle(tuple((peer, 0) for peer in peers), Gossip(), answer=True)


def hangs_together(world: World, seed: int) -> None:
    assert world.asymmetric() == [], f"{world.kind}, seed {seed}"
    assert len(world.components()) == 1, f"{world.kind}, seed {seed}: {world.components()}"


@pytest.mark.parametrize("kind", LINKING)
def test_an_overlay_heals(kind: str) -> None:
    for seed in range(10):
        hangs_together(turbulent(kind, seed, QUIET, k=3, degree=4), seed)


@pytest.mark.parametrize("kind", LINKING)
def test_join_orders_with_leaves_and_crashes_leave_a_connected_symmetric_overlay(kind: str) -> None:
    """84 orders for each membership, 504 in all, each of other seeds."""
    first = 100 * LINKING.index(kind)
    for seed in range(first, first + 84):
        hangs_together(turbulent(kind, seed, QUIET, k=3, degree=4), seed)


@pytest.mark.parametrize("kind", LINKING)
def test_an_overlay_heals_though_a_tenth_of_all_messages_is_lost(kind: str) -> None:
    for seed in range(1000, 1010):
        hangs_together(turbulent(kind, seed, QUIET, k=3, degree=4, loss=0.1), seed)


def blur(draw: np.random.Generator, path: Path) -> Path | None:
    """Measurements as they are: some fail, some end on the way, some routers do not give their names."""
    if draw.random() < 0.1:
        return None
    hops: list[int | str | None] = [None if draw.random() < 0.2 else router for router in path]
    if draw.random() < 0.2:
        hops = [*hops[: max(1, len(hops) // 2)], None]
    return tuple(hops)


@pytest.mark.parametrize("kind", LINKING)
def test_paths_that_are_partial_or_fail_do_no_harm(kind: str) -> None:
    for seed in range(2000, 2010):
        hangs_together(turbulent(kind, seed, QUIET, k=3, degree=4, blur=blur), seed)


@pytest.mark.parametrize("kind", LINKING)
def test_an_overlay_that_is_quiet_stays_as_it_is(kind: str) -> None:
    for seed in range(3000, 3005):
        world = turbulent(kind, seed, QUIET, k=3, degree=4)
        before = {peer: dict(world.links[peer]) for peer in world.members}
        world.run(QUIET + 20)
        assert before == {peer: world.links[peer] for peer in world.members}, f"seed {seed}"


@pytest.mark.parametrize("kind", LINKING)
def test_peers_of_one_router_come_together(kind: str) -> None:
    underlay = Underlay(1, 4, 6)
    underlay.homes = [2] * 6
    world = World(kind, underlay, 1, (0,), k=2, degree=3)
    for peer in range(6):
        world.at(peer, "join", peer)
    world.run(60)
    hangs_together(world, 1)


@pytest.mark.parametrize("kind", LINKING)
def test_a_gap_between_two_halves_is_closed(kind: str) -> None:
    """Two groups that never met, until one peer hears of a peer of the other."""
    underlay = Underlay(7, 12, 8)
    world = World(kind, underlay, 7, (), k=3, degree=3)
    for peer in range(8):
        world.contacts = (0,) if peer < 4 else (4,)
        world.change(peer, "join")
    world.run(40)
    assert world.components() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    world.tell(2, Heard(3, rumour(6)))
    world.run(120)
    hangs_together(world, 7)


def test_links_of_topology_discovery_lead_past_no_other_peer() -> None:
    """What `tdo-random` and `chain` are for: no link passes a router at which a neighbour of either end sits."""
    for seed in range(8):
        for kind in ("tdo-random", "chain"):
            world = turbulent(kind, seed, QUIET, k=10, restarts=False)
            homes = world.underlay.homes
            for peer in world.members:
                near = {homes[other] for other in world.links[peer]} - {homes[peer]}
                for other, path in world.links[peer].items():
                    assert not near & set(path[1:-1]), f"{kind}, seed {seed}: {peer} to {other} over {path}"


def test_the_chain_passes_no_peer_at_all() -> None:
    for seed in range(8):
        world = turbulent("chain", seed, 2 * QUIET, k=10)
        homes = {world.underlay.homes[peer] for peer in world.members}
        for peer in world.members:
            for other, path in world.links[peer].items():
                assert not homes & set(path[1:-1]), f"seed {seed}: {peer} to {other} over {path}"


def test_random_links_are_about_as_many_at_each_peer() -> None:
    world = World("random", Underlay(3, 5, 40), 3, (0,), degree=6)
    for peer in range(40):
        world.at(peer / 4, "join", peer)
    world.run(60)
    hangs_together(world, 3)
    assert world.traces == 0
    assert {len(links) for links in world.links.values()} <= {5, 6, 7, 8}


def test_the_nearest_are_chosen_by_their_round_trip() -> None:
    """Messages take their time at random here, so who is near is decided by a member that is told so."""
    for made, expected in ((Nearest, {2, 3, 4}), (Farthest, {4, 5, 6})):
        config = PeerConfig(peer=0, membership_k=3, membership_sample=10, membership_period_ns=PERIOD)
        member = made(config)
        now, joined = 0, set()
        effects = member.handle(0, Begun((1, 2, 3, 4, 5, 6)))
        for turn in range(1, 10):
            now = turn * PERIOD
            # the first of them is shuffled with, and so not in the view
            assert member.handle(now, Heard(1, rumour(*range(1, 7)))) == []
            effects = member.handle(now, Due())
            for effect in effects:
                if isinstance(effect, SendTo) and isinstance(effect.message, ProbePing):
                    member.handle(now + effect.peer, Heard(effect.peer, ProbePong(effect.message.number)))
                if isinstance(effect, SendTo) and isinstance(effect.message, Join):
                    joined.add(effect.peer)
        assert joined == expected


def test_an_unknown_membership_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown membership 'ring': choose one of tdo-landmark, tdo-random"):
        plugin("membership", "ring")


def test_nothing_depends_on_the_order_of_sets() -> None:
    """The same seed in two processes that hash differently."""
    script = (
        "from tests.strategies.tdo.worlds import LINKING, turbulent\n"
        "for kind in LINKING:\n"
        "    world = turbulent(kind, 5, 40, k=3, degree=4)\n"
        "    print(kind, sorted(world.said.items()))\n"
        "    print({p: list(world.links[p].items()) for p in sorted(world.members)})\n"
        "from tests.strategies.clusters.membership.worlds import turbulent as clustered\n"
        "for seed in range(2):\n"
        "    net = clustered(seed)\n"
        "    print(list(net.said.items()), [(p, one.status(), one.slots) for p, one in net.peers.items()])\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] and told[0]
