"""Open datagrams that hold one message, as bytes and back."""

from typing import NamedTuple

from wend.drivers.live.transport.wire import (
    MESSAGES,
    NO_TYPES,
    Header,
    MessageTypes,
    decode_messages,
    encode_message,
    explain_fault,
    find_fault,
    frame_datagram,
    unframe_datagram,
)
from wend.model.errors import WireError
from wend.protocol.messages import Message


class Datagram(NamedTuple):
    header: Header
    message: Message


def encode(head: bytes, message: Message) -> bytes:
    return frame_datagram(head, encode_message(message))


def decode(datagram: bytes | memoryview, types: MessageTypes = NO_TYPES) -> Datagram:
    """Raises `WireError`."""
    if (wrong := find_fault(datagram)) is not None:
        raise WireError(explain_fault(wrong, datagram))
    inner, messages = unframe_datagram(datagram), decode_messages(datagram, types)
    if inner.kind not in MESSAGES:
        raise WireError(f"a datagram of kind {inner.kind}, which holds no message of a peer's protocol")
    if len(messages) != 1:
        raise WireError(f"a bundle of {len(messages)} messages is not one message")
    return Datagram(inner.header, messages[0])
