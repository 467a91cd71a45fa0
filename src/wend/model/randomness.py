"""Named random streams: a new draw in one stream changes no other.

`stream(7, "topology", "delays")` is the same sequence in every process and on every machine, whatever was drawn before.
"""

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator that depends only on the seed and the names."""
    label = "\x1f".join(str(name) for name in names).encode()
    digest = hashlib.blake2b(label, digest_size=16, key=seed.to_bytes(16, "little", signed=True)).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
