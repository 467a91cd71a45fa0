"""Handshakes: the responder answers those that other peers begin, the initiator begins those of this peer.

A handshake needs the certificate of the other peer. If the initiator does not have it, it asks the address for it
(`QUESTION`). An initiation costs the responder only a mac until it has passed `handshake_limits.py`. The responder
stores nothing about the sender until it has verified the certificate.
"""

from collections.abc import Callable

from wend.model.errors import Untrusted, WireError
from wend.model.events import PeerId
from wend.model.units import MS, SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address, mac, mac1_key, open_cookie
from wend.security.handshake_limits import HandshakeLimiter, SessionLimits
from wend.security.identity import Identity
from wend.security.introductions import Introductions
from wend.security.noise import InitiatorHandshake, ResponderHandshake
from wend.security.peer_session import AddressSession, PeerSession, PendingHandshake
from wend.security.session_effects import SessionOutput
from wend.security.session_table import SessionTable
from wend.security.transport import TransportKeys

PROLOGUE = b"wend session 1"
SILENCE_NS: Nanos = 5 * SECOND
"""A peer that has not answered for this long may have lost its keys; a new handshake finds out."""
GIVE_UP_NS: Nanos = 20 * SECOND
"""A handshake ends if no message has needed it for this long."""
REKEYING_NS: Nanos = 100 * MS
"""The shortest time between two handshakes under the current keys. The other peer repeats one that is refused."""


class Responder:
    """Answers handshakes and questions about the certificate of this peer."""

    def __init__(
        self,
        introductions: Introductions,
        table: SessionTable,
        limits: SessionLimits,
        random: Callable[[int], bytes],
        output: SessionOutput,
    ) -> None:
        self._introductions = introductions
        self._table = table
        self._limits = limits
        self._random = random
        self._output = output
        self.renew()

    def renew(self) -> None:
        """Use this peer's key, which has changed, from now on."""
        public = self._introductions.static.public
        self.limiter = HandshakeLimiter(public, self._limits, self._random, self._output.refused)

    def on_initiation(self, now: Nanos, datagram: bytes, address: Address) -> None:
        packet = packets.decode_initiation(datagram)
        verdict = self.limiter.admit_or_make_cookie(now, packet, address, self._table.at)
        if isinstance(verdict, bytes):
            self._output.notices["cookie-sent"] += 1
            self._output.transmit(address, None, verdict)
        elif verdict:
            self._send_answer(now, packet, address)

    def on_rekeying(self, now: Nanos, session: PeerSession, datagram: bytes, address: Address) -> None:
        """Answer an initiation that came in a session. Only the rate is limited, so that no peer can overload
        another."""
        if session.rekeying_ns and now - session.rekeying_ns < REKEYING_NS:
            self._output.refused["too-many-handshakes"] += 1
            return
        session.rekeying_ns = now
        try:
            self._send_answer(now, packets.decode_initiation(datagram), address)
        except WireError:
            self._output.refused["malformed"] += 1

    def _send_answer(self, now: Nanos, packet: packets.InitiationPacket, address: Address) -> None:
        try:
            answer = ResponderHandshake(self._introductions.static, packet.handshake, PROLOGUE)
            introduction = packets.decode_introduction(answer.payload)
        except WireError:
            self._output.refused["wrong-handshake"] += 1
            return
        identity = self._introductions.accept(now, introduction, answer.remote, address)
        if identity is None or identity.peer is None:
            return
        session = self._table.get_or_make_session(now, identity.peer)
        if session is None:
            self._output.refused["too-many-peers"] += 1
            return
        incarnation, number = introduction.incarnation, introduction.number
        if session.is_twin(now, incarnation, introduction.process):
            self._output.refuse_twin(address, f"peer {session.peer}")
            return
        if (incarnation, number) <= session.last_initiation or incarnation < session.incarnation:
            self._output.refused["replayed-handshake"] += 1
            return
        session.last_initiation = (incarnation, number)
        own = self._introductions.encode(0, padded=False)
        message, (opening, sealing) = answer.write(own, self._random(32))
        index = self._table.new_index()
        keys = TransportKeys(
            now, session, identity, introduction,
            index=index, receiver=packet.sender, sealing=sealing, opening=opening, initiator=False,
        )  # fmt: skip
        if session.next is not None:
            self._table.remove_keys([session.next])
        session.next = keys
        self._table.add_keys(keys)
        self._output.notices["handshake-answered"] += 1
        self._output.transmit(address, None, packets.encode_answer(index, packet.sender, message))

    def on_question(self, now: Nanos, datagram: bytes, address: Address) -> None:
        number, _ = packets.decode_numbered(datagram)
        reply = packets.encode_certificate(number, self._introductions.certificate)
        if len(reply) > len(datagram):
            self._output.refused["malformed"] += 1
        elif not self.limiter.may_reply(now):
            self._output.refused["too-many-questions"] += 1
        else:
            self._output.notices["certificate-sent"] += 1
            self._output.transmit(address, None, reply)


class Initiator:
    """Begins handshakes, and completes them."""

    def __init__(
        self, introductions: Introductions, table: SessionTable, random: Callable[[int], bytes], output: SessionOutput
    ) -> None:
        self._introductions = introductions
        self._table = table
        self._random = random
        self._output = output
        self._number = 0
        """Of the last handshake that this peer began."""

    def begin(self, now: Nanos, session: PeerSession, address: Address | None) -> None:
        """Begin a handshake, unless one has begun."""
        if session.handshake is None:
            if address is None:
                return
            session.handshake = PendingHandshake(session.peer, address, now)
            if session.identity is not None:
                self._send_initiation(now, session, session.handshake, session.identity)
            else:
                self.ask(session.handshake, session.peer)
        session.handshake.demand_ns = now

    def retry(self, now: Nanos, session: PeerSession) -> None:
        """Repeat a handshake that is due, or give it up."""
        pending = session.handshake
        if pending is None or now < pending.due_ns:
            return
        if now - pending.demand_ns > GIVE_UP_NS:
            self._table.end_handshake(session)
            self._output.notices["handshake-given-up"] += 1
            return
        pending.count_retry(now)
        pending.address = session.retry_address(pending.tries) or pending.address
        identity = pending.identity or session.identity
        if pending.tries % 2 == 0 and identity is not None:
            self._send_initiation(now, session, pending, identity)
        else:
            self.ask(pending, session.peer)  # it may have another key

    def ask(self, attempt: PendingHandshake | AddressSession, peer: PeerId | None) -> None:
        """Ask an address for the certificate of its peer."""
        if not attempt.question or attempt.question_address != attempt.address:
            self._table.number_question(attempt, self._random(packets.NUMBER_BYTES))
            attempt.question_address = attempt.address
        self._output.transmit(attempt.address, peer, packets.encode_question(attempt.question))

    def _send_initiation(self, now: Nanos, session: PeerSession, pending: PendingHandshake, identity: Identity) -> None:
        """Send the first message of a handshake."""
        self._number += 1
        self._table.number_handshake(pending)
        pending.identity = identity
        try:
            pending.noise = InitiatorHandshake(
                self._introductions.static, identity.session_key, self._random(32), PROLOGUE
            )
            message = pending.noise.write(self._introductions.encode(self._number, padded=True))
        except WireError:  # the root has signed an invalid key
            self._output.refused["wrong-handshake"] += 1
            return
        packet = packets.encode_initiation(pending.index, message)
        pending.mac1 = mac(mac1_key(identity.session_key), packet)
        cookie = session.valid_cookie(now)
        mac2 = bytes(packets.MAC_BYTES) if cookie is None else mac(cookie, packet, pending.mac1)
        self._output.notices["handshake-begun"] += 1
        packet += pending.mac1 + mac2
        keys = session.current
        if (
            pending.tries % 2 == 0
            and keys is not None
            and now < keys.ends_ns
            and not session.is_silent(now, SILENCE_NS)
        ):
            packet = keys.seal(packets.REKEYING, packet)
        self._output.transmit(pending.address, session.peer, packet)

    def on_certificate(
        self, now: Nanos, datagram: bytes, address: Address
    ) -> tuple[PeerSession, AddressSession] | None:
        """Continue a handshake. If the certificate tells which peer is at an unknown address, returns both."""
        number, certificate = packets.decode_numbered(datagram)
        attempt = self._table.take_question(number, address)
        if attempt is None:
            if self._table.was_asked(number):
                self._output.notices["certificate-late"] += 1
            else:
                self._output.refused["unexpected-certificate"] += 1
            return None
        try:
            identity = self._introductions.verify(now, certificate)
        except Untrusted as error:
            self._output.refuse_certificate(address, error)
            return None
        peer = identity.peer
        if (
            peer is None
            or peer == self._introductions.id
            or (isinstance(attempt, PendingHandshake) and attempt.peer != peer)
        ):
            self._output.refused["other-certificate"] += 1
            return None
        session = self._table.get_or_make_session(now, peer)
        if session is None:
            self._output.refused["too-many-peers"] += 1
            return None
        if session.current is None:  # otherwise the session keeps the identity of its current keys
            session.identity, session.certificate = identity, certificate
        if isinstance(attempt, AddressSession):
            return session, attempt
        self._send_initiation(now, session, attempt, identity)
        return None

    def on_cookie(self, now: Nanos, datagram: bytes) -> None:
        receiver, salt, sealed = packets.decode_cookie(datagram)
        pending = self._table.handshakes.get(receiver)
        if pending is None or pending.identity is None:
            self._output.refused["unexpected-cookie"] += 1
            return
        session = self._table.peers[pending.peer]
        session.cookie = open_cookie(pending.identity.session_key, salt, sealed, pending.mac1)
        session.cookie_ns = now
        if not pending.has_shown_cookie:
            pending.has_shown_cookie = True
            self._send_initiation(now, session, pending, pending.identity)

    def on_answer(self, now: Nanos, datagram: bytes, address: Address) -> TransportKeys | None:
        """The keys that a handshake has made; None if the answer is refused."""
        theirs, ours, message = packets.decode_answer(datagram)
        pending = self._table.handshakes.get(ours)
        if pending is None or pending.noise is None or pending.identity is None:
            self._output.refused["unexpected-answer"] += 1
            return None
        try:
            payload, (sealing, opening) = pending.noise.read(message)
            introduction = packets.decode_introduction(payload)
        except WireError:
            self._output.refused["wrong-handshake"] += 1
            return None
        identity = self._introductions.accept(now, introduction, pending.identity.session_key, address)
        if identity is None:
            return None
        session = self._table.peers[pending.peer]
        if identity.peer != pending.peer:
            self._output.refused["other-certificate"] += 1
            return None
        if introduction.incarnation < session.incarnation:
            self._output.refused["stale"] += 1
            return None
        if session.is_twin(now, introduction.incarnation, introduction.process):
            self._output.refuse_twin(address, f"peer {session.peer}")
            return None
        self._table.end_handshake(session)
        keys = TransportKeys(
            now, session, identity, introduction,
            index=ours, receiver=theirs, sealing=sealing, opening=opening, initiator=True,
        )  # fmt: skip
        self._table.add_keys(keys)
        session.heard_ns, session.unanswered_ns = now, 0
        return keys
