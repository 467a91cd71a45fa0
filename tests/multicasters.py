"""Memberships that multicast a number now and then and whenever they hear of a contact, for tests of both drivers."""

import msgspec

from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import (
    Begun,
    Due,
    Heard,
    Membership,
    PluginEffect,
    PluginInput,
    SendTo,
    Timer,
    Undelivered,
    View,
)
from wend.protocol.ports import ContactFound, JoinMulticast, LeaveMulticast, Multicast, MulticastMembers, Stopping

CASTS = "tests.multicasters:Casts"
CASTS_OF_MEMBERS = "tests.multicasters:CastsOfMembers"
GROUP = "g"


class Number(msgspec.Struct, frozen=True, gc=False, tag="number"):
    value: int
    filler: bytes = b""


class Present(msgspec.Struct, frozen=True, gc=False, tag="present"):
    incarnation: int


class Casts(Membership):
    """Numbers that time asks for begin with 1, those that a contact asks for with 101."""

    messages = Number
    period_ns = SECOND

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
                return [JoinMulticast(GROUP), Timer(now + self.period_ns)]
            case Due():
                self._timed += 1
                return [Multicast(GROUP, Number(self._timed)), Timer(now + self.period_ns)]
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


class CastsOfMembers(Casts):
    """Four peers that tell each other their incarnations, and the driver the members: where peers have keys, it needs
    them. The first peer keeps the key."""

    messages = Number | Present
    period_ns = 200 * MS
    peers = range(4)

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._members = {config.peer: config.incarnation}

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Begun():
                others = [peer for peer in self.peers if peer != view.me]
                told = [SendTo(peer, Present(view.incarnation), acknowledged=True) for peer in others]
                return [*super().handle(now, event, view), *told]
            case Heard(sender, Present(incarnation)):
                return self._present(sender, incarnation, view)
            case Undelivered(_, Present()):
                return []
        return super().handle(now, event, view)

    def _present(self, sender: PeerId, incarnation: int, view: View) -> list[PluginEffect]:
        if self._members.get(sender, 0) >= incarnation:
            return []
        self._members[sender] = incarnation
        members = MulticastMembers(GROUP, self.peers[0], tuple(sorted(self._members.items())))
        return [members, SendTo(sender, Present(view.incarnation), acknowledged=True)]
