"""Throw-away keys: a root that exists only in the process that made it, for demonstrations and experiments.

Peers of such a root use sealed links like any others, without enrolment.
"""

from pathlib import Path

from wend.drivers.live.access import key_files
from wend.drivers.live.clock import wall_s
from wend.model.events import PeerId
from wend.security.certificates import RootVerifier, make_credentials, make_request, make_root, sign_certificate
from wend.security.identity import Credentials, Verifier

VALIDITY_S = 30 * 86_400
SKEW_S = 300


class ThrowawayRoot:
    """Signs certificates with a key that is never stored."""

    def __init__(self, name: str = "throw-away") -> None:
        self._secret = key_files.new_secret()
        now_s = wall_s()
        self._begin_s, self._end_s = now_s - SKEW_S, now_s + VALIDITY_S
        self.certificate = make_root(
            name, self._secret, serial=key_files.new_serial(), not_before_s=self._begin_s, not_after_s=self._end_s
        )

    def issue_credentials(self, name: str, peer: PeerId | None = None, groups: tuple[str, ...] = ()) -> Credentials:
        """Make new keys with their certificate."""
        signing, session = key_files.new_secret(), key_files.new_secret()
        certificate = sign_certificate(
            make_request(name, signing, session),
            self.certificate,
            self._secret,
            serial=key_files.new_serial(),
            peer=peer,
            groups=groups,
            not_before_s=self._begin_s,
            not_after_s=self._end_s,
        )
        return make_credentials(certificate, session, signing)

    def issue_to_peer(self, peer: PeerId) -> tuple[Credentials, Verifier]:
        """Issue the credentials of a live peer, and its verifier."""
        return self.issue_credentials(f"peer-{peer}", peer), RootVerifier(self.certificate)

    def write_folder(self, folder: Path, name: str, peer: PeerId | None = None, groups: tuple[str, ...] = ()) -> Path:
        """Write a folder of keys like that of `wend key new` and `wend key sign`."""
        credentials = self.issue_credentials(name, peer, groups)
        key_files.make_folder(folder)
        key_files.write_signing_key(folder / key_files.SIGNING_KEY, credentials.signing_secret)
        key_files.write_session_key(folder / key_files.SESSION_KEY, credentials.session_secret)
        chain = key_files.encode_certificates([credentials.certificate, self.certificate])
        key_files.write_new_file(folder / key_files.CERTIFICATE, chain)
        return folder
