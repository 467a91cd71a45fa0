"""Certificates for tests: an identity with a mac in the place of the root's signature, so that worlds are fast."""

from collections.abc import Callable
from functools import cache
from hashlib import blake2s

import msgspec

from wend.model.random_stream import peer_stream
from wend.security.identity import Credentials, Identity, Untrusted
from wend.security.noise import KeyPair

START_S = 1_800_000_000
YEAR_S = 365 * 86_400


def certificate_of(identity: Identity, root: bytes = b"root") -> bytes:
    body = msgspec.msgpack.encode(identity)
    return blake2s(body, key=root).digest() + body


class MacVerifier:
    """Accepts what one root has signed, is valid and not revoked."""

    def __init__(self, root: bytes = b"root") -> None:
        self._root = root
        self.revoked: set[int] = set()

    def verify(self, certificate: bytes, now_s: int) -> Identity:
        if blake2s(certificate[32:], key=self._root).digest() != certificate[:32]:
            raise Untrusted("the root did not sign it")
        identity = msgspec.msgpack.decode(certificate[32:], type=Identity)
        if not identity.not_before_s <= now_s <= identity.not_after_s:
            raise Untrusted("it is not valid now")
        if identity.serial in self.revoked:
            raise Untrusted("it is revoked")
        return identity


class Gullible(MacVerifier):
    """Accepts every certificate: what a session must not do."""

    def verify(self, certificate: bytes, now_s: int) -> Identity:
        return msgspec.msgpack.decode(certificate[32:], type=Identity)


def random_bytes(*names: object) -> Callable[[int], bytes]:
    return peer_stream(0, *map(str, names)).randbytes


@cache
def credentials_of(
    peer: int | None, *, serial: int = 0, root: bytes = b"root", life_s: int = 10 * YEAR_S, key: object = ""
) -> Credentials:
    secret = random_bytes("key", peer, key)(32)
    identity = Identity(
        serial=serial or 1000 + (peer or 0), name=f"site-{peer}", peer=peer, groups=(),
        session_key=KeyPair(secret).public, signing_key=bytes(32),
        not_before_s=START_S - YEAR_S, not_after_s=START_S + life_s,
    )  # fmt: skip
    return Credentials(certificate_of(identity, root), secret, bytes(32), identity)
