"""Open datagrams that hold one message, as bytes and back."""

from typing import NamedTuple

from wend.drivers.live.transport.wire import (
    MESSAGES,
    NO_TYPES,
    Header,
    MessageTypes,
    decode_messages,
    encode_message,
    explain,
    fault,
    frame,
    unframe,
)
from wend.model.errors import WireError
from wend.protocol.messages import Message


class Datagram(NamedTuple):
    header: Header
    message: Message


def encode(head: bytes, message: Message) -> bytes:
    return frame(head, encode_message(message))


def decode(datagram: bytes | memoryview, types: MessageTypes = NO_TYPES) -> Datagram:
    """Raises `WireError`."""
    if (wrong := fault(datagram)) is not None:
        raise WireError(explain(wrong, datagram))
    inner, messages = unframe(datagram), decode_messages(datagram, types)
    if inner.kind not in MESSAGES:
        raise WireError(f"a datagram of kind {inner.kind}, which holds no message of a peer's protocol")
    if len(messages) != 1:
        raise WireError(f"a bundle of {len(messages)} messages is not one message")
    return Datagram(inner.header, messages[0])
