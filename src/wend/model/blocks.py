"""Coded events: a large event travels as blocks, and any `needed` of them give it back.

A block is the event with a piece of its payload, or with the parity of all pieces (`erasure_code.py`). All else of the
event is in every block, so that peers on the way can match it and know its deadlines.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from wend.model.erasure_code import MAX_BLOCKS, encode_parity, recover_data
from wend.model.errors import ConfigError
from wend.model.events import CodedBlock, Event
from wend.model.publication import MAX_PAYLOAD_BYTES

BLOCK_BYTES: Final = 1_100
"""The payload of a block, unless that makes too many blocks. With the rest of the event it fits one packet in almost
every network."""
MAX_ROUTES: Final = 16
AUTO, OFF = "auto", "off"


class CodeRate(NamedTuple):
    """Blocks go over `routes` routes, and those that arrive over `needed` of them give the event back."""

    needed: int
    routes: int

    def count_blocks(self, length: int) -> tuple[int, int]:
        """How many blocks of a payload are needed, and how many there are. Each route gets as many."""
        pieces = max(1, -(-count_pieces(length) // self.needed))
        pieces = min(pieces, MAX_BLOCKS // self.routes)
        return pieces * self.needed, pieces * self.routes


def parse_coding(text: str) -> CodeRate | None:
    """The rate that a setting gives; None if it is `auto` or `off`. Raises ValueError for anything else."""
    if text in (AUTO, OFF):
        return None
    needed, slash, routes = text.partition("/")
    if not (slash and needed.isdecimal() and routes.isdecimal()):
        raise ValueError(text)
    rate = CodeRate(int(needed), int(routes))
    if not 1 <= rate.needed < rate.routes <= MAX_ROUTES:
        raise ValueError(text)
    return rate


def check_coding(name: str, text: str) -> None:
    try:
        parse_coding(text)
    except ValueError:
        raise ConfigError(
            f"{name} must be auto, off or K/N with 1 <= K < N <= {MAX_ROUTES}, such as 2/3, got {text!r}"
        ) from None


def count_pieces(length: int) -> int:
    """The number of pieces of a payload, at least two: a piece has at most `BLOCK_BYTES`."""
    return max(2, -(-length // BLOCK_BYTES))


def block_bytes(length: int, needed: int) -> int:
    """The size of each block of a payload."""
    return -(-length // needed)


def cut_event(event: Event, needed: int, count: int) -> list[Event]:
    """Cut an event into `count` blocks, of which any `needed` give it back."""
    payload = event.payload
    length = len(payload)
    size = block_bytes(length, needed)
    data = [payload[start : start + size].ljust(size, b"\0") for start in range(0, needed * size, size)]
    checksum = crc32(payload)
    return [
        msgspec.structs.replace(event, payload=part, block=CodedBlock(index, needed, length, checksum))
        for index, part in enumerate(data + encode_parity(data, count - needed))
    ]


def join_blocks(blocks: Mapping[int, Event]) -> Event | None:
    """The event from enough blocks of one version, by index; None if blocks are corrupt."""
    first = next(iter(blocks.values()))
    block = first.block
    assert block is not None
    data = recover_data({index: each.payload for index, each in blocks.items()}, block.needed)
    payload = b"".join(data)[: block.length]
    if crc32(payload) != block.checksum:
        return None
    return msgspec.structs.replace(first, payload=payload, block=None)


def is_valid_block(event: Event) -> bool:
    """Whether `cut_event` can have made a block. Other peers may send any."""
    block = event.block
    return block is not None and (
        0 <= block.index < MAX_BLOCKS
        and 1 < block.needed < MAX_BLOCKS
        and 0 < block.length <= MAX_PAYLOAD_BYTES
        and len(event.payload) == block_bytes(block.length, block.needed)
    )
