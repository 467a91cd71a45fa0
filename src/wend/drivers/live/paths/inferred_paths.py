"""Paths whose holes an inferred topology fills: the output of `wend data topology`, which the peer reads again when it
changes.

The job replaces its whole output at once. So before it completes a path, this source looks at the folder, in a thread.
If the new output cannot be read, the peer goes on with the former one.

Counters under `paths`: paths whose holes were all `inferred`, those that stay `incomplete`, and outputs that were
`unreadable`.
"""

import logging
import os
from collections import Counter
from functools import partial
from pathlib import Path as File

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.paths.source import PathSource
from wend.drivers.live.threads import call_in_thread
from wend.model.errors import ConfigError
from wend.model.events import PeerId
from wend.model.extras import needed_by
from wend.model.paths import Path
from wend.topology.inferred_topology import LINKS, InferredTopology, read_topology

log = logging.getLogger("wend.paths")

Stamp = tuple[int, int] | None
"""What changes when a folder is replaced or written; None if there is no folder."""


class TopologyFolder:
    """The folder of an inferred topology, read again when it has changed."""

    def __init__(self, folder: File) -> None:
        """Read the folder. Raises ConfigError, and MissingExtra without PyArrow."""
        self._folder = folder
        self._stamp = self._look()
        with needed_by("a peer with an inferred topology", "telemetry"):
            self._topology = read_topology(folder)

    def refresh(self) -> InferredTopology:
        """Read the folder if it has changed. Raises ConfigError if the new content is invalid, until it is valid."""
        stamp = self._look()
        if stamp != self._stamp:
            self._topology = read_topology(self._folder)
            self._stamp = stamp
        return self._topology

    @property
    def topology(self) -> InferredTopology:
        """What was last read."""
        return self._topology

    def _look(self) -> Stamp:
        try:
            status = os.stat(self._folder / LINKS)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns


class InferredPaths:
    """A path source that completes the paths of another one."""

    def __init__(self, source: PathSource, folder: TopologyFolder, counts: Counter[str]) -> None:
        self._source = source
        self._folder = folder
        self._counts = counts

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        path = await self._source.find(here, there, address)
        if path is None or None not in path:
            return path
        topology = await self._refresh()
        path = await call_in_thread(partial(topology.complete, here, there, path))
        if None in path:
            self._counts["incomplete"] += 1
        else:
            self._counts["inferred"] += 1
        return path

    def close(self) -> None:
        self._source.close()

    async def _refresh(self) -> InferredTopology:
        try:
            return await call_in_thread(self._folder.refresh)
        except ConfigError as error:
            self._counts["unreadable"] += 1
            log.warning("the peer keeps the topology that it has read: %s", error)
            return self._folder.topology
