"""Memberships of peers with several access routers: their paths to different peers start at different routers."""

import pytest

from tests.strategies.tdo.worlds import LINKING, World
from wend.model.paths import Path
from wend.model.random_stream import peer_stream
from wend.strategies.tdo.homes import GOSSIPED, MOST, HomeRouters
from wend.topology.catalog import make
from wend.topology.placement import Placement, attach_peers

PEERS = 10


class PlacedUnderlay:
    """The paths of a placement, as a membership's world asks for them."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    def path(self, a: int, b: int) -> Path:
        return tuple(self.placement.path(a, b))


def settle(kind: str, seed: int) -> World:
    placement = attach_peers(make("power-law", seed), PEERS, seed, access_routers=3)
    world = World(kind, PlacedUnderlay(placement), seed, (0, 1), k=PEERS - 1)  # type: ignore[arg-type]
    for peer in range(PEERS):
        world.at(peer / 2, "join", peer)
    world.run(200)
    return world


@pytest.mark.parametrize("kind", LINKING)
def test_the_overlay_is_connected_and_its_paths_are_the_true_ones(kind: str) -> None:
    """`random` traces nothing, and `tdo-landmark` infers the path from a parent to its child from that of the landmark
    to the child: the parent's own may begin at another of its routers."""
    traces = kind not in ("random", "tdo-landmark")
    several = 0
    for seed in (1, 2):
        world = settle(kind, seed)
        assert world.asymmetric() == [] and len(world.components()) == 1, f"seed {seed}"
        for peer in world.members if traces else ():
            paths = world.links[peer]
            several += len({path[0] for path in paths.values()}) > 1
            wrong = [other for other, path in paths.items() if path != world.underlay.path(peer, other)]
            assert not wrong, f"seed {seed}: {peer} to {wrong}"
    assert several or not traces


def test_a_chain_passes_no_router_of_a_peer() -> None:
    for seed in (1, 2, 3):
        world = settle("chain", seed)
        owners = {router: peer for peer, router in world.underlay.placement.accesses}  # type: ignore[attr-defined]
        for peer in world.members:
            for other, path in world.links[peer].items():
                passed = {owners[router] for router in path if router in owners} - {peer, other}
                assert not passed, f"seed {seed}: {peer} to {other} over {passed}"


# ---------------------------------------------------------------- what gossip tells of home routers


def test_gossip_tells_all_routers_of_a_peer_or_none() -> None:
    homes = HomeRouters(0)
    told = [(peer, f"r{peer}.{number}", 1) for peer in range(1, 20) for number in range(3)]
    assert homes.merge(told, 1)
    for seed in range(20):
        sample = homes.sample(peer_stream(seed, "test", 0, 0, "homes"), 5)
        assert 0 < len(sample) <= GOSSIPED
        peers = {peer for peer, _, _ in sample}
        assert sorted(sample) == sorted(home for home in told if home[0] in peers)


def test_news_replace_former_routers_and_old_news_change_nothing() -> None:
    homes = HomeRouters(0)
    path: Path = ("own", "a", "b", "c")
    assert homes.add_own_router(path) and not homes.add_own_router(path)
    assert homes.merge([(1, "a", 5), (1, "b", 5)], 1)
    assert not homes.merge([(1, "b", 5), (1, "a", 5)], 2), "the same again, in another order"
    assert not homes.merge([(1, "a", 6), (1, "b", 6)], 3), "a heartbeat alone"
    assert homes.representatives_on(path) == [(1, 1)], "a peer with two routers on the path counts at the first"
    assert not homes.merge([(1, "c", 4)], 4)
    assert homes.merge([(1, "b", 7), (1, "c", 7)], 5)
    assert homes.representatives_on(("a", None, "c", "b")) == [(1, 2)]
    homes.forget(1)
    assert homes.representatives_on(path) == []
    assert not homes.merge([(1, "a", 7)], 6), "it has left"


def test_a_peer_cannot_claim_many_routers() -> None:
    homes = HomeRouters(0)
    homes.merge([(1, f"r{number}", 1) for number in range(100)], 1)
    claimed = [number for number in range(100) if homes.representatives_on((f"r{number}",))]
    assert len(claimed) == MOST
    for number in range(100):
        homes.add_own_router((f"own{number}",))
    assert len(homes.sample(peer_stream(1, "test", 0, 0, "homes"), 1)) == 2 * MOST
