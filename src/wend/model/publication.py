"""A publication: an event that an application wants to publish, and its limits.

A client checks it before sending, so that the application learns of a mistake at once. A peer checks it again, because
it trusts no client. The peer's state machine makes an `Event` of it without further checks.
"""

import reprlib
from typing import Any

import msgspec

from wend.model.errors import ClientError, Refused
from wend.model.events import (
    KEY_HEADER,
    MAX_ATTRIBUTES,
    MAX_HEADERS,
    MAX_KEY_CHARS,
    Attributes,
    Headers,
    PeerId,
    Range,
    as_scalar,
)
from wend.model.units import FOREVER, SECOND, Nanos, seconds

MAX_PAYLOAD_BYTES = 256 * 1024
MAX_ATTRIBUTES_BYTES = 48_000
"""Of one event, with its headers. The rest of a datagram is for destinations, path and a fragment of the payload."""
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
"""The integers of msgpack."""
_PLAIN_ATTRIBUTES, _PLAIN_CHARS = 32, 8_000
"""An event with at most this many attributes and ASCII characters is far below the limits."""

_encoder = msgspec.msgpack.Encoder()


class Publication(msgspec.Struct, frozen=True, gc=False):
    """An event that an application publishes, before it has an id."""

    attributes: Attributes
    payload: bytes = b""
    headers: Headers = {}
    ttl_ns: Nanos | None = None
    """The age at which the event expires."""
    to: PeerId | None = None
    """If set, the event is only for unannounced subscriptions at this peer."""
    retain: str = ""
    """The name of an attribute. For each of its values the peer retains the newest event, for later subscriptions."""

    def check(self) -> None:
        """Raise `ClientError` for values of a wrong type, and `Refused` for an event that no datagram could carry."""
        attributes, payload, headers = self.attributes, self.payload, self.headers
        if not is_surely_valid(attributes, payload, headers):
            check_types(attributes, payload, headers)
            check_size(attributes, payload, headers)
        if self.ttl_ns is not None and self.ttl_ns <= 0:
            raise Refused(f"a ttl must be above 0, got {self.ttl_ns} ns", code="invalid-event")

    def after_waiting(self, waited_ns: Nanos) -> "Publication":
        """The publication with the rest of its time to live. Raises `ClientError` if none is left."""
        if self.ttl_ns is None:
            return self
        if waited_ns >= self.ttl_ns:
            sentence = f"the event was not sent within its ttl of {self.ttl_ns / SECOND:g} s"
            raise ClientError(sentence, code="expired")
        return msgspec.structs.replace(self, ttl_ns=self.ttl_ns - waited_ns)


def make_publication(
    attributes: Attributes,
    payload: bytes = b"",
    headers: Headers | None = None,
    ttl: float | None = None,
    retain: bool | str = False,
    key: str | None = None,
) -> Publication:
    """A valid publication from the arguments of an application: `ttl` is in seconds, and numbers may be NumPy's. Raises
    like `Publication.check`."""
    if headers is None:
        headers = {}
    if key is not None:
        headers = _add_deduplication_key(headers, key)
    if not is_surely_valid(attributes, payload, headers):
        if isinstance(attributes, dict):
            attributes = {name: as_scalar(value) for name, value in attributes.items()}
        check_types(attributes, payload, headers)
        check_size(attributes, payload, headers)
    attribute = _choose_retain_attribute(attributes, retain) if retain else ""
    return Publication(attributes, payload, headers, None if ttl is None else _convert_ttl(ttl), None, attribute)


def _add_deduplication_key(headers: Any, key: Any) -> Any:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS:
        raise ClientError(
            f"a key has 1 to {MAX_KEY_CHARS} characters, got {_describe_value(key)}", code="invalid-event"
        )
    return {**headers, KEY_HEADER: key} if isinstance(headers, dict) else headers


def _choose_retain_attribute(attributes: Attributes, retain: Any) -> str:
    """The attribute by which the peer is to retain an event. Raises `ClientError` if the event lacks it."""
    attribute = "topic" if retain is True else retain
    if not isinstance(attribute, str):
        raise ClientError(f"retain is True or the name of an attribute, got {retain!r}")
    if attribute not in attributes:
        sentence = f"an event is retained by its attribute {attribute!r}, which this one does not have"
        raise ClientError(sentence, code="invalid-event")
    return attribute


def _convert_ttl(ttl: Any) -> Nanos:
    """A time to live in nanoseconds. Raises `ClientError` for an invalid one."""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= FOREVER / SECOND:
        raise ClientError(f"a ttl is a number of seconds above 0, got {_describe_value(ttl)}", code="invalid-event")
    return max(1, seconds(ttl))


def is_surely_valid(attributes: object, payload: object, headers: object) -> bool:
    """Whether an event certainly passes `check_types` and `check_size`. It is cheaper, and true for most events."""
    if type(attributes) is not dict or headers or type(payload) is not bytes or len(payload) > MAX_PAYLOAD_BYTES:
        return False
    size = len(attributes)
    if size > _PLAIN_ATTRIBUTES:
        return False
    for name, value in attributes.items():
        if type(name) is not str or not name.isascii():
            return False
        size += len(name)
        kind = type(value)
        if kind is str:
            if not value.isascii():
                return False
            size += len(value)
        elif kind is int:
            if not MIN_INTEGER <= value <= MAX_INTEGER:
                return False
        elif kind is not float and kind is not bool:
            return False
    return size <= _PLAIN_CHARS


def check_size(attributes: Attributes, payload: bytes, headers: Headers) -> None:
    """Raise `Refused` for an event that no datagram could carry."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise Refused(
            f"an event may have {MAX_ATTRIBUTES} attributes, this one has {len(attributes)}", code="too-large"
        )
    if len(headers) > MAX_HEADERS:
        raise Refused(f"an event may have {MAX_HEADERS} headers, this one has {len(headers)}", code="too-large")
    try:
        size = len(_encoder.encode(attributes)) + (len(_encoder.encode(headers)) if headers else 0)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError) as error:
        raise Refused(f"these attributes cannot be published: {error}", code="invalid-event") from None
    if size > MAX_ATTRIBUTES_BYTES:
        what = "attributes and headers" if headers else "attributes"
        sentence = f"the {what} of an event may have {MAX_ATTRIBUTES_BYTES} bytes, these have {size}"
        raise Refused(sentence, code="too-large")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise Refused(f"a payload may have {MAX_PAYLOAD_BYTES} bytes, this one has {len(payload)}", code="too-large")


def check_types(attributes: object, payload: object, headers: object) -> None:
    """Raise `ClientError` for values of a wrong type; it names the attribute or header."""
    if not isinstance(attributes, dict):
        raise ClientError(
            f"attributes are a dict of names and values, got {_describe_value(attributes)}", code="invalid-event"
        )
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise ClientError(f"the name of an attribute is a text, got {_describe_value(name)}", code="invalid-event")
        check_value(name, value)
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise ClientError(f"a payload is bytes, got {_describe_value(payload)}", code="invalid-event")
    if not isinstance(headers, dict):
        raise ClientError(
            f"headers are a dict of names and texts, got {_describe_value(headers)}", code="invalid-event"
        )
    for name, text in headers.items():
        if not isinstance(name, str):
            raise ClientError(f"the name of a header is a text, got {_describe_value(name)}", code="invalid-event")
        if not isinstance(text, str):
            raise ClientError(f"header {name!r} must be a text, got {_describe_value(text)}", code="invalid-event")


def check_value(name: str, value: Any) -> None:
    """Raise `ClientError` for an invalid value of an attribute."""
    if not isinstance(value, bool | int | float | str | Range):
        sentence = (
            f"attribute {name!r} must be a truth value, a number, a text or a wend.Range, got {_describe_value(value)}"
        )
        raise ClientError(sentence, code="invalid-event")
    for number in (value.low, value.high) if isinstance(value, Range) else (value,):
        if isinstance(number, int) and not MIN_INTEGER <= number <= MAX_INTEGER:
            sentence = f"attribute {name!r} is an integer outside {MIN_INTEGER}..{MAX_INTEGER}"
            raise ClientError(sentence, code="invalid-event")


def _describe_value(what: object) -> str:
    """A value with its type, shortened: it may be a megabyte long."""
    shown = "a large one" if isinstance(what, int) and what.bit_length() > 64 else reprlib.repr(what)
    return f"{shown} ({type(what).__name__})"
