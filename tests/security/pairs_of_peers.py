"""Two peers in a world of sessions, and what one says to the other."""

from tests.security.worlds import World
from wend.model.units import SECOND

A, B = 1, 2


def pair(seed: int = 0) -> World:
    """Two peers that have spoken."""
    world = World(seed, 2)
    say(world, A, b"first", B)
    return world


def say(world: World, speaker: int, body: bytes, to: int, within_ns: int = 2 * SECOND) -> bool:
    """Send a message; whether it arrives."""
    world.hosts[speaker].send(to, body)
    world.run(world.now + within_ns)
    return world.delivered[to, body] == 1


def refused(world: World, peer: int) -> dict[str, int]:
    return dict(world.hosts[peer].layer.refused)
