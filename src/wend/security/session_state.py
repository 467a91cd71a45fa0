"""What a session layer has: its credentials, its sessions with other peers, and what it tells the driver."""

from collections import Counter
from collections.abc import Callable

from wend.model.errors import Untrusted
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address
from wend.security.handshake_limits import HandshakeLimiter, SessionLimits
from wend.security.identity import Credentials, Identity, Verifier
from wend.security.noise import KeyPair
from wend.security.peer_session import PeerSession
from wend.security.session_effects import SessionEffect, SessionEnded, SessionMoved, SessionReady, TransmitPacket
from wend.security.session_table import SessionTable
from wend.security.transport import TransportKeys


class SessionState:
    """Sessions from the first keys to the end. A subclass makes the keys."""

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

    # ---------------------------------------------------------------- what the driver asks

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

    def wall_s(self, now: Nanos) -> int:
        """The time of the host's clock, as it was told last, and what passed since."""
        return self._wall_s + (now - self._told_ns) // SECOND

    # ---------------------------------------------------------------- sessions

    def _adopt(self, now: Nanos, session: PeerSession, keys: TransportKeys, address: Address) -> None:
        """Seal with these keys from now on."""
        is_new = session.current is None or session.incarnation != keys.incarnation
        self._table.remove_keys(session.adopt(now, keys))
        self.notices["session"] += 1
        if session.address != address:
            self._move(now, session, address)
        self._table.note_address(now, session.peer, address)
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

    def _move(self, now: Nanos, session: PeerSession, address: Address) -> None:
        """The newest authentic packet of a peer came from another address than those before."""
        self._table.forget_address(session.peer, session.address)
        session.address = address
        self._table.note_address(now, session.peer, address)
        self.effects.append(SessionMoved(session.peer, address))

    def _end(self, session: PeerSession, reason: str) -> None:
        """The certificate of a peer is not accepted any more. The driver is told even if there are no keys now: the
        peer may have those of multicast groups."""
        had_keys = session.current is not None
        self._table.drop_keys(session)
        session.certificate, session.identity = b"", None
        self._lost(len(session.waiting))
        session.waiting.clear()
        if had_keys:
            self.notices["session-ended"] += 1
        self.effects.append(SessionEnded(session.peer, reason))

    # ---------------------------------------------------------------- for all parts

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
