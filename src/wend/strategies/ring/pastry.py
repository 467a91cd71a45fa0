"""`pastry`: a ring of peers on which every key has an owner, the peer whose place is numerically closest.

It follows Pastry (Rowstron and Druschel, 2001) with the failure detector of MSPastry (Castro et al., 2004). A peer
knows its leaf set, the neighbours on the ring, and a routing table that leads to a peer with one more digit of a key.
It makes no links: other plug-ins ask it for the next hop to a key.

Joining: a `JoinRequest` travels from a contact to the peer closest to the joiner's place. The peers on the route send
rows of their tables, and the last one sends its leaf set. The joiner probes the members, which makes it one of theirs,
and then pings its table. It repeats the request, at one contact after the other, until it has joined. A peer without
contacts is the first of a ring. If several peers know only each other, the one with the lowest id that another one asks
begins. Peers that have joined still send requests now and then: a request to another ring returns its leaf set, and the
rings merge.
"""

from collections.abc import Collection
from typing import Any, ClassVar, Final

from wend.model.events import PeerId
from wend.model.keys import BITS, COLUMNS, DIGIT_BITS, RING, distance, node_id, shared_digits
from wend.model.settings import Settings
from wend.model.units import Nanos
from wend.protocol.plugins import (
    Begun,
    Changed,
    ContactFound,
    Due,
    Heard,
    Membership,
    PeerConfig,
    PluginEffect,
    PluginInput,
    Refuse,
    SendTo,
    Stopping,
    Timer,
    Unanswered,
    View,
)
from wend.strategies.ring.failure_detector import PROBE, SILENCE, PendingProbe, RoundTrips
from wend.strategies.ring.joining import FIRST_RETRY, JOIN, MAX_CONTACTS, PATIENCE, JoinRequests
from wend.strategies.ring.leaf_set import FULL
from wend.strategies.ring.messages import (
    MAX_HOPS,
    JoinReply,
    JoinRequest,
    LeafProbe,
    LeafReply,
    PastryMessage,
    RingHeartbeat,
    RingLeave,
    RowRequest,
    TablePing,
    TablePong,
    TableRow,
    is_invalid,
)
from wend.strategies.ring.neighbours import Neighbours
from wend.strategies.ring.routing_table import RoutingTable, TableUpkeep
from wend.strategies.ring.settings import PastrySettings

OWNERSHIP: Final = "ownership"
RECHECK = 8
"""Heartbeats after which this peer compares a leaf set again that has not changed: messages about it may be lost."""
MAX_STRANGERS = 8 * FULL
"""Peers beyond which this one forgets measurements of others than its leaf set and its table."""
_BEAT = "beat"
_MASK = RING - 1


class Pastry(Membership):
    """Finds the owner of a key, hop by hop."""

    settings: ClassVar[type[Settings]] = PastrySettings
    messages: ClassVar[Any] = PastryMessage
    joins: ClassVar[bool] = True
    strategy: ClassVar[str | None] = "rendezvous"

    def __init__(self, config: PeerConfig) -> None:
        settings = config.of(PastrySettings)
        detection_ns = settings.pastry_detection_ns
        self.me = config.peer
        self.has_joined = False
        self._incarnation = config.incarnation
        self._starts_settled = settings.pastry_settled and config.incarnation == 1
        self._period_ns = detection_ns * 2 // 5
        self._trips = RoundTrips(settings.pastry_round_trip_ns)
        self._table = RoutingTable(config.peer)
        self._neighbours = Neighbours(config.peer, config.incarnation, detection_ns, self._trips, self._table)
        self._leaf = self._neighbours.leaf_set
        self._dead = self._neighbours.dead
        self._probes = self._neighbours.probes
        self._successor = self._neighbours.successor
        self._upkeep = TableUpkeep(self._table, self._leaf, self._trips, self._probes, settings.pastry_table_ns)
        self._requests = JoinRequests(config, settings.pastry_table_ns)
        self._is_joining = False
        """Whether this peer probes the members of a received leaf set."""
        self._heartbeats = 0
        self._has_moved = False
        """Whether the peer may own other keys since the last input."""
        self._has_left = False
        self._out: list[PluginEffect] = []

    # ---------------------------------------------------------------- questions of other plug-ins

    def next_hop(self, key: int, avoid: Collection[PeerId] = ()) -> PeerId:
        """The next peer on the route to the owner of a key: this peer if it is the owner.

        Hops never form a loop while leaf sets agree: each shares more digits with the key, or is closer to it.
        """
        leaf = self._leaf
        offset = (key - leaf.mine) & _MASK
        if offset <= leaf.right or offset >= leaf.left or leaf.whole:
            hop = leaf.closest(offset)
            return hop if not avoid or hop not in avoid else leaf.closest_except(key, avoid)
        rows = self._table.rows
        row = (BITS - (leaf.mine ^ key).bit_length()) // DIGIT_BITS
        if row < len(rows):
            entry = rows[row][(key >> (BITS - DIGIT_BITS - DIGIT_BITS * row)) & (COLUMNS - 1)]
            if entry is not None and entry not in avoid:
                return entry
        return self._find_any_closer(key, row, avoid)

    def _find_any_closer(self, key: int, row: int, avoid: Collection[PeerId]) -> PeerId:
        """For an empty cell, which is rare: the peer with the longest prefix that is closer to the key."""
        limit = distance(self._leaf.mine, key)
        best, best_rank = self.me, (row, -limit)
        for peer in (*self._leaf.peers, *self._table):
            place = node_id(peer)
            rank = (shared_digits(place, key), -distance(place, key))
            if rank > best_rank and -rank[1] < limit and peer not in avoid:
                best, best_rank = peer, rank
        return best

    def owns(self, key: int) -> bool:
        """Whether this peer is the closest to a key, of all that it believes alive."""
        return self.has_joined and self.next_hop(key) == self.me

    def replicas(self, count: int) -> tuple[PeerId, ...]:
        """The nearest neighbours on the ring, successors and predecessors in turn."""
        peers = self._leaf.peers
        turns = [peers[-1 - turn // 2 if turn % 2 else turn // 2] for turn in range(len(peers))]
        return tuple(turns[:count])

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        """The measured round trip, or the setting's assumption."""
        trips = self._trips
        return trips.measured.get(peer, trips.assumed_ns)

    def has_measured(self, peer: PeerId) -> bool:
        """Whether the round trip is a measured one."""
        return peer in self._trips.measured

    def is_dead(self, peer: PeerId) -> bool:
        """Whether this peer considers another one dead."""
        return peer in self._dead

    def status(self) -> dict[str, int]:
        """1 under `joined` if it has; the sizes of the `leaf-set` and the `table`; `predecessor` and `successor`.
        `leaf/3` is the third peer after this one on the ring, `leaf/-3` the third before it."""
        peers = self._leaf.peers
        snapshot = {"joined": int(self.has_joined), "leaf-set": len(peers), "table": self._table.entries}
        if peers:
            snapshot |= {"predecessor": peers[-1], "successor": peers[0]}
        after = (len(peers) + 1) // 2
        snapshot |= {f"leaf/{place - len(peers)}": peers[place] for place in range(after, len(peers))}
        return snapshot | {f"leaf/{place + 1}": peers[place] for place in range(after)}

    # ---------------------------------------------------------------- inputs

    def handle(self, now: Nanos, event: PluginInput, view: View | None = None) -> list[PluginEffect]:
        if self._has_left:
            return []
        if type(event) is Heard:
            message = event.message
            if type(message) is RingHeartbeat and self._successor.is_repetition(now, event.sender, message.leaves):
                return []
            self._on_message(now, event.sender, message)
        elif type(event) is Due:
            self._on_timer(now, event.name)
        elif type(event) is Begun:
            self._out.append(Timer(now + 1 + node_id(self.me) % self._period_ns, _BEAT))
            self._start_joining(now, event.contacts, event.contacts_follow)
        elif type(event) is ContactFound:
            self._on_contact(now, event.peer)
        elif type(event) is Unanswered:
            self._on_unanswered(now, event.peer)
        elif type(event) is Stopping:
            for peer in self._leaf.peers:
                self._send(peer, RingLeave(self._incarnation, self._leaf.peers))
            self._has_left, self.has_joined = True, False
        self._finish_joining(now)
        if len(self._leaf) < FULL:
            self._leaf.whole = all(peer in self._leaf for peer in self._table)
        self._out += self._probes.set_timer()
        if self._neighbours.take_change() or self._has_moved:
            self._has_moved = False
            self._out.append(Changed(OWNERSHIP))
        out, self._out = self._out, []
        return out

    def _on_message(self, now: Nanos, sender: PeerId, message: PastryMessage) -> None:
        if sender == self.me or is_invalid(sender, message):
            self._out.append(Refuse(sender, "invalid-message", type(message).__name__))
            return
        neighbours = self._neighbours
        match message:
            case RingHeartbeat(leaves):
                self._out += neighbours.compare(now, sender, leaves)
            case TablePing(number):
                self._send(sender, TablePong(number))
                self._out += neighbours.record_message(now, sender)
                self._out += neighbours.probe_if_nearer(now, sender)
            case TablePong(number):
                self._on_pong(now, sender, number)
            case LeafProbe(number, incarnation, leaves, dead):
                if neighbours.is_current(sender, incarnation):
                    self._out += neighbours.admit(now, sender)
                    self._send(sender, LeafReply(number, self._incarnation, self._leaf.peers, self._dead.recent(now)))
                    self._out += neighbours.probe_candidates(now, leaves, dead)
            case LeafReply():
                self._on_leaf_reply(now, sender, message)
            case RingLeave(incarnation, leaves):
                if incarnation >= neighbours.incarnations.get(sender, 1):
                    self._on_leave(now, sender, leaves)
            case JoinRequest():
                self._on_join_request(now, sender, message)
            case JoinReply(leaves):
                self._is_joining = self._is_joining or not self.has_joined
                self._out += neighbours.record_message(now, sender)
                self._out += neighbours.probe_if_nearer(now, sender)
                self._out += neighbours.probe_candidates(now, leaves)
            case RowRequest(row):
                self._out += neighbours.record_message(now, sender)
                self._out += self._upkeep.send_row(sender, row)
            case TableRow(_, peers):
                self._on_table_row(now, sender, peers)

    def _on_timer(self, now: Nanos, name: str) -> None:
        if name == _BEAT:
            self._send_heartbeat(now)
        elif name == SILENCE:
            silent = self._successor.suspect(now)
            if silent is not None:
                self._out += self._probes.exchange(now, silent)
            self._out += self._successor.set_timer()
        elif name == PROBE:
            for peer, probe in self._probes.take_due(now):
                if probe.tries_left:
                    self._out += self._probes.repeat(now, peer, probe)
                else:
                    self._probes.give_up(peer)
                    self._on_probe_failed(now, peer, probe)
        elif name == JOIN:
            self._ask_next_contact(now)

    def _send(self, peer: PeerId, message: PastryMessage) -> None:
        self._out.append(SendTo(peer, message))

    # ---------------------------------------------------------------- joining

    def _start_joining(self, now: Nanos, contacts: tuple[PeerId, ...], contacts_follow: bool) -> None:
        others = tuple(dict.fromkeys(peer for peer in contacts if peer != self.me))
        if self._starts_settled:
            self._leaf.replace(others)
            for peer in others:
                self._table.confirm(peer)
            self._out += self._neighbours.follow_leaf_set(now)
            self.has_joined = True
        elif others:
            self._requests.contacts = list(others[:MAX_CONTACTS])
            self._ask_next_contact(now)
        elif not contacts_follow:
            self._begin_ring()

    def _begin_ring(self) -> None:
        """Become the first peer of a ring. If there are contacts, other rings may exist: look for them soon."""
        self.has_joined = self._has_moved = True
        self._requests.retry_ns = FIRST_RETRY

    def _on_contact(self, now: Nanos, peer: PeerId) -> None:
        """Ask a contact at once. If the driver names it again, it has restarted, and may have begun a ring of its own.
        A peer that is its own only contact begins one."""
        requests = self._requests
        if peer == self.me:
            if not requests.contacts and not self.has_joined:
                self._begin_ring()
            return
        requests.add(peer)
        if requests.count == 0:
            self._ask_next_contact(now)
        else:
            self._out.append(requests.ask(peer, self.has_joined))

    def _ask_next_contact(self, now: Nanos) -> None:
        self._out += self._requests.ask_next(now, self.has_joined, self._trips.average_ns)

    def _on_join_request(self, now: Nanos, sender: PeerId, message: JoinRequest) -> None:
        joiner = message.joiner
        if not self.has_joined and message.hops == 0:
            self._on_early_request(now, sender)
        if joiner == self.me or not (self.has_joined or self._leaf.peers):
            return  # two joiners that are closest to each other must not wait for each other
        key = node_id(joiner)
        hop = self.next_hop(key, (joiner,))
        if message.rows:
            shared = shared_digits(self._leaf.mine, key)
            for row in range(0 if message.hops == 0 else shared, shared + 1):
                self._out += self._upkeep.send_row(joiner, row)
        if hop == self.me:
            self._send(joiner, JoinReply(tuple([peer for peer in self._leaf.peers if peer != joiner])))
        elif message.hops < MAX_HOPS:
            self._send(hop, JoinRequest(joiner, message.hops + 1, message.rows))
            # if it is dead, the next request takes another route
            self._out += self._probes.exchange(now, hop) if hop in self._leaf else self._probes.ping(now, hop)

    def _on_early_request(self, now: Nanos, sender: PeerId) -> None:
        """Handle a request to join that arrives before this peer has joined: the two may know only each other."""
        self._requests.add_last(sender)
        if self._requests.count == 0:
            self._ask_next_contact(now)  # nobody has answered at the addresses that this peer knows
        if self.me < sender and self._requests.count > PATIENCE and not self._leaf.peers:
            self._begin_ring()

    def _finish_joining(self, now: Nanos) -> None:
        """Count as joined once all members of the received leaf set have answered or are given up."""
        if self._is_joining and not self._probes.leaf_probes:
            self._is_joining = False
            if self._leaf.peers and not self.has_joined:
                self.has_joined = self._has_moved = True
                self._requests.retry_ns = 2 * FIRST_RETRY  # this may be the smaller of two rings
                for peer in self._table:
                    self._out += self._probes.ping(now, peer)

    # ---------------------------------------------------------------- answers, and tables of others

    def _on_pong(self, now: Nanos, sender: PeerId, number: int) -> None:
        trip_ns = self._probes.answer(now, sender, number)
        if trip_ns is not None:
            self._dead.discard(sender)
            self._table.confirm(sender)
            self._upkeep.measure(sender, trip_ns)
            self._out += self._neighbours.probe_if_nearer(now, sender)

    def _on_leaf_reply(self, now: Nanos, sender: PeerId, reply: LeafReply) -> None:
        is_claim = self._probes.is_claim(sender)
        trip_ns = self._probes.answer(now, sender, reply.number)
        if trip_ns is not None and self._neighbours.is_current(sender, reply.incarnation):
            self._dead.discard(sender)
            self._out += self._neighbours.admit(now, sender)
            if is_claim:
                self._dead.refuted_ns[sender] = now
            self._upkeep.measure(sender, trip_ns)
            self._out += self._neighbours.probe_candidates(now, reply.leaves, reply.dead)

    def _on_table_row(self, now: Nanos, sender: PeerId, peers: tuple[PeerId, ...]) -> None:
        self._out += self._neighbours.record_message(now, sender)
        for peer in peers:
            if peer != self.me and peer not in self._dead:
                self._upkeep.suggest(peer)
                if self.has_joined:
                    self._out += self._neighbours.probe_if_nearer(now, peer)

    # ---------------------------------------------------------------- heartbeats and failures

    def _send_heartbeat(self, now: Nanos) -> None:
        self._heartbeats += 1
        self._out.append(Timer(now + self._period_ns, _BEAT))
        predecessor = self._leaf.predecessor
        if predecessor is not None:
            self._send(predecessor, RingHeartbeat(self._leaf.peers))
        if self._heartbeats % RECHECK == 0:
            self._successor.compare_again()
            for peer in self._dead.peers_to_ask(now):
                self._out += self._probes.ping(now, peer, is_last_chance=True)
            self._forget_strangers()
        if self.has_joined and len(self._leaf) < FULL and not self._leaf.whole:
            self._out += self._neighbours.repair(now, clockwise=True)
            self._out += self._neighbours.repair(now, clockwise=False)
        self._out += self._upkeep.tend(now, self._heartbeats)

    def _forget_strangers(self) -> None:
        """Drop measurements and incarnations of peers that are neither in the leaf set nor in the table."""
        for records in (self._trips.measured, self._neighbours.incarnations, self._dead.refuted_ns):
            if len(records) > MAX_STRANGERS:
                contacts = {*self._leaf.peers, *self._table}
                for peer in [peer for peer in records if peer not in contacts]:
                    del records[peer]

    def _on_unanswered(self, now: Nanos, peer: PeerId) -> None:
        """Probe a peer that did not answer another plug-in."""
        if peer in self._leaf:
            self._out += self._probes.exchange(now, peer)
        if peer in self._table:
            self._out += self._upkeep.vacate(peer)
            self._out += self._probes.ping(now, peer)

    def _on_probe_failed(self, now: Nanos, peer: PeerId, probe: PendingProbe) -> None:
        """Handle a peer that did not answer the last transmission of a probe."""
        if probe.is_last_chance and self._leaf.peers:
            self._dead.discard(peer)
            return
        self._dead.add(now, peer)  # a peer that is alone forgets none: its own network may be down
        if not probe.is_last_chance and self._forget_dead_peer(now, peer) and self.has_joined:
            self._out += self._neighbours.announce(now, peer, probe.is_claim)
            self._out += self._neighbours.repair_beside(now, peer)

    def _on_leave(self, now: Nanos, sender: PeerId, leaves: tuple[PeerId, ...]) -> None:
        self._probes.cancel(sender)
        self._dead.add(now, sender)
        was_member = self._forget_dead_peer(now, sender)
        self._out += self._neighbours.probe_candidates(now, leaves)
        if was_member:
            self._out += self._neighbours.repair_beside(now, sender)

    def _forget_dead_peer(self, now: Nanos, peer: PeerId) -> bool:
        """Forget a dead peer. Returns whether it was a member of the leaf set."""
        was_member = peer in self._leaf
        self._out += self._upkeep.remove(peer)
        self._out += self._neighbours.remove(now, peer)
        return was_member
