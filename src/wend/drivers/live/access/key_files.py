"""Key files: the folder with the keys of a site, a client or a root.

    signing.key, session.key   private keys, PEM, mode 0600; they never leave their folder
    request.pem                the request for a certificate
    certificate.pem            the certificate, followed by the root's
    root.pem                   further trusted roots, or the only one if there is no certificate
    revoked.txt                serial numbers that are no longer trusted, one per line, each with a remark
    tokens.jsonl               hashes of tokens by which clients may connect
    root.key, issued/          at the root alone: its private key, and the certificates that it signed

Only the lists of tokens and of revoked serials are ever overwritten. All functions raise `ConfigError` for mistakes.
"""

import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from wend.drivers.live.clock import wall_s
from wend.model.errors import ConfigError
from wend.model.files import write_atomically
from wend.security.certificates import MAX_SERIAL, RootVerifier, check_groups, check_name, make_credentials
from wend.security.identity import Credentials, Identity, Untrusted

SIGNING_KEY: Final = "signing.key"
SESSION_KEY: Final = "session.key"
REQUEST: Final = "request.pem"
CERTIFICATE: Final = "certificate.pem"
ROOT: Final = "root.pem"
ROOT_KEY: Final = "root.key"
REVOKED: Final = "revoked.txt"
TOKENS: Final = "tokens.jsonl"
ISSUED: Final = "issued"

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
TOKEN_PREFIX: Final = "wend-token-"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
T = TypeVar("T")


class ClientToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token by which a client may connect. The hash does not reveal the token."""

    name: str
    hash: str
    serial: int
    ends_s: int
    groups: tuple[str, ...] = ()


class KeyFolder(msgspec.Struct, frozen=True):
    """The content of a peer's folder of keys."""

    folder: Path
    credentials: Credentials
    verifier: RootVerifier
    tokens: dict[str, ClientToken]
    """By hash."""

    @property
    def certificate_files(self) -> tuple[Path, Path]:
        """The files of the certificate and of its key, for TLS."""
        return self.folder / CERTIFICATE, self.folder / SIGNING_KEY

    def find_client_by_token(self, token: str) -> Identity | None:
        """The client of a token; None if the token is unknown."""
        known = self.tokens.get(hash_token(token))
        return None if known is None else make_token_identity(known)

    def find_client_by_serial(self, serial: int) -> Identity | None:
        """The client of the token with this serial number; None if there is none."""
        known = next((token for token in self.tokens.values() if token.serial == serial), None)
        return None if known is None else make_token_identity(known)


# ---------------------------------------------------------------- reading


def read_key_folder(folder: Path) -> KeyFolder:
    """The keys of a site. Raises `ConfigError` for keys that do not work, or that other users may have read."""
    certificates = read_certificates(folder / CERTIFICATE)
    session, signing = read_session_key(folder / SESSION_KEY), read_signing_key(folder / SIGNING_KEY)
    try:
        credentials = make_credentials(certificates[0], session, signing)
        verifier = RootVerifier(_read_roots(folder, certificates[1:]), read_revoked(folder / REVOKED))
        verifier.verify(credentials.certificate, wall_s())
    except Untrusted as error:
        raise ConfigError(f"{folder / CERTIFICATE}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{folder / CERTIFICATE}: {error}", code=error.code) from None
    tokens = {token.hash: token for token in read_tokens(folder / TOKENS)}
    return KeyFolder(folder, credentials, verifier, tokens)


def _read_roots(folder: Path, beside: Sequence[bytes]) -> list[bytes]:
    more = read_certificates(folder / ROOT) if os.path.lexists(folder / ROOT) else []
    roots = list(dict.fromkeys([*beside, *more]))
    if not roots:
        raise ConfigError(f"no root follows the certificate, and there is no {ROOT} beside it")
    return roots


def read_bytes(path: Path, *, private: bool = False) -> bytes:
    """The content of a file. Other users must not be able to read a private file, or to write any file."""
    try:
        # not to wait for a writer if it is a pipe
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"cannot read {path}: it is not a file", code="unreadable")
            if private:
                _check_private(path, status)
            elif status.st_mode & stat.S_IWOTH:
                raise ConfigError(f"all users can change {path}: chmod o-w, and check its content")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", code="unreadable") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} has more than {MAX_FILE_BYTES} bytes: it is not a file of keys", code="unreadable")
    return data


def _check_private(path: Path, status: os.stat_result) -> None:
    if status.st_mode & _OTHERS:
        raise ConfigError(f"other users can read or write {path}: make it private (chmod 600), or make new keys")
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{path} belongs to another user")


def read_signing_key(path: Path) -> bytes:
    """The secret of an Ed25519 key."""
    key = _read_private_key(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} holds no Ed25519 key")
    return key.private_bytes_raw()


def read_session_key(path: Path) -> bytes:
    """The secret of an X25519 key."""
    key = _read_private_key(path)
    if not isinstance(key, X25519PrivateKey):
        raise ConfigError(f"{path} holds no X25519 key")
    return key.private_bytes_raw()


def _read_private_key(path: Path) -> object:
    content, wrong = read_bytes(path, private=True), "is not a private key in PEM format without a passphrase"
    return _parse(path, wrong, lambda: load_pem_private_key(content, None))


def read_certificates(path: Path) -> list[bytes]:
    """The certificates of a PEM file, as DER, at least one."""
    content, wrong = read_bytes(path), "has no certificate in PEM format"
    certificates = _parse(path, wrong, lambda: x509.load_pem_x509_certificates(content))
    return [one.public_bytes(Encoding.DER) for one in certificates]


def read_request_file(path: Path) -> bytes:
    """The request of a PEM file, as DER."""
    content, wrong = read_bytes(path), "has no certificate request in PEM format"
    return _parse(path, wrong, lambda: x509.load_pem_x509_csr(content).public_bytes(Encoding.DER))


def _parse(path: Path, wrong: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except Exception:  # the library raises many kinds
        raise ConfigError(f"{path} {wrong}") from None


def read_revoked(path: Path) -> frozenset[int]:
    """The revoked serials; none if there is no file. A broken symbolic link is a mistake."""
    if not os.path.lexists(path):
        return frozenset()
    serials = set()
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        serial = parse_serial(content)
        if serial is None:
            raise ConfigError(f"{path}, line {number}: {content[:100]!r} is no serial number")
        serials.add(serial)
    return frozenset(serials)


def parse_serial(text: str) -> int | None:
    """The serial number in a text; None if it is not one."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(MAX_SERIAL)):
        return None
    return int(text) if 0 < int(text) <= MAX_SERIAL else None


def read_tokens(path: Path) -> list[ClientToken]:
    """The tokens of clients; none if there is no file."""
    if not os.path.lexists(path):
        return []
    tokens = []
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            token = msgspec.json.decode(line, type=ClientToken)
            check_name(token.name)
            check_groups(token.groups)
        except (msgspec.MsgspecError, ConfigError) as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        tokens.append(token)
    return tokens


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text", code="unreadable") from None


# ---------------------------------------------------------------- writing


def new_secret() -> bytes:
    return secrets.token_bytes(32)


def new_serial() -> int:
    return secrets.randbelow(MAX_SERIAL) + 1


def make_folder(folder: Path) -> None:
    """Make a folder that other users cannot read, unless it exists."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}", code="unwritable") from None


def write_signing_key(path: Path, secret: bytes) -> None:
    _write_key(path, Ed25519PrivateKey.from_private_bytes(secret))


def write_session_key(path: Path, secret: bytes) -> None:
    _write_key(path, X25519PrivateKey.from_private_bytes(secret))


def _write_key(path: Path, key: Ed25519PrivateKey | X25519PrivateKey) -> None:
    write_new_file(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), mode=0o600)


def write_new_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a new file. Raises `ConfigError` if it exists. A failure leaves no file."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(number, "wb") as file:
                os.fchmod(number, mode)  # whatever the umask says
                file.write(content)
                file.flush()
                os.fsync(number)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise ConfigError(
            f"{path} exists already, and keys and certificates are not overwritten", code="file-exists"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from None


def check_absent(*paths: Path) -> None:
    """Raise `ConfigError` if one of the files exists."""
    for path in paths:
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} exists already, and keys and certificates are not overwritten", code="file-exists"
            )


def encode_certificates(certificates: Iterable[bytes]) -> bytes:
    return b"".join(x509.load_der_x509_certificate(one).public_bytes(Encoding.PEM) for one in certificates)


def encode_request(request: bytes) -> bytes:
    return x509.load_der_x509_csr(request).public_bytes(Encoding.PEM)


def append_line(path: Path, line: str) -> None:
    """Add a line to a list, also if several commands do so at once. A crash leaves the old list or the new one. If the
    path is a symbolic link, the file behind it is changed."""
    place = Path(os.path.realpath(path))
    try:
        folder = os.open(place.parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = _read_text(place) if os.path.lexists(place) else ""
        if before and not before.endswith("\n"):
            before += "\n"
        with write_atomically(place, lasting=True) as draft:
            draft.write_text(f"{before}{line}\n", encoding="utf-8")
    finally:
        os.close(folder)


# ---------------------------------------------------------------- tokens


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """The hash under which a peer stores a token. Tokens are random, so a plain hash is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_token_file(path: Path) -> str:
    """The token in a client's file."""
    try:
        token = read_bytes(path, private=True).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token.startswith(TOKEN_PREFIX):
        raise ConfigError(f"{path} holds no token: one begins with {TOKEN_PREFIX}")
    return token


def make_token_identity(token: ClientToken) -> Identity:
    """The client of a token, as an identity without keys."""
    return Identity(token.serial, token.name, None, token.groups, b"", b"", 0, token.ends_s)
