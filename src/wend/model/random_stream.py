"""Named random streams of peers, on Python's own generator: a new draw in one stream changes no other.

A peer draws a few numbers a second, so it needs no arrays of them. Simulated worlds draw with `randomness.py`.
"""

import hashlib
from random import Random

RandomStream = Random


def peer_stream(seed: int, *names: str | int) -> RandomStream:
    """A generator that depends only on the seed and the names, the same in every process and on every machine."""
    return Random(stream_seed(seed, *names))


def stream_seed(seed: int, *names: str | int) -> int:
    """A number of 128 bits that depends only on the seed and the names."""
    label = "\x1f".join(str(name) for name in names).encode()
    digest = hashlib.blake2b(label, digest_size=16, key=seed.to_bytes(16, "little", signed=True)).digest()
    return int.from_bytes(digest, "little")
