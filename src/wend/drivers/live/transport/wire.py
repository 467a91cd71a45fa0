"""The wire format between peers: the only place where messages become datagrams.

Under every link lies one inner datagram: a sender, a kind, and a body of msgpack (`InnerDatagram`). An open link frames
the body with a fixed header and a checksum. A sealed link seals it in a packet of a session, which names the sender and
the kind (`sealed_links.py`). A peer refuses an open datagram that is not Wend's, not for it, of another version or
corrupted before it decodes the body:

    magic 2 | version 1 | kind 1 | sender 8 | receiver 8 | incarnation 8 | body (msgpack) | checksum 4

The checksum is the CRC32 of everything before it, lowest byte first. So the CRC32 of every intact datagram is the same
number, `INTACT`, and a receiver can check it without taking the datagram apart.

Kind 0 holds one message, kind 1 a bundle: an array of messages to one neighbour, most of them ACKs. Kind 2 holds a
question about addresses or its answer (`address_messages.py`). Kind 3 holds a message to a multicast group, whose
number takes the place of the receiver (`multicast.py`).

Fields that this version does not know are ignored, so a newer peer may add some. Every other fault in the bytes is a
`WireError`, never another exception. Nothing in a message can be larger than its datagram, because msgspec checks every
declared length against the remaining bytes before it allocates memory.
"""

import reprlib
import struct
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec

from wend.model.errors import ClientError, Refused, WireError
from wend.model.events import MAX_ATTRIBUTES, MAX_HEADERS, Attributes, Headers, PeerId, Range
from wend.model.units import FOREVER, SECOND, Nanos, seconds
from wend.protocol.link.fragments import MAX_PAYLOAD_BYTES
from wend.protocol.messages import Ack, Control, Data, DirectMessage, Fragment, Message, PlainMessage
from wend.security.packets import is_sealed

MAGIC = b"wd"
VERSION = 3
MAX_DATAGRAM_BYTES = 60_000
"""Below the limit of UDP over IPv4, with room for the headers that tunnels add."""

MAX_ATTRIBUTES_BYTES = 48_000
"""Of one event with its headers. The rest of a datagram is for destinations, path and a fragment of the payload."""

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
"""The integers of msgpack."""

BUNDLE_BYTES = 1_200
"""The most bytes of a bundle, so that it is one packet on every link. A larger message travels alone."""

_PLAIN_ATTRIBUTES, _PLAIN_CHARS = 32, 8_000
"""An event with no more attributes and ASCII characters is far below the bounds."""

_HEADER = struct.Struct("!2sBBQQQ")
_VERSION, _KIND = 2, 3
MESSAGE, _BUNDLE, ADDRESSES, MULTICAST = 0, 1, 2, 3
MESSAGES = (MESSAGE, _BUNDLE)
"""The kinds that hold messages of a peer's protocol."""
HEADER_BYTES = _HEADER.size
CHECKSUM_BYTES = 4
FRAME_BYTES = HEADER_BYTES + CHECKSUM_BYTES
"""The bytes that an open link adds to a body."""
_MAX_BODY_BYTES = MAX_DATAGRAM_BYTES - FRAME_BYTES
INTACT = 0x2144DF1C
"""The CRC32 of a datagram that ends with its own checksum."""
_MAX_ID = 2**64 - 1

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_bundles: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(list[Message])


class Header(NamedTuple):
    sender: PeerId
    receiver: PeerId
    incarnation: int


class Datagram(NamedTuple):
    header: Header
    message: Message


class InnerDatagram(NamedTuple):
    """The content of a datagram, the same over open and sealed links."""

    header: Header
    kind: int
    body: bytes | memoryview


def header(sender: PeerId, receiver: PeerId, incarnation: int, kind: int = MESSAGE) -> bytes:
    """The header of all datagrams from one incarnation of a peer to another peer."""
    if not all(0 <= number <= _MAX_ID for number in (sender, receiver, incarnation)):
        raise WireError(f"ids on the wire lie in 0..{_MAX_ID}, got {sender}, {receiver} and {incarnation}")
    return _HEADER.pack(MAGIC, VERSION, kind, sender, receiver, incarnation)


def encode_message(message: Message) -> bytes:
    """A message as a body. Raises `WireError` if it is too large, or msgpack cannot encode it."""
    try:
        body = _encoder.encode(message)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise WireError(f"a message cannot be encoded: {error}") from None
    if len(body) > _MAX_BODY_BYTES:
        size = FRAME_BYTES + len(body)
        raise WireError(f"a datagram may have {MAX_DATAGRAM_BYTES} bytes, this one has {size}")
    return body


def bundle(bodies: list[bytes]) -> tuple[int, bytes]:
    """Encoded messages as the kind and the body of one datagram; the caller makes sure that they fit."""
    if len(bodies) == 1:
        return MESSAGE, bodies[0]
    count = struct.pack("!BH", 0xDC, len(bodies))  # the head of a msgpack array
    return _BUNDLE, b"".join((count, *bodies))


def frame(head: bytes, body: bytes) -> bytes:
    """An open datagram, with its checksum."""
    return head + body + crc32(body, crc32(head)).to_bytes(CHECKSUM_BYTES, "little")


def encode(head: bytes, message: Message) -> bytes:
    """One message as an open datagram."""
    return frame(head, encode_message(message))


class OpenLink:
    """Frames the datagrams from one incarnation of a peer to another peer."""

    __slots__ = ("_headers", "_transmit")

    def __init__(self, sender: PeerId, receiver: PeerId, incarnation: int, transmit: Callable[[bytes], None]) -> None:
        headers = [header(sender, receiver, incarnation, kind) for kind in MESSAGES]
        self._headers = tuple((head, crc32(head)) for head in headers)
        self._transmit = transmit

    def send(self, kind: int, body: bytes) -> None:
        """Send a message or a bundle."""
        head, head_sum = self._headers[kind]
        self._transmit(head + body + crc32(body, head_sum).to_bytes(4, "little"))  # as `frame` does


def check_event(attributes: Attributes, payload: bytes, headers: Headers | None = None) -> None:
    """Raise `Refused` for an event that no datagram could carry, before anybody publishes it."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise Refused(f"an event may have {MAX_ATTRIBUTES} attributes, this one has {len(attributes)}")
    if headers and len(headers) > MAX_HEADERS:
        raise Refused(f"an event may have {MAX_HEADERS} headers, this one has {len(headers)}")
    try:
        size = len(_encoder.encode(attributes)) + (len(_encoder.encode(headers)) if headers else 0)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError) as error:
        raise Refused(f"these attributes cannot be published: {error}") from None
    if size > MAX_ATTRIBUTES_BYTES:
        what = "attributes and headers" if headers else "attributes"
        raise Refused(f"the {what} of an event may have {MAX_ATTRIBUTES_BYTES} bytes, these have {size}")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise Refused(f"a payload may have {MAX_PAYLOAD_BYTES} bytes, this one has {len(payload)}")


def is_plain(attributes: object, payload: object, headers: object) -> bool:
    """Whether an event certainly passes `check_kinds` and `check_event`. It is cheaper, and true of most events."""
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


def ttl_ns(ttl: float | None) -> Nanos | None:
    """A time to live in nanoseconds. Raises `ClientError` for an invalid one."""
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= FOREVER / SECOND:
        raise ClientError(f"a ttl is a number of seconds above 0, got {_shown(ttl)}")
    return max(1, seconds(ttl))


def check_kinds(attributes: object, payload: object, headers: object) -> None:
    """Raise `ClientError` for values of the wrong type; it names the attribute or header."""
    if not isinstance(attributes, dict):
        raise ClientError(f"attributes are a dict of names and values, got {_shown(attributes)}")
    for name, value in attributes.items():
        _check_attribute(name, value)
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise ClientError(f"a payload is bytes, got {_shown(payload)}")
    if headers is not None and not isinstance(headers, dict):
        raise ClientError(f"headers are a dict of names and texts, got {_shown(headers)}")
    for name, text in (headers or {}).items():
        if not isinstance(name, str):
            raise ClientError(f"the name of a header is a text, got {_shown(name)}")
        if not isinstance(text, str):
            raise ClientError(f"header {name!r} must be a text, got {_shown(text)}")


def _check_attribute(name: object, value: object) -> None:
    if not isinstance(name, str):
        raise ClientError(f"the name of an attribute is a text, got {_shown(name)}")
    if not isinstance(value, bool | int | float | str | Range):
        raise ClientError(
            f"attribute {name!r} must be a truth value, a number, a text or a wend.Range, got {_shown(value)}"
        )
    for number in (value.low, value.high) if isinstance(value, Range) else (value,):
        if isinstance(number, int) and not MIN_INTEGER <= number <= MAX_INTEGER:
            raise ClientError(f"attribute {name!r} is an integer outside {MIN_INTEGER}..{MAX_INTEGER}")


def _shown(what: object) -> str:
    """A value with its type, shortened: it may be a megabyte long."""
    shown = "a large one" if isinstance(what, int) and what.bit_length() > 64 else reprlib.repr(what)
    return f"{shown} ({type(what).__name__})"


Fault = Literal["garbage", "another version", "corrupted"]
"""Why an open datagram cannot be read: it is not Wend's, it is of another version, or bits of it have changed."""


def fault(datagram: bytes | memoryview) -> Fault | None:
    """The fault in the bytes of an open datagram, found before its body is decoded; None: it is intact."""
    if len(datagram) <= HEADER_BYTES + CHECKSUM_BYTES or datagram[: len(MAGIC)] != MAGIC:
        return "garbage"
    if datagram[_VERSION] != VERSION:
        return "another version"
    return None if crc32(datagram) == INTACT else "corrupted"


def unframe(datagram: bytes | memoryview) -> InnerDatagram:
    """The inner datagram of an open one without a `fault`. Its body is a slice of the datagram."""
    _, _, kind, sender, receiver, incarnation = _HEADER.unpack_from(datagram)
    return InnerDatagram(Header(sender, receiver, incarnation), kind, datagram[HEADER_BYTES:-CHECKSUM_BYTES])


def explain(fault: Fault, datagram: bytes | memoryview) -> str:
    """The fault as the object of a sentence."""
    match fault:
        case "another version":
            return f"a datagram of version {datagram[_VERSION]}, this peer speaks version {VERSION}"
        case "corrupted":
            return "a datagram that does not have its checksum"
    if is_sealed(datagram):
        return "a sealed datagram, and this peer has no keys"
    return f"a datagram of {len(datagram)} bytes that is not Wend's"


def is_open(datagram: bytes | memoryview) -> bool:
    """Whether a datagram claims to come over an open link."""
    return datagram[: len(MAGIC)] == MAGIC


class MessageTypes:
    """The types that a peer's plug-ins declare: of their messages, by plug-in, and of packet headers.

    A decoder reads the envelope first, with its body as plain values. Then it converts these to the declared type.
    """

    def __init__(self, messages: Mapping[str, Any], header: Any) -> None:
        self._messages = messages
        self._header = header

    def typed(self, message: Message) -> Message:
        """The message with its body or header of the declared type. Raises `msgspec.ValidationError`."""
        if type(message) is Ack:  # half of all messages
            return message
        if type(message) is Data:
            return message if message.header is None else self._with_header(message)
        if type(message) is Control or type(message) is PlainMessage or type(message) is DirectMessage:
            kind = self._messages.get(message.plugin)
            if kind is None or message.body is None:
                return message  # the peer refuses it, or it only asks for a reply
            return msgspec.structs.replace(message, body=msgspec.convert(message.body, kind))
        if type(message) is Fragment and message.head is not None and message.head.header is not None:
            return msgspec.structs.replace(message, head=self._with_header(message.head))
        return message

    def _with_header(self, data: Data) -> Data:
        return msgspec.structs.replace(data, header=msgspec.convert(data.header, self._header))


NO_TYPES = MessageTypes({}, None)


def decode_messages(datagram: bytes | memoryview, types: MessageTypes = NO_TYPES) -> list[Message]:
    """The messages of an open datagram without a `fault`. Raises `WireError`."""
    return decode_body(datagram[_KIND], datagram[HEADER_BYTES:-CHECKSUM_BYTES], types)


def decode_body(kind: int, body: bytes | memoryview, types: MessageTypes = NO_TYPES) -> list[Message]:
    """The messages of an inner datagram. Raises `WireError`."""
    if len(body) > _MAX_BODY_BYTES:
        raise WireError(f"a datagram of {FRAME_BYTES + len(body)} bytes is not a message")
    try:
        if kind == _BUNDLE:
            return [types.typed(message) for message in _bundles.decode(body)]
        return [types.typed(_decoder.decode(body))]
    except Exception as error:
        # msgspec has its own errors for almost everything; a recursion limit or a bad surrogate has others.
        raise WireError(f"a message cannot be decoded: {error}") from None


def decode(datagram: bytes | memoryview, types: MessageTypes = NO_TYPES) -> Datagram:
    """An open datagram that holds one message. Raises `WireError`."""
    if (wrong := fault(datagram)) is not None:
        raise WireError(explain(wrong, datagram))
    inner, messages = unframe(datagram), decode_messages(datagram, types)
    if inner.kind not in MESSAGES:
        raise WireError(f"a datagram of kind {inner.kind}, which holds no message of a peer's protocol")
    if len(messages) != 1:
        raise WireError(f"a bundle of {len(messages)} messages is not one message")
    return Datagram(inner.header, messages[0])
