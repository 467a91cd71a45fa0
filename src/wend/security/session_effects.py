"""What a session layer tells its driver to do, and what it tells about sessions."""

import msgspec

from wend.model.events import PeerId
from wend.security.cookies import Address


class TransmitPacket(msgspec.Struct, frozen=True):
    """Send a datagram."""

    address: Address
    peer: PeerId | None
    """To whom, where that is known: the driver may emulate the link to it."""
    datagram: bytes


class SessionReady(msgspec.Struct, frozen=True):
    """There is a session with this incarnation of a peer, and there was none."""

    peer: PeerId
    address: Address
    incarnation: int


class SessionMoved(msgspec.Struct, frozen=True):
    """A peer was heard from another address."""

    peer: PeerId
    address: Address


class SessionEnded(msgspec.Struct, frozen=True):
    """The certificate of a peer is not accepted any more."""

    peer: PeerId
    reason: str


class SessionRefused(msgspec.Struct, frozen=True):
    """A certificate that came from this address is not accepted."""

    address: Address
    reason: str


SessionEffect = TransmitPacket | SessionReady | SessionMoved | SessionEnded | SessionRefused
