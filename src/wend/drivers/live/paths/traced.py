"""Paths by traceroute: each in a thread, few at once, with a cache and counters.

A traceroute takes seconds if routers are silent, so it runs outside the peer's event loop. Requests for a path that is
being measured share the result. The cache holds a complete path for the configured age, and an incomplete or failed one
for a tenth of it.

Counters under `paths`: `traces`, `probes` and their `answers`; hops that are `named`, `silent`, or without a name
because their address is `private`; traces that did not reach the peer (`cut-short`) or `failed`; and `remembered`
answers from the cache.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.paths.names import named
from wend.drivers.live.paths.trace import TracerouteResult
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos

log = logging.getLogger("wend.paths")

AT_ONCE = 4
_WORSE = 10
"""How many times sooner the source measures an incomplete path again."""
_LOGGED = 5

Tracing = Callable[[Address, threading.Event], TracerouteResult]


class TracedPaths:
    """A path source that runs traceroutes."""

    def __init__(
        self,
        trace: Tracing,
        age_ns: Nanos,
        counts: Counter[str],
        *,
        at_once: int = AT_ONCE,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self._trace = trace
        self._age_ns = age_ns
        self._counts = counts
        self._clock = clock
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="trace")
        self._stopped = threading.Event()
        self._known: dict[Address, tuple[Path | None, Nanos]] = {}
        """The cache: a path and the time at which it expires."""
        self._finding: dict[Address, asyncio.Future[Path | None]] = {}

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        path, until = self._known.get(address, (None, 0))
        if self._clock() < until:
            self._counts["remembered"] += 1
            return path
        found = self._finding.get(address)
        if found is None:
            found = self._finding[address] = asyncio.ensure_future(self._measure(address))
        return await asyncio.shield(found)  # other requests may wait for it, too

    def close(self) -> None:
        """Stop all traceroutes. The threads end soon after; this does not wait for them."""
        self._stopped.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _measure(self, address: Address) -> Path | None:
        path: Path | None = None
        try:
            self._counts["traces"] += 1
            traced = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._trace, address, self._stopped
            )
            path = named(traced, address[0])
            self._count(traced, path)
        except Exception as error:
            self._counts["failed"] += 1
            if self._counts["failed"] <= _LOGGED:
                log.warning("cannot trace the path to %s: %s", address[0], error)
        finally:
            del self._finding[address]
        age = self._age_ns if path is not None and None not in path else self._age_ns // _WORSE
        self._known[address] = (path, self._clock() + age)
        return path

    def _count(self, traced: TracerouteResult, path: Path) -> None:
        silent = traced.hops.count(None)
        names = len(path) - path.count(None)
        self._counts["probes"] += traced.sent
        self._counts["answers"] += traced.answers
        self._counts["named"] += names
        self._counts["silent"] += silent
        self._counts["private"] += len(traced.hops) - silent - names
        self._counts["cut-short"] += not traced.reached
