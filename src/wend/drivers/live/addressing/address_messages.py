"""Questions about addresses, and their answers: what drivers of an open overlay say to each other.

Peers of a ring know each other by id, and their drivers must find the addresses. A driver asks another who it is, and
which peers it knows near some id. An answer is never longer than its question, so nobody can flood a host with answers
by questions with its address as their source.
"""

from collections.abc import Callable

import msgspec

from wend.drivers.live.addressing.addresses import Address
from wend.model.errors import WireError
from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos

ANYONE: PeerId = 2**64 - 1
"""The receiver of a question to an address at which the peer is unknown."""
MAX_NEAREST = 4
MAX_PEER_ID = 2**32 - 1
_ROOM, _LITTLE_ROOM = bytes(260), bytes(32)
QUESTION_NS: Nanos = 3 * SECOND
"""How long an answer is accepted."""


class KnownAddress(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The address of a peer, as another peer knows it."""

    peer: PeerId
    host: str
    port: int


class AddressQuery(msgspec.Struct, frozen=True, gc=False, tag="aq"):
    """Who are you, and which peers do you know near this one?"""

    number: int
    """Random. The answer repeats it, which proves that the answer comes from the address that was asked."""
    near: PeerId | None = None
    """None: the sender asks only who the receiver is."""
    room: bytes = b""
    """As long as the answer may be."""
    link: bool = False
    """Whether the sender wants a link with the receiver."""


class AddressReply(msgspec.Struct, frozen=True, gc=False, tag="ar"):
    """An answer. Its header names the peer that sends it."""

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


encode_address_message = _encoder.encode
"""A message as the body of a datagram of the kind `wire.ADDRESSES`."""


def decode_address_message(sender: PeerId, body: bytes | memoryview) -> AddressMessage:
    """The message in the body of a datagram. Raises `WireError` for an invalid one."""
    try:
        message = _decoder.decode(body)
    except Exception as error:  # not every error is one of msgspec's own
        raise WireError(f"a message about addresses cannot be decoded: {error}") from None
    if sender > MAX_PEER_ID:
        raise WireError(f"a peer's id lies in 0..{MAX_PEER_ID}, got {sender}")
    if isinstance(message, AddressReply):
        if len(message.nearest) > MAX_NEAREST:
            raise WireError(f"an answer names {MAX_NEAREST} peers at most, this one {len(message.nearest)}")
        for near in message.nearest:
            if not (0 <= near.peer <= MAX_PEER_ID and 0 < near.port <= 65535):
                raise WireError("an answer names an invalid peer or port")
    return message


class AddressQuestion(msgspec.Struct, frozen=True, gc=False):
    """An unanswered question, with the object that asked it."""

    address: Address
    ends_ns: Nanos
    asker: object
    """The contact, claim or lookup that asks."""


class AddressQuestions:
    """The unanswered questions by their random numbers, oldest first."""

    def __init__(self, transmit: Callable[[Address, PeerId, bytes], None], number: Callable[[], int]) -> None:
        self._transmit = transmit
        self._number = number
        self._open: dict[int, AddressQuestion] = {}

    def ask(self, now: Nanos, address: Address, asker: object, near: PeerId | None = None, link: bool = False) -> None:
        """Ask who is at an address. `near`: also ask for peers near this id; `link`: also ask for a link."""
        number = self._number()
        query = AddressQuery(number, near, _LITTLE_ROOM if near is None else _ROOM, link)
        self._open[number] = AddressQuestion(address, now + QUESTION_NS, asker)
        self._transmit(address, ANYONE, encode_address_message(query))

    def take_asker(self, number: int, address: Address) -> object | None:
        """Remove the question that this address answers, and return its asker; None if there is no such question."""
        question = self._open.get(number)
        if question is None or question.address != address:
            return None
        del self._open[number]
        return question.asker

    def expire(self, now: Nanos) -> list[object]:
        """Remove the questions that were not answered in time, and return their askers."""
        askers = []
        while self._open and now >= next(iter(self._open.values())).ends_ns:
            askers.append(self._open.pop(next(iter(self._open))).asker)
        return askers
