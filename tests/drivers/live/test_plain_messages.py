"""Messages of membership plug-ins fit a datagram, up to the last incarnation that can be numbered."""

import pytest

from tests.protocol.membership.worlds import Underlay, World
from wend.drivers.live import wire
from wend.protocol.messages import PlainMessage
from wend.protocol.plugins import SendTo
from wend.protocol.tables import MEMBERSHIP

HEAD = wire.header(1, 2, 3)
LAST_INCARNATION = 2**36 - 1
"""The transmissions of a later one could not be numbered."""


class Wired(World):
    """A world whose messages are all encoded and decoded as datagrams."""

    sent = 0

    def age(self, peer: int) -> None:
        """Let the next incarnation of a peer be the last one."""
        self._incarnations[peer] = LAST_INCARNATION - 1

    def _carry_out(self, peer: int, effects: list[object]) -> None:
        types = wire.MessageTypes({self.kind: MEMBERSHIP[self.kind].messages}, None)
        for effect in effects:
            if isinstance(effect, SendTo):
                message = PlainMessage(self.kind, effect.message)
                assert wire.decode(wire.encode(HEAD, message), types).message == message
                self.sent += 1
        super()._carry_out(peer, effects)


@pytest.mark.parametrize("kind", MEMBERSHIP)
def test_every_message_of_the_last_incarnation_survives_the_wire(kind: str) -> None:
    world = Wired(kind, Underlay(1, 6, 5), 1, contacts=(0, 1), k=2, degree=2)
    for peer in range(5):
        world.age(peer)
        world.at(0, "join", peer)
    world.at(20, "leave", 3)
    world.run(30)
    assert world.sent and len(world.components()) == 1
