"""Flooded interest: changes instead of the whole, and peers that agree whatever gets lost or overtaken."""

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from wend.model.events import Event, EventId, PeerId, Qos
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import (
    Begun,
    Due,
    Heard,
    LinkChanged,
    PluginEffect,
    PluginInput,
    Recalled,
    Remember,
    SubscriptionsChanged,
    Tell,
    Timer,
    View,
)
from wend.protocol.ports import LocalSubscription
from wend.strategies.flooded import plugin as flooded
from wend.strategies.flooded.changes import InterestChange, InterestRequest
from wend.strategies.flooded.plugin import FloodedInterest
from wend.strategies.subscriptions.summary import SUMMARY_BYTES
from wend.strategies.subscriptions.table import SMALL_BYTES, PeerInterest

LINE = {0: (1,), 1: (0, 2), 2: (1, 3), 3: (2,)}
LONG = "topic = 'a/rather/long/topic/{:05d}'"


class Net:
    """Peers with flooded interest on a line, a store for each, and messages that wait until somebody delivers them."""

    def __init__(self) -> None:
        self.now: Nanos = SECOND
        self.peers: dict[PeerId, FloodedInterest] = {}
        self.views: dict[PeerId, View] = {}
        self.stores: dict[PeerId, dict[int, Any]] = {peer: {} for peer in LINE}
        self.waiting: dict[tuple[PeerId, PeerId, Any], Any] = {}
        """By sender, receiver and slot: a newer message of a slot replaces the one that waits."""
        self.timers: list[tuple[Nanos, PeerId, str]] = []
        self.sent: list[Any] = []
        for peer in LINE:
            self.start(peer, 1)

    def start(self, peer: PeerId, incarnation: int) -> None:
        config = PeerConfig(peer=peer, incarnation=incarnation)
        self.peers[peer], self.views[peer] = FloodedInterest(config), View(config, {}, True)
        self.views[peer].neighbours = LINE[peer]
        for message in reversed(self.stores[peer].values()):
            self.tell(peer, Recalled(message))
        self.tell(peer, SubscriptionsChanged())
        self.tell(peer, Begun(()))

    def tell(self, peer: PeerId, event: PluginInput) -> list[PluginEffect]:
        effects = self.peers[peer].handle(self.now, event, self.views[peer])
        for effect in effects:
            match effect:
                case Tell(to, slot, message):
                    self.waiting.pop((peer, to, slot), None)
                    self.waiting[peer, to, slot] = message
                    self.sent.append(message)
                case Remember(key, message):
                    self.stores[peer][key] = message
                case Timer(time_ns, name):
                    self.timers.append((time_ns, peer, name))
        return effects

    def subscribe(self, peer: PeerId, number: int, text: str) -> None:
        self.peers[peer].table.subscribe(LocalSubscription(number, text), peer)
        self.tell(peer, SubscriptionsChanged())

    def unsubscribe(self, peer: PeerId, number: int) -> None:
        self.peers[peer].table.unsubscribe(number)
        self.tell(peer, SubscriptionsChanged())

    def deliver(self, at: int = 0) -> None:
        """Deliver one of the messages that wait."""
        key = list(self.waiting)[at]
        message = self.waiting.pop(key)
        decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=FloodedInterest.messages)
        assert decoded == message
        self.tell(key[1], Heard(key[0], decoded))

    def settle(self) -> None:
        while self.waiting or self.timers:
            while self.waiting:
                self.deliver()
            if self.timers:
                due = min(self.timers)
                self.timers.remove(due)
                self.now = max(self.now, due[0])
                self.tell(due[1], Due(due[2]))

    def agree(self) -> bool:
        known = [peer.table.interests for peer in self.peers.values()]
        return all(each == known[0] and len(each) == len(LINE) for each in known)


def test_one_more_subscription_costs_one_small_message_per_link() -> None:
    net = Net()
    for number in range(300):
        net.subscribe(0, number, LONG.format(number))
        net.now += SECOND
    net.settle()
    net.sent.clear()
    net.subscribe(0, 300, LONG.format(300))
    net.settle()
    assert [type(message) for message in net.sent] == [InterestChange] * 3
    assert len(msgspec.msgpack.encode(net.sent[0])) < 250
    net.unsubscribe(0, 5)
    net.settle()
    assert len(net.sent) == 6 and net.sent[-1].removed == (5,) and net.agree()


def test_changes_that_come_together_are_announced_together() -> None:
    net = Net()
    for number in range(300):
        net.subscribe(0, number, LONG.format(number))
    wholes = [m for m in net.sent if isinstance(m, PeerInterest) and m.origin == 0]
    assert len(net.waiting) < 10 and len(wholes) < 20
    net.settle()
    assert net.agree() and len(net.peers[3].table.interests[0].subscriptions) == 300


def test_a_change_that_the_summary_covers_sends_nothing_and_brings_false_positives() -> None:
    net = Net()
    for number in range(500):
        net.subscribe(0, number, f"topic = 't' and x in [{number}, {number + 1}]")
    net.settle()
    assert len(msgspec.msgpack.encode(net.peers[3].table.interests[0])) < SUMMARY_BYTES
    net.sent.clear()
    net.subscribe(0, 5000, "topic = 't' and x in [3, 7]")
    net.unsubscribe(0, 300)
    net.settle()
    assert net.sent == []
    wanted, unwanted = (
        Event(EventId(3, 1, 1), {"topic": "t", "x": 1}),
        Event(EventId(3, 1, 2), {"topic": "t", "x": 1.5}),
    )
    nowhere = Event(EventId(3, 1, 3), {"topic": "u", "x": 1})
    assert (
        net.peers[3].table.targets(wanted)
        == net.peers[3].table.targets(unwanted)
        == net.peers[0].table.targets(wanted)
        == (0,)
    )
    net.unsubscribe(0, 1)
    net.settle()
    assert net.peers[3].table.targets(unwanted) == (0,) and net.peers[0].table.targets(unwanted) == ()
    assert net.peers[0].table.widened(unwanted) and not net.peers[0].table.widened(nowhere)
    assert net.peers[3].table.targets(nowhere) == ()


def test_a_store_has_changes_and_now_and_then_the_whole() -> None:
    net = Net()
    for number in range(100):
        net.subscribe(0, number, LONG.format(number))
        net.now += SECOND
        net.settle()
    stored = [message for message in net.stores[3].values() if message.origin == 0]
    assert {type(message) for message in stored} == {PeerInterest, InterestChange}
    assert len(msgspec.msgpack.encode(stored)) < 3 * len(msgspec.msgpack.encode(net.peers[3].table.interests[0]))
    before = net.peers[3].table.interests[0]
    net.peers[3] = FloodedInterest(PeerConfig(peer=3, incarnation=2))
    for message in sorted(stored, key=lambda message: -message.version[1]):
        net.tell(3, Recalled(message))
    assert net.peers[3].table.interests == {0: before}


def test_a_peer_whose_version_differs_asks_for_the_whole() -> None:
    net = Net()
    for number in range(50):
        net.subscribe(0, number, LONG.format(number))
        net.now += SECOND
    net.settle()
    known = net.peers[1].table.interests[0]
    net.peers[1].table.replace_interest(
        msgspec.structs.replace(known, subscriptions=known.subscriptions[:-1])
    )  # it differs from now on
    net.sent.clear()
    net.subscribe(0, 99, LONG.format(99))
    net.settle()
    assert [type(message) for message in net.sent[:3]] == [InterestChange, InterestRequest, PeerInterest]
    assert net.agree()


def test_a_peer_asks_only_so_often() -> None:
    net = Net()
    net.settle()
    stray = InterestChange(0, (1, 9), (1, 8), 0)
    net.tell(1, Heard(2, stray))
    net.tell(1, Heard(2, stray))
    net.settle()
    asked = [message for message in net.sent if isinstance(message, InterestRequest)]
    assert asked == [InterestRequest(0)] * flooded.MAX_REQUESTS and net.agree()


@settings(max_examples=12)
@given(st.integers(0, 2**32))
def test_peers_agree_after_losses_reordering_and_restarts(seed: int) -> None:
    draw = random.Random(seed)
    net = Net()
    incarnations = dict.fromkeys(LINE, 1)
    for number in range(40):
        for _ in range(draw.randrange(6)):
            net.subscribe(0, draw.randrange(80), LONG.format(draw.randrange(80)))
        if draw.random() < 0.5:
            net.unsubscribe(0, draw.randrange(80))
        net.subscribe(2, number, LONG.format(number))
        net.now += draw.choice((0, 10 * MS, 100 * MS))
        for time_ns, peer, name in sorted(net.timers):
            if time_ns <= net.now:
                net.timers.remove((time_ns, peer, name))
                net.tell(peer, Due(name))
        while net.waiting and draw.random() < 0.7:
            net.deliver(draw.randrange(len(net.waiting)))
        if draw.random() < 0.05:
            peer = draw.choice((1, 3))
            incarnations[peer] += 1
            net.waiting = {key: message for key, message in net.waiting.items() if peer not in key[:2]}
            net.timers = [timer for timer in net.timers if timer[1] != peer]
            net.start(peer, incarnations[peer])
            for neighbour in LINE[peer]:
                net.tell(neighbour, LinkChanged(peer, True, fresh=True, restarted=True))
                net.tell(peer, LinkChanged(neighbour, True, fresh=True))
    net.settle()
    assert net.agree()
    event = Event(EventId(1, 1, 1), {"topic": "a/rather/long/topic/00007"})
    assert {peer.table.targets(event) for peer in net.peers.values()} == {net.peers[0].table.targets(event)}


def test_a_small_interest_is_announced_whole_and_at_once() -> None:
    net = Net()
    net.settle()
    for number in range(3):
        net.sent.clear()
        net.peers[0].table.subscribe(LocalSubscription(number, "x = 1", Qos(deadline_ns=5)), 0)
        net.tell(0, SubscriptionsChanged())
        assert [type(message) for message in net.sent] == [PeerInterest]
        assert len(msgspec.msgpack.encode(net.sent[0])) < SMALL_BYTES
