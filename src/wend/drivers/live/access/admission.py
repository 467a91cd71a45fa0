"""Admission: which clients may connect to a peer, and what they may do.

A client shows a certificate of the overlay's root, or a token whose hash the peer knows. Clients without TLS belong to
the group `local`; a peer admits them on loopback only, unless it is set to be insecure. Keys and grants can be replaced
while the peer runs.
"""

import ssl
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from wend.drivers.live.access.access import SEPARATOR, Access
from wend.drivers.live.access.grants import NO_GRANTS, GrantTable, UsageLimits
from wend.drivers.live.access.usage import PeerStorage, Usage
from wend.drivers.live.clock import wall_s
from wend.model.events import DurableOptions
from wend.security.identity import Identity, Untrusted

if TYPE_CHECKING:  # only peers with keys need ciphers
    from wend.drivers.live.access.key_files import KeyFolder

MAX_TOKEN_CHARS = 256
_PRUNE = 1024


class ClientAdmission:
    """Decides which clients one peer admits, and keeps their usage."""

    def __init__(
        self,
        keys: "KeyFolder | None" = None,
        grants: GrantTable = NO_GRANTS,
        *,
        tls: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys = keys
        self.grants = grants
        self.context: ssl.SSLContext | None = None if keys is None or not tls else _tls_context(keys)
        """For TLS; None if clients connect without it."""
        self._clock_s = clock_s
        self._usages: dict[tuple[str, str], Usage] = {}
        """By "client" or "group", and its name."""

    def replace_keys(self, keys: "KeyFolder | None", grants: GrantTable) -> None:
        """Use renewed keys and changed grants."""
        context = None if self.context is None or keys is None else _tls_context(keys)
        self.keys, self.context = keys, context
        if grants != self.grants:  # so that clients stay connected if nothing has changed
            self.grants = grants

    # ---------------------------------------------------------------- who it is

    def identify_by_certificate(self, certificate: bytes) -> Identity:
        """Verify a certificate, and return its identity. Raises `Untrusted`."""
        if self.keys is None:
            raise Untrusted("this peer has no keys")
        return self.keys.verifier.verify(certificate, wall_s())

    def identify_by_token(self, token: str) -> Identity:
        """Verify a token, and return its identity. Raises `Untrusted`."""
        if not token:
            raise Untrusted("this peer needs a certificate or a token")
        identity = None if self.keys is None or len(token) > MAX_TOKEN_CHARS else self.keys.find_client_by_token(token)
        if identity is None:
            raise Untrusted("this peer does not know the token")
        self.recheck(identity)
        return identity

    def recheck(self, identity: Identity) -> Identity:
        """Check an admitted client again. Returns its present identity: the groups of a token may have changed. Raises
        `Untrusted`."""
        if self.keys is None:
            raise Untrusted("this peer has no keys")
        is_token = not identity.signing_key
        what = "token" if is_token else "certificate"
        now_s = wall_s()
        if identity.serial in self.keys.verifier.revoked:
            raise Untrusted(f"the {what} of {identity.name} is revoked", code="credentials-revoked")
        if now_s > identity.not_after_s:
            raise Untrusted(f"the {what} of {identity.name} has ended", code="credentials-expired")
        if not is_token:
            return identity
        renewed = self.keys.find_client_by_serial(identity.serial)
        if renewed is None:
            raise Untrusted(f"the token of {identity.name} is withdrawn", code="credentials-revoked")
        return renewed

    # ---------------------------------------------------------------- what it may do

    def open_access(
        self, identity: Identity | None, durable: Iterable[DurableOptions], keeper: PeerStorage
    ) -> Access | None:
        """Open the access of a new connection; None if it may do everything. `durable` are the durable subscriptions of
        the peer, which is the `keeper`. Raises `Refused` if the client has too many connections."""
        name = "" if identity is None else identity.name  # no certificate or token has an empty name
        rights = self.grants.find_rights(None if identity is None else identity.groups)
        if rights is None:
            return None
        now_s = self._clock_s()
        if len(self._usages) > _PRUNE:
            self._usages = {key: usage for key, usage in self._usages.items() if not usage.is_idle(now_s)}
        mine = self._find_usage("client", name, "this client", rights.limits, now_s)
        groups = [
            self._find_usage("group", group, f"the group {group}", limits, now_s)
            for group, limits in rights.group_limits.items()
        ]
        access = Access(name, rights, (mine, *groups), self._clock_s, keeper)
        for options in durable:
            if options.name.startswith(f"{name}{SEPARATOR}"):
                access.record_durable(options)
        return access

    def _find_usage(self, kind: str, name: str, who: str, limits: UsageLimits, now_s: float) -> Usage:
        usage = self._usages.get((kind, name))
        if usage is None:
            usage = self._usages[kind, name] = Usage(who, limits, now_s)
        usage.change_limits(limits, now_s)
        return usage

    def has_changed_rights(self, identity: Identity | None, access: Access | None) -> bool:
        """Whether the rights of a client have changed since it connected. Raises `Refused` if they are too large."""
        rights = self.grants.find_rights(None if identity is None else identity.groups)
        if rights is None or access is None:
            return (rights is None) != (access is None)
        return rights.granted != access.rights.granted


def _tls_context(keys: "KeyFolder") -> ssl.SSLContext:
    from wend.drivers.live.access.tls import make_server_context

    return make_server_context(keys)
