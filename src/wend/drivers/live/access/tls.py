"""TLS 1.3 between clients and peers, with certificates of the overlay's root.

A peer shows its certificate; a client shows its own, or a token in its first frame. The X.509 extension for key usage
makes a client's certificate valid for clients only, so a client cannot pretend to be a peer. Host names are not
checked, because ids identify peers: the id in the peer's first frame must be the one in its certificate.
"""

import ssl
from pathlib import Path

import msgspec

from wend.drivers.live.access import key_files
from wend.drivers.live.access.key_files import KeyFolder
from wend.drivers.live.clock import wall_s
from wend.model.errors import ConfigError
from wend.security.certificates import RootVerifier
from wend.security.identity import Identity, Untrusted

_ALERTS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust this client's certificate, which another root signed",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this client's certificate has ended",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not trust this client's certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "it does not speak TLS; perhaps it is reached by wend://",
}


class ClientTls(msgspec.Struct, frozen=True):
    """The settings with which a client connects by TLS."""

    context: ssl.SSLContext
    verifier: RootVerifier
    token: str = ""

    def verify_peer(self, certificate: bytes | None) -> Identity:
        """The peer of a certificate. Raises `Untrusted` if it is revoked, or not the certificate of a peer."""
        identity = self.verifier.verify(certificate or b"", wall_s())
        if identity.peer is None:
            raise Untrusted(f"the certificate of {identity.name} is a client's")
        return identity


def make_server_context(keys: KeyFolder) -> ssl.SSLContext:
    """TLS for the listener of a peer. A client without a certificate must show a token."""
    context = _make_context(ssl.PROTOCOL_TLS_SERVER, [root.certificate for root in keys.verifier.roots])
    context.verify_mode = ssl.CERT_OPTIONAL
    context.num_tickets = 0  # a resumed session would not show its certificate again
    _load_chain(context, *keys.certificate_files)
    return context


def make_client_tls(
    keys: str | Path | None = None,
    root: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    token: str | Path | None = None,
) -> ClientTls:
    """TLS for a client, from a folder made by `wend key new`, or from single files. A token is a text or the `Path` of
    a private file. Raises `ConfigError`."""
    revoked: frozenset[int] = frozenset()
    if keys is not None:
        folder = Path(keys)
        if root is None and (folder / key_files.ROOT).exists():
            root = folder / key_files.ROOT
        if certificate is None and key is None and (token is None or (folder / key_files.SIGNING_KEY).exists()):
            certificate, key = folder / key_files.CERTIFICATE, folder / key_files.SIGNING_KEY
        revoked = key_files.read_revoked(folder / key_files.REVOKED)
    secret = key_files.read_token_file(token) if isinstance(token, Path) else token
    if certificate is not None and key is not None:
        return _make_certificate_tls(Path(certificate), Path(key), root, revoked, secret or "")
    if certificate is not None or key is not None:
        raise ConfigError("a certificate needs its key, and a key its certificate")
    if secret is None:
        raise ConfigError("wends:// needs a certificate with its key, or a token")
    roots = _read_roots(root, [])
    return ClientTls(_make_context(ssl.PROTOCOL_TLS_CLIENT, roots), RootVerifier(roots, revoked), secret)


def _make_certificate_tls(
    certificate: Path, key: Path, root: str | Path | None, revoked: frozenset[int], token: str
) -> ClientTls:
    own, *beside = key_files.read_certificates(certificate)
    roots = _read_roots(root, beside)
    verifier = RootVerifier(roots, revoked)
    try:
        verifier.verify(own, wall_s())
    except Untrusted as error:
        raise ConfigError(f"{certificate}: {error}") from None
    context = _make_context(ssl.PROTOCOL_TLS_CLIENT, roots)
    key_files.read_signing_key(key)  # it must be private
    _load_chain(context, certificate, key)
    return ClientTls(context, verifier, token)


def _read_roots(root: str | Path | None, beside: list[bytes]) -> list[bytes]:
    """The roots of a file, or those beside the client's certificate."""
    roots = beside if root is None else key_files.read_certificates(Path(root))
    if not roots:
        raise ConfigError("wends:// needs the certificate of the overlay's root")
    return roots


def _make_context(protocol: int, roots: list[bytes]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=key_files.encode_certificates(roots).decode())
    return context


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"{certificate} and {key} cannot be used for TLS: {explain_failure(error)}", code="unreadable"
        ) from None


def explain_failure(error: BaseException) -> str:
    """The reason why TLS failed, as part of a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    code = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLError) and code is not None:
        return _ALERTS.get(code, str(code).lower().replace("_", " "))
    return getattr(error, "strerror", None) or "it does not answer"
