"""A membership that multicasts a number every second, for tests of multicast in both drivers."""

import msgspec

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Due, Heard, Membership, PluginEffect, PluginInput, Timer, Undelivered, View
from wend.protocol.ports import JoinMulticast, LeaveMulticast, Multicast, Stopping

CASTS = "tests.casts:Casts"
GROUP = "g"


class Number(msgspec.Struct, frozen=True, gc=False, tag="number"):
    value: int
    filler: bytes = b""


class Casts(Membership):
    messages = Number

    def __init__(self, config: PeerConfig) -> None:
        self.heard: list[tuple[PeerId, int]] = []
        self.too_large: list[int] = []
        self._next = 0

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Begun():
                return [JoinMulticast(GROUP), Timer(now + SECOND)]
            case Due():
                self._next += 1
                return [Multicast(GROUP, Number(self._next)), Timer(now + SECOND)]
            case Heard(sender, Number(value)):
                self.heard.append((sender, value))
            case Undelivered(peer, Number(value)):
                assert peer == view.me
                self.too_large.append(value)
            case Stopping():
                return [LeaveMulticast(GROUP)]
        return []
