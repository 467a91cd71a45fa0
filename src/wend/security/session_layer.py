"""The session layer of one peer: its handshakes, keys and addresses of other peers, without IO.

The driver provides time, random bytes, datagrams and messages. The layer returns sealed datagrams, opened messages, and
effects (`take_effects`): packets to transmit, and changes of sessions. It has a table of sessions (`session_table.py`),
and a responder and an initiator, which make keys (`handshakes.py`).

- **Begin.** A message to a peer without keys waits for a handshake, in a queue of fixed size. The handshake needs the
  certificate of the other peer; if this peer does not have it, it asks the address for it (`QUESTION`).
- **Strangers.** An initiation costs only a mac until it has passed `handshake_limits.py`, and creates no state until
  its certificate is verified. Then each peer has one entry, in a table of fixed size.
- **Replayed handshakes.** An initiation has the incarnation of its sender and a number. The peer refuses a number that
  is not higher than the last. After a restart it does not know the last one, so it may answer a replayed initiation.
  But nobody can seal a packet with the resulting keys, so they stay unused.
- **Rekeying.** Keys live for three minutes, and new ones are made after two. The side that answered a handshake seals
  with the new keys once a packet has come under them. Former keys open packets that are under way.
- **Simultaneous handshakes** both complete. Each side has the keys of both, and seals with one of them. If the sides
  chose different keys, the peer with the higher id soon uses those of the other.
- **Roaming.** The address of a peer is the source of its newest authentic packet. If the peer does not answer there,
  handshakes also try the address that the driver gave.
- **Certificates** are verified in each handshake, again when they end, and by `recheck`. If a certificate is no longer
  accepted, its session ends at once; so do former keys that rest on it.
- **Clocks.** Ages of keys are monotonic time. Only certificates depend on the host's clock. If the clock is wrong, the
  peer ends sessions whose certificates it takes for invalid, and refuses new ones until the clock is right again.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from cryptography.exceptions import InvalidTag

from wend.model.errors import Untrusted, WireError
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address
from wend.security.handshake_limits import SessionLimits
from wend.security.handshakes import SILENCE_NS, Initiator, Responder
from wend.security.identity import Credentials, Identity, Verifier
from wend.security.introductions import Introductions
from wend.security.noise import nonce
from wend.security.packets import HEADER_BYTES
from wend.security.peer_session import ALIVE_NS, AddressSession, PeerSession, WaitingMessage
from wend.security.session_effects import SessionEffect, SessionEnded, SessionMoved, SessionOutput, SessionReady
from wend.security.session_table import MAX_UNKNOWN, SessionTable
from wend.security.transport import Opened, TransportKeys

_unpack, _KINDS = packets.TRANSPORT_HEADER.unpack_from, packets.KINDS
_INITIATION = int.from_bytes(packets.packet_head(packets.INITIATION), "little")
KEEPALIVE_NS: Nanos = 2 * SECOND
"""A peer that got a packet, and has sent none for this long, sends an empty one."""
RECHECK_NS: Nanos = 60 * SECOND


class SessionLayer:
    """Seals and opens the datagrams of one peer."""

    def __init__(
        self,
        credentials: Credentials,
        verifier: Verifier,
        *,
        incarnation: int,
        version: int,
        random: Callable[[int], bytes],
        limits: SessionLimits = SessionLimits(),  # noqa: B008
        refused: Counter[str] | None = None,
        notices: Counter[str] | None = None,
    ) -> None:
        """`version` is that of the wire format of the messages inside. `random(n)` returns n random bytes. `refused`
        counts refused packets by reason, `notices` counts events."""
        self._output = output = SessionOutput(refused, notices)
        self.refused, self.notices, self.effects = output.refused, output.notices, output.effects
        process = int.from_bytes(random(8), "little")
        self._introductions = Introductions(
            credentials, verifier, output, incarnation=incarnation, version=version, process=process
        )
        self.id = self._introductions.id
        self._table = SessionTable(random)
        self._by_index = self._table.by_index
        self.peers = self._table.peers
        self._responder = Responder(self._introductions, self._table, limits, random, output)
        self._initiator = Initiator(self._introductions, self._table, random, output)
        self._recheck_ns: Nanos = 0

    # ---------------------------------------------------------------- what the driver asks

    def take_effects(self) -> list[SessionEffect]:
        """The effects since the last call, for the driver to carry out."""
        return self._output.take_effects()

    def identity(self, peer: PeerId) -> Identity | None:
        """The identity of a peer with a session, now or recently."""
        session = self.peers.get(peer)
        return None if session is None else session.identity

    def address(self, peer: PeerId) -> Address | None:
        """The address to which packets for a peer go."""
        session = self.peers.get(peer)
        return None if session is None else session.address

    def waiting_count(self, peer: PeerId) -> int:
        """How many messages to a peer wait for a handshake."""
        session = self.peers.get(peer)
        return 0 if session is None else len(session.waiting)

    @property
    def size(self) -> int:
        """Entries of all tables together. Strangers must not make it grow."""
        return self._table.size + self._responder.limiter.size

    # ---------------------------------------------------------------- what the driver tells

    def tick(self, now: Nanos, wall_s: int) -> None:
        """Retry handshakes, and end old keys. The driver calls it several times a second, with both clocks."""
        self._introductions.set_time(now, wall_s)
        for attempt in [*self._table.unknown.values()]:
            self._tick_attempt(now, attempt)
        for session in [*self.peers.values()]:
            self._tick_session(now, wall_s, session)
        if now >= self._recheck_ns:
            self._recheck_ns = now + RECHECK_NS
            self.recheck(now)

    def renew(self, credentials: Credentials) -> None:
        """Use another certificate, and perhaps another key, from the next handshake on. Raises `Untrusted` for the
        certificate of another peer."""
        self._introductions.renew(credentials)
        self._responder.renew()

    def recheck(self, now: Nanos, verifier: Verifier | None = None) -> None:
        """Verify the certificates of all sessions again, perhaps by another verifier, and end those that are no longer
        accepted."""
        if verifier is not None:
            self._introductions.verifier = verifier
        for session in [*self.peers.values()]:
            certificates = session.known_certificates
            try:
                for certificate in certificates:
                    self._introductions.verify(now, certificate)
            except Untrusted as error:
                self._end_session(session, str(error))
            else:
                void = session.drop_former(partial(self._is_void, now, certificates))
                self._table.remove_keys(void)

    def _is_void(self, now: Nanos, verified: list[bytes], keys: TransportKeys) -> bool:
        """Whether keys rest on a certificate that is no longer accepted."""
        if keys.certificate in verified:
            return False
        try:
            self._introductions.verify(now, keys.certificate)
        except Untrusted:
            return True
        return False

    def set_address(self, now: Nanos, peer: PeerId, address: Address) -> None:
        """Send to this peer at this address until it is heard from another. If it is silent there, try this one
        again."""
        session = self._table.get_or_make_session(now, peer)
        if session is not None:
            session.address = session.given_address = address

    def forget(self, peer: PeerId) -> None:
        """End the session with a peer."""
        self._table.forget(peer)

    # ---------------------------------------------------------------- messages to send

    def seal(self, now: Nanos, peer: PeerId, kind: int, body: bytes) -> bytes | None:
        """The packet for a message to a peer. None if there are no keys: then the message waits and leaves later, as an
        effect."""
        session = self.peers.get(peer)
        if session is None:
            self._output.count_unsent(1)
            return None
        keys = session.current
        if keys is None or now >= keys.ends_ns:
            self._queue_message(now, session, WaitingMessage(kind, body, None, now), session.address)
            return None
        session.owes_ns = 0
        if not session.unanswered_ns:
            session.unanswered_ns = now
        if now >= keys.rekey_ns or now - session.unanswered_ns > SILENCE_NS:
            self._initiator.begin(now, session, session.address)
        counter, header = keys.next_header(kind)
        return header + keys.encrypt(nonce(counter), body, header)  # as `keys.seal` does

    def send_to(self, now: Nanos, address: Address, kind: int, body: bytes) -> None:
        """Send a message to the peer at an address, as an effect, perhaps later."""
        peer = self._table.at.get(address)
        session = None if peer is None else self.peers.get(peer)
        if session is None or session.address != address:  # another peer may have the address by now
            self._queue_for_address(now, WaitingMessage(kind, body, address, now), address)
        elif not session.has_keys(now):
            self._queue_message(now, session, WaitingMessage(kind, body, address, now), address)
        elif (packet := self.seal(now, session.peer, kind, body)) is not None:
            self._output.transmit(address, session.peer, packet)

    def _queue_message(
        self, now: Nanos, session: PeerSession, message: WaitingMessage, address: Address | None
    ) -> None:
        """Let a message wait for a handshake with a peer."""
        if address is None:
            self._output.count_unsent(1)
            return
        self._output.count_unsent(session.waiting.add(now, message))
        self._initiator.begin(now, session, address)

    def _queue_for_address(self, now: Nanos, message: WaitingMessage, address: Address) -> None:
        """Let a message wait for a handshake with the peer at an address."""
        attempt = self._table.unknown.get(address)
        if attempt is None:
            if len(self._table.unknown) >= MAX_UNKNOWN:
                self._output.count_unsent(1)
                return
            attempt = self._table.unknown[address] = AddressSession(address, now)
            self._initiator.ask(attempt, None)
        self._output.count_unsent(attempt.waiting.add(now, message))

    # ---------------------------------------------------------------- datagrams that arrive

    def open(self, now: Nanos, datagram: bytes | memoryview, address: Address) -> Opened | None:
        """The message in a datagram, and its sender. None if the datagram was refused, or was for the session alone."""
        if len(datagram) < packets.OVERHEAD_BYTES:
            self._on_handshake(now, datagram, address)
            return None
        head, index, counter = _unpack(datagram)
        kind = _KINDS.get(head)
        if kind is None:
            self._on_long_handshake(now, head, datagram, address)
            return None
        keys = self._by_index.get(index)
        if keys is None or now >= keys.ends_ns:
            self._refuse_keys(keys)
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
            window.highest, is_newest = counter, True
        else:
            is_newest = window.add(counter)
        session = keys.session
        if keys is not session.current:
            if not self._on_other_keys(now, keys, is_newest, address):
                return None
        elif is_newest and address != session.address:
            self._move_address(now, session, address)
        session.heard_ns, session.unanswered_ns = now, 0
        if kind >= packets.REKEYING:
            self._on_key_packet(now, session, kind, body, address)
            return None
        if not session.owes_ns:
            session.owes_ns = now
        return keys.peer, keys.incarnation, kind, body

    def _refuse_keys(self, keys: TransportKeys | None) -> None:
        if keys is None:
            self.refused["unknown-keys"] += 1
        else:
            self.refused["old-keys"] += 1

    def _on_key_packet(self, now: Nanos, session: PeerSession, kind: int, body: bytes, address: Address) -> None:
        """Handle a packet without a message for the driver."""
        if kind == packets.REKEYING:
            self._responder.on_rekeying(now, session, body, address)

    def _on_other_keys(self, now: Nanos, keys: TransportKeys, is_newest: bool, address: Address) -> bool:
        """Handle an authentic packet under keys other than the current ones. Returns whether the peer accepts it."""
        session = keys.session
        if keys is session.next:
            session.next = None
            self._adopt_keys(now, keys, address)
        elif keys is session.superseded:  # the packet was under way, or the previous process is still alive
            if now - session.superseded_ns > ALIVE_NS:
                self._output.refuse_twin(address, f"peer {session.peer}")
            else:
                self.refused["stale"] += 1
            return False
        elif is_newest:
            self._on_former_keys(now, session, keys, address)
        return True

    def _on_former_keys(self, now: Nanos, session: PeerSession, keys: TransportKeys, address: Address) -> None:
        """Handle a packet under former keys. Either it was under way, or the other peer still seals with them, as after
        handshakes that crossed. In the second case no packet comes under the current keys between two such packets."""
        highest = -1 if session.current is None else session.current.window.highest
        is_repeated = session.former_keys is keys and session.current_highest == highest
        session.former_keys, session.current_highest = keys, highest
        if not is_repeated:
            return
        if address != session.address:
            self._move_address(now, session, address)
        if self.id > session.peer:  # one of the two follows the other, so that both seal with the same keys
            session.restore_former_keys(keys)

    def _on_long_handshake(self, now: Nanos, head: int, datagram: bytes | memoryview, address: Address) -> None:
        """Handle a datagram that is not a transport packet. Refuse initiations unread if there are too many."""
        if head != _INITIATION or not self._responder.limiter.should_refuse_unread(
            now, datagram, address, self._table.at
        ):
            self._on_handshake(now, datagram, address)

    def _on_handshake(self, now: Nanos, datagram: bytes | memoryview, address: Address) -> None:
        """Handle a packet of a handshake, which anybody may have sent."""
        try:
            self._dispatch(now, bytes(datagram), address)
        except WireError:
            self.refused["malformed"] += 1

    def _dispatch(self, now: Nanos, datagram: bytes, address: Address) -> None:
        match packets.packet_type(datagram):
            case packets.INITIATION:
                self._responder.on_initiation(now, datagram, address)
            case packets.ANSWER:
                keys = self._initiator.on_answer(now, datagram, address)
                if keys is not None:
                    self._adopt_keys(now, keys, address)
            case packets.COOKIE:
                self._initiator.on_cookie(now, datagram)
            case packets.QUESTION:
                self._responder.on_question(now, datagram, address)
            case packets.CERTIFICATE:
                introduced = self._initiator.on_certificate(now, datagram, address)
                if introduced is not None:
                    self._assign_address(now, *introduced)
            case None if packets.is_sealed(datagram):
                self.refused["other-version"] += 1
            case None:
                self.refused["not-sealed"] += 1
            case _:
                self.refused["malformed"] += 1

    # ---------------------------------------------------------------- sessions

    def _adopt_keys(self, now: Nanos, keys: TransportKeys, address: Address) -> None:
        """Seal with these keys from now on."""
        session = keys.session
        is_new = session.current is None or session.incarnation != keys.incarnation
        self._table.remove_keys(session.adopt(now, keys))
        self.notices["session"] += 1
        if session.address != address:
            self._move_address(now, session, address)
        self._table.record_address(now, session.peer, address)
        if is_new:
            self.effects.append(SessionReady(session.peer, address, keys.incarnation))
        self._send_waiting(now, session)

    def _assign_address(self, now: Nanos, session: PeerSession, attempt: AddressSession) -> None:
        """Record which peer is at an address, and send it the messages that wait there."""
        self._table.remove_unknown(attempt)
        self._table.record_address(now, session.peer, attempt.address)
        if session.address is None:
            session.address = attempt.address
        self._output.count_unsent(session.waiting.add(now, *attempt.waiting.pop_all()))
        if session.has_keys(now):
            self._send_waiting(now, session)
        else:
            self._initiator.begin(now, session, attempt.address)

    def _send_waiting(self, now: Nanos, session: PeerSession) -> None:
        """Send the waiting messages, or an empty packet: either shows the other peer that this one has the keys."""
        keys = session.current
        if keys is None or session.address is None:
            return
        self._output.count_unsent(session.waiting.trim(now))
        messages = session.waiting.pop_all()
        for message in messages:
            packet = keys.seal(message.kind, message.body)
            self._output.transmit(message.address or session.address, session.peer, packet)
        if not messages:
            self._send_empty(session)

    def _send_empty(self, session: PeerSession) -> None:
        """Send an empty packet: it shows that this peer has the keys."""
        if session.current is not None and session.address is not None:
            self._output.transmit(session.address, session.peer, session.current.seal(packets.NOTHING, b""))

    def _move_address(self, now: Nanos, session: PeerSession, address: Address) -> None:
        """Send to a peer at the new address from which its newest authentic packet came."""
        self._table.forget_address(session.peer, session.address)
        session.address = address
        self._table.record_address(now, session.peer, address)
        self.effects.append(SessionMoved(session.peer, address))

    def _end_session(self, session: PeerSession, reason: str) -> None:
        """End the session with a peer whose certificate is no longer accepted.

        The driver is notified even if there are no keys: the peer may have those of multicast groups."""
        if session.current is not None:
            self.notices["session-ended"] += 1
        self._table.drop_keys(session)
        session.certificate, session.identity = b"", None
        self._output.count_unsent(len(session.waiting.pop_all()))
        self.effects.append(SessionEnded(session.peer, reason))

    # ---------------------------------------------------------------- time

    def _tick_attempt(self, now: Nanos, attempt: AddressSession) -> None:
        self._output.count_unsent(attempt.waiting.trim(now))
        if not attempt.waiting:
            self._table.remove_unknown(attempt)
        elif now >= attempt.due_ns:
            attempt.count_retry(now)
            self._initiator.ask(attempt, None)

    def _tick_session(self, now: Nanos, wall_s: int, session: PeerSession) -> None:
        self._output.count_unsent(session.waiting.trim(now))
        self._table.remove_keys(session.drop_ended(now))
        if session.identity is not None and wall_s > session.identity.not_after_s:
            self._end_session(session, "the certificate has ended")
        elif session.previous:
            self._table.remove_keys(session.drop_former(lambda keys: wall_s > keys.identity.not_after_s))
        if session.current is not None and session.is_silent(now, SILENCE_NS):
            self._check_silent(now, session)
        if session.owes_ns and now - session.owes_ns > KEEPALIVE_NS:
            session.owes_ns = 0
            self._send_empty(session)
        if session.is_idle(now):
            session.last_initiation, session.incarnation = (-1, -1), -1
        self._initiator.retry(now, session)

    def _check_silent(self, now: Nanos, session: PeerSession) -> None:
        """Begin a handshake with a silent peer, which may have lost its keys; one for each silence."""
        if session.doubted_ns != session.unanswered_ns:
            session.doubted_ns = session.unanswered_ns
            self._initiator.begin(now, session, session.address)
