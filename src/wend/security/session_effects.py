"""The effects of a session layer: packets that its driver transmits, and changes of sessions."""

from collections import Counter

import msgspec

from wend.model.errors import Untrusted
from wend.model.events import PeerId
from wend.security.cookies import Address


class TransmitPacket(msgspec.Struct, frozen=True):
    """Send a datagram."""

    address: Address
    peer: PeerId | None
    """The receiver, if it is known: the driver may emulate the link to it."""
    datagram: bytes


class SessionReady(msgspec.Struct, frozen=True):
    """A session with this incarnation of a peer has begun."""

    peer: PeerId
    address: Address
    incarnation: int


class SessionMoved(msgspec.Struct, frozen=True):
    """A peer was heard from another address."""

    peer: PeerId
    address: Address


class SessionEnded(msgspec.Struct, frozen=True):
    """The certificate of a peer is no longer accepted."""

    peer: PeerId
    reason: str


class SessionRefused(msgspec.Struct, frozen=True):
    """A certificate from this address is not accepted."""

    address: Address
    reason: str


SessionEffect = TransmitPacket | SessionReady | SessionMoved | SessionEnded | SessionRefused


class SessionOutput:
    """The effects and counters of one session layer, which all its parts write to."""

    def __init__(self, refused: Counter[str] | None, notices: Counter[str] | None) -> None:
        self.refused: Counter[str] = Counter() if refused is None else refused
        self.notices: Counter[str] = Counter() if notices is None else notices
        self.effects: list[SessionEffect] = []

    def take_effects(self) -> list[SessionEffect]:
        effects = self.effects.copy()
        self.effects.clear()
        return effects

    def transmit(self, address: Address, peer: PeerId | None, datagram: bytes) -> None:
        self.effects.append(TransmitPacket(address, peer, datagram))

    def refuse_certificate(self, address: Address, error: Untrusted) -> None:
        self.refused["untrusted"] += 1
        self.effects.append(SessionRefused(address, str(error)))

    def refuse_twin(self, address: Address, whose: str) -> None:
        """Refuse a process whose certificate another live process has, too."""
        self.refused["id-in-use"] += 1
        self.effects.append(SessionRefused(address, f"another process has the certificate of {whose}"))

    def count_unsent(self, messages: int) -> None:
        """Count messages that got no session in time, or have no destination address."""
        if messages:
            self.notices["no-session"] += messages
