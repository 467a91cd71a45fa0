"""The wire format: the only place where messages between peers, and frames of clients (`frames.py`), become bytes.

Under every link lies one inner datagram: a sender, a kind, and a body of msgpack (`InnerDatagram`). An open link frames
the body with a fixed header and a checksum. A sealed link seals it in a packet of a session, which names the sender and
the kind (`sealed_links.py`). A peer refuses an open datagram that is not Wend's, not for it, of another version or
corrupted before it decodes the body:

    magic 2 | version 1 | kind 1 | sender 8 | receiver 8 | incarnation 8 | body (msgpack) | checksum 4

The checksum is the CRC32 of everything before it, lowest byte first. So the CRC32 of every intact datagram is the same
number, `INTACT`, and a receiver checks it without parsing the datagram.

Kind 0 holds one message, kind 1 a bundle: an array of messages to one neighbour, most of them ACKs. Kind 2 holds a
question about addresses or its answer (`address_messages.py`). Kind 3 holds a message to a multicast group, whose
number takes the place of the receiver (`multicast.py`).

Fields that this version does not know are ignored, so a newer peer may add some. Every other fault in the bytes is a
`WireError`, never another exception. Nothing in a message can be larger than its datagram, because msgspec checks every
declared length against the remaining bytes before it allocates memory.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec

from wend.drivers.live import frames
from wend.model.errors import WireError
from wend.model.events import PeerId
from wend.protocol.messages import Ack, Control, Data, DirectMessage, Fragment, Message, PlainMessage
from wend.security.packets import is_sealed

MAGIC = b"wd"
VERSION = 3
MAX_DATAGRAM_BYTES = 60_000
"""Below the limit of UDP over IPv4, with room for the headers that tunnels add."""

BUNDLE_BYTES = 1_200
"""The most bytes of a bundle, so that it is one packet on every link. A larger message travels alone."""

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
    """The sender, the receiver and the sender's incarnation, which begin every open datagram."""

    sender: PeerId
    receiver: PeerId
    incarnation: int


class InnerDatagram(NamedTuple):
    """The content of a datagram, the same over open and sealed links."""

    header: Header
    kind: int
    body: bytes | memoryview


def make_header(sender: PeerId, receiver: PeerId, incarnation: int, kind: int = MESSAGE) -> bytes:
    """The header of all datagrams from one incarnation of a peer to another peer."""
    if not all(0 <= number <= _MAX_ID for number in (sender, receiver, incarnation)):
        raise WireError(f"ids on the wire lie in 0..{_MAX_ID}, got {sender}, {receiver} and {incarnation}")
    return _HEADER.pack(MAGIC, VERSION, kind, sender, receiver, incarnation)


def encode_message(message: Message) -> bytes:
    """A message as a body. Raises `WireError` if it is too large, or msgpack cannot encode it."""
    body = _encode(message, "a message")
    if len(body) > _MAX_BODY_BYTES:
        size = FRAME_BYTES + len(body)
        raise WireError(f"a datagram may have {MAX_DATAGRAM_BYTES} bytes, this one has {size}")
    return body


def _encode(value: object, what: str) -> bytes:
    try:
        return _encoder.encode(value)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise WireError(f"{what} cannot be encoded: {error}") from None


def join_bodies(bodies: list[bytes]) -> tuple[int, bytes]:
    """Encoded messages as the kind and the body of one datagram. The caller makes sure that they fit."""
    if len(bodies) == 1:
        return MESSAGE, bodies[0]
    count = struct.pack("!BH", 0xDC, len(bodies))  # the head of a msgpack array
    return _BUNDLE, b"".join((count, *bodies))


def frame_datagram(head: bytes, body: bytes) -> bytes:
    """An open datagram, with its checksum."""
    return head + body + crc32(body, crc32(head)).to_bytes(CHECKSUM_BYTES, "little")


class OpenLink:
    """Frames the datagrams from one incarnation of a peer to another peer."""

    __slots__ = ("_headers", "_transmit")

    def __init__(self, sender: PeerId, receiver: PeerId, incarnation: int, transmit: Callable[[bytes], None]) -> None:
        headers = [make_header(sender, receiver, incarnation, kind) for kind in MESSAGES]
        self._headers = tuple((head, crc32(head)) for head in headers)
        self._transmit = transmit

    def send(self, kind: int, body: bytes) -> None:
        """Send a message or a bundle."""
        head, head_sum = self._headers[kind]
        self._transmit(head + body + crc32(body, head_sum).to_bytes(4, "little"))  # as `frame` does


Fault = Literal["garbage", "other-version", "corrupted"]
"""Why an open datagram cannot be read: it is not Wend's, it is of another version, or bits of it have changed."""


def find_fault(datagram: bytes | memoryview) -> Fault | None:
    """The fault in the bytes of an open datagram, found before its body is decoded; None: it is intact."""
    if len(datagram) <= HEADER_BYTES + CHECKSUM_BYTES or datagram[: len(MAGIC)] != MAGIC:
        return "garbage"
    if datagram[_VERSION] != VERSION:
        return "other-version"
    return None if crc32(datagram) == INTACT else "corrupted"


def unframe_datagram(datagram: bytes | memoryview) -> InnerDatagram:
    """The inner datagram of an open one without a `fault`. Its body is a slice of the datagram."""
    _, _, kind, sender, receiver, incarnation = _HEADER.unpack_from(datagram)
    return InnerDatagram(Header(sender, receiver, incarnation), kind, datagram[HEADER_BYTES:-CHECKSUM_BYTES])


def explain_fault(fault: Fault, datagram: bytes | memoryview) -> str:
    """The fault as the object of a sentence."""
    match fault:
        case "other-version":
            return f"a datagram of version {datagram[_VERSION]}, this peer speaks version {VERSION}"
        case "corrupted":
            return "a datagram that does not have its checksum"
    if is_sealed(datagram):
        return "a sealed datagram, and this peer has no keys"
    return f"a datagram of {len(datagram)} bytes that is not Wend's"


def is_open_datagram(datagram: bytes | memoryview) -> bool:
    """Whether a datagram claims to come over an open link."""
    return datagram[: len(MAGIC)] == MAGIC


class MessageTypes:
    """The types that a peer's plug-ins declare for their messages and for packet headers.

    A decoder reads the envelope first, with its body as plain values. Then it converts these to the declared type.
    """

    def __init__(self, messages: Mapping[str, Any], header: Any) -> None:
        self._messages = messages
        self._header = header

    def decode_body(self, message: Message) -> Message:
        """The message with its body or header of the declared type. Raises `msgspec.ValidationError`."""
        if type(message) is Ack:  # half of all messages
            return message
        if type(message) is Data:
            return message if message.header is None else self._decode_header(message)
        if type(message) is Control or type(message) is PlainMessage or type(message) is DirectMessage:
            kind = self._messages.get(message.plugin)
            if kind is None or message.body is None:
                return message  # the peer refuses the first, and the second only asks for a reply
            return msgspec.structs.replace(message, body=msgspec.convert(message.body, kind))
        if type(message) is Fragment and message.head is not None and message.head.header is not None:
            return msgspec.structs.replace(message, head=self._decode_header(message.head))
        return message

    def _decode_header(self, data: Data) -> Data:
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
            return [types.decode_body(message) for message in _bundles.decode(body)]
        return [types.decode_body(_decoder.decode(body))]
    except Exception as error:
        # not every error is one of msgspec's own: a recursion limit or a bad surrogate raises others
        raise WireError(f"a message cannot be decoded: {error}") from None


# ---------------------------------------------------------------- frames between a client and its peer

_LENGTH = struct.Struct("!I")
_to_peer: msgspec.msgpack.Decoder[frames.ToPeer] = msgspec.msgpack.Decoder(frames.ToPeer)
_to_client: msgspec.msgpack.Decoder[frames.ToClient] = msgspec.msgpack.Decoder(frames.ToClient)


def encode_frame(frame: frames.ToPeer | frames.ToClient) -> bytes:
    body = _encode(frame, "a frame")
    if len(body) > frames.MAX_FRAME_BYTES:
        raise WireError(f"a frame may have {frames.MAX_FRAME_BYTES} bytes, this one has {len(body)}", code="too-large")
    return _LENGTH.pack(len(body)) + body


def encode_posted(event: frames.PostedEvent) -> bytes:
    """A part of a `Post`; see `encode_post`."""
    return _encode(event, "an event")


def encode_post(ref: int, events: list[bytes]) -> bytes:
    """A `Post` of events that are encoded already."""
    return encode_frame(frames.Post(ref, tuple(map(msgspec.Raw, events))))  # type: ignore[arg-type]


def decode_to_peer(body: bytes) -> frames.ToPeer:
    try:
        return _to_peer.decode(body)
    except Exception as error:
        raise WireError(f"a frame cannot be decoded: {error}") from None


def decode_to_client(body: bytes) -> frames.ToClient:
    try:
        return _to_client.decode(body)
    except Exception as error:
        raise WireError(f"a frame cannot be decoded: {error}") from None


class FrameSplitter:
    """Finds the frames in a stream of bytes. It holds at most one incomplete frame."""

    def __init__(self, limit: int = frames.MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()
        self.limit = limit
        """The longest frame."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        return self.frames()

    def frames(self) -> Iterator[bytes]:
        """The complete frames. Those that the caller does not iterate over stay for the next call."""
        while len(self._rest) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._rest)
            if not 0 < length <= self.limit:
                sentence = f"a frame may have 1..{self.limit} bytes, this one claims {length}"
                raise WireError(sentence, code="too-large")
            end = _LENGTH.size + length
            if len(self._rest) < end:
                return
            body = bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]
            yield body
