"""Keys: points on a ring of 2^128, for peers and for what peers own.

A peer's place on the ring follows from its id, so no peer can claim the place of another. A key (of a topic, or a
region of an attribute space) belongs to the peer whose place is numerically closest (Pastry).
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from wend.model.events import PeerId

BITS: Final = 128
RING: Final = 1 << BITS
DIGIT_BITS: Final = 4
"""Pastry's b: a key is a string of hexadecimal digits."""
DIGITS: Final = BITS // DIGIT_BITS
COLUMNS: Final = 1 << DIGIT_BITS
_SEPARATOR = b"\0"


def _hash(person: bytes, text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=BITS // 8, person=person).digest(), "big")


@lru_cache(1 << 17)
def node_id(peer: PeerId) -> int:
    """The place of a peer on the ring."""
    return _hash(b"peer", str(peer).encode())


@lru_cache(1 << 17)
def make_key(*parts: str) -> int:
    """The key of something that these texts name together."""
    return _hash(b"key", _SEPARATOR.join(part.encode() for part in parts))


def distance(a: int, b: int) -> int:
    """The shorter way round the ring."""
    ahead = (a - b) % RING
    return min(ahead, RING - ahead)


def shared_digits(a: int, b: int) -> int:
    """How many leading digits two keys have in common."""
    return (BITS - (a ^ b).bit_length()) // DIGIT_BITS


def digit(key: int, row: int) -> int:
    """The digit after the first `row` digits."""
    return (key >> (BITS - DIGIT_BITS * (row + 1))) & (COLUMNS - 1)
