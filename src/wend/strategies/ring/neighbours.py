"""The neighbours of a peer on the ring: its leaf set, probed, repaired and compared with theirs (MSPastry, section 3).

Each peer sends a heartbeat to its predecessor, once per period. A peer that does not hear its successor probes it. A
successor that does not answer is dead. The peer tells the members of its leaf set, which probe the dead peer themselves
before they drop it, so one bad path harms nobody else. Each then asks the farthest member on that side for more.

A heartbeat carries the sender's leaf set, and the receiver compares it with its own. If the sender knows a peer that
belongs here, the receiver probes this peer. If the sender lacks one, the receiver probes that one and tells the sender.
So leaf sets agree after a while, whatever was lost. Only a message of its own makes a peer a member, never what others
say of it.

Detection time D: a heartbeat every 0.4 D, a suspicion after 0.52 D of silence, and four transmissions of a probe at
intervals of 0.06 D; the peers that hear of it probe for as long again. If a round trip is longer than an interval,
probes wait for it, and the detection takes longer.
"""

from collections.abc import Iterable, Iterator

from wend.model.events import PeerId
from wend.model.keys import RING, node_id
from wend.model.units import Nanos
from wend.protocol.plugins import PluginEffect
from wend.strategies.ring.failure_detector import DeadPeers, Probes, RoundTrips, SuccessorCheck
from wend.strategies.ring.leaf_set import LeafSet, fits_beside
from wend.strategies.ring.routing_table import RoutingTable


class Neighbours:
    """The leaf set, and the failure detector that keeps it right."""

    def __init__(
        self, me: PeerId, incarnation: int, detection_ns: Nanos, trips: RoundTrips, table: RoutingTable
    ) -> None:
        self._me = me
        self._table = table
        self.leaf_set = LeafSet(me)
        self.dead = DeadPeers(detection_ns)
        self.probes = Probes(self.leaf_set, self.dead, trips, incarnation, detection_ns * 3 // 50)
        self.successor = SuccessorCheck(detection_ns * 13 // 25)
        self.incarnations: dict[PeerId, int] = {}
        """The incarnations of peers that have restarted."""
        self._has_changed = False

    def take_change(self) -> bool:
        """Reset the change flag. Returns whether the leaf set has changed since the last call, or a member has
        restarted."""
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    def follow_leaf_set(self, now: Nanos) -> list[PluginEffect]:
        """Watch the new successor, after the leaf set has changed."""
        self._has_changed = True
        return self.successor.follow(now, self.leaf_set.successor)

    def record_message(self, now: Nanos, peer: PeerId) -> list[PluginEffect]:
        """Record a message of a peer. If the peer counts as dead, ping it: only an answer shows that it receives
        messages."""
        if peer in self.dead:
            return self.probes.exchange(now, peer)
        self._table.confirm(peer)
        return []

    def admit(self, now: Nanos, peer: PeerId) -> Iterator[PluginEffect]:
        """Record a message that makes its sender a member, if the sender is near enough."""
        yield from self.record_message(now, peer)
        if peer not in self.dead and self.leaf_set.add(peer):
            yield from self.follow_leaf_set(now)

    def is_current(self, peer: PeerId, incarnation: int) -> bool:
        """Whether a message comes from the latest incarnation of a peer that is known."""
        latest = self.incarnations.get(peer, 1)
        if incarnation > latest:
            self.incarnations[peer] = incarnation
            self._has_changed |= peer in self.leaf_set  # it may have lost what it held
        return incarnation >= latest

    def probe_candidates(
        self, now: Nanos, leaves: tuple[PeerId, ...], dead: tuple[PeerId, ...] = ()
    ) -> Iterator[PluginEffect]:
        """Probe the peers that belong in this leaf set, and those that the sender found dead."""
        for peer in leaves:
            if peer not in self.leaf_set.peers:  # most are members
                yield from self.probe_if_nearer(now, peer)
        for peer in dead:
            if peer in self.leaf_set:
                yield from self._check_claim(now, peer)

    def probe_if_nearer(self, now: Nanos, peer: PeerId) -> list[PluginEffect]:
        """Probe a peer that others name if it belongs in the leaf set, unless it is surely dead."""
        belongs = self.leaf_set.fits(peer) and not self.dead.is_certain(now, peer)
        return self.probes.exchange(now, peer) if belongs else []

    def _check_claim(self, now: Nanos, peer: PeerId) -> list[PluginEffect]:
        """Probe a member that others reported dead, unless it has recently answered such a probe."""
        return [] if self.dead.is_refuted(now, peer) else self.probes.exchange(now, peer, is_claim=True)

    def compare(self, now: Nanos, sender: PeerId, leaves: tuple[PeerId, ...]) -> Iterator[PluginEffect]:
        """Compare the leaf set in a heartbeat with this peer's."""
        yield from self.admit(now, sender)
        self.successor.record(now, sender, leaves)
        yield from self.probe_candidates(now, leaves)
        lacks = [
            peer
            for peer in (self._me, *self.leaf_set.peers)
            if peer != sender and peer not in leaves and fits_beside(sender, leaves, peer)
        ]
        if lacks or any(peer in self.dead for peer in leaves):
            for peer in lacks:
                yield from self._check_claim(now, peer)
            yield from self.probes.exchange(now, sender)

    def remove(self, now: Nanos, peer: PeerId) -> list[PluginEffect]:
        """Forget a peer that is dead."""
        self.incarnations.pop(peer, None)
        return self.follow_leaf_set(now) if self.leaf_set.remove(peer) else []

    def announce(self, now: Nanos, dead: PeerId, is_claim: bool) -> Iterable[PluginEffect]:
        """Announce a dead member: its predecessor informs all members; other peers inform the predecessor."""
        before = self.leaf_set.predecessor_of(dead)
        if before == self._me:
            return self.probes.exchange_with_all(now)
        return [] if is_claim else self.probes.exchange(now, before)

    def repair_beside(self, now: Nanos, dead: PeerId) -> list[PluginEffect]:
        """Look for another member on the side of a dead one."""
        return self.repair(now, self.leaf_set.is_clockwise(dead))

    def repair(self, now: Nanos, clockwise: bool) -> list[PluginEffect]:
        """Ask the farthest member on a side for more; if there is none, the nearest other peer on that side."""
        target = self.leaf_set.farthest(clockwise)
        if target is None:
            mine, sign = self.leaf_set.mine, 1 if clockwise else -1
            target = min(self._table, key=lambda peer: sign * (node_id(peer) - mine) % RING, default=None)
        return [] if target is None else self.probes.exchange(now, target)
