"""Randomness is named: a new draw in one place moves no other.

`stream(7, "topology", "delays")` is the same sequence in every process and on every machine, whatever
else was drawn before it.
"""

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator that depends on the seed and the names, and on nothing else."""
    label = "\x1f".join(str(name) for name in names).encode()
    digest = hashlib.blake2b(label, digest_size=16, key=seed.to_bytes(16, "little", signed=True)).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
