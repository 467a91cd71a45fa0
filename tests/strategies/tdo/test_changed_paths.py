"""Underlay paths that change while peers run: links follow them, and peers tell all others."""

import pytest

from tests.strategies.tdo.worlds import LINKING, Underlay, World
from wend.model.paths import Path
from wend.model.randomness import stream
from wend.model.units import MS
from wend.protocol.config import PeerConfig
from wend.protocol.messages import Control, PlainMessage
from wend.protocol.ports import Neighbour, Received, Send, Started
from wend.strategies.link_state.plugin import LinkState
from wend.strategies.registry import make_peer
from wend.strategies.tdo.messages import Adopt, Gossip, Shuffle


def test_when_a_link_takes_another_path_its_peer_says_so() -> None:
    peer = make_peer(PeerConfig(peer=3, strategy="adaptive", trace_paths=True, membership="tdo-landmark"))
    peer.handle(0, Started((Neighbour(1, MS),)))
    peer.handle(0, Received(1, PlainMessage("tdo-landmark", Shuffle((), Gossip(landmarks=((1, 1),)), True))))

    def told(path: Path) -> list[tuple[Path, ...]]:
        effects = peer.handle(0, Received(1, PlainMessage("tdo-landmark", Adopt(1, path, ()))))
        bodies = [e.message.body for e in effects if isinstance(e, Send) and isinstance(e.message, Control)]
        return [body.paths for body in bodies if isinstance(body, LinkState) and body.origin == 3]

    assert told((10, 14, 15))[-1] == ((15, 14, 10),)
    assert told((10, 14, 15)) == []
    assert told((10, 18, 15)) == [((15, 18, 10),)]
    assert peer.links[1].path == (15, 18, 10)


PEERS = 12
CHANGED, LATER = 60, 800
"""The period after which all routes change, and that by which every path has been traced again."""


@pytest.mark.parametrize("kind", [kind for kind in LINKING if kind != "random"])
def test_links_follow_the_paths_of_an_underlay_that_reroutes(kind: str) -> None:
    moved = 0
    for seed in range(4):
        world = World(kind, Underlay(seed, 20, PEERS), seed, (0, 1), k=4)
        for peer in range(PEERS):
            world.at(peer / 2, "join", peer)
        world.run(CHANGED)
        before = {(peer, other): path for peer in world.members for other, path in world.links[peer].items()}
        world.underlay.draw_delays(stream(seed, "rerouted"))
        moved += sum(path != world.underlay.path(*pair) for pair, path in before.items())
        world.run(LATER)
        assert world.asymmetric() == [] and len(world.components()) == 1, f"seed {seed}"
        homes = world.underlay.homes
        for peer in world.members:
            near = {homes[other] for other in world.links[peer]} - {homes[peer]}
            for other, path in world.links[peer].items():
                assert path == world.underlay.path(peer, other), f"seed {seed}: {peer} to {other}"
                if kind != "tdo-landmark":
                    assert not near & set(path[1:-1]), f"seed {seed}: {peer} to {other} over {path}"
    assert moved > 10
