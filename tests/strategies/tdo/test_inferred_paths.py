"""Overlays of peers behind routers that never answer: with inferred paths they are closer to the truth."""

import pytest

from tests.oracles.topology_inference import Traceroute
from tests.strategies.tdo.worlds import Underlay, World
from tests.topology.inferred_links import infer_topology
from wend.model.paths import Path
from wend.model.randomness import stream
from wend.topology.inferred_topology import InferredTopology
from wend.topology.traceroute import router_address

PEERS, ROUTERS = 12, 20
SILENT = 0.2
RECORDED = 2
"""How often the records have the path between each recorded pair of peers."""


class TracedUnderlay(Underlay):
    """An underlay of which some routers never answer. Peers see its traced paths, completed if there is a topology."""

    def __init__(self, seed: int, *, anonymous: float, topology: InferredTopology | None = None) -> None:
        super().__init__(seed, ROUTERS, PEERS)
        drawn = stream(seed, "anonymous").random(ROUTERS) < anonymous
        self._anonymous = frozenset(router for router in range(ROUTERS) if drawn[router])
        self._topology = topology

    def path(self, a: int, b: int) -> Path:  # type: ignore[override]
        routers = super().path(a, b)
        traced = tuple(None if router in self._anonymous else router_address(router) for router in routers)
        return traced if self._topology is None else self._topology.complete(a, b, traced)

    def infer(self) -> InferredTopology:
        """Infer the network from traces between half of all pairs."""
        pairs = [(a, b) for a in range(PEERS) for b in range(PEERS) if a != b and (a + b) % 2]
        return infer_topology(Traceroute(a, b, self.path(a, b)) for a, b in pairs for _ in range(RECORDED))


def converge(kind: str, seed: int, underlay: Underlay) -> set[frozenset[int]]:
    """The links to which peers converge that trace the paths to all others."""
    world = World(kind, underlay, seed, (0, 1), k=PEERS - 1)
    for peer in range(PEERS):
        world.at(peer / 2, "join", peer)
    world.run(150)
    assert world.asymmetric() == [] and len(world.components()) == 1, f"{kind}, seed {seed}"
    return {frozenset((peer, other)) for peer in world.members for other in world.links[peer]}


@pytest.mark.parametrize(("kind", "seeds"), [("tdo-landmark", 4), ("tdo-random", 10), ("tdo-nearest", 10)])
def test_inferred_paths_bring_the_overlay_closer_to_that_of_the_true_paths(kind: str, seeds: int) -> None:
    """At most two thirds of the wrong links stay. (`chain` cuts paths at the routers of peers, so holes elsewhere do
    not harm it, and it gains nothing.)"""
    traced = completed = 0
    for seed in range(seeds):
        true = converge(kind, seed, TracedUnderlay(seed, anonymous=0.0))
        silent = TracedUnderlay(seed, anonymous=SILENT)
        traced += len(true ^ converge(kind, seed, silent))
        inferred = TracedUnderlay(seed, anonymous=SILENT, topology=silent.infer())
        completed += len(true ^ converge(kind, seed, inferred))
    assert 3 * completed <= 2 * traced > 0, (completed, traced)
