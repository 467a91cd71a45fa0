"""Small worlds for `clusters`: virtual time, messages that are late or lost, partitions, multicast or none."""

from collections import Counter
from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from typing import Any

import msgspec

from wend.model.random_stream import peer_stream
from wend.model.units import MS, SECOND
from wend.protocol.config import PeerConfig
from wend.protocol.plugins import Begun, Changed, Due, Heard, SendTo, Timer
from wend.protocol.ports import (
    FindPath,
    JoinMulticast,
    Multicast,
    MulticastMembers,
    Notice,
    PathFound,
    Refuse,
    Stopping,
)
from wend.strategies.clusters.membership.messages import ClusterMessage, Slots
from wend.strategies.clusters.membership.plugin import Clusters
from wend.strategies.clusters.membership.settings import ClusterSettings

DETECTION = 1 * SECOND
LONGEST = 20 * MS
"""The longest delay of a message."""


class ClusterNet:
    """Peers by id; `cluster_of` names the cluster of each."""

    def __init__(self, seed: int = 0, loss: float = 0.0, multicast: bool = True, **settings: Any) -> None:
        given = {"cluster_detection_ns": DETECTION, "directory_ns": 2 * SECOND, **settings}
        self.config = PeerConfig(peer=0, seed=seed, **given)
        self.peers: dict[int, Clusters] = {}
        self.clusters: dict[int, str] = {}
        """The name of each peer's cluster, of those that are gone, too."""
        self.now = 0
        self.loss = loss
        self.keepers: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
        """Who keeps the key of the multicast group, and who may have it, as each peer last told its driver."""
        self.multicast = multicast
        """Whether multicast gets through at all."""
        self.muted: set[int] = set()
        """Peers whose multicast nobody hears."""
        self.deafened: set[int] = set()
        """Peers that hear no multicast."""
        self.no_cast: set[tuple[int, int]] = set()
        """Pairs of (sender, receiver) between which no multicast gets through."""
        self.cut: set[tuple[int, int]] = set()
        """Pairs of (sender, receiver) between which nothing gets through."""
        self.sides: dict[int, int] = {}
        """The part of a partition in which each peer is; peers that are not named are in part 0."""
        self.said: Counter[str] = Counter()
        self.sent: Counter[int] = Counter()
        """Messages by sender; a multicast counts once."""
        self.received: Counter[int] = Counter()
        self.notices: Counter[tuple[int, str]] = Counter()
        self.refused: Counter[str] = Counter()
        self.changes: Counter[int] = Counter()
        self.paths: dict[int, Any] = {}
        """The path that a peer finds to anyone."""
        self._groups: dict[int, str] = {}
        self._slots: dict[int, Slots] = {}
        self._incarnations: Counter[int] = Counter()
        self._draw = peer_stream(seed, "cluster net")
        self._agenda: list[tuple[int, int, int, int, Any]] = []
        self._count = 0

    # ---------------------------------------------------------------- what happens

    def begin(self, peer: int, cluster: str, *contacts: int, contacts_follow: bool = False, **settings: Any) -> None:
        self._incarnations[peer] += 1
        self.clusters[peer] = cluster
        number = self._incarnations[peer]
        self.peers[peer] = made = Clusters(
            self.config.with_(peer=peer, incarnation=number, cluster=cluster, **settings)
        )
        self._groups.pop(peer, None)
        self._slots.pop(peer, None)
        self._carry_out(peer, made.handle(self.now, Begun(contacts, contacts_follow)))

    def leave(self, peer: int) -> None:
        self._carry_out(peer, self.peers[peer].handle(self.now, Stopping()))
        self.crash(peer)

    def crash(self, *peers: int) -> None:
        for peer in peers:
            del self.peers[peer]

    def tell(self, peer: int, event: Any) -> list[Any]:
        effects = self.peers[peer].handle(self.now, event)
        self._carry_out(peer, effects)
        return effects

    def split(self, *parts: Iterable[int]) -> None:
        """Cut the network: everyone who is not named is in part 0."""
        self.sides = {peer: number for number, part in enumerate(parts, 1) for peer in part}

    def heal(self) -> None:
        self.sides = {}

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, peer, incarnation, event = heappop(self._agenda)
            if peer in self.peers and incarnation in (0, self._incarnations[peer]):
                self._carry_out(peer, self.peers[peer].handle(self.now, event))
        self.now = until

    # ---------------------------------------------------------------- effects

    def _carry_out(self, peer: int, effects: list[Any]) -> None:
        assert sum(isinstance(effect, Changed) for effect in effects) <= 1
        self._check_term(peer)
        for effect in effects:
            match effect:
                case SendTo(other, message, acknowledged=False):
                    assert other != peer
                    self._count_message(peer, message)
                    self._transmit(peer, other, message)
                case Multicast(group, message):
                    assert group == self._groups[peer]
                    self._count_message(peer, message)
                    self._cast(peer, group, message)
                case MulticastMembers(_, keeper, members):
                    assert keeper in dict(members) and peer in dict(members)
                    self.keepers[peer] = (keeper, members)
                case JoinMulticast(group):
                    self._groups[peer] = group
                case Timer(time, name):
                    assert time > self.now
                    self._push(time, peer, self._incarnations[peer], Due(name))
                case Changed("cluster"):
                    self.changes[peer] += 1
                case Notice(what, _, count):
                    self.notices[peer, what] += count
                case Refuse(_, reason):
                    self.refused[reason] += 1
                case FindPath(other):
                    self._push(self.now + LONGEST, peer, self._incarnations[peer], PathFound(other, self.paths[peer]))
                case _:
                    raise AssertionError(f"{peer} answers {effect}")

    def _check_term(self, peer: int) -> None:
        """Terms only grow, and slots change with the term."""
        slots = self.peers[peer].slots
        known = self._slots.get(peer, ())
        assert not known or slots == known or slots[0].term > known[0].term, f"{peer}: {slots} after {known}"
        self._slots[peer] = slots

    def _count_message(self, peer: int, message: Any) -> None:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ClusterMessage) == message
        self.said[type(message).__name__] += 1
        self.sent[peer] += 1

    def _cast(self, peer: int, group: str, message: Any) -> None:
        if self.multicast and peer not in self.muted:
            for other, joined in self._groups.items():
                reached = other not in self.deafened and (peer, other) not in self.no_cast
                if other != peer and joined == group and reached:
                    self._transmit(peer, other, message)

    def _transmit(self, peer: int, other: int, message: Any) -> None:
        if (self.loss and self._draw.random() < self.loss) or (peer, other) in self.cut:
            return
        if self.sides.get(peer, 0) != self.sides.get(other, 0):
            return
        self.received[other] += 1
        self._push(self.now + self.delay(peer, other), other, 0, Heard(peer, message))

    def _push(self, time: int, peer: int, incarnation: int, event: Any) -> None:
        self._count += 1
        heappush(self._agenda, (time, self._count, peer, incarnation, event))

    def delay(self, peer: int, other: int) -> int:
        return MS + round((LONGEST - MS) * self._draw.random())

    # ---------------------------------------------------------------- what it has come to

    def parts(self) -> dict[tuple[str, int], list[int]]:
        """The live peers of each cluster in each connected part of the network."""
        found: dict[tuple[str, int], list[int]] = {}
        for peer in sorted(self.peers):
            found.setdefault((self.clusters[peer], self.sides.get(peer, 0)), []).append(peer)
        return found

    def mistakes(self) -> list[str]:
        """What is wrong with the world, given that it has been quiet for long enough.

        In a part of the network, peers of two clusters may never have heard of each other."""
        found = []
        parts = self.parts()
        for (name, side), peers in parts.items():
            where = f"{name} in part {side}"
            for peer in peers:
                found += [f"{where}: {wrong}" for wrong in self._wrong_member(peer, peers)]
            found += [f"{where}: {wrong}" for wrong in self._wrong_slots(peers)]
            due = {other for other, part in parts if part == side}
            for peer in peers:
                has = {*self.peers[peer].directory}
                speaks = bool(self.peers[peer].my_trees or self.peers[peer].my_backups)
                if not has <= due or (has != (due if speaks else set()) and not self.sides):
                    found.append(f"{where}: {peer} knows the clusters {sorted(has)}, not {sorted(due)}")
                for other in has & due:
                    (some, *_) = parts[other, side]
                    if self.peers[peer].directory[other] != self.peers[some].slots:
                        found.append(f"{where}: {peer} has old slots of {other}")
        return found

    def _wrong_member(self, peer: int, peers: list[int]) -> list[str]:
        here = self.peers[peer]
        wrong = [] if here.has_joined else [f"{peer} has not joined"]
        if here.members != tuple(peers):
            wrong.append(f"{peer} knows the members {here.members}, not {tuple(peers)}")
        if here.slots != self.peers[peers[0]].slots:
            wrong.append(f"{peer} knows other slots than {peers[0]}")
        return wrong

    def _wrong_slots(self, peers: list[int]) -> list[str]:
        """By what each peer says of itself: one active coordinator for each tree, as many peers as there can be."""
        actives = Counter(tree for peer in peers for tree in self.peers[peer].my_trees)
        trees = len(self.peers[peers[0]].slots)
        wrong = [f"tree {tree} has {actives[tree]} coordinators" for tree in range(trees) if actives[tree] != 1]
        busy = [peer for peer in peers if self.peers[peer].my_trees]
        if len(busy) != min(trees, len(peers)):
            wrong.append(f"{len(busy)} of {len(peers)} members coordinate {trees} trees")
        backups = min(self.config.of(ClusterSettings).backups, len(peers) - 1)
        for tree in range(trees):
            held = [peer for peer in peers if tree in self.peers[peer].my_backups]
            if len(held) != backups:
                wrong.append(f"tree {tree} has {len(held)} backups")
        return wrong

    def check(self, but: Collection[str] = ()) -> None:
        assert self.mistakes() == []
        assert not self.refused.keys() - {*but}
        for peer, plugin in self.peers.items():
            if plugin.has_joined:
                assert self.keepers[peer][0] == plugin.slots[0].active
                assert tuple(dict(self.keepers[peer][1])) == plugin.members
