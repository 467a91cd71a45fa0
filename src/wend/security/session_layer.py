"""The session layer of one peer: handshakes, keys and addresses of all peers that it speaks with; without IO.

The driver gives it time, random bytes, datagrams and messages. It gives back sealed datagrams, opened messages, and
effects (`take_effects`): packets to transmit, and what became of sessions. `session_state.py` has the sessions,
`handshakes.py` makes their keys, and this module seals, opens and tells the time.

- **Begin.** A message to a peer without keys waits, in a queue of fixed size, for a handshake. The handshake needs the
  certificate of the other peer; whoever does not have it asks the address for it (`QUESTION`).
- **Strangers.** An initiation costs a mac and no more until it has passed `handshake_limits.py`. It makes no
  state until its certificate is verified. Then there is one entry for each peer, in a table of fixed size.
- **Replayed handshakes.** An initiation has the incarnation of its sender and a number. One that is not higher than the
  last is refused. After a restart this peer does not know the last one, so a replayed initiation may be answered; but
  its keys stay unused, because nobody can seal a packet with them.
- **Rekeying.** Keys live for three minutes, and new ones are made after two. The side that answered a handshake seals
  with the new keys once something came under them. Former keys open packets that are under way.
- **Simultaneous handshakes** both complete. Each side has the keys of both, and each seals with one of them. If these
  are not the same, the peer with the higher id soon uses those of the other.
- **Roaming.** The address of a peer is the one from which its newest authentic packet came. If it does not answer
  there, handshakes also try the one that the driver gave.
- **Certificates** are verified in each handshake, and again when they end and by `recheck`. A session whose certificate
  is no longer accepted ends at once; so do former keys that rest on another certificate.
- **Clocks.** Ages of keys are monotonic time. Only certificates depend on the clock of the host: one that is set wrong
  ends sessions whose certificates it makes invalid, and the peer refuses new ones until it is right again.
"""

from cryptography.exceptions import InvalidTag

from wend.model.errors import Untrusted
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address
from wend.security.handshakes import SILENCE_NS, Handshakes
from wend.security.identity import Credentials, Verifier
from wend.security.noise import nonce
from wend.security.packets import HEADER_BYTES
from wend.security.peer_session import ALIVE_NS, AddressSession, PeerSession, WaitingMessage
from wend.security.session_table import MOST_UNKNOWN
from wend.security.transport import Opened, TransportKeys

_unpack, _KINDS = packets.TRANSPORT_HEADER.unpack_from, packets.KINDS
_INITIATION = int.from_bytes(packets.head(packets.INITIATION), "little")
KEEPALIVE_NS: Nanos = 2 * SECOND
"""A peer that was written to, and had nothing to say for so long, sends an empty packet."""
GIVE_UP_NS: Nanos = 20 * SECOND
"""A handshake ends if nothing was to be sent for so long."""
RECHECK_NS: Nanos = 60 * SECOND


class SessionLayer(Handshakes):
    """Seals and opens what a peer sends and receives."""

    # ---------------------------------------------------------------- what the driver tells

    def tick(self, now: Nanos, wall_s: int) -> None:
        """Tell the time of both clocks, several times in a second: retries and the ends of keys follow from it."""
        self._wall_s, self._told_ns = wall_s, now
        for waiting in [*self._table.unknown.values()]:
            self._tick_unknown(now, waiting)
        for session in [*self._peers.values()]:
            self._tick_peer(now, session)
        if now >= self._recheck_ns:
            self._recheck_ns = now + RECHECK_NS
            self.recheck(now)

    def renew(self, credentials: Credentials) -> None:
        """Use another certificate, and perhaps another key, from the next handshake on."""
        if credentials.identity.peer != self.id:
            raise Untrusted(f"the certificate is for peer {credentials.identity.peer}, and this is peer {self.id}")
        self._use(credentials)

    def recheck(self, now: Nanos, verifier: Verifier | None = None) -> None:
        """Verify the certificates of all sessions again, perhaps by another verifier, and end those that are not
        accepted any more."""
        if verifier is not None:
            self._verifier = verifier
        for session in [*self._peers.values()]:
            try:
                for certificate in session.certificates():
                    self._verifier.verify(certificate, self.wall_s(now))
            except Untrusted as why:
                self._end(session, why.reason)
            else:
                self._recheck_former(now, session)

    def _recheck_former(self, now: Nanos, session: PeerSession) -> None:
        """Forget former keys that rest on another certificate, which is not accepted any more."""
        accepted = session.certificates()

        def is_void(keys: TransportKeys) -> bool:
            if keys.certificate in accepted:
                return False
            try:
                self._verifier.verify(keys.certificate, self.wall_s(now))
            except Untrusted:
                return True
            return False

        self._table.remove_keys(session.drop_former(is_void))

    def locate(self, now: Nanos, peer: PeerId, address: Address) -> None:
        """Send to this peer at this address, until it is heard from another. If it is silent there, try this one."""
        session = self._table.session(now, peer)
        if session is not None:
            session.address = session.given = address

    def forget(self, peer: PeerId) -> None:
        """End the session with a peer."""
        self._table.forget(peer)

    # ---------------------------------------------------------------- messages to send

    def seal(self, now: Nanos, peer: PeerId, kind: int, body: bytes) -> bytes | None:
        """The packet for a message to a peer; None if there are no keys: then it waits, and leaves as an effect."""
        session = self._peers.get(peer)
        if session is None:
            self._lost(1)
            return None
        keys = session.current
        if keys is None or now >= keys.ends_ns:
            self._wait(now, session, WaitingMessage(kind, body, None, now), session.address)
            return None
        session.owes_ns = 0
        if not session.unanswered_ns:
            session.unanswered_ns = now
        if now >= keys.rekey_ns or now - session.unanswered_ns > SILENCE_NS:
            self._begin(now, session, session.address)
        counter, header = keys.next_header(kind)
        return header + keys.encrypt(nonce(counter), body, header)  # as `keys.seal` does

    def send_to(self, now: Nanos, address: Address, kind: int, body: bytes) -> None:
        """Send a message to whoever is at an address, as an effect, perhaps later."""
        peer = self._table.at.get(address)
        session = None if peer is None else self._peers.get(peer)
        if session is None or session.address != address:  # somebody else may have the address by now
            self._wait_at(now, WaitingMessage(kind, body, address, now), address)
        elif not self.has_session(now, session.peer):
            self._wait(now, session, WaitingMessage(kind, body, address, now), address)
        elif (packet := self.seal(now, session.peer, kind, body)) is not None:
            self._transmit(address, session.peer, packet)

    def _wait(self, now: Nanos, session: PeerSession, message: WaitingMessage, address: Address | None) -> None:
        """Let a message wait for a handshake with a peer."""
        if address is None:
            self._lost(1)
            return
        session.waiting.append(message)
        self._lost(session.trim(now))
        self._begin(now, session, address)

    def _wait_at(self, now: Nanos, message: WaitingMessage, address: Address) -> None:
        """Let a message wait for a handshake with whoever is at an address."""
        waiting = self._table.unknown.get(address)
        if waiting is None:
            if len(self._table.unknown) >= MOST_UNKNOWN:
                self._lost(1)
                return
            waiting = self._table.unknown[address] = AddressSession(address, now)
            self._ask(waiting, None)
        waiting.waiting.append(message)
        self._lost(waiting.trim(now))

    # ---------------------------------------------------------------- datagrams that arrive

    def open(self, now: Nanos, datagram: bytes | memoryview, address: Address) -> Opened | None:
        """The message in a datagram. None if it has none: then it was refused, or there are effects."""
        if len(datagram) < packets.OVERHEAD_BYTES:
            self._on_handshake(now, datagram, address)
            return None
        head, index, counter = _unpack(datagram)
        kind = _KINDS.get(head)
        if kind is None:
            if head != _INITIATION or not self._limiter.is_shut(now, datagram, address, self._table.at):
                self._on_handshake(now, datagram, address)
            return None
        keys = self._by_index.get(index)
        if keys is None:
            self.refused["unknown keys"] += 1
            return None
        if now >= keys.ends_ns:
            self.refused["old keys"] += 1
            return None
        window = keys.window
        if counter <= window.highest and not window.is_new(counter):
            self.refused["replayed"] += 1
            return None
        try:
            body = keys.open(nonce(counter), datagram[HEADER_BYTES:], datagram[:HEADER_BYTES])
        except InvalidTag:
            self.refused["forged"] += 1
            return None
        if counter == window.highest + 1:  # as `add` does
            window.highest, newest = counter, True
        else:
            newest = window.add(counter)
        session = keys.session
        if keys is not session.current:
            if keys is session.next:
                session.next = None
                self._adopt(now, session, keys, address)
            elif keys is session.superseded:
                self._on_superseded(now, session, address)
                return None
            elif newest:
                self._on_former(now, session, keys, address)
        elif newest and address != session.address:
            self._move(now, session, address)
        session.heard_ns, session.unanswered_ns = now, 0
        if kind < packets.REKEYING:
            if not session.owes_ns:
                session.owes_ns = now
            return keys.peer, keys.incarnation, kind, body
        if kind == packets.REKEYING:
            self._on_rekeying(now, session, body, address)
        return None

    def _on_former(self, now: Nanos, session: PeerSession, keys: TransportKeys, address: Address) -> None:
        """A packet came under former keys: it was under way, or the peer seals with them, as both do after handshakes
        that crossed. If so, there is nothing under the present keys between two such packets."""
        present = -1 if session.current is None else session.current.window.highest
        repeated = session.former_keys is keys and session.present_highest == present
        session.former_keys, session.present_highest = keys, present
        if not repeated:
            return
        if address != session.address:
            self._move(now, session, address)
        if self.id > session.peer:  # one of the two does as the other, so that both seal with the same keys
            session.uncross(keys)

    def _on_superseded(self, now: Nanos, session: PeerSession, address: Address) -> None:
        """An authentic packet of the incarnation before: it was under way, or that process still lives."""
        if now - session.superseded_ns > ALIVE_NS:
            self._doubled(address, session.peer)
        else:
            self.refused["stale"] += 1

    # ---------------------------------------------------------------- time

    def _tick_unknown(self, now: Nanos, waiting: AddressSession) -> None:
        self._lost(waiting.trim(now))
        if not waiting.waiting:
            self._table.remove_unknown(waiting)
        elif now >= waiting.due_ns:
            waiting.retry(now)
            self._ask(waiting, None)

    def _tick_peer(self, now: Nanos, session: PeerSession) -> None:
        self._lost(session.trim(now))
        self._table.remove_keys(session.ended(now))
        wall_s = self.wall_s(now)
        if session.identity is not None and wall_s > session.identity.not_after_s:
            self._end(session, "the certificate has ended")
        elif session.previous:
            self._table.remove_keys(session.drop_former(lambda keys: wall_s > keys.identity.not_after_s))
        silent_ns = session.unanswered_ns
        if (
            silent_ns
            and now - silent_ns > SILENCE_NS
            and session.doubted_ns != silent_ns
            and session.current is not None
        ):
            session.doubted_ns = silent_ns
            self._begin(now, session, session.address)
        if session.owes_ns and now - session.owes_ns > KEEPALIVE_NS:
            session.owes_ns = 0
            self._say_nothing(session)
        if session.is_idle(now):
            session.latest, session.incarnation = (-1, -1), -1
        pending = session.handshake
        if pending is None or now < pending.due_ns:
            return
        if now - pending.wanted_ns > GIVE_UP_NS:
            self._table.end_handshake(session)
            self.notices["handshake-given-up"] += 1
            return
        pending.retry(now)
        pending.address = session.retry_address(pending.tries) or pending.address
        identity = pending.identity or session.identity
        if pending.tries % 2 == 0 and identity is not None:
            self._initiate(now, session, pending, identity)
        else:
            self._ask(pending, session.peer)  # it may have another key
