"""Messages of membership plug-ins fit a datagram, up to the last incarnation that can be numbered."""

import pytest

from tests.drivers.live import datagrams
from tests.strategies.ring.rings import RingWorld
from tests.strategies.tdo.worlds import LINKING, Underlay, World
from wend.drivers.live.transport import wire
from wend.protocol.messages import PlainMessage
from wend.protocol.plugins import SendTo
from wend.strategies.registry import MEMBERSHIP

HEAD = wire.make_header(1, 2, 3)
LAST_INCARNATION = 2**36 - 1
"""The transmissions of a later one could not be numbered."""


def survive(kind: str, effects: list[object]) -> int:
    """Encode and decode all messages as datagrams; how many there are."""
    types = wire.MessageTypes({kind: MEMBERSHIP[kind].messages}, None)
    messages = [PlainMessage(kind, effect.message) for effect in effects if isinstance(effect, SendTo)]
    for message in messages:
        assert datagrams.decode(datagrams.encode(HEAD, message), types).message == message
    return len(messages)


class Wired(World):
    """A world whose messages are all encoded and decoded as datagrams."""

    sent = 0

    def age(self, peer: int) -> None:
        """Let the next incarnation of a peer be the last one."""
        self._incarnations[peer] = LAST_INCARNATION - 1

    def _carry_out(self, peer: int, effects: list[object]) -> None:
        self.sent += survive(self.kind, effects)
        super()._carry_out(peer, effects)


@pytest.mark.parametrize("kind", LINKING)
def test_every_message_of_the_last_incarnation_survives_the_wire(kind: str) -> None:
    world = Wired(kind, Underlay(1, 6, 5), 1, contacts=(0, 1), k=2, degree=2)
    for peer in range(5):
        world.age(peer)
        world.at(0, "join", peer)
    world.at(20, "leave", 3)
    world.run(30)
    assert world.sent and len(world.components()) == 1


class WiredRing(RingWorld):
    sent = 0

    def age(self, peer: int) -> None:
        """Let the next incarnation of a peer be the last one."""
        self._incarnations[peer] = LAST_INCARNATION - 1

    def _carry_out(self, peer: int, effects: list[object]) -> None:
        self.sent += survive("pastry", effects)
        super()._carry_out(peer, effects)


def test_every_message_of_a_ring_survives_the_wire() -> None:
    """With the longest ids that peers may have."""
    world = WiredRing(1)
    first = 2**63 - 20
    for peer in range(first, first + 20):
        world.age(peer)
        world.begin(peer, *range(first, peer))
    world.run(5)
    world.crash(first + 3)
    world.leave(first + 4)
    world.run(5)
    assert world.sent and world.wrong_leaf_sets() == {}
