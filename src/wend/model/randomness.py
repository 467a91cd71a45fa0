"""Named random streams of simulated worlds, on NumPy's generator: a new draw in one stream changes no other.

`stream(7, "topology", "delays")` is the same sequence in every process and on every machine, and independent of other
draws.
"""

import numpy as np

from wend.model.random_stream import stream_seed


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator that depends only on the seed and the names."""
    return np.random.Generator(np.random.PCG64(stream_seed(seed, *names)))
