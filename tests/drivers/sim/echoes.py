"""Plug-ins without links for the large simulator: every event goes straight to all peers that a peer knows of."""

from typing import ClassVar

import msgspec

from wend.model.events import Event, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import (
    Arrived,
    Begun,
    DeliverHere,
    Due,
    Heard,
    Interest,
    Membership,
    PluginEffect,
    PluginInput,
    Recalled,
    Remember,
    SendTo,
    Timer,
    View,
)
from wend.protocol.ports import Notice, Stopping
from wend.strategies.ring.key_based import OwnSubscriptions

HERE = "tests.drivers.sim.echoes"


class Ping(msgspec.Struct, frozen=True, gc=False, tag="ping"):
    left: int


class Bye(msgspec.Struct, frozen=True, gc=False, tag="bye"): ...


class Copy(msgspec.Struct, frozen=True, gc=False, tag="copy"):
    event: Event
    born_ns: Nanos
    hops: int


class Echo(Membership):
    """Sends each contact a ping every second, and answers pings a few times."""

    messages = Ping | Bye

    def __init__(self, config: PeerConfig) -> None:
        self.contacts: tuple[PeerId, ...] = ()
        self.recalled = 0

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if type(event) is Heard:
            if type(event.message) is Ping and event.message.left:
                return [SendTo(event.sender, Ping(event.message.left - 1))]
            return []
        if type(event) is Due:
            again: list[PluginEffect] = [Timer(now + SECOND)]
            return again + [SendTo(peer, Ping(9)) for peer in self.contacts]
        if isinstance(event, Begun):
            self.contacts = event.contacts
            return [Timer(now + 1 + view.me * SECOND // 50_000), Remember(0, Ping(view.incarnation))]
        if isinstance(event, Recalled):
            self.recalled += 1
            return [Notice("duplicate", event.message.left)]  # a notice to count
        if isinstance(event, Stopping):
            return [SendTo(peer, Bye(), acknowledged=True) for peer in self.contacts]
        return []


class Spread(Interest):
    """Sends every event to all contacts; these deliver it where a subscription here wants it."""

    messages = Copy
    hears_anyone: ClassVar[bool] = True
    knows_all_subscribers: ClassVar[bool] = False

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config, OwnSubscriptions(config.peer))

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if isinstance(event, Arrived):
            copy = Copy(event.event, event.born_ns, 1)
            return [SendTo(peer, copy, acknowledged=True) for peer in view.membership.contacts]
        if isinstance(event, Heard):
            return [DeliverHere(event.message.event, event.message.born_ns)]
        return []
