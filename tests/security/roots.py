"""A root with real certificates, for tests with sockets."""

import time

from wend.security.certificates import RootVerifier, make_credentials, make_request, make_root, sign_certificate
from wend.security.identity import Credentials, Verifier

DAY_S = 86_400


class Laboratory:
    """Signs certificates for peers."""

    def __init__(self, name: str = "laboratory") -> None:
        self._secret = name.encode().ljust(32, b"-")
        self._now_s = int(time.time())
        self.root = make_root(
            name, self._secret, serial=1, not_before_s=self._now_s - DAY_S, not_after_s=self._now_s + DAY_S
        )

    def credentials(self, peer: int, serial: int = 0, life_s: int = DAY_S) -> Credentials:
        signing, session = bytes([peer + 1]) * 32, bytes([peer + 101]) * 32
        certificate = sign_certificate(
            make_request(f"site-{peer}", signing, session), self.root, self._secret,
            serial=serial or 100 + peer, peer=peer, groups=("plant",),
            not_before_s=self._now_s - DAY_S, not_after_s=self._now_s + life_s,
        )  # fmt: skip
        return make_credentials(certificate, session, signing)

    def verifier(self, *revoked: int) -> Verifier:
        return RootVerifier([self.root], revoked)

    def keys(self, peer: int) -> tuple[Credentials, Verifier]:
        return self.credentials(peer), self.verifier()
