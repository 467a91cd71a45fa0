"""The handshakes of a session layer: those that others begin, and those that this peer begins.

A handshake needs the certificate of the other peer. Whoever does not have it asks the address for it (`QUESTION`). An
initiation costs a mac and no more until it has passed `handshake_limits.py`, and makes no state until its certificate
is verified.
"""

from wend.model.errors import Untrusted, WireError
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address, mac, mac1_key, open_cookie
from wend.security.identity import Identity
from wend.security.noise import Answer, Initiation
from wend.security.packets import Introduction
from wend.security.peer_session import REKEYING_NS, AddressSession, PeerSession, PendingHandshake
from wend.security.session_effects import SessionRefused
from wend.security.session_state import SessionState
from wend.security.transport import TransportKeys

PROLOGUE = b"wend session 1"
SILENCE_NS: Nanos = 5 * SECOND
"""A peer that has not answered for so long may have lost its keys: a new handshake finds out."""


class Handshakes(SessionState):
    """Makes keys with other peers."""

    def _on_handshake(self, now: Nanos, datagram: bytes | memoryview, address: Address) -> None:
        try:
            self._handshake(now, bytes(datagram), address)
        except WireError:
            self.refused["malformed"] += 1

    def _handshake(self, now: Nanos, datagram: bytes, address: Address) -> None:
        match packets.type_of(datagram):
            case packets.INITIATION:
                self._on_initiation(now, datagram, address)
            case packets.ANSWER:
                self._on_answer(now, datagram, address)
            case packets.COOKIE:
                self._on_cookie(now, datagram)
            case packets.QUESTION:
                self._on_question(now, datagram, address)
            case packets.CERTIFICATE:
                self._on_certificate(now, datagram, address)
            case None if packets.is_sealed(datagram):
                self.refused["another version"] += 1
            case None:
                self.refused["not sealed"] += 1
            case _:
                self.refused["malformed"] += 1

    # ---------------------------------------------------------------- handshakes that others begin

    def _on_initiation(self, now: Nanos, datagram: bytes, address: Address) -> None:
        packet = packets.decode_initiation(datagram)
        admitted = self._limiter.admits(now, packet, address, self._table.at)
        if isinstance(admitted, bytes):
            self.notices["cookie-sent"] += 1
            self._transmit(address, None, admitted)
        if admitted is True:
            self._answer(now, packet, address)

    def _on_rekeying(self, now: Nanos, session: PeerSession, datagram: bytes, address: Address) -> None:
        """An initiation came in a session: it needs no limits but one, so that no peer can make another one work."""
        if session.rekeying_ns and now - session.rekeying_ns < REKEYING_NS:
            self.refused["too many handshakes"] += 1
            return
        session.rekeying_ns = now
        try:
            self._answer(now, packets.decode_initiation(datagram), address)
        except WireError:
            self.refused["malformed"] += 1

    def _answer(self, now: Nanos, packet: packets.InitiationPacket, address: Address) -> None:
        try:
            answer = Answer(self._static, packet.handshake, PROLOGUE)
            said = packets.decode_introduction(answer.payload)
        except WireError:
            self.refused["wrong handshake"] += 1
            return
        identity = self._verified(now, said, answer.remote, address)
        if identity is None or identity.peer is None:
            return
        session = self._table.session(now, identity.peer)
        if session is None:
            self.refused["too many peers"] += 1
            return
        if session.is_of_another_process(now, said.incarnation, said.process):
            self._doubled(address, session.peer)
            return
        if (said.incarnation, said.number) <= session.latest or said.incarnation < session.incarnation:
            self.refused["replayed handshake"] += 1
            return
        session.latest = (said.incarnation, said.number)
        written, (opening, sealing) = answer.write(self._introduction(0).encode(padded=False), self._random(32))
        index = self._table.new_index()
        keys = TransportKeys(
            now, session, identity, said,
            index=index, receiver=packet.sender, sealing=sealing, opening=opening, initiator=False,
        )  # fmt: skip
        if session.next is not None:
            self._table.remove_keys([session.next])
        session.next = keys
        self._table.add_keys(keys)
        self.notices["handshake-answered"] += 1
        self._transmit(address, None, packets.answer(index, packet.sender, written))

    def _on_question(self, now: Nanos, datagram: bytes, address: Address) -> None:
        number, _ = packets.decode_numbered(datagram)
        reply = packets.certificate(number, self._credentials.certificate)
        if len(reply) > len(datagram):
            self.refused["malformed"] += 1
        elif not self._limiter.may_reply(now):
            self.refused["too many questions"] += 1
        else:
            self.notices["certificate-sent"] += 1
            self._transmit(address, None, reply)

    # ---------------------------------------------------------------- handshakes that this peer begins

    def _begin(self, now: Nanos, session: PeerSession, address: Address | None) -> None:
        """Begin a handshake, unless one is under way."""
        if session.handshake is None:
            if address is None:
                return
            session.handshake = PendingHandshake(session.peer, address, now)
            if session.identity is not None:
                self._initiate(now, session, session.handshake, session.identity)
            else:
                self._ask(session.handshake, session.peer)
        session.handshake.wanted_ns = now

    def _initiate(self, now: Nanos, session: PeerSession, pending: PendingHandshake, identity: Identity) -> None:
        """Send the first message of a handshake."""
        self._number += 1
        self._table.number_handshake(pending)
        pending.identity = identity
        try:
            pending.noise = Initiation(self._static, identity.session_key, self._random(32), PROLOGUE)
            said = self._introduction(self._number).encode(padded=True)
            packet = packets.initiation(pending.index, pending.noise.write(said))
        except WireError:  # the root has signed a key that is none
            self.refused["wrong handshake"] += 1
            return
        pending.mac1 = mac(mac1_key(identity.session_key), packet)
        cookie = session.cookie_at(now)
        mac2 = bytes(packets.MAC_BYTES) if cookie is None else mac(cookie, packet, pending.mac1)
        self.notices["handshake-begun"] += 1
        packet += pending.mac1 + mac2
        is_heard = not session.unanswered_ns or now - session.unanswered_ns <= SILENCE_NS
        if pending.tries % 2 == 0 and is_heard and session.current is not None and now < session.current.ends_ns:
            packet = session.current.seal(packets.REKEYING, packet)
        self._transmit(pending.address, session.peer, packet)

    def _ask(self, pending: PendingHandshake | AddressSession, peer: PeerId | None) -> None:
        """Ask an address for the certificate of its peer."""
        if not pending.question or pending.asked != pending.address:
            self._table.number_question(pending, self._random(packets.NUMBER_BYTES))
            pending.asked = pending.address
        self._transmit(pending.address, peer, packets.question(pending.question))

    def _on_certificate(self, now: Nanos, datagram: bytes, address: Address) -> None:
        number, certificate = packets.decode_numbered(datagram)
        pending = self._table.answered(number, address)
        if pending is None:
            if self._table.was_asked(number):
                self.notices["certificate-late"] += 1
            else:
                self.refused["a certificate that nobody asked for"] += 1
            return
        try:
            identity = self._verifier.verify(certificate, self.wall_s(now))
        except Untrusted as why:
            self._untrusted(address, why)
            return
        peer = identity.peer
        if peer is None or peer == self.id or (isinstance(pending, PendingHandshake) and pending.peer != peer):
            self.refused["a certificate of somebody else"] += 1
            return
        session = self._table.session(now, peer)
        if session is None:
            self.refused["too many peers"] += 1
            return
        if session.current is None:  # else they are those of the present keys, until there are others
            session.identity, session.certificate = identity, certificate
        if isinstance(pending, PendingHandshake):
            self._initiate(now, session, pending, identity)
        else:
            self._found(now, session, pending)

    def _found(self, now: Nanos, session: PeerSession, waiting: AddressSession) -> None:
        """The peer at an address is known: speak with it."""
        self._table.remove_unknown(waiting)
        self._table.note_address(now, session.peer, waiting.address)
        if session.address is None:
            session.address = waiting.address
        session.waiting.extend(waiting.waiting)
        self._lost(session.trim(now))
        if self.has_session(now, session.peer):
            self._flush(now, session)
        else:
            self._begin(now, session, waiting.address)

    def _on_cookie(self, now: Nanos, datagram: bytes) -> None:
        receiver, salt, sealed = packets.decode_cookie(datagram)
        pending = self._table.handshakes.get(receiver)
        if pending is None or pending.identity is None:
            self.refused["a cookie that nobody asked for"] += 1
            return
        session = self._peers[pending.peer]
        session.cookie = open_cookie(pending.identity.session_key, salt, sealed, pending.mac1)
        session.cookie_ns = now
        if not pending.cookied:
            pending.cookied = True
            self._initiate(now, session, pending, pending.identity)

    def _on_answer(self, now: Nanos, datagram: bytes, address: Address) -> None:
        theirs, ours, message = packets.decode_answer(datagram)
        pending = self._table.handshakes.get(ours)
        if pending is None or pending.noise is None or pending.identity is None:
            self.refused["an answer that nobody asked for"] += 1
            return
        try:
            payload, (sealing, opening) = pending.noise.read(message)
            said = packets.decode_introduction(payload)
        except WireError:
            self.refused["wrong handshake"] += 1
            return
        identity = self._verified(now, said, pending.identity.session_key, address)
        if identity is None:
            return
        session = self._peers[pending.peer]
        if identity.peer != pending.peer:
            self.refused["a certificate of somebody else"] += 1
            return
        if said.incarnation < session.incarnation:
            self.refused["stale"] += 1
            return
        if session.is_of_another_process(now, said.incarnation, said.process):
            self._doubled(address, session.peer)
            return
        self._table.end_handshake(session)
        keys = TransportKeys(
            now, session, identity, said,
            index=ours, receiver=theirs, sealing=sealing, opening=opening, initiator=True,
        )  # fmt: skip
        self._table.add_keys(keys)
        session.heard_ns, session.unanswered_ns = now, 0
        self._adopt(now, session, keys, address)

    # ---------------------------------------------------------------- who is there

    def _verified(self, now: Nanos, said: Introduction, static: bytes, address: Address) -> Identity | None:
        """Whose introduction this is, if it is accepted."""
        if said.version != self._version:
            self.refused["another version"] += 1
            return None
        try:
            identity = self._verifier.verify(said.certificate, self.wall_s(now))
        except Untrusted as why:
            self._untrusted(address, why)
            return None
        if identity.session_key == static and identity.peer == self.id and said.process != self._process:
            self._doubled(address, self.id)
            return None
        if identity.session_key != static or identity.peer is None or identity.peer == self.id:
            self.refused["a certificate of somebody else"] += 1
            return None
        return identity

    def _introduction(self, number: int) -> Introduction:
        """What this peer says about itself."""
        return Introduction(self._version, self._incarnation, number, self._credentials.certificate, self._process)

    def _doubled(self, address: Address, peer: PeerId) -> None:
        """A process has the certificate of another one that lives."""
        self.refused["an id that another process has"] += 1
        whose = "this peer" if peer == self.id else f"peer {peer}"
        self.effects.append(SessionRefused(address, f"another process has the certificate of {whose}"))

    def _untrusted(self, address: Address, why: Untrusted) -> None:
        self.refused["untrusted"] += 1
        self.effects.append(SessionRefused(address, why.reason))
