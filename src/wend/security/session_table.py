"""The tables of a session layer: peers, addresses, keys and handshakes. All are bounded."""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.security.cookies import Address
from wend.security.peer_session import ALIVE_NS, AddressSession, PeerSession, PendingHandshake
from wend.security.transport import TransportKeys

MAX_PEERS = 4096
"""Peers with a session, now or recently."""
MAX_UNKNOWN = 256
"""Addresses that are asked for the certificate of their peer."""


class SessionTable:
    def __init__(self, random: Callable[[int], bytes]) -> None:
        self._random = random
        self.peers: dict[PeerId, PeerSession] = {}
        self.unknown: dict[Address, AddressSession] = {}
        """Addresses whose peers are not known yet."""
        self.at: dict[Address, PeerId] = {}
        """The peer that was heard at an address, or sent its certificate from there."""
        self.by_index: dict[int, TransportKeys] = {}
        self.handshakes: dict[int, PendingHandshake] = {}
        """Handshakes that this peer began, by its index."""
        self._questions: dict[bytes, PendingHandshake | AddressSession] = {}
        """Questions about certificates, by their number."""
        self._ended: dict[bytes, None] = {}
        """The last questions that were answered or given up."""

    @property
    def size(self) -> int:
        """Entries of all tables together. Strangers must not make it grow."""
        of_peers = len(self.peers) + len(self.unknown) + len(self.at)
        return of_peers + len(self.by_index) + len(self.handshakes) + len(self._questions)

    def get_or_make_session(self, now: Nanos, peer: PeerId) -> PeerSession | None:
        """Return the entry of a peer, a new one if there is none; None if too many peers have keys."""
        session = self.peers.get(peer)
        if session is None:
            if len(self.peers) >= MAX_PEERS:
                idle = next((other for other, entry in self.peers.items() if entry.is_idle(now)), None)
                if idle is None:
                    return None
                self.forget(idle)
            session = self.peers[peer] = PeerSession(peer)
        return session

    def forget(self, peer: PeerId) -> None:
        session = self.peers.pop(peer, None)
        if session is not None:
            self.drop_keys(session)
            self.at = {address: owner for address, owner in self.at.items() if owner != peer}

    def record_address(self, now: Nanos, peer: PeerId, address: Address) -> None:
        """Record that a peer was heard at this address. If another live peer has the address, that one keeps it: the
        source of this packet was wrong."""
        owner = self.peers.get(self.at.pop(address, peer))
        if owner is not None and owner.peer != peer and owner.address == address and now - owner.heard_ns <= ALIVE_NS:
            peer = owner.peer
        if len(self.at) >= 2 * MAX_PEERS:
            del self.at[next(iter(self.at))]
        self.at[address] = peer

    def forget_address(self, peer: PeerId, address: Address | None) -> None:
        """Record that a peer is no longer at this address."""
        if address is not None and self.at.get(address) == peer:
            del self.at[address]

    # ---------------------------------------------------------------- keys and handshakes

    def add_keys(self, keys: TransportKeys) -> None:
        self.by_index[keys.index] = keys

    def remove_keys(self, ended: list[TransportKeys]) -> None:
        for keys in ended:
            self.by_index.pop(keys.index, None)

    def drop_keys(self, session: PeerSession) -> None:
        """Forget all keys of a session, and a handshake for new ones."""
        self.remove_keys(session.drop_all())
        self.end_handshake(session)

    def end_handshake(self, session: PeerSession) -> None:
        if session.handshake is not None:
            self.handshakes.pop(session.handshake.index, None)
            self._end_question(session.handshake)
            session.handshake = None

    def number_handshake(self, pending: PendingHandshake) -> None:
        """Give a handshake a new index."""
        self.handshakes.pop(pending.index, None)
        pending.index = self.new_index()
        self.handshakes[pending.index] = pending

    def number_question(self, attempt: PendingHandshake | AddressSession, number: bytes) -> None:
        self._end_question(attempt)
        attempt.question = number
        self._questions[number] = attempt

    def take_question(self, number: bytes, address: Address) -> PendingHandshake | AddressSession | None:
        """The attempt that asked this question at this address. Each question is answered once."""
        attempt = self._questions.get(number)
        if attempt is None or attempt.address != address:
            return None
        self._end_question(attempt)
        return attempt

    def was_asked(self, number: bytes) -> bool:
        """Whether this peer asked this question recently, and no longer needs an answer."""
        return number in self._ended

    def _end_question(self, attempt: PendingHandshake | AddressSession) -> None:
        if self._questions.pop(attempt.question, None) is not None:
            self._ended[attempt.question] = None
            if len(self._ended) > MAX_UNKNOWN:
                del self._ended[next(iter(self._ended))]
        attempt.question = b""

    def remove_unknown(self, attempt: AddressSession) -> None:
        self._end_question(attempt)
        del self.unknown[attempt.address]

    def new_index(self) -> int:
        """A random number that neither keys nor a handshake have."""
        while True:
            index = int.from_bytes(self._random(4), "little")
            if index and index not in self.by_index and index not in self.handshakes:
                return index
