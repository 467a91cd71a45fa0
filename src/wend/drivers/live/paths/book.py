"""Paths between peers from a file, for networks whose routers do not answer, or are not to be asked.

One path per line, the two peers and then the routers from one to the other; `*` for a router without a name:

    1 2  r1 r7 r2
    1 3  r1 * r3

A path that is given one way only holds the other way too.
"""

from pathlib import Path as File

from wend.drivers.live.addresses import Address
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.paths import Path


class PathBook:
    def __init__(self, paths: dict[tuple[PeerId, PeerId], Path]) -> None:
        self._paths = paths

    def path(self, a: PeerId, b: PeerId) -> Path | None:
        """None where nothing is said of it."""
        if (a, b) in self._paths:
            return self._paths[a, b]
        turned = self._paths.get((b, a))
        return None if turned is None else turned[::-1]

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        return self.path(here, there)

    def close(self) -> None:
        pass


def read(file: File) -> PathBook:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the paths in {file}: {getattr(error, 'strerror', None) or error}") from None
    paths: dict[tuple[PeerId, PeerId], Path] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            a, b = int(words[0]), int(words[1])
        except (ValueError, IndexError):
            raise ConfigError(f"{file}, line {number}: a path begins with two peers, got {line.strip()!r}") from None
        if len(words) < 3 or a == b:
            raise ConfigError(f"{file}, line {number}: a path leads from one peer over routers to another")
        paths[a, b] = tuple(None if word == "*" else word for word in words[2:])
    return PathBook(paths)
