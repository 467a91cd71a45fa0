"""A small network of peers on an ideal ring, to test interest plug-ins on a DHT without Pastry.

The membership here knows all live peers. Routes to a key have several hops all the same: each hop shares one bit more
with the key, if some peer does. Messages between two peers take a delay of their own, so they overtake others, and
travel encoded, as they do between processes.
"""

from collections import Counter
from collections.abc import Callable, Collection
from functools import cache
from heapq import heappop, heappush
from typing import Any, ClassVar

import msgspec

from wend.matching.filters import parse
from wend.model.events import Attributes, EventId, PeerId
from wend.model.keys import BITS, RING, distance, make_key, node_id
from wend.model.publication import Publication
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import DirectMessage, PlainMessage
from wend.protocol.peer import Peer
from wend.protocol.plugins import Changed, Heard, Membership, Plugin, PluginEffect, PluginInput, View
from wend.protocol.ports import (
    Deliver,
    Drop,
    Effect,
    Input,
    LocalSubscription,
    Notice,
    Persist,
    Receipt,
    Received,
    Refuse,
    Send,
    Started,
    Stopping,
    Subscribed,
    Unsubscribed,
    WakeAt,
    Woken,
)
from wend.protocol.records import Record
from wend.strategies import registry
from wend.strategies.dmm.plugin import Dmm, DmmAr
from wend.strategies.registry import make_peer
from wend.strategies.ring.hermes import Hermes
from wend.strategies.ring.scribe import Scribe

IDEAL = "ideal-ring"
LONGEST_NS: Nanos = 40 * MS
"""The longest delay between two peers."""
Delivery = tuple[PeerId, int, EventId]
"""The peer, the number of its subscription, and the event."""

INTEREST: dict[str, type[Plugin]] = {"scribe": Scribe, "hermes": Hermes, "dmm": Dmm, "dmm-ar": DmmAr}


class RingChanged(msgspec.Struct, frozen=True, tag="ring"):
    """The network says: other peers are believed live than before."""


class IdealRing(Membership):
    """Knows all peers that are believed live. `believed` is the network's own set."""

    messages: ClassVar[Any] = RingChanged
    joins: ClassVar[bool] = True
    has_joined = True

    def __init__(self, config: PeerConfig) -> None:
        self._me = config.peer
        self.believed: Collection[PeerId] = ()
        self.measured = True
        """Whether this peer has measured the round trips to others."""

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        return [Changed("ownership")] if isinstance(event, Heard) else []

    def next_hop(self, key: int, avoid: Collection[PeerId] = ()) -> PeerId:
        others = [peer for peer in self.believed if peer not in avoid or peer == self._me]
        owner = min(others, key=lambda peer: _nearness(peer, key))
        if owner == self._me:
            return owner
        mine = _shared_bits(node_id(self._me), key)
        nearer = [peer for peer in others if _shared_bits(node_id(peer), key) > mine]
        return min(nearer, key=lambda peer: (_shared_bits(node_id(peer), key), peer)) if nearer else owner

    def owns(self, key: int) -> bool:
        return self.next_hop(key) == self._me

    def leaf_set(self) -> tuple[PeerId, ...]:
        others = [peer for peer in self.believed if peer != self._me]
        return tuple(sorted(others, key=lambda peer: _nearness(peer, node_id(self._me))))

    def replicas(self, count: int) -> tuple[PeerId, ...]:
        after = sorted(self.leaf_set(), key=lambda peer: (node_id(peer) - node_id(self._me)) % RING)
        turns = [after[-1 - turn // 2 if turn % 2 else turn // 2] for turn in range(len(after))]
        return tuple(turns[:count])

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        return 2 * LONGEST_NS

    def has_measured(self, peer: PeerId) -> bool:
        return self.measured

    def is_dead(self, peer: PeerId) -> bool:
        return peer not in self.believed


def _nearness(peer: PeerId, key: int) -> tuple[int, int]:
    return distance(node_id(peer), key), node_id(peer)


def _shared_bits(a: int, b: int) -> int:
    return BITS - (a ^ b).bit_length()


@cache
def _delay_ns(a: PeerId, b: PeerId) -> Nanos:
    return MS + make_key(str(min(a, b)), str(max(a, b))) % (LONGEST_NS - MS)


class RingNet:
    """Peers with ids from 0 that host one strategy. Settings are those of `PeerConfig`, by field."""

    def __init__(self, strategy: str, peers: int, loss: float = 0.0, seed: int = 0, **settings: Any) -> None:
        self.now: Nanos = 0
        self.peers: dict[PeerId, Peer] = {}
        self.believed: dict[PeerId, None] = {}
        self.deliveries: list[Delivery] = []
        self.ages: list[tuple[PeerId, Nanos]] = []
        """Of each delivery: the peer, and the age of the event."""
        self.hops: list[int] = []
        """Of each delivery: the overlay hops that its message counted."""
        self.expected: list[Delivery] = []
        """By brute force, at the time of each publication."""
        self.notices: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        """Messages by the name of their type."""
        self.tamper: Callable[[PeerId, PeerId, Any], bool] | None = None
        """Asked of each message, with its sender and receiver: whether it gets lost."""
        self._wanted: dict[PeerId, dict[int, str]] = {}
        self._stores: dict[PeerId, list[Record]] = {}
        self._incarnations: Counter[PeerId] = Counter()
        self._heap: list[tuple[Nanos, int, PeerId, Input]] = []
        self._count = 0
        self._in_transit = 0
        self._loss, self._draw = loss, peer_stream(seed, "loss")
        self._strategy = strategy
        self._settings = settings
        for peer in range(peers):
            self.join(peer, settled=False)
        self.detect()
        self.run(3.0)  # by then owners are sure of what they own

    # ---------------------------------------------------------------- peers

    def join(self, peer: PeerId, settled: bool = True) -> None:
        """Start a peer, for the first time or again; all others know it at once."""
        self._incarnations[peer] += 1
        made = self._made(peer)
        self.peers[peer] = made
        self.believed[peer] = None
        made.view.membership.believed = self.believed
        wanted = tuple(LocalSubscription(number, text) for number, text in self._wanted.get(peer, {}).items())
        self._tell(peer, Started((), wanted, (), tuple(self._stores.get(peer, ()))))
        if settled:
            self.detect()

    def _made(self, peer: PeerId) -> Peer:
        added: dict[Any, dict[str, type[Plugin]]] = {
            "membership": {IDEAL: IdealRing},
            "interest": INTEREST,
        }
        before = {kind: dict(table) for kind, table in registry.PLUGINS.items()}
        try:
            for kind, plugins in added.items():
                registry.PLUGINS[kind].update(plugins)
            number = self._incarnations[peer]
            config = PeerConfig(
                peer=peer, incarnation=number, strategy=self._strategy, membership=IDEAL, **self._settings
            )
            return make_peer(config)
        finally:
            for kind, table in before.items():
                registry.PLUGINS[kind].clear()
                registry.PLUGINS[kind].update(table)

    def crash(self, peer: PeerId) -> None:
        """A peer stops without a word. The others notice with `detect`."""
        del self.peers[peer]

    def leave(self, peer: PeerId) -> None:
        """A peer withdraws what it wants, and leaves."""
        self._wanted.pop(peer, None)
        self._tell(peer, Stopping())
        self.settle()
        del self.peers[peer]
        self.detect()

    def stop(self, peer: PeerId, away_ns: Nanos) -> None:
        """A peer stops in order, and will be back within this time."""
        self._tell(peer, Stopping(away_ns))
        self.settle()
        del self.peers[peer]
        self.detect()

    def detect(self) -> None:
        """All peers learn who is live."""
        for peer in [peer for peer in self.believed if peer not in self.peers]:
            del self.believed[peer]
        for peer in self.peers:
            self.say(peer, peer, RingChanged(), IDEAL)

    def owner(self, place: str) -> PeerId:
        """The live peer that owns a place."""
        return min(self.peers, key=lambda peer: _nearness(peer, make_key(place)))

    # ---------------------------------------------------------------- applications

    def subscribe(self, peer: PeerId, number: int, text: str) -> None:
        self._wanted.setdefault(peer, {})[number] = text
        self._tell(peer, Subscribed(LocalSubscription(number, text)))

    def unsubscribe(self, peer: PeerId, number: int) -> None:
        self._wanted.get(peer, {}).pop(number, None)
        self._tell(peer, Unsubscribed(number))

    def publish(self, peer: PeerId, attributes: Attributes, ttl_ns: Nanos | None = None) -> EventId:
        found: list[EventId] = []
        for effect in self.peers[peer].handle(self.now, Publication(attributes, ttl_ns=ttl_ns)):
            if isinstance(effect, Receipt):
                found.append(effect.id)
            self._carry_out(peer, effect, None)
        for wanting in self.peers:
            for number, text in self._wanted.get(wanting, {}).items():
                if parse(text).matches(attributes):
                    self.expected.append((wanting, number, found[0]))
        return found[0]

    def delay_ns(self, sender: PeerId, receiver: PeerId) -> Nanos:
        return _delay_ns(sender, receiver)

    def say(self, sender: PeerId, receiver: PeerId, message: Any, plugin: str | None = None) -> None:
        """Hand a plug-in a message at once, whoever is said to have sent it."""
        self._tell(receiver, Received(sender, PlainMessage(plugin or self._strategy, message)))

    # ---------------------------------------------------------------- time

    def run(self, seconds: float) -> None:
        self._play(self.now + round(seconds * SECOND), lambda: False)

    def settle(self, most: float = 60.0) -> None:
        """Play until no message is in transit; with lost messages there may be repetitions to come."""
        self._play(self.now + round(most * SECOND), lambda: not self._in_transit)

    def _play(self, until: Nanos, done: Callable[[], bool]) -> None:
        while self._heap and self._heap[0][0] <= until:
            if done():
                return
            self.now, _, peer, event = heappop(self._heap)
            self._in_transit -= isinstance(event, Received)
            if peer in self.peers:
                self._tell(peer, event)
        if not done():
            self.now = until

    # ---------------------------------------------------------------- effects

    def _tell(self, peer: PeerId, event: Input) -> None:
        for effect in self.peers[peer].handle(self.now, event):
            self._carry_out(peer, effect, event)

    def _carry_out(self, peer: PeerId, effect: Effect, event: Input | None) -> None:
        match effect:
            case Send(receiver, message):
                self._send(peer, receiver, message)
            case WakeAt(time):
                self._push(time, peer, Woken())
            case Deliver(subscription, delivered, age_ns):
                self.deliveries.append((peer, subscription.number, delivered.id))
                self.ages.append((peer, age_ns))
                body = event.message.body if isinstance(event, Received) else None  # type: ignore[union-attr]
                self.hops.append(getattr(body, "hops", 0))
            case Persist(record):
                self._stores.setdefault(peer, []).append(record)
            case Notice(what, _, count):
                self.notices[what] += count
            case Refuse(_, reason):
                self.refusals[reason] += 1
            case Drop(_, dests, reason):
                self.drops[reason] += len(dests) or 1

    def _send(self, sender: PeerId, receiver: PeerId, message: Any) -> None:
        if isinstance(message, PlainMessage | DirectMessage):
            self.sent[type(message.body).__name__] += 1
            read = self.peers[sender].message_type(message.plugin)
            body = msgspec.msgpack.decode(msgspec.msgpack.encode(message.body), type=read)
            message = msgspec.structs.replace(message, body=body)
        lost = self.tamper is not None and self.tamper(sender, receiver, message)
        if lost or (self._loss and self._draw.random() < self._loss):
            return
        self._in_transit += 1
        self._push(self.now + _delay_ns(sender, receiver), receiver, Received(sender, message))

    def _push(self, time: Nanos, peer: PeerId, event: Input) -> None:
        self._count += 1
        heappush(self._heap, (max(time, self.now), self._count, peer, event))

    # ---------------------------------------------------------------- questions

    def status(self, peer: PeerId) -> dict[str, int]:
        return self.peers[peer].status().plugins.get(self._strategy, {})

    def check(self) -> None:
        """Every delivery that is due was made, each once, and no other."""
        assert sorted(self.deliveries) == sorted(self.expected)
