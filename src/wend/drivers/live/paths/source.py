"""The interface of a path source, and the choice of one by name."""

from collections import Counter
from pathlib import Path as File
from typing import Protocol

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.paths import table, traceroute_program
from wend.drivers.live.paths.probes import HAS_ERROR_QUEUE, Prober
from wend.drivers.live.paths.traceroute_paths import TraceroutePaths
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import MINUTE, Nanos

TRACE, TRACEROUTE, NONE = "trace", "traceroute", "none"
SOURCES = (TRACE, TRACEROUTE, NONE)
"""Every other name is that of a file."""
PATH_AGE_NS: Nanos = 10 * MINUTE
"""How long a measured path is valid: routes in the Internet seldom change more often."""


class PathSource(Protocol):
    """Finds the underlay path to another peer."""

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        """The routers from `here` to `there`; None if the path is unknown."""
        ...

    def close(self) -> None: ...


class NoPaths:
    """A source that knows no paths."""

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        return None

    def close(self) -> None:
        pass


def open_paths(name: str, listen: Address, counts: Counter[str]) -> PathSource:
    """The source with this name, or a file of paths. Traceroutes start at the address `listen`."""
    if name == NONE:
        return NoPaths()
    if name == TRACE and HAS_ERROR_QUEUE:
        return TraceroutePaths(Prober(listen[0]).trace, PATH_AGE_NS, counts)
    if name in (TRACE, TRACEROUTE):
        if traceroute_program.find_program() is None:
            why = (
                "sockets of this system do not report ICMP errors" if name == TRACE else 'paths = "traceroute" needs it'
            )
            raise ConfigError(f"there is no program called traceroute, and {why}: install it, or name a file of paths")
        return TraceroutePaths(traceroute_program.run_traceroute, PATH_AGE_NS, counts)
    return table.read_paths(File(name))
