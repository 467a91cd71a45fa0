"""Throw-away keys for tests: a root, and folders of peers and clients that it signed."""

import time
from pathlib import Path

from wend.drivers.live.access import key_files
from wend.drivers.live.access.key_files import KeyFolder, read_key_folder
from wend.security.certificates import make_request, make_root, sign_certificate

HOUR_S = 3600


class KeyRing:
    """A root and what it signed."""

    def __init__(self, folder: Path, name: str = "test") -> None:
        self.folder = folder
        self._secret = key_files.new_secret()
        now = int(time.time())
        self.certificate = make_root(
            name, self._secret, serial=1, not_before_s=now - HOUR_S, not_after_s=now + 1000 * HOUR_S
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.root = folder / "root.pem"
        self.root.write_bytes(key_files.encode_certificates([self.certificate]))

    def enrol(
        self,
        name: str,
        peer: int | None = None,
        groups: tuple[str, ...] = (),
        *,
        begins_s: int = -HOUR_S,
        ends_s: int = HOUR_S,
    ) -> Path:
        """The folder of a peer or client. Times are relative to now. A second call renews the certificate."""
        folder, now = self.folder / name, int(time.time())
        if not folder.exists():
            folder.mkdir()
            signing, session = key_files.new_secret(), key_files.new_secret()
            key_files.write_signing_key(folder / key_files.SIGNING_KEY, signing)
            key_files.write_session_key(folder / key_files.SESSION_KEY, session)
        signing = key_files.read_signing_key(folder / key_files.SIGNING_KEY)
        session = key_files.read_session_key(folder / key_files.SESSION_KEY)
        made = sign_certificate(
            make_request(name, signing, session),
            self.certificate,
            self._secret,
            serial=key_files.new_serial(),
            peer=peer,
            groups=groups,
            not_before_s=now + begins_s,
            not_after_s=now + ends_s,
        )
        chain = key_files.encode_certificates([made, self.certificate])
        (folder / key_files.CERTIFICATE).write_bytes(chain)
        return folder

    def keys(self, name: str, peer: int, groups: tuple[str, ...] = ()) -> KeyFolder:
        return read_key_folder(self.enrol(name, peer, groups))


def add_token(folder: Path, name: str, groups: tuple[str, ...] = (), *, ends_s: int = HOUR_S) -> str:
    """A token that a peer with these keys knows."""
    import msgspec

    token = key_files.new_token()
    ends = int(time.time()) + ends_s
    made = key_files.ClientToken(name, key_files.hash_token(token), key_files.new_serial(), ends, groups)
    key_files.append_line(folder / key_files.TOKENS, msgspec.json.encode(made).decode())
    return token


def revoke(folder: Path, *serials: int) -> None:
    for serial in serials:
        key_files.append_line(folder / key_files.REVOKED, str(serial))
