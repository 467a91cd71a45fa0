"""Noise_IK_25519_ChaChaPoly_BLAKE2s: the handshake of sessions (noiseprotocol.org, revision 34).

    <- s                  the initiator knows the static key of the responder
    -> e, es, s, ss       its static key and payload are encrypted to the responder
    <- e, ee, se          from here on both sides have forward secrecy

There is one pattern with one set of primitives and nothing to negotiate. Ephemeral keys are handed in: this module
draws no random numbers. Every fault in the bytes of a message is a `WireError`.
"""

import hmac
import struct
from copy import copy
from hashlib import blake2s
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from wend.model.errors import WireError
from wend.security.packets import FIRST_BYTES, KEY_BYTES, SECOND_BYTES, TAG_BYTES

NAME = b"Noise_IK_25519_ChaChaPoly_BLAKE2s"
_NO_NONCE = bytes(12)
nonce: Final = struct.Struct("<4xQ").pack
"""The nonce of ChaChaPoly for the message with this number."""


class KeyPair:
    """An X25519 key with its public half; made once, because deriving the public half costs a multiplication."""

    def __init__(self, secret: bytes) -> None:
        self._secret = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._secret.public_key().public_bytes_raw()

    def exchange(self, public: bytes) -> bytes:
        """The shared secret with another key. Raises `WireError` for a point of low order."""
        try:
            return self._secret.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise WireError("a public key that gives no shared secret") from None


def derive(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    """HKDF with two outputs."""
    secret = hmac.digest(chaining_key, material, "blake2s")
    first = hmac.digest(secret, b"\1", "blake2s")
    return first, hmac.digest(secret, first + b"\2", "blake2s")


class SymmetricState:
    """The chaining key, the hash of all messages so far, and the key of the next encryption."""

    def __init__(self, prologue: bytes, responder: bytes) -> None:
        self._chaining_key = self.hash = blake2s(NAME).digest()
        self._key = b""
        self.mix_hash(prologue)
        self.mix_hash(responder)

    def mix_hash(self, data: bytes) -> None:
        self.hash = blake2s(self.hash + data).digest()

    def mix_key(self, material: bytes) -> None:
        self._chaining_key, self._key = derive(self._chaining_key, material)

    def encrypt(self, plain: bytes) -> bytes:
        """Encrypt once under the present key: in this pattern a new key is mixed before every encryption."""
        sealed = ChaCha20Poly1305(self._key).encrypt(_NO_NONCE, plain, self.hash)
        self.mix_hash(sealed)
        return sealed

    def decrypt(self, sealed: bytes) -> bytes:
        try:
            plain = ChaCha20Poly1305(self._key).decrypt(_NO_NONCE, sealed, self.hash)
        except InvalidTag:
            raise WireError("a handshake message that is not authentic") from None
        self.mix_hash(sealed)
        return plain

    def split(self) -> tuple[bytes, bytes]:
        """The keys of both directions: from the initiator, and to it."""
        return derive(self._chaining_key, b"")


class InitiatorHandshake:
    """A handshake as seen by the peer that began it."""

    def __init__(self, static: KeyPair, remote: bytes, ephemeral: bytes, prologue: bytes) -> None:
        self._static = static
        self._remote = remote
        self._ephemeral = KeyPair(ephemeral)
        self._state = SymmetricState(prologue, remote)

    def write(self, payload: bytes) -> bytes:
        """The first message."""
        state, ephemeral = self._state, self._ephemeral
        state.mix_hash(ephemeral.public)
        state.mix_key(ephemeral.exchange(self._remote))
        static = state.encrypt(self._static.public)
        state.mix_key(self._static.exchange(self._remote))
        return ephemeral.public + static + state.encrypt(payload)

    def read(self, message: bytes) -> tuple[bytes, tuple[bytes, bytes]]:
        """The payload of the second message, and the keys of both directions. A message that raises `WireError` changes
        nothing, because the right one may still come."""
        if len(message) < SECOND_BYTES:
            raise WireError("a handshake message that is too short")
        state = copy(self._state)
        remote = message[:KEY_BYTES]
        state.mix_hash(remote)
        state.mix_key(self._ephemeral.exchange(remote))
        state.mix_key(self._static.exchange(remote))
        return state.decrypt(message[KEY_BYTES:]), state.split()


class ResponderHandshake:
    """A handshake as seen by the other peer, made from the first message."""

    def __init__(self, static: KeyPair, message: bytes, prologue: bytes) -> None:
        """Raises `WireError` if the message is not authentic."""
        if len(message) < FIRST_BYTES:
            raise WireError("a handshake message that is too short")
        self._state = state = SymmetricState(prologue, static.public)
        self._ephemeral = message[:KEY_BYTES]
        state.mix_hash(self._ephemeral)
        state.mix_key(static.exchange(self._ephemeral))
        self.remote = state.decrypt(message[KEY_BYTES : 2 * KEY_BYTES + TAG_BYTES])
        """The static key of the initiator."""
        state.mix_key(static.exchange(self.remote))
        self.payload = state.decrypt(message[2 * KEY_BYTES + TAG_BYTES :])

    def write(self, payload: bytes, ephemeral: bytes) -> tuple[bytes, tuple[bytes, bytes]]:
        """The second message, and the keys of both directions: from the initiator, and to it."""
        state, own = self._state, KeyPair(ephemeral)
        state.mix_hash(own.public)
        state.mix_key(own.exchange(self._ephemeral))
        state.mix_key(own.exchange(self.remote))
        return own.public + state.encrypt(payload), state.split()
