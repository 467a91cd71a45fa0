"""A systematic Reed-Solomon code over GF(256): any `k` of `n` blocks give the `k` data blocks back.

The first `k` blocks are the data. Each further one, a parity block, is a sum of all data blocks, with the coefficients
of a row of a Cauchy matrix. Every square part of such a matrix is invertible, so no choice of `k` blocks fails.

The code needs no package: `bytes.translate` multiplies all bytes of a block at once, and the XOR of two long integers
adds two blocks. 15 blocks of 1072 bytes and 5 of parity take 0.25 ms to encode and 0.4 ms to recover; the compiled
packages zfec and raptorq took 0.15 and 0.22 ms, and 0.07 and 0.18 ms.
"""

from collections.abc import Mapping, Sequence
from typing import Final

MAX_BLOCKS: Final = 256
"""Data and parity blocks together: the field has no more elements."""
_POLYNOMIAL: Final = 0x11D


def encode_parity(data: Sequence[bytes], parity: int) -> list[bytes]:
    """The parity blocks of data blocks of one length."""
    size, count = len(data[0]), len(data)
    return [
        _combine([_coefficient(count + row, column) for column in range(count)], data, size) for row in range(parity)
    ]


def recover_data(blocks: Mapping[int, bytes], count: int) -> list[bytes]:
    """The `count` data blocks, from any `count` blocks by index. Data blocks are used before parity blocks."""
    missing = [index for index in range(count) if index not in blocks]
    known = [index for index in range(count) if index in blocks]
    parity = sorted(index for index in blocks if index >= count)[: len(missing)]
    if len(parity) < len(missing):
        raise ValueError(f"{len(blocks)} blocks cannot recover {count}")
    found = dict(blocks)
    if missing:
        size = len(blocks[parity[0]])
        rows = []
        for index in parity:  # what the missing blocks contribute to this parity block
            rest = [_coefficient(index, column) for column in known]
            unknown = _add(blocks[index], _combine(rest, [blocks[column] for column in known], size))
            rows.append(bytes([_coefficient(index, column) for column in missing]) + unknown)
        found.update(zip(missing, _solve(rows), strict=True))
    return [found[index] for index in range(count)]


def _solve(rows: list[bytes]) -> list[bytes]:
    """Gauss-Jordan elimination. Each row is its coefficients, and then a block. No pivot is zero, because every square
    part of the matrix is invertible."""
    count = len(rows)
    for pivot in range(count):
        rows[pivot] = _scale(rows[pivot], _inverse(rows[pivot][pivot]))
        for row in range(count):
            factor = rows[row][pivot]
            if row != pivot and factor:
                rows[row] = _add(rows[row], _scale(rows[pivot], factor))
    return [row[count:] for row in rows]


def _combine(coefficients: Sequence[int], blocks: Sequence[bytes], size: int) -> bytes:
    total = 0
    for coefficient, block in zip(coefficients, blocks, strict=True):
        total ^= int.from_bytes(block.translate(_PRODUCTS[coefficient]))
    return total.to_bytes(size)


def _add(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))


def _scale(block: bytes, factor: int) -> bytes:
    return block.translate(_PRODUCTS[factor])


def _coefficient(row: int, column: int) -> int:
    """The coefficient of a data block in a parity block, both by index: an element of the Cauchy matrix."""
    return _inverse(row ^ column)


def _inverse(element: int) -> int:
    return _INVERSES[element]


def _multiply(a: int, b: int) -> int:
    product = 0
    while b:
        if b & 1:
            product ^= a
        a <<= 1
        if a & 0x100:
            a ^= _POLYNOMIAL
        b >>= 1
    return product


def _make_products() -> list[bytes]:
    """The multiplication table of the field, a row for each factor."""
    doubles = bytes([_multiply(2, element) for element in range(256)])
    rows = [bytes(256), bytes(range(256))]
    for factor in range(2, 256):
        row = rows[factor // 2].translate(doubles)
        rows.append(_add(row, rows[1]) if factor % 2 else row)
    return rows


_PRODUCTS: Final = _make_products()
_INVERSES: Final = bytes([row.find(1) if 1 in row else 0 for row in _PRODUCTS])
