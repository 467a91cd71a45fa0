"""Macs and cookies: checks on strangers before a peer spends a public-key operation on them.

**mac1** shows that the sender of an initiation knows this peer's public key. It costs a microsecond to check.

**mac2** shows that the sender receives datagrams at the address that it claims: its key is a cookie that the peer sent
there. The peer demands it only while there are many handshakes (`handshake_limits.py`). Cookies need no memory: each is
a mac of the address under a secret that changes every two minutes.
"""

import hmac
from hashlib import blake2s

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from wend.model.errors import WireError
from wend.model.units import MINUTE, Nanos
from wend.security.packets import COOKIE_BYTES, MAC_BYTES

SECRET_NS: Nanos = 2 * MINUTE
"""A cookie is valid for at least this time, and at most twice as long."""
_MAC1_LABEL, _COOKIE_LABEL = b"wend mac1", b"wend cookie"
_NO_NONCE = bytes(12)

Address = tuple[str, int]


def mac(key: bytes, *parts: bytes) -> bytes:
    return blake2s(b"".join(parts), digest_size=MAC_BYTES, key=key).digest()


def mac1_key(public: bytes) -> bytes:
    """The key of mac1 in initiations to the peer with this static key."""
    return blake2s(_MAC1_LABEL + public).digest()


def cookie_key(public: bytes, salt: bytes) -> bytes:
    """The key under which the peer with this static key seals one cookie."""
    return blake2s(_COOKIE_LABEL + public + salt).digest()


def open_cookie(public: bytes, salt: bytes, sealed: bytes, mac1: bytes) -> bytes:
    """The cookie that a peer sent in reply to the initiation with this mac1. Raises `WireError`."""
    try:
        return ChaCha20Poly1305(cookie_key(public, salt)).decrypt(_NO_NONCE, sealed, mac1)
    except InvalidTag:
        raise WireError("a cookie that is not authentic") from None


class CookieJar:
    """Makes and checks the cookies of one peer."""

    def __init__(self, public: bytes) -> None:
        self._public = public
        self._secrets: list[bytes] = []
        self._made_ns: Nanos = 0

    def needs_secret(self, now: Nanos) -> bool:
        return not self._secrets or now - self._made_ns >= SECRET_NS

    def renew(self, now: Nanos, secret: bytes) -> None:
        """Use a new secret. Cookies of the previous one stay valid."""
        recent = self._secrets[:1] if now - self._made_ns < 2 * SECRET_NS else []
        self._secrets = [secret, *recent]
        self._made_ns = now

    def seal(self, address: Address, salt: bytes, mac1: bytes) -> bytes:
        """The cookie for an address, which only those who saw the initiation can open."""
        sealing = ChaCha20Poly1305(cookie_key(self._public, salt))
        return sealing.encrypt(_NO_NONCE, self._make_cookie(self._secrets[0], address), mac1)

    def accepts(self, now: Nanos, address: Address, signed: bytes, mac1: bytes, mac2: bytes) -> bool:
        """Whether mac2 is made with a cookie for this address."""
        return now - self._made_ns < 2 * SECRET_NS and any(
            hmac.compare_digest(mac(self._make_cookie(secret, address), signed, mac1), mac2) for secret in self._secrets
        )

    @staticmethod
    def _make_cookie(secret: bytes, address: Address) -> bytes:
        return blake2s(f"{address[0]} {address[1]}".encode(), digest_size=COOKIE_BYTES, key=secret).digest()
