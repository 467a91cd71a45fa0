"""Introductions: how a peer identifies itself in handshakes, and whose introductions it accepts."""

from wend.model.errors import Untrusted
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos
from wend.security.cookies import Address
from wend.security.identity import Credentials, Identity, Verifier
from wend.security.noise import KeyPair
from wend.security.packets import Introduction
from wend.security.session_effects import SessionOutput


class Introductions:
    """Shows the certificate of this peer, and verifies those of other peers by the host's clock."""

    def __init__(
        self,
        credentials: Credentials,
        verifier: Verifier,
        output: SessionOutput,
        *,
        incarnation: int,
        version: int,
        process: int,
    ) -> None:
        if credentials.identity.peer is None:
            raise Untrusted("the certificate is that of a client, and a peer needs one with a peer id")
        self.id: PeerId = credentials.identity.peer
        self.verifier = verifier
        self._output = output
        self._incarnation = incarnation
        self._version = version
        self._process = process
        self._wall_s, self._wall_read_ns = 0, 0
        self.renew(credentials)

    def renew(self, credentials: Credentials) -> None:
        """Show another certificate, perhaps with another key, from the next handshake on."""
        if credentials.identity.peer != self.id:
            raise Untrusted(f"the certificate is for peer {credentials.identity.peer}, and this is peer {self.id}")
        self.certificate = credentials.certificate
        self.static = KeyPair(credentials.session_secret)

    def set_time(self, now: Nanos, wall_s: int) -> None:
        self._wall_s, self._wall_read_ns = wall_s, now

    def wall_s(self, now: Nanos) -> int:
        """The time of the host's clock: the last reading, and the time since."""
        return self._wall_s + (now - self._wall_read_ns) // SECOND

    def encode(self, number: int, *, padded: bool) -> bytes:
        """The introduction of this peer. `number` is that of a handshake that it begins, or 0."""
        own = Introduction(self._version, self._incarnation, number, self.certificate, self._process)
        return own.encode(padded=padded)

    def verify(self, now: Nanos, certificate: bytes) -> Identity:
        """Raises `Untrusted`."""
        return self.verifier.verify(certificate, self.wall_s(now))

    def accept(self, now: Nanos, introduction: Introduction, static: bytes, address: Address) -> Identity | None:
        """The identity of another peer that has introduced itself and has this static key; None if it is refused."""
        if introduction.version != self._version:
            self._output.refused["other-version"] += 1
            return None
        try:
            identity = self.verify(now, introduction.certificate)
        except Untrusted as error:
            self._output.refuse_certificate(address, error)
            return None
        if identity.session_key == static and identity.peer == self.id and introduction.process != self._process:
            self._output.refuse_twin(address, "this peer")
            return None
        if identity.session_key != static or identity.peer is None or identity.peer == self.id:
            self._output.refused["other-certificate"] += 1
            return None
        return identity
