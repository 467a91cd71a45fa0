"""Certificates: the root of an overlay says who a site or a client is.

They are X.509 certificates with Ed25519 keys, so that TLS libraries and `openssl x509 -text` read them. Our own
extension holds what X.509 has no field for: the peer's id, the groups, and the X25519 key for sessions between peers.
Certificates are small (`MAX_CERTIFICATE_BYTES`), so that a handshake with one fits a datagram.

`RootVerifier` reads certificates of strangers. It checks the root's signature before it reads the content. Whatever the
bytes are, it returns an identity or raises `Untrusted`.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, SignatureAlgorithmOID

from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.security.identity import Credentials, Identity, Untrusted
from wend.security.packets import KEY_BYTES, MAX_CERTIFICATE_BYTES

MAX_ROOT: Final = 1000
MAX_REQUEST: Final = 1000
MAX_NAME: Final = 64
"""The longest name, in bytes: X.509's limit for common names."""
MAX_GROUPS: Final = 16
MAX_PEER_ID: Final = 2**32 - 1
MAX_SERIAL: Final = 2**63 - 1

WEND_OID: Final = x509.ObjectIdentifier("2.25.166094757036713484372906532064185301")
"""Our own extension. Its arc is derived from a UUID, so nobody else has it."""
_VERSION: Final = 1
_SHORT_DER: Final = 0x7F
_SIGNATURE_HEAD: Final = b"\x03\x41\x00"
"""A bit string of 64 bytes."""
_PEER_USE: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_ROOT_USAGE: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Claims(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of our extension. A request states only the session key."""

    version: int
    session_key: bytes
    peer: PeerId | None = None
    groups: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """A request to the root to sign a certificate for a site or a client."""

    name: str
    session_key: bytes
    signing_key: bytes


class Root(msgspec.Struct, frozen=True):
    """The root's certificate, as peers and clients know it."""

    name: str
    certificate: bytes
    signing_key: bytes
    not_before_s: int
    not_after_s: int


# ---------------------------------------------------------------- making


def make_root(name: str, signing_secret: bytes, *, serial: int, not_before_s: int, not_after_s: int) -> bytes:
    """A self-signed certificate of a root."""
    key = Ed25519PrivateKey.from_private_bytes(signing_secret)
    subject = _make_subject(name)
    builder = _make_builder(subject, subject, key.public_key(), serial, not_before_s, not_after_s)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_ROOT_USAGE, critical=True)
    return builder.sign(key, None).public_bytes(Encoding.DER)


def make_request(name: str, signing_secret: bytes, session_secret: bytes) -> bytes:
    """A certificate request. Its signature shows that the site has the key."""
    key = Ed25519PrivateKey.from_private_bytes(signing_secret)
    claims = Claims(_VERSION, public_session_key(session_secret))
    builder = x509.CertificateSigningRequestBuilder().subject_name(_make_subject(name))
    builder = builder.add_extension(make_extension(claims), critical=False)
    return builder.sign(key, None).public_bytes(Encoding.DER)


def sign_certificate(
    request: bytes,
    root: bytes,
    root_secret: bytes,
    *,
    serial: int,
    peer: PeerId | None,
    groups: Sequence[str],
    not_before_s: int,
    not_after_s: int,
    name: str | None = None,
) -> bytes:
    """The certificate for a request. The root decides on the peer's id, the groups and, if it gives one, the name."""
    content = read_request(request)
    issuer = read_root(root)
    key = Ed25519PrivateKey.from_private_bytes(root_secret)
    if key.public_key().public_bytes_raw() != issuer.signing_key:
        raise ConfigError("the root's key does not belong to the root's certificate")
    if peer is not None and not 0 <= peer <= MAX_PEER_ID:
        raise ConfigError(f"a peer id is in 0..{MAX_PEER_ID}, got {peer}")
    if not_after_s > issuer.not_after_s:
        raise ConfigError(f"the root ends at {utc_text(issuer.not_after_s)}, before the certificate would")
    check_groups(groups)
    use = [ExtendedKeyUsageOID.CLIENT_AUTH] if peer is None else list(_PEER_USE)
    claims = Claims(_VERSION, content.session_key, peer, tuple(groups))
    subject = _make_subject(content.name if name is None else name)
    public = Ed25519PublicKey.from_public_bytes(content.signing_key)
    builder = _make_builder(subject, _make_subject(issuer.name), public, serial, not_before_s, not_after_s)
    builder = builder.add_extension(x509.ExtendedKeyUsage(use), critical=False)
    builder = builder.add_extension(make_extension(claims), critical=False)
    certificate = builder.sign(key, None).public_bytes(Encoding.DER)
    if len(certificate) > MAX_CERTIFICATE_BYTES:
        raise ConfigError(
            f"the certificate would have {len(certificate)} bytes, more than {MAX_CERTIFICATE_BYTES}: "
            "give fewer or shorter groups"
        )
    return certificate


def make_credentials(certificate: bytes, session_secret: bytes, signing_secret: bytes) -> Credentials:
    """A certificate with its keys. Raises `ConfigError` for keys of another certificate. A verifier checks who signed
    the certificate, this function does not."""
    identity = read_identity(certificate)
    if public_session_key(session_secret) != identity.session_key:
        raise ConfigError(f"the session key does not belong to the certificate of {identity.name}")
    if public_signing_key(signing_secret) != identity.signing_key:
        raise ConfigError(f"the signing key does not belong to the certificate of {identity.name}")
    return Credentials(certificate, session_secret, signing_secret, identity)


def public_session_key(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def public_signing_key(secret: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def check_groups(groups: Sequence[str]) -> None:
    """Raise `ConfigError` for invalid groups of a certificate or token."""
    if len(groups) > MAX_GROUPS or len(set(groups)) != len(groups):
        raise ConfigError(f"a certificate has up to {MAX_GROUPS} different groups, got {', '.join(groups)}")
    for group in groups:
        check_name(group, "group")


def check_name(name: str, what: str = "name") -> None:
    """Raise `ConfigError` for an invalid name. A slash is reserved: it separates the name of a client from those of its
    durable subscriptions."""
    is_long = not 0 < len(name.encode(errors="surrogateescape")) <= MAX_NAME
    if is_long or not name.isprintable() or name != name.strip() or "/" in name:
        raise ConfigError(f"a {what} has 1 to {MAX_NAME} bytes, all printable and no slash, got {name!r}")


def utc_text(seconds: int) -> str:
    """A time in UTC, as commands and refusals show it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"


# ---------------------------------------------------------------- reading


def read_request(request: bytes) -> Request:
    """Read a request and check its signature. Raises `ConfigError`."""
    if len(request) > MAX_REQUEST:
        raise ConfigError(f"a request has up to {MAX_REQUEST} bytes, got {len(request)}")
    try:
        parsed = x509.load_der_x509_csr(request)
        key = parsed.public_key()
        is_signed = isinstance(key, Ed25519PublicKey) and parsed.is_signature_valid
        name, claims = _read_name(parsed.subject), _find_claims(parsed.extensions)
    except Untrusted as error:
        raise ConfigError(f"the request cannot be signed: {error}") from None
    except Exception:
        raise ConfigError("this is not a certificate request") from None
    if not is_signed or not isinstance(key, Ed25519PublicKey):
        raise ConfigError("the request is not signed by the key that it names")
    return Request(name, claims.session_key, key.public_bytes_raw())


def read_identity(certificate: bytes) -> Identity:
    """The identity in a certificate, no matter who signed it. Raises `ConfigError`."""
    try:
        return _parse_identity(x509.load_der_x509_certificate(certificate))
    except Untrusted as error:
        raise ConfigError(str(error)) from None
    except Exception:
        raise ConfigError("this is not a certificate") from None


def read_root(certificate: bytes) -> Root:
    """Read a root's certificate and check its own signature. Raises `ConfigError`."""
    if len(certificate) > MAX_ROOT:
        raise ConfigError(f"a root's certificate has up to {MAX_ROOT} bytes, got {len(certificate)}")
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        key = parsed.public_key()
        is_root = parsed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        if not is_root or not isinstance(key, Ed25519PublicKey):
            raise ConfigError("this certificate is not a root's")
        key.verify(parsed.signature, parsed.tbs_certificate_bytes)
        dates = int(parsed.not_valid_before_utc.timestamp()), int(parsed.not_valid_after_utc.timestamp())
        return Root(_read_name(parsed.subject), certificate, key.public_bytes_raw(), *dates)
    except InvalidSignature:
        raise ConfigError("the root's certificate is not signed by the root") from None
    except (x509.ExtensionNotFound, Untrusted):
        raise ConfigError("this certificate is not a root's") from None
    except ConfigError:
        raise
    except Exception:
        raise ConfigError("this is not a certificate") from None


class RootVerifier:
    """Verifies certificates by one root, or by several while one replaces another.

    It is immutable: a renewed blocklist makes a new verifier.
    """

    def __init__(self, roots: bytes | Sequence[bytes], revoked: Collection[int] = frozenset()) -> None:
        self.roots = tuple(read_root(root) for root in ([roots] if isinstance(roots, bytes) else roots))
        self.revoked = frozenset(revoked)
        self._keys = [Ed25519PublicKey.from_public_bytes(root.signing_key) for root in self.roots]

    def verify(self, certificate: bytes, now_s: int) -> Identity:
        """The identity in a certificate. Raises nothing but `Untrusted`."""
        if len(certificate) > MAX_CERTIFICATE_BYTES:
            raise Untrusted(f"a certificate has up to {MAX_CERTIFICATE_BYTES} bytes, got {len(certificate)}")
        try:
            parsed = x509.load_der_x509_certificate(certificate)
            if not certificate.endswith(_SIGNATURE_HEAD + parsed.signature):  # else a signature has several encodings
                raise Untrusted("this is not a certificate")
            issuer = self._find_issuer(parsed)
            identity = _parse_identity(parsed)
        except Untrusted:
            raise
        except Exception:  # hostile bytes may raise anything in the parser
            raise Untrusted("this is not a certificate") from None
        self.check(identity, now_s)
        if now_s > issuer.not_after_s:
            raise Untrusted(f"the root {issuer.name} has ended at {utc_text(issuer.not_after_s)}")
        return identity

    def check(self, identity: Identity, now_s: int) -> None:
        """Check an identity again: it may have ended or been revoked since. Raises `Untrusted`."""
        if identity.serial in self.revoked:
            raise Untrusted(f"the certificate of {identity.name} is revoked", code="credentials-revoked")
        if now_s < identity.not_before_s:
            raise Untrusted(f"the certificate of {identity.name} begins at {utc_text(identity.not_before_s)}")
        if now_s > identity.not_after_s:
            sentence = f"the certificate of {identity.name} has ended at {utc_text(identity.not_after_s)}"
            raise Untrusted(sentence, code="credentials-expired")

    def _find_issuer(self, certificate: x509.Certificate) -> Root:
        """The root that signed the certificate."""
        if certificate.signature_algorithm_oid != SignatureAlgorithmOID.ED25519:
            raise Untrusted("the certificate is not signed with Ed25519")
        for root, key in zip(self.roots, self._keys, strict=True):
            try:
                key.verify(certificate.signature, certificate.tbs_certificate_bytes)
            except InvalidSignature:
                continue
            return root
        raise Untrusted("the certificate is not signed by the root")


def _parse_identity(parsed: x509.Certificate) -> Identity:
    """The content of a certificate. Raises `Untrusted` if it is not ours, or any error of the parser."""
    key = parsed.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise Untrusted("the certificate's key is not an Ed25519 key")
    if not 0 < parsed.serial_number <= MAX_SERIAL:
        raise Untrusted("the certificate's serial number is out of range")
    claims = _find_claims(parsed.extensions)
    return Identity(
        serial=parsed.serial_number,
        name=_read_name(parsed.subject),
        peer=claims.peer,
        groups=claims.groups,
        session_key=claims.session_key,
        signing_key=key.public_bytes_raw(),
        not_before_s=int(parsed.not_valid_before_utc.timestamp()),
        not_after_s=int(parsed.not_valid_after_utc.timestamp()),
    )


def _find_claims(extensions: x509.Extensions) -> Claims:
    """Our extension. The only other one that a certificate may have limits its use in TLS."""
    ours: Claims | None = None
    for extension in extensions:
        if extension.oid == WEND_OID and isinstance(extension.value, x509.UnrecognizedExtension):
            ours = _read_extension(extension.value.value)
        elif not isinstance(extension.value, x509.ExtendedKeyUsage):
            raise Untrusted("the certificate has an extension that Wend does not use")
    if ours is None:
        raise Untrusted("the certificate was not made for Wend")
    return ours


def _read_extension(value: bytes) -> Claims:
    try:
        claims = msgspec.msgpack.decode(_read_octet_string(value), type=Claims)
        check_groups(claims.groups)
    except (msgspec.DecodeError, ConfigError):
        _refuse_malformed()
    if claims.version != _VERSION or len(claims.session_key) != KEY_BYTES:
        _refuse_malformed()
    if claims.peer is not None and not 0 <= claims.peer <= MAX_PEER_ID:
        _refuse_malformed()
    return claims


def _refuse_malformed() -> NoReturn:
    raise Untrusted("the certificate's extension for Wend is malformed") from None


def _read_name(subject: x509.Name) -> str:
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1 or len(list(subject)) != 1 or not isinstance(names[0].value, str):
        raise Untrusted("the certificate does not have one name")
    try:
        check_name(names[0].value)
    except ConfigError as error:
        raise Untrusted(str(error)) from None
    return names[0].value


# ---------------------------------------------------------------- X.509


def _make_subject(name: str) -> x509.Name:
    check_name(name)
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _make_builder(
    subject: x509.Name, issuer: x509.Name, key: Ed25519PublicKey, serial: int, not_before_s: int, not_after_s: int
) -> x509.CertificateBuilder:
    if not 0 <= not_before_s < not_after_s < 2**37:
        raise ConfigError("a certificate ends after it begins")
    if not 0 < serial <= MAX_SERIAL:
        raise ConfigError(f"a serial number is in 1..{MAX_SERIAL}, got {serial}")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(datetime.fromtimestamp(not_before_s, UTC))
        .not_valid_after(datetime.fromtimestamp(not_after_s, UTC))
    )


def make_extension(claims: Claims) -> x509.UnrecognizedExtension:
    """Our extension, as a DER octet string."""
    content = msgspec.msgpack.encode(claims)
    size = len(content)
    header = bytes([4, size]) if size <= _SHORT_DER else bytes([4, 0x82, *size.to_bytes(2, "big")])
    return x509.UnrecognizedExtension(WEND_OID, header + content)


def _read_octet_string(value: bytes) -> bytes:
    """The content of a DER octet string, as `make_extension` makes it."""
    if len(value) >= 2 and value[0] == 4 and value[1] <= _SHORT_DER and len(value) == 2 + value[1]:
        return value[2:]
    if len(value) >= 4 and value[:2] == b"\x04\x82" and len(value) == 4 + int.from_bytes(value[2:4], "big"):
        return value[4:]
    _refuse_malformed()
