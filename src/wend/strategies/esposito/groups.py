"""The groups that this peer and its cluster follow: a topic each, or everything else (`ring/groups.py`).

Members tell the coordinators and backups which groups they follow. The cluster follows what a live member follows.
"""

from collections.abc import Iterator

from wend.matching.filters import parse
from wend.model.events import PeerId
from wend.protocol.plugins import PluginEffect
from wend.strategies.esposito.cluster import ClusterNodes
from wend.strategies.esposito.messages import MemberFollows
from wend.strategies.ring.bounded import split_into_batches
from wend.strategies.ring.groups import find_group
from wend.strategies.ring.key_based import OwnSubscriptions


class MemberGroups:
    """The groups of this peer's subscriptions; at coordinators and backups also those of other members."""

    def __init__(self, cluster: ClusterNodes, subscriptions: OwnSubscriptions) -> None:
        self._cluster = cluster
        self._subscriptions = subscriptions
        self._own: dict[str, None] = {}
        self._members: dict[PeerId, dict[str, None]] = {}

    def cluster_groups(self) -> dict[str, None]:
        """The groups that the cluster follows, as a coordinator or backup knows."""
        groups = dict(self._own)
        for member in self._cluster.members:
            groups.update(self._members.get(member, {}))
        return groups

    def update(self) -> Iterator[PluginEffect]:
        """Follow the groups of this peer's subscriptions."""
        self._subscriptions.take_touched()
        before = self._own
        self._own = dict.fromkeys(find_group(parse(one.filter)) for one in self._subscriptions.own)
        if self._own != before:
            yield from self.announce(tuple(group for group in before if group not in self._own))

    def announce(self, gone: tuple[str, ...] = ()) -> Iterator[PluginEffect]:
        """Tell coordinators and backups which groups this peer follows, and which it follows no longer."""
        holders = self._cluster.holders
        for groups in split_into_batches(list(self._own)):
            yield from self._cluster.send_to_all(holders, MemberFollows(groups))
        for groups in split_into_batches(gone):
            yield from self._cluster.send_to_all(holders, MemberFollows((), groups))

    def on_member_follows(self, member: PeerId, message: MemberFollows) -> None:
        groups = self._members.setdefault(member, {})
        groups.update(dict.fromkeys(message.groups))
        for group in message.gone:
            groups.pop(group, None)

    def forget_former_members(self) -> None:
        members = self._cluster.members
        for member in [member for member in self._members if member not in members]:
            del self._members[member]
