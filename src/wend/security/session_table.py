"""The tables of a session layer: peers, addresses, keys and handshakes. All are bounded."""

from collections.abc import Callable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.security.cookies import Address
from wend.security.peer_session import ALIVE_NS, AddressSession, PeerSession, PendingHandshake
from wend.security.transport import TransportKeys

MOST_PEERS = 4096
"""Peers with which there is a session, or was one lately."""
MOST_UNKNOWN = 256
"""Addresses that are asked for their certificate."""


class SessionTable:
    def __init__(self, random: Callable[[int], bytes]) -> None:
        self._random = random
        self.peers: dict[PeerId, PeerSession] = {}
        self.unknown: dict[Address, AddressSession] = {}
        """Addresses whose peers are not known yet."""
        self.at: dict[Address, PeerId] = {}
        """Who was heard at an address, or sent its certificate from there."""
        self.by_index: dict[int, TransportKeys] = {}
        self.handshakes: dict[int, PendingHandshake] = {}
        """Handshakes that this peer began, by its index."""
        self.questions: dict[bytes, PendingHandshake | AddressSession] = {}
        """Questions about certificates, by their number."""
        self._ended: dict[bytes, None] = {}
        """The last ones that were answered or are not wanted any more."""

    @property
    def size(self) -> int:
        """Entries of all tables together: what strangers must not make grow."""
        of_peers = len(self.peers) + len(self.unknown) + len(self.at)
        return of_peers + len(self.by_index) + len(self.handshakes) + len(self.questions)

    def session(self, now: Nanos, peer: PeerId) -> PeerSession | None:
        """The entry of a peer, which may be new. None if there are too many with keys."""
        session = self.peers.get(peer)
        if session is None:
            if len(self.peers) >= MOST_PEERS:
                idle = next((p for p, s in self.peers.items() if s.is_idle(now)), None)
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

    def note_address(self, now: Nanos, peer: PeerId, address: Address) -> None:
        """A peer was heard at this address. If another one that lives is there, a source was wrong, and it stays."""
        owner = self.peers.get(self.at.pop(address, peer))
        if owner is not None and owner.peer != peer and owner.address == address and now - owner.heard_ns <= ALIVE_NS:
            peer = owner.peer
        if len(self.at) >= 2 * MOST_PEERS:
            del self.at[next(iter(self.at))]
        self.at[address] = peer

    def forget_address(self, peer: PeerId, address: Address | None) -> None:
        """A peer is at this address no more."""
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
        self.remove_keys(session.drop_keys())
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

    def number_question(self, pending: PendingHandshake | AddressSession, number: bytes) -> None:
        self._end_question(pending)
        pending.question = number
        self.questions[number] = pending

    def _end_question(self, pending: PendingHandshake | AddressSession) -> None:
        if self.questions.pop(pending.question, None) is not None:
            self._ended[pending.question] = None
            if len(self._ended) > MOST_UNKNOWN:
                del self._ended[next(iter(self._ended))]
        pending.question = b""

    def was_asked(self, number: bytes) -> bool:
        """Whether this peer asked this question lately, and wants no answer any more."""
        return number in self._ended

    def answered(self, number: bytes, address: Address) -> PendingHandshake | AddressSession | None:
        """What asked this question at this address. It is answered only once."""
        pending = self.questions.get(number)
        if pending is None or pending.address != address:
            return None
        self._end_question(pending)
        return pending

    def remove_unknown(self, waiting: AddressSession) -> None:
        self._end_question(waiting)
        del self.unknown[waiting.address]

    def new_index(self) -> int:
        """A random number that no keys have."""
        while True:
            index = int.from_bytes(self._random(4), "little")
            if index and index not in self.by_index and index not in self.handshakes:
                return index
