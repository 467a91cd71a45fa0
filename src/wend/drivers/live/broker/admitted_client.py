"""The identity and the access of one session's client. A certificate, a token or a local connection identifies it."""

import time
from typing import TYPE_CHECKING, Any

from wend.drivers.live.access.access import Access
from wend.drivers.live.access.source_limits import STATUS_PER_S, STATUS_PER_SOURCE_S
from wend.model.errors import Refused
from wend.security.identity import Identity

if TYPE_CHECKING:
    from wend.drivers.live.broker.listener import TcpListener


class AdmittedClient:
    """A stranger until `admit`; then a client with an access."""

    def __init__(self, listener: "TcpListener", source: str) -> None:
        self._listener = listener
        self._admission = listener.admission
        self._source = source
        self._has_slot = False
        self._is_stranger = True
        self._by_tls = False
        self._identity: Identity | None = None
        """None if the client did not connect by TLS, or is not known yet."""
        self._certificate: bytes | None = None
        """The certificate that the client showed."""
        self._verified_by: object = None
        """The verifier that accepted the certificate."""
        self.access: Access | None = None
        """The rights of the client; None for all."""

    def take_slot(self) -> None:
        """Count as a client of its source. Raises `Refused` if there is no room for it."""
        self._listener.slots.take_slot(self._source)
        self._has_slot = True

    def verify_tls(self, tls: Any) -> None:
        """Verify the certificate that the client shows by TLS, if any. Raises `Untrusted`."""
        self._by_tls = tls is not None
        self._certificate = tls.getpeercert(True) if self._by_tls else None
        if self._certificate is not None:
            self._check_certificate(self._certificate)

    def admit(self, token: str) -> None:
        """Determine the client's identity and access. Raises `Untrusted` or `Refused`."""
        if self._by_tls and self._identity is None:
            self._identity = self._admission.identify_by_token(token)
        broker = self._listener.broker
        durable = [backlog.options for backlog in broker.peer.peer.durable.values()]
        self.access = self._admission.open_access(self._identity, durable, broker)
        self._release_stranger()

    def recheck(self) -> None:
        """Check the client again. Raises `Untrusted` if its keys have expired or are not trusted any longer, and
        `Refused` if its rights have changed since it connected."""
        if self._certificate is not None:
            self._check_certificate(self._certificate)
        elif self._identity is not None:
            self._identity = self._admission.recheck(self._identity)
        if not self._is_stranger and self._admission.has_changed_rights(self._identity, self.access):
            raise Refused("the rights of this client have changed: it may connect again", code="rights-changed")

    def check_status(self) -> None:
        """Raise `Refused` if the client asks for the status too often. The limits are for all connections of a client
        with keys, and for all clients of one host."""
        if self._identity is None:
            return
        listener, now_s = self._listener, time.monotonic()
        if not listener.status_of_clients.take(self._identity.name, now_s):
            raise Refused(f"a client may ask for the status {STATUS_PER_S:g} times a second", code="status-refused")
        if not listener.status_of_sources.take(self._source, now_s):
            most = f"{STATUS_PER_SOURCE_S:g} times a second"
            raise Refused(f"clients of one host may ask for the status {most}", code="status-refused")

    def release_access(self) -> None:
        """Release the client's access, because the connection has ended."""
        self._release_stranger()
        if self._has_slot:
            self._has_slot = False
            self._listener.slots.release_slot(self._source)
        if self.access is not None:
            self.access.close()

    def _release_stranger(self) -> None:
        if self._is_stranger:
            self._is_stranger = False
            self._listener.limits.release(self._source)

    def _check_certificate(self, certificate: bytes) -> None:
        """Verify the client's certificate. With the same verifier as before, check only that it has not expired."""
        keys = self._admission.keys
        verifier = None if keys is None else keys.verifier
        if self._identity is None or verifier is not self._verified_by:
            self._identity, self._verified_by = self._admission.identify_by_certificate(certificate), verifier
        else:
            self._admission.recheck(self._identity)
