"""`pastry`: a ring of peers on which every key has an owner, the peer whose place is numerically closest.

It follows Pastry (Rowstron and Druschel, 2001) with the failure detector of MSPastry (Castro et al., 2004). A peer
knows its leaf set, the neighbours on the ring, and a routing table that leads to a peer with one more digit of a key.
It makes no links: other plug-ins ask it for the next hop to a key.

Joining: a `JoinRequest` travels from a contact to the peer closest to the joiner's place. The peers on the route send
rows of their tables, the last one its leaf set. The joiner probes the members, which makes it one of theirs, and then
pings its table. It repeats the request, at one contact after the other, until it has joined. A peer without contacts is
the first of a ring. If several peers know only each other, the lowest that another one asks begins. Peers that have
joined still send their requests now and then: a request to another ring brings its leaf set, and the rings merge.

The routing table prefers near peers. Of two peers for one cell it takes the one with the shorter round trip, which it
measures before. What others say of a peer fills only an empty cell, and is not passed on before the peer answered.
"""

from collections.abc import Collection
from typing import ClassVar

from wend.model.events import PeerId
from wend.model.keys import BITS, COLUMNS, DIGIT_BITS, RING, distance, node_id, shared_digits
from wend.model.random_stream import peer_stream
from wend.model.units import SECOND, Nanos
from wend.protocol.plugins import Needs, PeerConfig, Timer
from wend.strategies.ring.leaf_set import FULL
from wend.strategies.ring.member import HANDLERS, Handlers, RingMember
from wend.strategies.ring.messages import MOST_HOPS, JoinReply, JoinRequest, RowRequest, TableRow
from wend.strategies.ring.routing_table import RoutingTable

FIRST_RETRY: Nanos = SECOND
"""Until the first repetition of a `JoinRequest`; each then waits longer."""
LAST_RETRY: Nanos = 8 * SECOND
ROUTE_TRIPS = 4
"""Round trips that a request and its answer may take."""
PATIENCE = 2
"""Requests after which a peer may begin a ring, because peers ask it to join that are not in a ring either."""
MOST_CONTACTS = 16
MEASURED_AT_ONCE = 2
"""Candidates for the routing table that a peer measures per period, at most."""
MOST_CANDIDATES = 32
_JOIN = "join"
_MASK = RING - 1


class Pastry(RingMember):
    """Finds the owner of a key, hop by hop."""

    needs: ClassVar[Needs] = Needs()
    joins: ClassVar[bool] = True
    strategy: ClassVar[str | None] = "rendezvous"

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._seed = config.seed
        self._table = RoutingTable(config.peer)
        self._unconfirmed: set[PeerId] = set()
        """Entries of the table that have not answered yet."""
        self._candidates: dict[PeerId, None] = {}
        """Peers that may replace an entry of the table, if they are nearer."""
        self._contacts: list[PeerId] = []
        self._requests = 0
        self._joining = False
        self._retry = FIRST_RETRY
        self._cell = -1
        self._next_probe_ns: Nanos = 0

    # ---------------------------------------------------------------- what other plug-ins ask

    def next_hop(self, key: int, avoid: Collection[PeerId] = ()) -> PeerId:
        """The next peer on the route to the owner of a key: this peer where it is the owner.

        Hops never form a loop while leaf sets agree: each shares more digits with the key, or is closer to it.
        """
        leaf = self._leaf
        offset = (key - leaf.mine) & _MASK
        if offset <= leaf.right or offset >= leaf.left or leaf.whole:
            hop = leaf.closest(offset)
            return hop if not avoid or hop not in avoid else self._closest_but(key, avoid)
        rows = self._table.rows
        row = (BITS - (leaf.mine ^ key).bit_length()) // DIGIT_BITS
        if row < len(rows):
            entry = rows[row][(key >> (BITS - DIGIT_BITS - DIGIT_BITS * row)) & (COLUMNS - 1)]
            if entry is not None and entry not in avoid:
                return entry
        return self._any_closer(key, row, avoid)

    def owns(self, key: int) -> bool:
        """Whether this peer is the closest to a key, of all that it believes alive."""
        return self.joined and self.next_hop(key) == self.me

    def leaf_set(self) -> tuple[PeerId, ...]:
        """The neighbours on the ring, by distance, nearest first."""
        mine = self._leaf.mine
        return tuple(sorted(self._leaf.peers, key=lambda peer: (distance(node_id(peer), mine), node_id(peer))))

    def replicas(self, count: int) -> tuple[PeerId, ...]:
        """The nearest neighbours on the ring, successors and predecessors in turn."""
        peers = self._leaf.peers
        turns = [peers[-1 - turn // 2 if turn % 2 else turn // 2] for turn in range(len(peers))]
        return tuple(turns[:count])

    def round_trip_ns(self, peer: PeerId) -> Nanos:
        """The measured round trip, or the setting's guess."""
        return self._trips.get(peer, self._settings.pastry_round_trip_ns)

    def has_measured(self, peer: PeerId) -> bool:
        """Whether the round trip is a measured one."""
        return peer in self._trips

    def forgets(self, peer: PeerId) -> bool:
        """Whether the peer is dead, as far as this one knows."""
        return peer in self._dead

    def status(self) -> dict[str, int]:
        """1 under `joined` where it has; the sizes of the `leaf-set` and the `table`; `predecessor` and `successor`.
        `leaf/3` is the third peer after this one on the ring, `leaf/-3` the third before it."""
        shown = {"joined": int(self.joined), "leaf-set": len(self._leaf), "table": self._table.entries}
        peers = self._leaf.peers
        if peers:
            shown |= {"predecessor": peers[-1], "successor": peers[0]}
        after = (len(peers) + 1) // 2
        shown |= {f"leaf/{place - len(peers)}": peers[place] for place in range(after, len(peers))}
        return shown | {f"leaf/{place + 1}": peers[place] for place in range(after)}

    def _closest_but(self, key: int, avoid: Collection[PeerId]) -> PeerId:
        known = [peer for peer in (self.me, *self._leaf.peers) if peer not in avoid]
        return min(known, key=lambda peer: (distance(node_id(peer), key), node_id(peer)), default=self.me)

    def _any_closer(self, key: int, row: int, avoid: Collection[PeerId]) -> PeerId:
        """The rare case: the peer with the longest prefix, no shorter than this peer's, that is closer to the key."""
        best, best_rank = self.me, (row, -distance(self._leaf.mine, key))
        limit = -best_rank[1]
        for peer in (*self._leaf.peers, *self._table):
            place = node_id(peer)
            rank = (shared_digits(place, key), -distance(place, key))
            if rank > best_rank and -rank[1] < limit and peer not in avoid:
                best, best_rank = peer, rank
        return best

    # ---------------------------------------------------------------- joining

    def _begin(self, now: Nanos, contacts: tuple[PeerId, ...], contacts_follow: bool) -> None:
        others = tuple(dict.fromkeys(peer for peer in contacts if peer != self.me))
        if self._settings.pastry_settled and self._incarnation == 1:
            self._leaf.replace(others)
            for peer in others:
                if self._table.entry(peer) is None:
                    self._table.put(peer)
            self._changed(now)
            self.joined = True
        elif others:
            self._contacts = list(others[:MOST_CONTACTS])
            self._request(now)
        elif not contacts_follow:
            self._found(now)

    def _contact_found(self, now: Nanos, peer: PeerId) -> None:
        """Ask a contact at once. One that is told again has restarted, and may have begun a ring of its own. A peer
        that is its own only contact begins one."""
        if peer == self.me:
            if not self._contacts and not self.joined:
                self._found(now)
            return
        if peer not in self._contacts:
            self._contacts = [peer, *self._contacts[: MOST_CONTACTS - 1]]
        if self._requests == 0:
            self._request(now)
        else:
            self._say(peer, JoinRequest(self.me, rows=not self.joined))

    def _found(self, now: Nanos) -> None:
        """Begin a ring. Where contacts are known, other rings may exist: ask for them soon."""
        self.joined = self._moved = True
        self._retry = FIRST_RETRY

    def _request(self, now: Nanos) -> None:
        contact = self._contacts[self._requests % len(self._contacts)]
        self._requests += 1
        self._say(contact, JoinRequest(self.me, rows=not self.joined))
        longest = self._settings.pastry_table_ns if self.joined else LAST_RETRY
        jitter = peer_stream(self._seed, "pastry", self.me, self._incarnation, self._requests).random()
        wait = max(self._retry, ROUTE_TRIPS * self._guess)
        self._out.append(Timer(now + round(wait * (0.75 + jitter / 2)), _JOIN))
        self._retry = min(self._retry * 3 // 2, longest)

    def _due(self, now: Nanos, name: str) -> None:
        if name == _JOIN:
            self._request(now)
        else:
            super()._due(now, name)

    def _hear_request(self, now: Nanos, sender: PeerId, message: JoinRequest) -> None:
        joiner = message.joiner
        if not self.joined and message.hops == 0:
            self._asked_too_soon(now, sender)
        if joiner == self.me or not (self.joined or self._leaf.peers):
            return  # two joiners that are closest to each other must not wait for each other
        key = node_id(joiner)
        hop = self.next_hop(key, (joiner,))
        if message.rows:
            shared = shared_digits(self._leaf.mine, key)
            for row in range(0 if message.hops == 0 else shared, shared + 1):
                self._tell_row(joiner, row)
        if hop == self.me:
            self._say(joiner, JoinReply(tuple([peer for peer in self._leaf.peers if peer != joiner])))
        elif message.hops < MOST_HOPS:
            self._say(hop, JoinRequest(joiner, message.hops + 1, message.rows))
            self._probe(now, hop, leaf=hop in self._leaf)  # if it is dead, the next request takes another route

    def _asked_too_soon(self, now: Nanos, sender: PeerId) -> None:
        """A peer asks to join before this one has joined: they may know only each other."""
        if sender not in self._contacts and len(self._contacts) < MOST_CONTACTS:
            self._contacts.append(sender)
        if self._requests == 0:
            self._request(now)  # nobody has answered at the addresses that this peer knows
        if self.me < sender and self._requests > PATIENCE and not self._leaf.peers:
            self._found(now)

    def _hear_join_reply(self, now: Nanos, sender: PeerId, message: JoinReply) -> None:
        self._joining = self._joining or not self.joined
        self._alive(now, sender)
        self._consider(now, sender)
        self._learn(now, message.leaves)

    def _settle(self, now: Nanos) -> None:
        if self._joining and not self._probes.leaf_probes:
            self._joining = False
            if self._leaf.peers and not self.joined:
                self.joined = self._moved = True
                self._retry = 2 * FIRST_RETRY  # it may be the smaller of two rings: ask the contacts soon, then rarely
                for peer in self._table:
                    self._probe(now, peer, leaf=False)
        if len(self._leaf) < FULL:
            self._leaf.whole = all(peer in self._leaf for peer in self._table)

    # ---------------------------------------------------------------- the routing table

    def _others(self) -> list[PeerId]:
        return list(self._table)

    def _alive(self, now: Nanos, peer: PeerId, answers: bool = False) -> bool:
        if not super()._alive(now, peer, answers):
            return False
        self._unconfirmed.discard(peer)
        if self._table.entry(peer) is None:
            self._table.put(peer)
        return True

    def _drop(self, now: Nanos, peer: PeerId) -> bool:
        self._vacate(peer)
        self._candidates.pop(peer, None)
        return super()._drop(now, peer)

    def _vacate(self, peer: PeerId) -> None:
        """Empty the cell of a peer, and ask another of the row for one that fits."""
        if self._table.remove(peer):
            self._unconfirmed.discard(peer)
            row = self._table.row_of(peer)
            for other in self._table.row(row)[:1]:
                self._say(other, RowRequest(row))

    def _suspect(self, now: Nanos, peer: PeerId) -> None:
        super()._suspect(now, peer)
        if peer in self._table:
            self._vacate(peer)
            self._probe(now, peer, leaf=False)

    def _measured(self, now: Nanos, peer: PeerId, trip: Nanos) -> None:
        super()._measured(now, peer, trip)
        entry = self._table.entry(peer)
        known = self._trips.get(peer)
        if peer == entry or peer in self._leaf:
            self._trips[peer] = trip if known is None else (7 * known + trip) // 8
        if entry is not None and entry != peer and trip < self._trips.get(entry, 0):
            self._table.put(peer)
            self._trips[peer] = trip
            if entry not in self._leaf:
                self._trips.pop(entry, None)
            self._unconfirmed.discard(entry)

    def _tell_row(self, peer: PeerId, number: int) -> None:
        row = [one for one in self._table.row(number) if one != peer and one not in self._unconfirmed]
        if row:
            self._say(peer, TableRow(number, tuple(row)))

    def _hear_row_request(self, now: Nanos, sender: PeerId, message: RowRequest) -> None:
        self._alive(now, sender)
        self._tell_row(sender, message.row)

    def _hear_row(self, now: Nanos, sender: PeerId, message: TableRow) -> None:
        self._alive(now, sender)
        for peer in message.peers:
            if peer == self.me or peer in self._dead:
                continue
            entry = self._table.entry(peer)
            if entry is None:
                self._table.put(peer)
                self._unconfirmed.add(peer)
            if entry != peer and len(self._candidates) < MOST_CANDIDATES:
                self._candidates[peer] = None
            if self.joined:
                self._consider(now, peer)

    def _tend(self, now: Nanos) -> None:
        for peer in list(self._candidates)[:MEASURED_AT_ONCE]:
            del self._candidates[peer]
            entry = self._table.entry(peer)
            if entry is not None and entry not in self._trips:
                self._probe(now, entry, leaf=False)
            self._probe(now, peer, leaf=False)
        if self._table.entries and self._next_probe_ns == 0:
            self._next_probe_ns = now + self._settings.pastry_table_ns // self._table.entries
        while self._table.entries and now >= self._next_probe_ns:
            self._next_probe_ns += self._settings.pastry_table_ns // self._table.entries
            self._probe_next_entry(now)

    def _probe_next_entry(self, now: Nanos) -> None:
        """Probe the entries in turn. At the first of a row, ask one of the row for its own: it may know nearer ones."""
        cell = self._table.after(self._cell)
        assert cell is not None
        row, column = divmod(cell, COLUMNS)
        if row != self._cell // COLUMNS:
            some = self._table.row(row)
            self._say(some[self._beats % len(some)], RowRequest(row))
        self._cell = cell
        entry = self._table.rows[row][column]
        assert entry is not None
        self._probe(now, entry, leaf=False)

    def _handlers(self) -> Handlers:
        return PASTRY_HANDLERS


PASTRY_HANDLERS: Handlers = {
    **HANDLERS,
    JoinRequest: Pastry._hear_request,
    JoinReply: Pastry._hear_join_reply,
    RowRequest: Pastry._hear_row_request,
    TableRow: Pastry._hear_row,
}
