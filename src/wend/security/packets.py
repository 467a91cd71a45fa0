"""The packets of sessions and their layouts. This module imports no ciphers, because peers without keys need it, too.

    initiation    head 4 | index 4 | e 32 | s 48 | introduction 543 | mac1 16 | mac2 16
    answer        head 4 | index 4 | receiver 4 | e 32 | introduction
    cookie        head 4 | receiver 4 | salt 16 | cookie 32
    question      head 4 | number 8 | padding
    certificate   head 4 | number 8 | certificate
    multicast     head 4 | group 8 | epoch 8 | sender 8 | salt 8 | counter 8 | sealed message
    transport     head 4 | receiver 4 | counter 8 | sealed message

The head is `ws`, the version of this layout, and the type. A transport packet has its kind in the type: 16 + kind. An
index is chosen by the side that is to receive it, at random. Integers are little-endian, as in the nonces of Noise.

Each side encrypts an introduction in the handshake: the version of the wire format inside, its incarnation, a random
number of its process, the number of the handshake, and its certificate. An initiation pads its introduction, so that no
reply is larger than the initiation.
"""

import struct
from typing import Final, NamedTuple

from wend.model.errors import WireError

MAGIC: Final = b"ws"
VERSION: Final = 2
INITIATION, ANSWER, COOKIE, QUESTION, CERTIFICATE, MULTICAST = 1, 2, 3, 4, 5, 6
TRANSPORT: Final = 16
"""The type of transport packets of kind 0; that of kind k is `TRANSPORT + k`."""
MAX_KINDS: Final = 16
NOTHING: Final = 15
"""The kind of a packet without a message, which only shows that the sender has the keys."""
REKEYING: Final = 14
"""The kind of a packet that contains an initiation: strangers cannot crowd out new handshakes of peers with a
session."""
GROUP_KEY: Final = 13
"""The kind of a packet about the key of a multicast group."""

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
FIRST_BYTES: Final = KEY_BYTES + KEY_BYTES + TAG_BYTES + TAG_BYTES
"""The size of the first handshake message without its payload: e, the encrypted s, and the tag of the payload."""
SECOND_BYTES: Final = KEY_BYTES + TAG_BYTES
"""The size of the second handshake message without its payload."""
MAX_CERTIFICATE_BYTES: Final = 500
"""In DER: a handshake with such a certificate fits the smallest datagram that IPv6 guarantees."""
MAC_BYTES: Final = 16
SALT_BYTES: Final = 16
COOKIE_BYTES: Final = 16
NUMBER_BYTES: Final = 8

_HEAD = struct.Struct("<2sBB")
_INDEX = struct.Struct("<2sBBI")
_INDICES = struct.Struct("<2sBBII")
_NUMBER = struct.Struct("<2sBB8s")
_INTRODUCTION = struct.Struct("<BQQQH")
TRANSPORT_HEADER = struct.Struct("<IIQ")
GROUP_HEADER = struct.Struct("<4sQQQ8sQ")
HEAD_BYTES: Final = _HEAD.size
GROUP_HEADER_BYTES: Final = GROUP_HEADER.size
HEADER_BYTES: Final = TRANSPORT_HEADER.size
OVERHEAD_BYTES: Final = HEADER_BYTES + TAG_BYTES
INITIATION_BYTES: Final = _INDEX.size + FIRST_BYTES + _INTRODUCTION.size + MAX_CERTIFICATE_BYTES + MAC_BYTES + MAC_BYTES
ANSWER_BYTES: Final = _INDICES.size + SECOND_BYTES + _INTRODUCTION.size
"""Without the certificate."""
COOKIE_PACKET_BYTES: Final = _INDEX.size + SALT_BYTES + COOKIE_BYTES + TAG_BYTES
QUESTION_BYTES: Final = _NUMBER.size + MAX_CERTIFICATE_BYTES


class Introduction(NamedTuple):
    """How a peer introduces itself in a handshake."""

    version: int
    """Of the wire format of the messages inside."""
    incarnation: int
    number: int
    """Of an initiation: higher than those before it in this incarnation. Otherwise 0."""
    certificate: bytes
    process: int = 0
    """Random, and constant while the process runs. It tells two processes with one certificate apart."""

    def encode(self, *, padded: bool) -> bytes:
        numbers = (self.version, self.incarnation, self.process, self.number)
        fields = _INTRODUCTION.pack(*numbers, len(self.certificate))
        padding = bytes(MAX_CERTIFICATE_BYTES - len(self.certificate)) if padded else b""
        return fields + self.certificate + padding


def decode_introduction(payload: bytes) -> Introduction:
    """Raises `WireError`."""
    if len(payload) < _INTRODUCTION.size:
        raise WireError("an introduction that is too short")
    version, incarnation, process, number, size = _INTRODUCTION.unpack_from(payload)
    certificate = payload[_INTRODUCTION.size : _INTRODUCTION.size + size]
    if size > MAX_CERTIFICATE_BYTES or len(certificate) < size:
        raise WireError("an introduction without its certificate")
    return Introduction(version, incarnation, number, certificate, process)


def packet_head(kind: int) -> bytes:
    return _HEAD.pack(MAGIC, VERSION, kind)


HEAD_NUMBERS: Final = tuple(int.from_bytes(packet_head(TRANSPORT + kind), "little") for kind in range(MAX_KINDS))
"""The heads of transport packets by kind, as the first field of `TRANSPORT_HEADER`."""
KINDS: Final = {number: kind for kind, number in enumerate(HEAD_NUMBERS)}


def is_sealed(datagram: bytes | memoryview) -> bool:
    """Whether a datagram claims to be a packet of a session."""
    return bytes(datagram[:2]) == MAGIC


def packet_type(datagram: bytes | memoryview) -> int | None:
    """The type of a packet; None if the datagram is not a packet, or has another version."""
    if len(datagram) < HEAD_BYTES or bytes(datagram[:2]) != MAGIC or datagram[2] != VERSION:
        return None
    return datagram[3]


class InitiationPacket(NamedTuple):
    sender: int
    """The index by which its sender finds the answer."""
    handshake: bytes
    signed: bytes
    """Everything before mac1."""
    mac1: bytes
    mac2: bytes


def encode_initiation(index: int, handshake: bytes) -> bytes:
    """Encode an initiation, without its macs."""
    return _INDEX.pack(MAGIC, VERSION, INITIATION, index) + handshake


def decode_initiation(datagram: bytes) -> InitiationPacket:
    if len(datagram) != INITIATION_BYTES:
        raise WireError("an initiation of the wrong size")
    signed, mac1, mac2 = datagram[: -2 * MAC_BYTES], datagram[-2 * MAC_BYTES : -MAC_BYTES], datagram[-MAC_BYTES:]
    return InitiationPacket(_INDEX.unpack_from(datagram)[3], signed[_INDEX.size :], signed, mac1, mac2)


def encode_answer(index: int, receiver: int, handshake: bytes) -> bytes:
    return _INDICES.pack(MAGIC, VERSION, ANSWER, index, receiver) + handshake


def decode_answer(datagram: bytes) -> tuple[int, int, bytes]:
    """The index, the receiver and the handshake message."""
    if not ANSWER_BYTES <= len(datagram) <= ANSWER_BYTES + MAX_CERTIFICATE_BYTES:
        raise WireError("an answer of the wrong size")
    _, _, _, index, receiver = _INDICES.unpack_from(datagram)
    return index, receiver, datagram[_INDICES.size :]


def encode_cookie(receiver: int, salt: bytes, sealed: bytes) -> bytes:
    return _INDEX.pack(MAGIC, VERSION, COOKIE, receiver) + salt + sealed


def decode_cookie(datagram: bytes) -> tuple[int, bytes, bytes]:
    """The receiver, the salt and the sealed cookie."""
    if len(datagram) != COOKIE_PACKET_BYTES:
        raise WireError("a cookie of the wrong size")
    rest = datagram[_INDEX.size :]
    return _INDEX.unpack_from(datagram)[3], rest[:SALT_BYTES], rest[SALT_BYTES:]


def encode_question(number: bytes) -> bytes:
    """A question for the certificate of the peer at an address. It is as long as the longest answer."""
    return _NUMBER.pack(MAGIC, VERSION, QUESTION, number) + bytes(MAX_CERTIFICATE_BYTES)


def encode_certificate(number: bytes, der: bytes) -> bytes:
    return _NUMBER.pack(MAGIC, VERSION, CERTIFICATE, number) + der


def decode_numbered(datagram: bytes) -> tuple[bytes, bytes]:
    """The number of a question or its answer, and the rest."""
    if not _NUMBER.size <= len(datagram) <= QUESTION_BYTES:
        raise WireError("a question of the wrong size")
    return _NUMBER.unpack_from(datagram)[3], datagram[_NUMBER.size :]
