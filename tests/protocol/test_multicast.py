"""Multicast groups of a peer: plug-ins join and leave them, and send to them."""

from collections.abc import Iterator

import pytest

from tests.drivers.sim.echoes import HERE, Spread
from tests.multicasters import CASTS, GROUP, Casts, Number
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.publication import Publication
from wend.model.units import SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import PlainMessage
from wend.protocol.peer import Peer
from wend.protocol.plugins import Arrived, Begun, Due, Needs, Plugin, PluginEffect, PluginInput, Routing, View
from wend.protocol.ports import (
    Effect,
    JoinMulticast,
    LeaveMulticast,
    Multicast,
    Neighbour,
    Received,
    Refuse,
    Started,
    Stopping,
    Unsent,
    Woken,
)
from wend.strategies.registry import PLUGINS, load, make_peer

ME, OTHER = PeerId(0), PeerId(1)
MINE = "tests.protocol.test_multicast"


class AlsoCasts(Spread):
    """An interest that joins the same group, and leaves it at the first event."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Begun():
                return [JoinMulticast(GROUP)]
            case Arrived():
                return [LeaveMulticast(GROUP), LeaveMulticast(GROUP)]
        return []


class Undeclared(Casts):
    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        return [Multicast(GROUP, Begun(()))] if isinstance(event, Due | Begun) else []


class RoutesByMulticast(Routing):
    needs = Needs()
    messages = Number

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        return [Multicast(GROUP, Number(1))]


@pytest.fixture(autouse=True)
def own_tables() -> Iterator[None]:
    before = {kind: dict(table) for kind, table in PLUGINS.items()}
    yield
    for kind, table in PLUGINS.items():
        table.clear()
        table.update(before[kind])


def peer(membership: str = CASTS, interest: str | None = None, strategy: str = f"{HERE}:Spread") -> Peer:
    load("membership", membership)
    load("interest", interest)
    load("routing", strategy)
    return make_peer(PeerConfig(peer=ME, strategy=strategy, interest=interest, membership=membership))


def begun(made: Peer) -> list[Effect]:
    return said(made.handle(0, Started((Neighbour(OTHER, 1),))))


def said(effects: list[Effect]) -> list[Effect]:
    return [each for each in effects if isinstance(each, JoinMulticast | LeaveMulticast | Multicast | Refuse)]


def casts(made: Peer) -> Casts:
    plugin: Plugin = made.plugins[CASTS]
    assert isinstance(plugin, Casts)
    return plugin


def test_a_plugin_joins_sends_and_leaves() -> None:
    made = peer()
    assert begun(made) == [JoinMulticast(GROUP)]
    assert said(made.handle(SECOND, Woken())) == [Multicast(GROUP, PlainMessage(CASTS, Number(1)))]
    assert said(made.handle(SECOND, Stopping())) == [LeaveMulticast(GROUP)]


def test_a_receiver_hears_the_plugin_of_the_sender() -> None:
    made = peer()
    begun(made)
    assert said(made.handle(1, Received(OTHER, PlainMessage(CASTS, Number(7))))) == []
    assert casts(made).heard == [(OTHER, 7)]


def test_a_message_that_is_too_large_comes_back_to_its_plugin() -> None:
    made = peer()
    begun(made)
    (cast,) = said(made.handle(SECOND, Woken()))
    assert isinstance(cast, Multicast)
    assert said(made.handle(SECOND, Unsent(ME, cast.message))) == []
    assert casts(made).too_large == [1]


def test_a_peer_stays_in_a_group_until_its_last_plugin_leaves() -> None:
    made = peer(interest=f"{MINE}:AlsoCasts")
    assert begun(made) == [JoinMulticast(GROUP)]
    assert said(made.handle(1, Publication({"topic": "t"}))) == []
    assert said(made.handle(2, Stopping())) == [LeaveMulticast(GROUP)]
    assert said(made.handle(3, Publication({"topic": "t"}))) == []


def test_only_declared_messages_are_multicast() -> None:
    with pytest.raises(ConfigError, match="sent a Begun, which it does not declare"):
        begun(peer(membership=f"{MINE}:Undeclared"))


def test_a_routing_may_not_multicast() -> None:
    with pytest.raises(ConfigError, match="which no routing plug-in may"):
        begun(peer(strategy=f"{MINE}:RoutesByMulticast"))


def test_plugins_that_send_messages_need_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLUGINS["membership"], "same", Casts)
    monkeypatch.setitem(PLUGINS["interest"], "same", Spread)
    load("routing", f"{HERE}:Spread")
    with pytest.raises(ConfigError, match="names of their own: same, same"):
        make_peer(PeerConfig(peer=ME, strategy=f"{HERE}:Spread", interest="same", membership="same"))
