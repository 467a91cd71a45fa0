"""Signatures of events: the publisher's peer signs an event, and the subscriber's peer verifies the signature.

Links protect events hop by hop, so every peer on a route could change one. A signature (Ed25519, with the key of the
publisher's certificate) covers the id, the attributes, the payload and the headers. It travels with the certificate in
a header of the event. The ttl is not covered, because a forwarding peer could drop the event anyway.
"""

from base64 import b64decode, b64encode
from collections import OrderedDict

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from wend.model.errors import Untrusted
from wend.model.events import SIGNATURE_HEADER, SIGNED_BY_HEADER, Attributes, Event, EventId, Headers
from wend.security.identity import Credentials, Identity, Verifier
from wend.security.packets import MAX_CERTIFICATE_BYTES

_DOMAIN = "wend event 1"
_SIGNATURE_BYTES = 64
_MAX_CHARS = 4 * (MAX_CERTIFICATE_BYTES + _SIGNATURE_BYTES) // 3 + 8
_CACHED = 1024
_encoder = msgspec.msgpack.Encoder()


def signed_bytes(id_: EventId, attributes: Attributes, payload: bytes, headers: Headers) -> bytes:
    """The bytes that a signature covers."""
    signed = sorted((name, text) for name, text in headers.items() if name not in (SIGNATURE_HEADER, SIGNED_BY_HEADER))
    return _encoder.encode((_DOMAIN, tuple(id_), sorted(attributes.items()), payload, signed))


class EventSigner:
    """Signs the events that the clients of one peer publish."""

    def __init__(self, credentials: Credentials) -> None:
        self._certificate = credentials.certificate
        self._key = Ed25519PrivateKey.from_private_bytes(credentials.signing_secret)

    def sign(self, id_: EventId, attributes: Attributes, payload: bytes, headers: Headers) -> Headers:
        """The headers of an event with its signature."""
        signature = self._key.sign(signed_bytes(id_, attributes, payload, headers))
        return {**headers, SIGNATURE_HEADER: b64encode(self._certificate + signature).decode()}


class EventVerifier:
    """Verifies signatures of events. It verifies a certificate once, and trusts it while it is valid."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._identities: OrderedDict[bytes, Identity] = OrderedDict()
        """By certificate: those that were verified last."""

    def verify(self, event: Event, now_s: int) -> str:
        """The name of the site that signed an event. Raises `Untrusted`."""
        certificate, signature = _split_header(event.headers[SIGNATURE_HEADER])
        identity = self._verify_certificate(certificate, now_s)
        id_ = event.origin or event.id
        if identity.peer != id_.publisher:
            raise Untrusted(f"an event of peer {id_.publisher} has the signature of {identity.name}")
        try:
            signed = signed_bytes(id_, event.attributes, event.payload, event.headers)
            Ed25519PublicKey.from_public_bytes(identity.signing_key).verify(signature, signed)
        except InvalidSignature:
            raise Untrusted(f"an event does not have the signature of {identity.name}") from None
        return identity.name

    def _verify_certificate(self, certificate: bytes, now_s: int) -> Identity:
        identity = self._identities.get(certificate)
        if identity is not None and identity.not_before_s <= now_s <= identity.not_after_s:
            return identity
        identity = self._verifier.verify(certificate, now_s)
        self._identities[certificate] = identity
        if len(self._identities) > _CACHED:
            self._identities.popitem(last=False)
        return identity


def _split_header(header: str) -> tuple[bytes, bytes]:
    try:
        if len(header) > _MAX_CHARS:
            raise ValueError
        data = b64decode(header, validate=True)
    except ValueError:
        raise Untrusted("the signature of an event is malformed") from None
    if len(data) <= _SIGNATURE_BYTES:
        raise Untrusted("the signature of an event is malformed")
    return data[:-_SIGNATURE_BYTES], data[-_SIGNATURE_BYTES:]
