"""This peer's cluster and the other clusters, as the membership knows them, and messages to them.

A message to another cluster goes to the active coordinator of its tree, or to a backup if that one does not answer.
"""

from collections.abc import Mapping
from typing import Any, Final

from wend.model.events import PeerId
from wend.model.keys import distance, make_key
from wend.model.units import MS
from wend.protocol.plugins import Multicast, PluginEffect, SendTo
from wend.strategies.clusters.membership.messages import Slots, slot_holders

BATCH = 32
"""Groups in one message."""
SEND_ATTEMPTS = 2
"""How often a peer sends a message to a coordinator before it tries a backup."""
NOT_A_MEMBER: Final = "not-member"
NOT_A_COORDINATOR: Final = "not-coordinator"


class ClusterView:
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
    def slots(self) -> Slots:
        return self.membership.slots  # type: ignore[no-any-return]

    @property
    def directory(self) -> Mapping[str, Slots]:
        """All known clusters; empty unless this peer is a holder."""
        return self.membership.directory  # type: ignore[no-any-return]

    @property
    def my_trees(self) -> tuple[int, ...]:
        """The trees for which this peer is the active coordinator."""
        return self.membership.my_trees  # type: ignore[no-any-return]

    @property
    def is_holder(self) -> bool:
        """Whether this peer is a coordinator or a backup."""
        return bool(self.membership.my_trees or self.membership.my_backups)

    @property
    def other_holders(self) -> list[PeerId]:
        """The coordinators and backups of this cluster, without this peer."""
        return [peer for peer in slot_holders(self.slots) if peer != self.me]

    def root(self, group: str, tree: int) -> str:
        """The root of a tree: the cluster whose key is closest to the key of group and tree."""
        key = make_key(group, str(tree))
        names = self.directory or {self.name: ()}
        return min(names, key=lambda name: (distance(make_key("cluster", name), key), name))

    def is_holder_in(self, peer: PeerId, cluster: str) -> bool:
        return any(peer in slot.holders for slot in self.directory.get(cluster, ()))

    def holder_cluster(self, peer: PeerId) -> str | None:
        """The cluster that a coordinator or backup speaks for."""
        return next((name for name in self.directory if self.is_holder_in(peer, name)), None)

    def is_addressed(self, message: Any) -> bool:
        """Whether a message between clusters is for this peer, as a coordinator or backup of its cluster."""
        return message.to == self.name and self.is_holder

    def send(self, peer: PeerId, message: Any) -> SendTo:
        timeout_ns = self.membership.round_trip_ns(peer) * 3 // 2 + 20 * MS
        return SendTo(peer, message, True, timeout_ns, SEND_ATTEMPTS)

    def multicast(self, message: Any) -> list[PluginEffect]:
        """Send a message to all members, to each one if multicast does not work."""
        if self.membership.multicast_works:
            return [Multicast(f"cluster {self.name}", message)]
        return [self.send(peer, message) for peer in self.members if peer != self.me]

    def send_to_cluster(self, message: Any, failed: PeerId | None = None) -> list[PluginEffect]:
        """Send a message to the coordinator of its tree in the cluster `message.to`, or to the backup after `failed`
        if there is one."""
        slots = self.directory.get(message.to, ())
        if not 0 <= message.tree < len(slots):
            return []
        holders = slots[message.tree].holders
        if failed is not None:
            holders = holders[holders.index(failed) + 1 :] if failed in holders else ()
        return [self.send(holders[0], message)] if holders and holders[0] != self.me else []
