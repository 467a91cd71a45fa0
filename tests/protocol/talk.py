"""A peer to talk with: it knows the graph and who wants what, and nothing is due."""

from collections.abc import Mapping
from typing import Any

from wend.model.events import Event, EventId, PeerId, Qos, Subscription, SubscriptionId
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import TX_SHIFT, Ack, Control, Message
from wend.protocol.plugins import Begun, EndLink, MakeLink, Membership, PluginEffect, PluginInput, View
from wend.protocol.ports import (
    Effect,
    Input,
    LocalSubscription,
    Neighbour,
    PathFound,
    Received,
    Send,
    SendEach,
    Started,
    WakeAt,
    Woken,
)
from wend.protocol.records import Record
from wend.strategies.link_state.plugin import LinkState
from wend.strategies.registry import make_peer, setting_groups
from wend.strategies.subscriptions.table import PeerInterest

A, B, C, D, S, T = range(6)

# A is the peer we talk with. To S over C takes 20 ms, over D 30 ms, over B 40 ms; T is behind C alone.
GRAPH = {(A, B): 10, (A, C): 10, (A, D): 20, (C, S): 10, (D, S): 10, (C, T): 10}
QUIET: Nanos = 1000 * SECOND
LATER: Nanos = 100_000 * SECOND


def tx(number: int, incarnation: int = 1) -> int:
    return (incarnation << TX_SHIFT) + number


def event(sequence: int = 1, publisher: PeerId = B, topic: str = "t") -> Event:
    return Event(EventId(publisher, 1, sequence), {"topic": topic})


def links_of(peer: PeerId, graph: Mapping[tuple[PeerId, PeerId], int]) -> dict[PeerId, Nanos]:
    found = {b if a == peer else a: delay * MS for (a, b), delay in graph.items() if peer in (a, b)}
    return dict(sorted(found.items()))


def wanting(peer: PeerId, topic: str = "t", version: int = 1, deadline_ms: int | None = None) -> PeerInterest:
    qos = Qos() if deadline_ms is None else Qos(deadline_ns=deadline_ms * MS)
    subscription = Subscription(SubscriptionId(peer, 0), f"topic = '{topic}'", qos)
    return PeerInterest(peer, (1, version), (subscription,), ())


class ScriptedMembership(Membership):
    """Links all contacts, and ends the link to a peer when its path cannot be found."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        match event:
            case Begun(contacts):
                return [MakeLink(peer, ()) for peer in contacts]
            case PathFound(peer, None):
                return [EndLink(peer)]
        return []


class Talk:
    def __init__(
        self,
        strategy: str = "dcrd",
        graph: Mapping[tuple[PeerId, PeerId], int] = GRAPH,
        wants: tuple[PeerId, ...] = (S, T),
        mine: tuple[LocalSubscription, ...] = (),
        stored: tuple[Record, ...] = (),
        quiet: bool = True,
        **config: Any,
    ) -> None:
        defaults = {"estimator": "nominal", "margin_ns": 0, "monitoring_ns": LATER}
        made = PeerConfig(peer=A, strategy=strategy, **{**defaults, **config})
        made.check(setting_groups())
        self.peer = make_peer(made)
        self._numbers = dict.fromkeys(range(10), 0)
        neighbours = links_of(A, graph)
        first = min(neighbours)
        start = Started(tuple(Neighbour(n, delay) for n, delay in neighbours.items()), mine, (), stored)
        self.heard: list[Effect] = list(self.peer.handle(0, start))
        for other in sorted({p for link in graph for p in link} - {A}):
            state = LinkState(other, (1, 1), tuple((n, d, 1.0) for n, d in links_of(other, graph).items()))
            self.heard += self.peer.handle(0, Received(first, self.reliable(first, state)))
        for peer in wants:
            self.heard += self.peer.handle(0, Received(first, self.reliable(first, wanting(peer))))
        if quiet:
            self.settle(0)

    def reliable(self, sender: PeerId, body: Any, incarnation: int = 1) -> Message:
        self._numbers[sender] += 1
        return Control(tx(self._numbers[sender], incarnation), self.plugin_of(body), body)

    def plugin_of(self, body: Any) -> str:
        """The plug-in of the peer that declares such a message."""
        return next(name for name, type_ in self.peer.message_types.items() if isinstance(body, type_))

    def settle(self, now: Nanos) -> None:
        """Acknowledge all control and let all timers pass, up to QUIET."""
        effects, self.heard = self.heard, []
        while effects:
            wake = None
            following: list[Effect] = []
            for effect in effects:
                if isinstance(effect, WakeAt):
                    wake = effect.time_ns
                elif isinstance(effect, Send) and isinstance(effect.message, Control):
                    following += self.peer.handle(now, Received(effect.peer, Ack(effect.message.tx)))
            wake = next((e.time_ns for e in reversed(following) if isinstance(e, WakeAt)), wake)
            following = [e for e in following if not isinstance(e, WakeAt)]
            if wake is not None and wake < QUIET:
                now = max(now, wake)
                following += self.peer.handle(now, Woken())
            effects = following

    def __call__(self, now: Nanos, told: Input) -> list[Effect]:
        """What the peer answers, some time after all is quiet. Times in answers count from QUIET too."""
        return [_shifted(effect) for effect in self.peer.handle(QUIET + now, told)]

    def hear(self, now: Nanos, sender: PeerId, message: Message) -> list[Effect]:
        return self(now, Received(sender, message))

    def wake(self, now: Nanos) -> list[Effect]:
        return self(now, Woken())


def _shifted(effect: Effect) -> Effect:
    return WakeAt(effect.time_ns - QUIET) if isinstance(effect, WakeAt) else effect


def sent(effects: list[Effect]) -> list[tuple[PeerId, Message]]:
    found: list[tuple[PeerId, Message]] = []
    for effect in effects:
        match effect:
            case Send(peer, message):
                found.append((peer, message))
            case SendEach(peers, message):
                found += [(peer, message) for peer in peers]
    return found
