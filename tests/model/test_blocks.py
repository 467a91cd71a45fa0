"""Coded events: any of enough blocks give the event back, and no others."""

import random
from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wend.model.blocks import (
    BLOCK_BYTES,
    MAX_ROUTES,
    CodeRate,
    check_coding,
    count_pieces,
    cut_event,
    is_valid_block,
    join_blocks,
    parse_coding,
)
from wend.model.erasure_code import MAX_BLOCKS, encode_parity, recover_data
from wend.model.errors import ConfigError
from wend.model.events import CodedBlock, Event, EventId
from wend.model.publication import MAX_PAYLOAD_BYTES
from wend.protocol.link.fragments import FRAGMENT_BYTES


def event(payload: bytes) -> Event:
    return Event(EventId(1, 2, 3), {"topic": "t"}, payload, {"a": "b"}, ttl_ns=7)


def multiply(a: int, b: int) -> int:
    """Multiplication in the field as its definition has it."""
    product = 0
    for bit in range(8):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(14, 7, -1):
        if product >> bit & 1:
            product ^= 0x11D << (bit - 8)
    return product


# ---------------------------------------------------------------- the code


def test_parity_is_the_sum_that_its_definition_gives() -> None:
    data = [bytes([number]) for number in (7, 0, 255, 19)]
    inverses = {a: b for a in range(1, 256) for b in range(1, 256) if multiply(a, b) == 1}
    for row, parity in enumerate(encode_parity(data, 5)):
        total = 0
        for column, (byte,) in enumerate(data):
            total ^= multiply(inverses[4 + row ^ column], byte)
        assert parity == bytes([total])


def test_every_choice_of_enough_blocks_gives_the_data_back() -> None:
    data = [random.Random(number).randbytes(3) for number in range(4)]
    blocks = [*data, *encode_parity(data, 4)]
    for chosen in combinations(range(8), 4):
        assert recover_data({index: blocks[index] for index in chosen}, 4) == data


def test_too_few_blocks_are_an_error() -> None:
    data = [b"a", b"b", b"c"]
    with pytest.raises(ValueError):
        recover_data({0: b"a", 3: encode_parity(data, 1)[0]}, 3)


@given(st.data())
def test_the_largest_codes_work(data: st.DataObject) -> None:
    needed = data.draw(st.integers(1, MAX_BLOCKS - 1))
    rng = random.Random(needed)
    pieces = [rng.randbytes(2) for _ in range(needed)]
    blocks = [*pieces, *encode_parity(pieces, MAX_BLOCKS - needed)]
    chosen = rng.sample(range(MAX_BLOCKS), needed)
    assert recover_data({index: blocks[index] for index in chosen}, needed) == pieces


# ---------------------------------------------------------------- events


@given(st.binary(min_size=1, max_size=5000), st.integers(2, 40), st.integers(0, 40), st.randoms(use_true_random=False))
def test_any_of_enough_blocks_give_the_event_back(payload: bytes, needed: int, parity: int, rng: random.Random) -> None:
    made = event(payload)
    blocks = cut_event(made, needed, needed + parity)
    assert len(blocks) == needed + parity
    assert all(is_valid_block(block) and len({len(each.payload) for each in blocks}) == 1 for block in blocks)
    chosen = rng.sample(range(len(blocks)), needed)
    assert join_blocks({index: blocks[index] for index in chosen}) == made


def test_corrupt_blocks_make_no_event() -> None:
    blocks = cut_event(event(b"0123456789"), 2, 4)
    corrupt = msgspec.structs.replace(blocks[3], payload=b"XXXXX")
    assert join_blocks({0: blocks[0], 3: corrupt}) is None


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (CodedBlock(-1, 2, 10, 0), 5),
        (CodedBlock(MAX_BLOCKS, 2, 10, 0), 5),
        (CodedBlock(0, 1, 10, 0), 10),
        (CodedBlock(0, 0, 10, 0), 10),
        (CodedBlock(0, MAX_BLOCKS, 10, 0), 1),
        (CodedBlock(0, 2, 0, 0), 0),
        (CodedBlock(0, 2, -10, 0), 5),
        (CodedBlock(0, 2, 10, 0), 4),
        (CodedBlock(0, 2, 10, 0), 6),
        (CodedBlock(0, 2, MAX_PAYLOAD_BYTES + 1, 0), MAX_PAYLOAD_BYTES // 2 + 1),
    ],
)
def test_blocks_that_cannot_have_been_cut_are_invalid(block: CodedBlock, size: int) -> None:
    made = msgspec.structs.replace(event(bytes(size)), block=block)
    assert not is_valid_block(made)
    assert not is_valid_block(event(b"whole"))


# ---------------------------------------------------------------- rates


def test_a_block_fits_a_packet_as_a_fragment_does() -> None:
    assert BLOCK_BYTES == FRAGMENT_BYTES


@given(st.integers(1, MAX_PAYLOAD_BYTES), st.integers(1, MAX_ROUTES - 1), st.data())
@settings(max_examples=300)
def test_any_needed_routes_carry_enough_blocks(length: int, needed: int, data: st.DataObject) -> None:
    rate = CodeRate(needed, data.draw(st.integers(needed + 1, MAX_ROUTES)))
    enough, count = rate.count_blocks(length)
    assert 1 < enough < count <= MAX_BLOCKS
    on_route = [len(range(route, count, rate.routes)) for route in range(rate.routes)]
    assert sum(sorted(on_route)[:needed]) >= enough
    assert enough <= count_pieces(length) + needed
    assert enough * BLOCK_BYTES >= length or count + rate.routes > MAX_BLOCKS


@pytest.mark.parametrize("text", ["auto", "off"])
def test_words_give_no_rate(text: str) -> None:
    assert parse_coding(text) is None


def test_a_rate_names_needed_and_all_routes() -> None:
    assert parse_coding("2/3") == CodeRate(2, 3)


@pytest.mark.parametrize("text", ["", "on", "2", "2/2", "3/2", "0/2", "2/17", "-1/2", "a/b", "2/3/4", "2 / 3"])
def test_other_texts_are_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="coding must be auto, off or K/N"):
        check_coding("coding", text)
