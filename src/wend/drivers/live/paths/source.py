"""Where a live peer's paths come from: the shape of it, and the choice by name."""

from collections import Counter
from pathlib import Path as File
from typing import Protocol

from wend.drivers.live.addresses import Address
from wend.drivers.live.paths import book, program
from wend.drivers.live.paths.probes import HAS_ERROR_QUEUE, Prober
from wend.drivers.live.paths.traced import TracedPaths
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos

TRACE, TRACEROUTE, NONE = "trace", "traceroute", "none"
WORDS = (TRACE, TRACEROUTE, NONE)
"""Everything else is the name of a file."""


class Paths(Protocol):
    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        """The routers from one peer's to the other's; None where nothing is known of them."""
        ...

    def close(self) -> None: ...


class NoPaths:
    """Nothing is known, and nobody is asked."""

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        return None

    def close(self) -> None:
        pass


def open_paths(name: str, listen: Address, age_ns: Nanos, counts: Counter[str]) -> Paths:
    """By its word or file. `listen` is where the peer listens: what is measured starts there."""
    if name == NONE:
        return NoPaths()
    if name == TRACE and HAS_ERROR_QUEUE:
        return TracedPaths(Prober(listen[0]).trace, age_ns, counts)
    if name in (TRACE, TRACEROUTE):
        if program.where() is None:
            kind = "this system tells a socket nothing of ICMP" if name == TRACE else "paths are to be found by it"
            raise ConfigError(f"there is no program called traceroute, and {kind}: install it, or give a file of paths")
        return TracedPaths(program.trace, age_ns, counts)
    return book.read(File(name))
