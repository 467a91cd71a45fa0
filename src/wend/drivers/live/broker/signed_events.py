"""Signed events at a live peer: it signs the events of its clients, and names the signers of events to its clients.

The peer sets a header with the name of the signer. It removes this header from events of others, and it removes and
counts signatures that do not verify. So a client never sees a name that was not verified.
"""

import logging
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from wend.drivers.live.clock import wall_s
from wend.drivers.live.log_limit import LogLimit
from wend.model.errors import Refused, Untrusted
from wend.model.events import SIGNATURE_HEADER, SIGNED_BY_HEADER, Event, EventId
from wend.model.publication import Publication
from wend.model.units import MINUTE, Nanos

if TYPE_CHECKING:  # only peers with keys need ciphers
    from wend.drivers.live.access.key_files import KeyFolder
    from wend.security.event_signatures import EventSigner, EventVerifier

log = logging.getLogger("wend.clients")

LINES_PER_MINUTE = 10


class SignedEvents:
    """Signs and verifies for one broker. Keys can be replaced while the peer runs."""

    def __init__(self, counts: Counter[str], keys: "KeyFolder | None" = None, *, signs: bool = False) -> None:
        self.counts = counts
        self._signs = signs
        self._limit = LogLimit(LINES_PER_MINUTE, MINUTE)
        self._last: tuple[Event, Event] | None = None
        """The event that was verified last, as it came and as clients see it. It may have several subscribers."""
        self.replace_keys(keys)

    def replace_keys(self, keys: "KeyFolder | None") -> None:
        self._signer, self._verifier = _make_signer_and_verifier(keys, self._signs)

    @property
    def is_signing(self) -> bool:
        return self._signer is not None

    def sign(self, id_: EventId, publication: Publication) -> Publication:
        """Sign the event that a publication becomes under this id. Returns the signed publication. Raises `Refused` if
        the publication has headers that only the peer may set."""
        headers = publication.headers
        if SIGNATURE_HEADER in headers or SIGNED_BY_HEADER in headers:
            raise Refused(
                f"the headers {SIGNATURE_HEADER} and {SIGNED_BY_HEADER} are the peer's own", code="invalid-event"
            )
        if self._signer is None:
            return publication
        try:
            headers = self._signer.sign(id_, publication.attributes, publication.payload, headers)
        except (OverflowError, ValueError) as error:
            raise Refused(f"the event cannot be signed: {error}", code="invalid-event") from None
        return msgspec.structs.replace(publication, headers=headers)

    def verify(self, event: Event, now: Nanos) -> Event:
        """The event as clients see it: with the name of its signer, if it is signed."""
        headers = event.headers
        if not headers or (SIGNATURE_HEADER not in headers and SIGNED_BY_HEADER not in headers):
            return event
        if self._last is None or self._last[0] is not event:
            self._last = (event, self._add_signer(event, now))
        return self._last[1]

    def _add_signer(self, event: Event, now: Nanos) -> Event:
        headers = event.headers
        shown = {name: text for name, text in headers.items() if name not in (SIGNATURE_HEADER, SIGNED_BY_HEADER)}
        if self._verifier is not None and SIGNATURE_HEADER in headers:
            try:
                shown[SIGNED_BY_HEADER] = self._verifier.verify(event, wall_s())
            except (Untrusted, OverflowError, ValueError) as error:
                self.counts["signature-refused"] += 1
                if self._limit.allows(now):
                    log.warning("the signature of event %s is refused: %s", event.id, error)
        return msgspec.structs.replace(event, headers=shown)


def _make_signer_and_verifier(
    keys: "KeyFolder | None", signs: bool
) -> "tuple[EventSigner | None, EventVerifier | None]":
    if keys is None:
        return None, None
    from wend.security.event_signatures import EventSigner, EventVerifier

    return EventSigner(keys.credentials) if signs else None, EventVerifier(keys.verifier)
