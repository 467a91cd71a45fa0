"""Paths from a file, for networks whose routers do not answer traceroute or must not be probed.

A line has one path: the two peers, then the routers from the first to the second. `*` is a router without a name:

    1 2  r1 r7 r2
    1 3  r1 * r3

A path in one direction only is also used, reversed, for the other direction.
"""

from pathlib import Path as File

from wend.drivers.live.addressing.addresses import Address
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.paths import Path


class PathTable:
    """Paths by pair of peers."""

    def __init__(self, paths: dict[tuple[PeerId, PeerId], Path]) -> None:
        self._paths = paths

    def find_path(self, a: PeerId, b: PeerId) -> Path | None:
        """The routers from `a` to `b`; None if the file has no such path."""
        if (a, b) in self._paths:
            return self._paths[a, b]
        reverse = self._paths.get((b, a))
        return None if reverse is None else reverse[::-1]

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        return self.find_path(here, there)

    def close(self) -> None:
        pass


def read_paths(file: File) -> PathTable:
    """Read a file of paths. Raises ConfigError with the line of a mistake."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the paths in {file}: {getattr(error, 'strerror', None) or error}", code="unreadable"
        ) from None
    paths: dict[tuple[PeerId, PeerId], Path] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            a, b = int(fields[0]), int(fields[1])
        except (ValueError, IndexError):
            raise ConfigError(f"{file}, line {number}: a path starts with two peers, got {line.strip()!r}") from None
        if len(fields) < 3 or a == b:
            raise ConfigError(f"{file}, line {number}: a path has two different peers and at least one router")
        paths[a, b] = tuple(None if name == "*" else name for name in fields[2:])
    return PathTable(paths)
