"""A membership that multicasts a number every second and whenever it hears of a contact, for tests of both drivers."""

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Due, Heard, Membership, PluginEffect, PluginInput, Timer, Undelivered, View
from wend.protocol.ports import ContactFound, JoinMulticast, LeaveMulticast, Multicast, Stopping

CASTS = "tests.casts:Casts"
GROUP = "g"


class Number(msgspec.Struct, frozen=True, gc=False, tag="number"):
    value: int
    filler: bytes = b""


class Casts(Membership):
    """Numbers that time asks for begin with 1, those that a contact asks for with 101."""

    messages = Number

    def __init__(self, config: PeerConfig) -> None:
        self.heard: list[tuple[PeerId, int]] = []
        self.too_large: list[int] = []
        self._timed = 0
        self._asked = 100

    @property
    def heard_asked(self) -> list[tuple[PeerId, int]]:
        """What contacts asked for, as often as it came."""
        return [each for each in self.heard if each[1] > 100]

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Begun():
                return [JoinMulticast(GROUP), Timer(now + SECOND)]
            case Due():
                self._timed += 1
                return [Multicast(GROUP, Number(self._timed)), Timer(now + SECOND)]
            case ContactFound():
                self._asked += 1
                return [Multicast(GROUP, Number(self._asked))]
            case Heard(sender, Number(value)):
                self.heard.append((sender, value))
            case Undelivered(peer, Number(value)):
                assert peer == view.me
                self.too_large.append(value)
            case Stopping():
                return [LeaveMulticast(GROUP)]
        return []
