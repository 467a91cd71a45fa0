"""A small network of clusters with an ideal membership, to test the interest plug-in of clusters.

The membership knows who is believed live. Coordinators are the first members of each cluster that are believed live,
with the next ones as backups. Multicast reaches every member, unless it gets lost for one of them or is blocked.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from heapq import heappop, heappush
from typing import Any, ClassVar

import msgspec

from wend.matching.filters import parse
from wend.model.events import Attributes, EventId, PeerId
from wend.model.keys import make_key
from wend.model.publication import Publication
from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND, Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.messages import DirectMessage, PlainMessage
from wend.protocol.peer import Peer
from wend.protocol.plugins import (
    Begun,
    Changed,
    EndLink,
    Heard,
    MakeLink,
    Membership,
    PluginEffect,
    PluginInput,
    View,
)
from wend.protocol.ports import (
    Deliver,
    Drop,
    Effect,
    FindPath,
    Input,
    JoinMulticast,
    LeaveMulticast,
    LocalSubscription,
    Multicast,
    Notice,
    PathFound,
    Persist,
    Receipt,
    Received,
    Refuse,
    Send,
    SendEach,
    Started,
    Stopping,
    Subscribed,
    Unsubscribed,
    WakeAt,
    Woken,
)
from wend.protocol.records import Record
from wend.strategies.clusters.membership.directory import coordinator_links
from wend.strategies.clusters.membership.messages import Slot
from wend.strategies.registry import MEMBERSHIP, make_peer

IDEAL = "ideal:IdealClusters"
INTERESTS = {"clusters": "cluster-trees", "clusters-adaptive": "cluster-graph", "esposito": "esposito"}
LONGEST_NS: Nanos = 40 * MS
Delivery = tuple[PeerId, int, EventId]


class ClustersChanged(msgspec.Struct, frozen=True, tag="clusters changed"):
    """The network says: other peers are believed live than before."""


class IdealClusters(Membership):
    """Knows all peers that are believed live, and the clusters of all peers."""

    messages: ClassVar[Any] = ClustersChanged
    joins: ClassVar[bool] = True
    has_joined = True

    def __init__(self, config: PeerConfig) -> None:
        self._me = config.peer
        self.net: Any = None

    def handle(self, now: Nanos, event: PluginInput, view: View) -> list[PluginEffect]:
        if isinstance(event, Begun):
            return [JoinMulticast(f"cluster {self.cluster_name}")]
        return [*self._relink(view), Changed("cluster")] if isinstance(event, Heard) else []

    def _relink(self, view: View) -> list[PluginEffect]:
        if self.net.strategy != "clusters-adaptive":
            return []
        wanted = coordinator_links(self._me, self.cluster_name, self.directory)
        return [
            *(EndLink(peer) for peer in view.links if peer not in wanted),
            *(MakeLink(peer, ()) for peer in wanted if peer not in view.links),
        ]

    @property
    def cluster_name(self) -> str:
        return self.net.cluster(self._me)  # type: ignore[no-any-return]

    @property
    def members(self) -> tuple[PeerId, ...]:
        return self.net.believed_members(self.cluster_name)  # type: ignore[no-any-return]

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.net.slots(self.cluster_name)  # type: ignore[no-any-return]

    @property
    def my_trees(self) -> tuple[int, ...]:
        return tuple(tree for tree, slot in enumerate(self.slots) if slot.active == self._me)

    @property
    def my_backups(self) -> tuple[int, ...]:
        return tuple(tree for tree, slot in enumerate(self.slots) if self._me in slot.backups)

    @property
    def directory(self) -> Mapping[str, tuple[Slot, ...]]:
        if not self.my_trees and not self.my_backups:
            return {}
        return {name: slots for name, (_, slots) in self.net.known.items()}

    @property
    def multicast_works(self) -> bool:
        return bool(self.net.multicast)

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        return 2 * LONGEST_NS

    def believes_live(self, peer: PeerId) -> bool:
        return peer in self.net.believed


@cache
def _delay_ns(a: PeerId, b: PeerId) -> Nanos:
    return MS + make_key(str(min(a, b)), str(max(a, b))) % (LONGEST_NS - MS)


class ClusterNet:
    """Peers 0, 1, 2, ... in `clusters` clusters by turns."""

    def __init__(
        self,
        peers: int,
        clusters: int,
        loss: float = 0.0,
        seed: int = 0,
        coordinators: int = 2,
        backups: int = 1,
        multicast: bool = True,
        strategy: str = "clusters",
        **settings: Any,
    ) -> None:
        self.now: Nanos = 0
        self.clusters = clusters
        self.coordinators, self.backups = coordinators, backups
        self.multicast = multicast
        self.strategy = strategy
        self.peers: dict[PeerId, Peer] = {}
        self.believed: dict[PeerId, None] = {}
        self.deliveries: list[Delivery] = []
        self.expected: list[Delivery] = []
        self.notices: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.cut: Callable[[PeerId, PeerId], bool] | None = None
        """Asked of each pair of peers: whether messages between them get lost."""
        self.tamper: Callable[[PeerId, PeerId, Any], bool] | None = None
        self.paths: Callable[[PeerId, PeerId], tuple[int, ...]] = lambda a, b: (a, b)
        self._wanted: dict[PeerId, dict[int, str]] = {}
        self._stores: dict[PeerId, list[Record]] = {}
        self._incarnations: Counter[PeerId] = Counter()
        self._groups: dict[str, dict[PeerId, None]] = {}
        self.known: dict[str, tuple[tuple[PeerId, ...], tuple[Slot, ...]]] = {}
        """By cluster: its members and slots, as all peers believe."""
        self._heap: list[tuple[Nanos, int, PeerId, Input]] = []
        self._count = 0
        self._loss, self._draw = loss, peer_stream(seed, "loss")
        self._settings = settings
        for peer in range(peers):
            self.join(peer, settled=False)
        self.detect()
        self.run(3.0)

    # ---------------------------------------------------------------- clusters

    def cluster(self, peer: PeerId) -> str:
        return f"site{peer % self.clusters}"

    def believed_members(self, cluster: str) -> tuple[PeerId, ...]:
        return self.known.get(cluster, ((), ()))[0]

    def slots(self, cluster: str) -> tuple[Slot, ...]:
        return self.known.get(cluster, ((), ()))[1]

    def _look(self) -> None:
        members: dict[str, list[PeerId]] = {}
        for peer in sorted(self.believed):
            members.setdefault(self.cluster(peer), []).append(peer)
        self.known = {name: (tuple(peers), self._assigned(peers)) for name, peers in members.items()}

    def _assigned(self, members: list[PeerId]) -> tuple[Slot, ...]:
        """The first live members, so one that returns may take its slot back."""
        actives = [members[tree % len(members)] for tree in range(self.coordinators)]
        rest = [peer for peer in members if peer not in actives]
        return tuple(
            Slot(active, tuple(rest[tree * self.backups : (tree + 1) * self.backups]))
            for tree, active in enumerate(actives)
        )

    # ---------------------------------------------------------------- peers

    def join(self, peer: PeerId, settled: bool = True) -> None:
        self._incarnations[peer] += 1
        made = self._make_peer(peer)
        made.view.membership.net = self
        self.peers[peer] = made
        self.believed[peer] = None
        self._look()
        wanted = tuple(LocalSubscription(number, text) for number, text in self._wanted.get(peer, {}).items())
        self.tell(peer, Started((), wanted, (), tuple(self._stores.get(peer, ()))))
        if settled:
            self.detect()

    def _make_peer(self, peer: PeerId) -> Peer:
        incarnation = self._incarnations[peer]
        MEMBERSHIP[IDEAL] = IdealClusters
        try:
            return make_peer(
                PeerConfig(
                    peer=peer, incarnation=incarnation, strategy=self.strategy, membership=IDEAL, **self._settings
                )
            )
        finally:
            del MEMBERSHIP[IDEAL]

    def crash(self, peer: PeerId) -> None:
        del self.peers[peer]
        for members in self._groups.values():
            members.pop(peer, None)

    def leave(self, peer: PeerId) -> None:
        self._wanted.pop(peer, None)
        self.tell(peer, Stopping())
        self.run(0.5)
        self.crash(peer)
        self.detect()

    def detect(self) -> None:
        for peer in [peer for peer in self.believed if peer not in self.peers]:
            del self.believed[peer]
        self._look()
        for peer in list(self.peers):
            self.tell(peer, Received(peer, PlainMessage(IDEAL, ClustersChanged())))

    # ---------------------------------------------------------------- applications

    def subscribe(self, peer: PeerId, number: int, text: str) -> None:
        self._wanted.setdefault(peer, {})[number] = text
        self.tell(peer, Subscribed(LocalSubscription(number, text)))

    def unsubscribe(self, peer: PeerId, number: int) -> None:
        self._wanted.get(peer, {}).pop(number, None)
        self.tell(peer, Unsubscribed(number))

    def publish(self, peer: PeerId, attributes: Attributes, everybody: bool = False) -> EventId:
        """`everybody`: peers that are down get it, too, once they are back."""
        found: list[EventId] = []
        for effect in self.peers[peer].handle(self.now, Publication(attributes)):
            if isinstance(effect, Receipt):
                found.append(effect.id)
            self._carry_out(peer, effect)
        for wanting in self._wanted:
            if everybody or wanting in self.peers:
                for number, text in self._wanted[wanting].items():
                    if parse(text).matches(attributes):
                        self.expected.append((wanting, number, found[0]))
        return found[0]

    def say(self, sender: PeerId, receiver: PeerId, message: Any) -> None:
        self.tell(receiver, Received(sender, PlainMessage(INTERESTS[self.strategy], message)))

    # ---------------------------------------------------------------- time

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while self._heap and self._heap[0][0] <= until:
            self.now, _, peer, event = heappop(self._heap)
            if peer in self.peers:
                self.tell(peer, event)
        self.now = until

    # ---------------------------------------------------------------- effects

    def tell(self, peer: PeerId, event: Input) -> None:
        for effect in self.peers[peer].handle(self.now, event):
            self._carry_out(peer, effect)

    def _carry_out(self, peer: PeerId, effect: Effect) -> None:
        match effect:
            case Send(receiver, message):
                self.sent[type(getattr(message, "body", message)).__name__] += 1
                self._send(peer, receiver, message)
            case SendEach(receivers, message):
                for receiver in receivers:
                    self._send(peer, receiver, message)
            case Multicast(group, message):
                self.sent[f"multicast {type(message.body).__name__}"] += 1
                for receiver in self._groups.get(group, ()):
                    if receiver != peer:
                        self._send(peer, receiver, message)
            case JoinMulticast(group):
                self._groups.setdefault(group, {})[peer] = None
            case LeaveMulticast(group):
                self._groups[group].pop(peer, None)
            case WakeAt(time):
                self._push(time, peer, Woken())
            case Deliver(subscription, delivered):
                self.deliveries.append((peer, subscription.number, delivered.id))
            case Persist(record):
                self._stores.setdefault(peer, []).append(record)
            case Notice(what, _, count):
                self.notices[what] += count
            case Refuse(_, reason):
                self.refusals[reason] += 1
            case Drop(_, dests, reason):
                self.drops[reason] += len(dests) or 1
            case FindPath(other):
                self._push(self.now + 100 * MS, peer, PathFound(other, self.paths(peer, other)))

    def _send(self, sender: PeerId, receiver: PeerId, message: Any) -> None:
        if isinstance(message, PlainMessage | DirectMessage):
            read = self.peers[sender].message_type(message.plugin)
            body = msgspec.msgpack.decode(msgspec.msgpack.encode(message.body), type=read)
            message = msgspec.structs.replace(message, body=body)
        lost = self.tamper is not None and self.tamper(sender, receiver, message)
        if lost or (self.cut is not None and self.cut(sender, receiver)):
            return
        if self._loss and self._draw.random() < self._loss:
            return
        self._push(self.now + _delay_ns(sender, receiver), receiver, Received(sender, message))

    def _push(self, time: Nanos, peer: PeerId, event: Input) -> None:
        self._count += 1
        heappush(self._heap, (max(time, self.now), self._count, peer, event))

    # ---------------------------------------------------------------- questions

    def status(self, peer: PeerId) -> dict[str, int]:
        return self.peers[peer].status().plugins.get(INTERESTS[self.strategy], {})

    def parents(self) -> dict[tuple[str, str, int], str]:
        """By cluster, group and tree: the cluster of the parent."""
        return {
            (self.cluster(peer), group, tree): parent
            for peer, made in self.peers.items()
            for group, tree, parent in made.interest.tree_edges()  # type: ignore[attr-defined]
        }

    def check(self) -> None:
        """Every delivery that is due was made, each once, and no other."""
        assert sorted(self.deliveries) == sorted(self.expected)
