"""The session layer of one peer: handshakes, keys and addresses of all peers that it speaks with; without IO.

The driver gives it time, random bytes, datagrams and messages. It gives back sealed datagrams, opened messages, and
effects (`take_effects`): packets to transmit, and what became of sessions.

- **Begin.** A message to a peer without keys waits, in a queue of fixed size, for a handshake. The handshake needs the
  certificate of the other peer; whoever does not have it asks the address for it (`QUESTION`).
- **Strangers.** An initiation costs a mac and no more until it has passed `handshake_limits.py`. It makes no
  state until its certificate is verified. Then there is one entry for each peer, in a table of fixed size.
- **Replayed handshakes.** An initiation has the incarnation of its sender and a number. One that is not higher than the
  last is refused. After a restart this peer does not know the last one, so a replayed initiation may be answered; but
  its keys stay unused, because nobody can seal a packet with them.
- **Rekeying.** Keys live for three minutes, and new ones are made after two. The side that answered a handshake seals
  with the new keys once something came under them. Former keys open packets that are under way.
- **Simultaneous handshakes** both complete. Each side has the keys of both, and each seals with one of them.
- **Roaming.** The address of a peer is the one from which its newest authentic packet came. If it does not answer
  there, handshakes also try the one that the driver gave.
- **Certificates** are verified in each handshake, and again when they end and by `recheck`. A session whose certificate
  is no longer accepted ends at once.
- **Clocks.** Ages of keys are monotonic time. Only certificates depend on the clock of the host: one that is set wrong
  ends sessions whose certificates it makes invalid, and the peer refuses new ones until it is right again.
"""

from collections import Counter
from collections.abc import Callable

from cryptography.exceptions import InvalidTag

from wend.model.errors import Untrusted, WireError
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address, mac, mac1_key, open_cookie
from wend.security.handshake_limits import HandshakeLimiter, SessionLimits
from wend.security.identity import Credentials, Identity, Verifier
from wend.security.noise import Answer, Initiation, KeyPair
from wend.security.packets import HEADER_BYTES, Introduction
from wend.security.peer_session import ALIVE_NS, AddressSession, PeerSession, PendingHandshake, WaitingMessage
from wend.security.session_effects import (
    SessionEffect,
    SessionEnded,
    SessionMoved,
    SessionReady,
    SessionRefused,
    TransmitPacket,
)
from wend.security.session_table import MOST_UNKNOWN, SessionTable
from wend.security.transport import ZERO, Opened, TransportKeys

_unpack, _KINDS = packets.TRANSPORT_HEADER.unpack_from, packets.KINDS
_INITIATION = int.from_bytes(packets.head(packets.INITIATION), "little")
PROLOGUE = b"wend session 1"
SILENCE_NS: Nanos = 5 * SECOND
"""A peer that has not answered for so long may have lost its keys: a new handshake finds out."""
KEEPALIVE_NS: Nanos = 2 * SECOND
"""A peer that was written to, and had nothing to say for so long, sends an empty packet."""
GIVE_UP_NS: Nanos = 20 * SECOND
"""A handshake ends if nothing was to be sent for so long."""
RECHECK_NS: Nanos = 60 * SECOND


class SessionLayer:
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
        """`version`: of the wire format of the messages inside. `random`: makes so many random bytes. `refused` counts
        packets that are refused, by reason; `notices` counts what happens."""
        peer = credentials.identity.peer
        if peer is None:
            raise Untrusted("the certificate is that of a client, and a peer needs one with a peer id")
        self.id: PeerId = peer
        self.refused: Counter[str] = Counter() if refused is None else refused
        self.notices: Counter[str] = Counter() if notices is None else notices
        self._incarnation = incarnation
        self._version = version
        self._random = random
        self._process = int.from_bytes(random(8), "little")
        self._limits = limits
        self._verifier = verifier
        self._use(credentials)
        self._table = SessionTable(random)
        self._by_index = self._table.by_index
        self.peers = self._peers = self._table.peers
        self._number = 0
        """Of the last handshake that this peer began."""
        self.effects: list[SessionEffect] = []
        """What the driver is to do; `take_effects` takes them."""
        self._wall_s, self._told_ns = 0, 0
        self._recheck_ns: Nanos = 0

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

    def wall_s(self, now: Nanos) -> int:
        """The time of the host's clock, as it was told last, and what passed since."""
        return self._wall_s + (now - self._told_ns) // SECOND

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

    def locate(self, now: Nanos, peer: PeerId, address: Address) -> None:
        """Send to this peer at this address, until it is heard from another. If it is silent there, try this one."""
        session = self._table.session(now, peer)
        if session is not None:
            session.address = session.given = address

    def forget(self, peer: PeerId) -> None:
        """End the session with a peer."""
        self._table.forget(peer)

    def take_effects(self) -> list[SessionEffect]:
        effects, self.effects = self.effects, []
        return effects

    def identity(self, peer: PeerId) -> Identity | None:
        """What the certificate of a peer says, if there is a session or was one lately."""
        session = self._peers.get(peer)
        return None if session is None else session.identity

    def address(self, peer: PeerId) -> Address | None:
        """Where packets to a peer go."""
        session = self._peers.get(peer)
        return None if session is None else session.address

    def waiting(self, peer: PeerId) -> int:
        """How many messages to a peer wait for a handshake."""
        session = self._peers.get(peer)
        return 0 if session is None else len(session.waiting)

    def has_session(self, now: Nanos, peer: PeerId) -> bool:
        session = self._peers.get(peer)
        return session is not None and session.current is not None and now < session.current.ends_ns

    @property
    def size(self) -> int:
        """Entries of all tables together: what strangers must not make grow."""
        return self._table.size + self._limiter.size

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
        return keys.seal(kind, body)

    def send_to(self, now: Nanos, address: Address, kind: int, body: bytes) -> None:
        """Send a message to whoever is at an address, as an effect, perhaps later."""
        peer = self._table.at.get(address)
        session = None if peer is None else self._peers.get(peer)
        if session is None:
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
        header = bytes(datagram[:HEADER_BYTES])
        try:
            body = keys.open(ZERO + header[8:], datagram[HEADER_BYTES:], header)
        except InvalidTag:
            self.refused["forged"] += 1
            return None
        newest, session = window.add(counter), keys.session
        if keys is not session.current:
            if keys is session.next:
                session.next = None
                self._adopt(now, session, keys, address)
            elif keys is session.superseded:
                self._on_superseded(now, session, address)
                return None
        elif newest and address != session.address:
            self._move(session, address)
        session.heard_ns, session.unanswered_ns = now, 0
        if kind < packets.REKEYING:
            if not session.owes_ns:
                session.owes_ns = now
            return keys.peer, keys.incarnation, kind, body
        if kind == packets.REKEYING:
            self._on_rekeying(now, body, address)
        return None

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

    def _on_rekeying(self, now: Nanos, datagram: bytes, address: Address) -> None:
        """An initiation came under the present keys: it needs no limits."""
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

    def _on_superseded(self, now: Nanos, session: PeerSession, address: Address) -> None:
        """An authentic packet of the incarnation before: it was under way, or that process still lives."""
        if now - session.superseded_ns > ALIVE_NS:
            self._doubled(address, session.peer)
        else:
            self.refused["stale"] += 1

    def _untrusted(self, address: Address, why: Untrusted) -> None:
        self.refused["untrusted"] += 1
        self.effects.append(SessionRefused(address, why.reason))

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
        session.identity, session.certificate = identity, certificate
        if isinstance(pending, PendingHandshake):
            self._initiate(now, session, pending, identity)
        else:
            self._found(now, session, pending)

    def _found(self, now: Nanos, session: PeerSession, waiting: AddressSession) -> None:
        """The peer at an address is known: speak with it."""
        self._table.remove_unknown(waiting)
        self._table.note_address(session.peer, waiting.address)
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

    # ---------------------------------------------------------------- sessions

    def _adopt(self, now: Nanos, session: PeerSession, keys: TransportKeys, address: Address) -> None:
        """Seal with these keys from now on."""
        is_new = session.current is None or session.incarnation != keys.incarnation
        self._table.remove_keys(session.adopt(now, keys))
        self.notices["session"] += 1
        if session.address != address:
            self._move(session, address)
        self._table.note_address(session.peer, address)
        if is_new:
            self.effects.append(SessionReady(session.peer, address, keys.incarnation))
        self._flush(now, session)

    def _flush(self, now: Nanos, session: PeerSession) -> None:
        """Send what waited, or an empty packet, so that the other side knows that this one has the keys."""
        keys = session.current
        if keys is None or session.address is None:
            return
        self._lost(session.trim(now))
        waiting, session.waiting = session.waiting, []
        for message in waiting:
            self._transmit(message.address or session.address, session.peer, keys.seal(message.kind, message.body))
        if not waiting:
            self._say_nothing(session)

    def _say_nothing(self, session: PeerSession) -> None:
        """Send an empty packet: it shows that this peer has the keys."""
        if session.current is not None and session.address is not None:
            self._transmit(session.address, session.peer, session.current.seal(packets.NOTHING, b""))

    def _move(self, session: PeerSession, address: Address) -> None:
        """The newest authentic packet of a peer came from another address than those before."""
        session.address = address
        self._table.note_address(session.peer, address)
        self.effects.append(SessionMoved(session.peer, address))

    def _end(self, session: PeerSession, reason: str) -> None:
        """The certificate of a peer is not accepted any more."""
        had_keys = session.current is not None
        self._table.drop_keys(session)
        session.certificate, session.identity = b"", None
        self._lost(len(session.waiting))
        session.waiting.clear()
        if had_keys:
            self.notices["session-ended"] += 1
            self.effects.append(SessionEnded(session.peer, reason))

    def _use(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._static = KeyPair(credentials.session_secret)
        self._limiter = HandshakeLimiter(self._static.public, self._limits, self._random, self.refused)

    def _lost(self, count: int) -> None:
        """So many messages are not sent: there was no session in time, or nobody knows where the peer is."""
        if count:
            self.notices["no-session"] += count

    def _transmit(self, address: Address, peer: PeerId | None, datagram: bytes) -> None:
        self.effects.append(TransmitPacket(address, peer, datagram))

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
        if session.identity is not None and self.wall_s(now) > session.identity.not_after_s:
            self._end(session, "the certificate has ended")
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
        if pending.tries % 2 == 0 and session.identity is not None:
            self._initiate(now, session, pending, session.identity)
        else:
            self._ask(pending, session.peer)  # it may have another key
