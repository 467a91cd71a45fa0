"""The keys of one session, which seal and open its packets.

A pair of keys numbers each message (the nonce) and never reuses a number. It lives for three minutes. A peer keeps a
few pairs for each other peer, so that it can open packets that were under way during a new handshake:

    next        only for opening: this peer answered a handshake, and no packet has come under these keys yet
    current     for sealing and opening
    previous    only for opening, until they end: they were current
    superseded  of the previous incarnation: packets under them show that two processes have one certificate
"""

from typing import TYPE_CHECKING, final

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.security.identity import Identity
from wend.security.noise import nonce
from wend.security.packets import HEAD_NUMBERS, TRANSPORT_HEADER, Introduction
from wend.security.replay import ReplayWindow

if TYPE_CHECKING:
    from wend.security.peer_session import PeerSession

_pack_header = TRANSPORT_HEADER.pack
REKEY_NS: Nanos = 120 * SECOND
"""The initiator of a session begins the next handshake when its keys have this age and it has a message to send."""
REKEY_LATE_NS: Nanos = 150 * SECOND
"""The other side does, if the initiator did not."""
END_NS: Nanos = 180 * SECOND
"""Older keys seal and open nothing."""


Opened = tuple[PeerId, int, int, bytes]
"""An authentic inner datagram: its sender with its incarnation, the kind, and the body. A plain tuple, because one is
made for every packet."""


@final
class TransportKeys:
    """The keys of both directions of a session."""

    __slots__ = (
        "certificate",
        "encrypt",
        "ends_ns",
        "identity",
        "incarnation",
        "index",
        "made_ns",
        "open",
        "peer",
        "process",
        "receiver",
        "rekey_ns",
        "sent",
        "session",
        "window",
    )

    def __init__(
        self,
        now: Nanos,
        session: "PeerSession",
        identity: Identity,
        introduction: Introduction,
        *,
        index: int,
        receiver: int,
        sealing: bytes,
        opening: bytes,
        initiator: bool,
    ) -> None:
        assert identity.peer is not None
        self.peer: PeerId = identity.peer
        self.identity = identity
        self.session = session
        self.incarnation = introduction.incarnation
        self.process = introduction.process
        self.certificate = introduction.certificate
        """Of the other peer, from the handshake."""
        self.index = index
        """By which this peer finds the keys of a packet."""
        self.receiver = receiver
        """By which the other peer finds them."""
        self.made_ns = now
        self.rekey_ns = now + (REKEY_NS if initiator else REKEY_LATE_NS)
        self.ends_ns = now + END_NS
        self.sent = 0
        self.window = ReplayWindow()
        self.encrypt = ChaCha20Poly1305(sealing).encrypt
        self.open = ChaCha20Poly1305(opening).decrypt

    def seal(self, kind: int, body: bytes) -> bytes:
        """The transport packet of a message."""
        counter, header = self.next_header(kind)
        return header + self.encrypt(nonce(counter), body, header)

    def next_header(self, kind: int) -> tuple[int, bytes]:
        """The number and the header of the next packet."""
        counter = self.sent
        self.sent = counter + 1
        return counter, _pack_header(HEAD_NUMBERS[kind], self.receiver, counter)
