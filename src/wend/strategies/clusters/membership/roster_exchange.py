"""Requests for rosters and their answers: which roster a peer adopts."""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect, Refuse
from wend.strategies.clusters.membership.cluster import ClusterState
from wend.strategies.clusters.membership.heartbeats import Heartbeats
from wend.strategies.clusters.membership.leadership import Leadership
from wend.strategies.clusters.membership.merge import Merge
from wend.strategies.clusters.membership.messages import RosterRequest, RosterUpdate, roster_digest


class RosterExchange:
    """Answers requests for the roster, and adopts, merges or refuses the rosters of others."""

    def __init__(self, cluster: ClusterState, leadership: Leadership, merge: Merge, heartbeats: Heartbeats) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self._merge = merge
        self._heartbeats = heartbeats

    def on_roster(self, now: Nanos, sender: PeerId, message: RosterUpdate) -> Iterable[PluginEffect]:
        cluster, new = self._cluster, message.roster
        if message.by_multicast and sender == new.head:
            cluster.multicast.record_multicast(now, sender)
        if sender not in cluster.members and not self._merge.has_asked(sender):
            if sender != new.head:
                return [Refuse(sender, "slots-of-nonmember")]
            return self._heartbeats.on_beacon(
                now, sender, cluster.make_roster_hint(new.term, new.head)
            )  # ask it before believing it
        if (new.term, new.head) == (cluster.term, cluster.head):
            return self._on_same_term(now, sender, message)
        if cluster.includes_me(new) and new.term > cluster.term:
            return self._leadership.adopt(now, new, message.stamp)
        if cluster.roster is None:
            cluster.note_term(new.term)
            return self._merge.ask_admission(now, new.head)
        return self._merge.resolve(now, new.term, new.head, sender)

    def _on_same_term(self, now: Nanos, sender: PeerId, message: RosterUpdate) -> Iterable[PluginEffect]:
        cluster, new = self._cluster, message.roster
        if roster_digest(new) == cluster.digest:
            return []
        if sender != new.head or cluster.is_head:
            return [Refuse(sender, "slots-disagree")]
        return self._leadership.adopt(now, new, message.stamp) if cluster.includes_me(new) else []

    def on_request(self, now: Nanos, sender: PeerId, message: RosterRequest) -> list[PluginEffect]:
        cluster = self._cluster
        if message.cluster != cluster.name or cluster.roster is None:
            return []
        return cluster.send((sender,), cluster.make_roster_update())
