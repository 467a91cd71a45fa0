"""Traces as paths: each in a thread of its own, few at once, remembered for a while, and everything counted.

A trace takes seconds where routers are silent, so the peer's loop never waits for one. Whoever asks for a path that
is being measured gets that answer. One that is whole is good for its age; one with holes, or that failed, for a tenth.

Counted, under `paths`: `traces`, `probes` and their `answers`, hops `named`, `silent` and without a name because they
are `private`, traces that did not reach their peer (`cut short`) or could not be made (`failed`), and `remembered`
answers.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from wend.drivers.live.addresses import Address
from wend.drivers.live.paths.names import named
from wend.drivers.live.paths.trace import Traced
from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos

log = logging.getLogger("wend.paths")

AT_ONCE = 4
_WORSE = 10
"""How many times sooner a path with holes is measured again."""
_LOGGED = 5

Tracing = Callable[[Address, threading.Event], Traced]


class TracedPaths:
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
        """With the time until which it is believed."""
        self._finding: dict[Address, asyncio.Future[Path | None]] = {}

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        path, until = self._known.get(address, (None, 0))
        if self._clock() < until:
            self._counts["remembered"] += 1
            return path
        found = self._finding.get(address)
        if found is None:
            found = self._finding[address] = asyncio.ensure_future(self._measure(address))
        return await asyncio.shield(found)  # others may wait for it too

    def close(self) -> None:
        """Threads end by themselves, soon; nobody waits for them here."""
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
                log.warning("cannot trace the way to %s: %s", address[0], error)
        finally:
            del self._finding[address]
        age = self._age_ns if path is not None and None not in path else self._age_ns // _WORSE
        self._known[address] = (path, self._clock() + age)
        return path

    def _count(self, traced: Traced, path: Path) -> None:
        silent = traced.hops.count(None)
        names = len(path) - path.count(None)
        self._counts["probes"] += traced.sent
        self._counts["answers"] += traced.answers
        self._counts["named"] += names
        self._counts["silent"] += silent
        self._counts["private"] += len(traced.hops) - silent - names
        self._counts["cut short"] += not traced.reached
