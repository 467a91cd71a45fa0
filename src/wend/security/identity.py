"""Identities: the content of a verified certificate, and the credentials by which a peer proves its own.

The session layer knows certificates only as bytes and asks a `Verifier` about them. So tests need no X.509, and this
package reads no files or revocation lists.
"""

from typing import Protocol

import msgspec

from wend.model.errors import Untrusted
from wend.model.events import PeerId

__all__ = ["Credentials", "Identity", "Untrusted", "Verifier"]


class Identity(msgspec.Struct, frozen=True):
    """The content of a verified certificate."""

    serial: int
    name: str
    """Of the site or client."""
    peer: PeerId | None
    """None for a client."""
    groups: tuple[str, ...]
    session_key: bytes
    """The X25519 public key, 32 bytes."""
    signing_key: bytes
    """The Ed25519 public key of the certificate, 32 bytes."""
    not_before_s: int
    not_after_s: int


class Verifier(Protocol):
    """Decides about certificates: it knows the root and the revoked serials."""

    def verify(self, certificate: bytes, now_s: int) -> Identity:
        """The identity in a certificate (DER) that is valid at this time. Raises `Untrusted`."""
        ...


class Credentials(msgspec.Struct, frozen=True):
    """The certificate of a peer, with its private keys."""

    certificate: bytes
    """DER."""
    session_secret: bytes
    """The X25519 private key, 32 bytes."""
    signing_secret: bytes
    """The Ed25519 private key, 32 bytes."""
    identity: Identity

    def __repr__(self) -> str:
        return f"Credentials({self.identity!r})"
