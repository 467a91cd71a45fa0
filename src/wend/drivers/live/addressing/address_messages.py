"""Questions about addresses, and their answers: what drivers of an open overlay say to each other.

Peers of a ring know each other by id, and their drivers must find the addresses. A driver asks another who it is, and
which peers it knows near some id. An answer is never longer than its question, so nobody can flood a host with answers
to questions that bear its address.
"""

import msgspec

from wend.model.errors import WireError
from wend.model.events import PeerId

ANYONE: PeerId = 2**64 - 1
"""The receiver of a question to an address whose peer is not known."""
MOST_NEAREST = 4
MAX_PEER_ID = 2**32 - 1
_ROOM, _LITTLE_ROOM = bytes(260), bytes(32)


class KnownAddress(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The address of a peer, as another peer knows it."""

    peer: PeerId
    host: str
    port: int


class AddressQuery(msgspec.Struct, frozen=True, gc=False, tag="aq"):
    """Who are you, and which peers do you know near this one?"""

    number: int
    """Random. The answer repeats it, which shows that it comes from the address that was asked."""
    near: PeerId | None = None
    """None: the sender only asks who the receiver is."""
    room: bytes = b""
    """As long as the answer may be."""
    link: bool = False
    """Whether the sender wants a link with the receiver."""


class AddressReply(msgspec.Struct, frozen=True, gc=False, tag="ar"):
    """The sender of this is the peer that its header names."""

    number: int
    instance: int
    """Random, and constant while the process runs. It tells two peers with one id apart."""
    nearest: tuple[KnownAddress, ...] = ()
    """The peers whose places on the ring are closest to the one in question, with that one first."""
    admits: bool = True
    """Whether the sender makes the link that the question asks for."""


AddressMessage = AddressQuery | AddressReply

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AddressMessage] = msgspec.msgpack.Decoder(AddressMessage)


def query(number: int, near: PeerId | None = None, link: bool = False) -> AddressQuery:
    return AddressQuery(number, near, _LITTLE_ROOM if near is None else _ROOM, link)


encode = _encoder.encode
"""A message as the body of a datagram of the kind `wire.ADDRESSES`."""


def decode(sender: PeerId, body: bytes | memoryview) -> AddressMessage:
    """The message in the body of a datagram. Raises `WireError` for an invalid one."""
    try:
        message = _decoder.decode(body)
    except Exception as error:  # msgspec has its own errors for almost everything, but not for all
        raise WireError(f"a message about addresses cannot be decoded: {error}") from None
    if sender > MAX_PEER_ID:
        raise WireError(f"a peer's id lies in 0..{MAX_PEER_ID}, got {sender}")
    if isinstance(message, AddressReply):
        if len(message.nearest) > MOST_NEAREST:
            raise WireError(f"an answer names {MOST_NEAREST} peers at most, this one {len(message.nearest)}")
        for known in message.nearest:
            if not (0 <= known.peer <= MAX_PEER_ID and 0 < known.port <= 65535):
                raise WireError("an answer names a peer or a port that cannot be")
    return message
