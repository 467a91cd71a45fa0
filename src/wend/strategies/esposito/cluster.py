"""This peer's cluster and the other clusters, as the membership `clusters` knows them, and messages to them.

A node of the ring is a cluster, as one virtual coordinator: its place is the key of its name, so a backup that takes
over for a crashed coordinator moves no root.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from wend.model.events import PeerId
from wend.model.keys import RING, distance, make_key, shared_digits
from wend.model.units import Nanos
from wend.protocol.plugins import Multicast, PluginEffect, SendTo
from wend.strategies.ring.leaf_set import FULL

NOT_A_MEMBER: Final = "not-member"
NOT_A_COORDINATOR: Final = "not-coordinator"
FIRST_TREE = 0
"""The active coordinator of this tree joins all trees of its cluster."""


class TreeSlot(Protocol):
    """Who speaks for a cluster on one tree: the active coordinator, and its backups."""

    @property
    def active(self) -> PeerId: ...
    @property
    def holders(self) -> tuple[PeerId, ...]: ...


class ClusterNodes:
    """The members and coordinators of this peer's cluster, and the coordinators of others."""

    def __init__(self, me: PeerId) -> None:
        self.me = me
        self.membership: Any = None
        """The membership plug-in. The interest sets it before it handles an input."""

    @property
    def name(self) -> str:
        return self.membership.cluster_name  # type: ignore[no-any-return]

    @property
    def members(self) -> tuple[PeerId, ...]:
        return self.membership.members  # type: ignore[no-any-return]

    @property
    def slots(self) -> tuple[TreeSlot, ...]:
        return self.membership.slots  # type: ignore[no-any-return]

    @property
    def directory(self) -> Mapping[str, tuple[TreeSlot, ...]]:
        """All known clusters; empty unless this peer is a coordinator or backup."""
        return self.membership.directory  # type: ignore[no-any-return]

    @property
    def my_trees(self) -> tuple[int, ...]:
        """The trees for which this peer is the active coordinator."""
        return self.membership.my_trees  # type: ignore[no-any-return]

    @property
    def holders(self) -> list[PeerId]:
        """The active coordinators and backups of this cluster."""
        return list(dict.fromkeys([peer for slot in self.slots for peer in slot.holders]))

    @property
    def joins_trees(self) -> bool:
        """Whether this peer joins the trees for its cluster: only one coordinator at a time does."""
        return FIRST_TREE in self.my_trees

    def next_to_root(self, group: str, tree: int) -> str | None:
        """The next cluster on the route to the root of a tree; None if this cluster is the root."""
        hop = next_cluster(self.name, self.directory or (self.name,), make_key(group, str(tree)))
        return None if hop == self.name else hop

    def is_root(self, group: str, tree: int) -> bool:
        return self.next_to_root(group, tree) is None

    def active_coordinator(self, cluster: str, tree: int) -> PeerId | None:
        """The active coordinator of another cluster for a tree; None if it is not known."""
        slots = self.directory.get(cluster, ())
        return slots[tree].active if 0 <= tree < len(slots) else None

    def is_holder_in(self, peer: PeerId, cluster: str) -> bool:
        return any(peer in slot.holders for slot in self.directory.get(cluster, ()))

    def holder_cluster(self, peer: PeerId) -> str | None:
        """The cluster that a coordinator or backup speaks for."""
        return next((name for name in self.directory if self.is_holder_in(peer, name)), None)

    def send(self, cluster: str, tree: int, message: Any) -> list[PluginEffect]:
        """Send a message to the active coordinator of another cluster."""
        peer = self.active_coordinator(cluster, tree)
        return [] if peer is None or cluster == self.name else [SendTo(peer, message)]

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        """The measured round trip, or a first guess."""
        return self.membership.round_trip_ns(peer)  # type: ignore[no-any-return]

    def send_to_all(self, peers: Collection[PeerId], message: Any) -> list[PluginEffect]:
        return [SendTo(peer, message) for peer in peers if peer != self.me]

    def send_to_partners(self, message: Any) -> list[PluginEffect]:
        """Send a message to the other coordinators and backups of this cluster."""
        return self.send_to_all(self.holders, message)

    def multicast(self, message: Any) -> list[PluginEffect]:
        """Send a message to all members, to each one if multicast does not work."""
        if self.membership.multicast_works:
            return [Multicast(f"cluster {self.name}", message)]
        return self.send_to_all(self.members, message)


def next_cluster(mine: str, names: Collection[str], key: int) -> str:
    """The next cluster on Pastry's route to a key: the closest one if it is in the leaf set, else one that shares more
    digits with the key. The name of the asking cluster if that is the closest."""
    here = _ring_position(mine)
    closest = min(names, key=lambda name: (distance(_ring_position(name), key), name))
    ring = sorted(names, key=lambda name: (_ring_position(name) - here) % RING)
    if len(ring) <= FULL or closest in ring[: FULL // 2 + 1] or closest in ring[-FULL // 2 :]:
        return closest
    shared = shared_digits(here, key)
    longer = [name for name in ring if shared_digits(_ring_position(name), key) > shared]
    longer.sort(key=lambda name: (shared_digits(_ring_position(name), key), distance(_ring_position(name), here)))
    return longer[0] if longer else closest


def _ring_position(name: str) -> int:
    return make_key("cluster", name)
