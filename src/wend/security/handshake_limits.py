"""Decides whether an initiation of a stranger is worth a public-key operation.

Without a cookie, all strangers together may begin some handshakes per second, and each address of a peer with a session
a few more. Beyond that a stranger must show a cookie; then there are limits for each host and for all hosts together.
Replies to strangers are limited, too, and none is larger than the packet that caused it.
"""

import hmac
from collections import Counter
from collections.abc import Callable, Container

import msgspec

from wend.model.units import MS, SECOND, Nanos
from wend.security import packets
from wend.security.cookies import Address, CookieJar, mac, mac1_key
from wend.security.packets import InitiationPacket
from wend.security.token_buckets import SourceBuckets, TokenBucket, source_network

SHUT_NS: Nanos = MS
"""How long initiations of strangers are refused unread after the tokens for replies were used up."""


class SessionLimits(msgspec.Struct, frozen=True):
    """How much a peer does for strangers, per second."""

    handshakes: float = 50
    """Without a cookie, of all sources together."""
    proved: float = 200
    """With a cookie, of all sources together."""
    per_source: float = 20
    """With a cookie, of one host."""
    per_peer: float = 2
    """From the address of a peer with a session, in addition."""
    replies: float = 1000
    """Cookies and certificates."""


class HandshakeLimiter:
    """The limits of one peer."""

    def __init__(
        self, public: bytes, limits: SessionLimits, random: Callable[[int], bytes], refused: Counter[str]
    ) -> None:
        self._random = random
        self.refused = refused
        self._mac1_key = mac1_key(public)
        self._jar = CookieJar(public)
        self._unproved = TokenBucket(limits.handshakes, limits.handshakes)
        self._proved = TokenBucket(limits.proved, limits.proved)
        self._replies = TokenBucket(limits.replies, limits.replies)
        self._sources = SourceBuckets(limits.per_source, 2 * limits.per_source)
        self._peer_sources = SourceBuckets(limits.per_peer, 4 * limits.per_peer)
        self._shut_ns: Nanos = 0

    @property
    def size(self) -> int:
        return len(self._sources) + len(self._peer_sources)

    def should_refuse_unread(
        self, now: Nanos, datagram: bytes | memoryview, address: Address, owned: Container[Address]
    ) -> bool:
        """Whether to refuse an initiation unread: it shows no cookie, no peer with a session has its address, and a
        moment ago there was no token for a reply."""
        if now >= self._shut_ns or address in owned or any(datagram[-packets.MAC_BYTES :]):
            return False
        self.refused["too-many-handshakes"] += 1
        return True

    def admit_or_make_cookie(
        self, now: Nanos, packet: InitiationPacket, address: Address, owned: Container[Address]
    ) -> bool | bytes:
        """Whether to continue with an initiation, or a cookie to send instead."""
        if not hmac.compare_digest(mac(self._mac1_key, packet.signed), packet.mac1):
            self.refused["wrong-mac"] += 1
            return False
        now_s, source = now / SECOND, source_network(address[0])
        if any(packet.mac2) and self._jar.accepts(now, address, packet.signed, packet.mac1, packet.mac2):
            if self._sources.take(source, now_s) and self._proved.take(now_s):
                return True
            self.refused["too-many-handshakes"] += 1
            return False
        if self._unproved.take(now_s) or (address in owned and self._peer_sources.take(source, now_s)):
            return True
        self.refused["too-many-handshakes"] += 1
        if self._replies.take(now_s):
            return self._make_cookie_packet(now, packet, address)
        self._shut_ns = now + SHUT_NS
        return False

    def may_reply(self, now: Nanos) -> bool:
        return self._replies.take(now / SECOND)

    def _make_cookie_packet(self, now: Nanos, packet: InitiationPacket, address: Address) -> bytes:
        if self._jar.needs_secret(now):
            self._jar.renew(now, self._random(32))
        salt = self._random(packets.SALT_BYTES)
        return packets.encode_cookie(packet.sender, salt, self._jar.seal(address, salt, packet.mac1))
