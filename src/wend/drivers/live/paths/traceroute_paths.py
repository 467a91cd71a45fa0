"""Paths by traceroute: each in a thread, few at once, with a cache and counters.

A traceroute takes seconds if routers are silent, so it runs outside the peer's event loop. Requests for a path that is
being measured share the result. The cache holds a complete path for the configured age, and an incomplete or failed one
for a tenth of it.

Counters under `paths`: `traces`, `probes` and their `answers`; hops that are `named`, `silent`, or without a name
because their address is `private`; traces that did not reach the peer (`cut-short`) or `failed`; and `remembered`
answers from the cache.
"""

import asyncio
import ipaddress
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import dropwhile

from wend.drivers.live.addressing.addresses import Address
from wend.drivers.live.paths.traceroute import TracerouteResult
from wend.model.events import PeerId
from wend.model.paths import UNKNOWN, Path
from wend.model.units import Nanos

log = logging.getLogger("wend.paths")

AT_ONCE = 4
_WORSE = 10
"""How many times sooner the source measures an incomplete path again."""
_LOGGED = 5

TraceFunction = Callable[[Address, threading.Event], TracerouteResult]


class TraceroutePaths:
    """A path source that runs traceroutes."""

    def __init__(
        self,
        trace: TraceFunction,
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
        self._cache: dict[Address, tuple[Path | None, Nanos]] = {}
        """By address: a path, and when it expires."""
        self._finding: dict[Address, asyncio.Future[Path | None]] = {}

    async def find(self, here: PeerId, there: PeerId, address: Address) -> Path | None:
        path, until = self._cache.get(address, (None, 0))
        if self._clock() < until:
            self._counts["remembered"] += 1
            return path
        search = self._finding.get(address)
        if search is None:
            search = self._finding[address] = asyncio.ensure_future(self._measure(address))
        return await asyncio.shield(search)  # other requests may wait for it, too

    def close(self) -> None:
        """Stop all traceroutes. The threads end soon after; this does not wait for them."""
        self._stopped.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _measure(self, address: Address) -> Path | None:
        path: Path | None = None
        try:
            self._counts["traces"] += 1
            result = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._trace, address, self._stopped
            )
            path = name_routers(result, address[0])
            self._count(result, path)
        except Exception as error:
            self._counts["failed"] += 1
            if self._counts["failed"] <= _LOGGED:
                log.warning("cannot trace the path to %s: %s", address[0], error)
        finally:
            del self._finding[address]
        age = self._age_ns if path is not None and None not in path else self._age_ns // _WORSE
        self._cache[address] = (path, self._clock() + age)
        return path

    def _count(self, result: TracerouteResult, path: Path) -> None:
        silent = result.hops.count(None)
        names = len(path) - path.count(None)
        self._counts["probes"] += result.sent
        self._counts["answers"] += result.answers
        self._counts["named"] += names
        self._counts["silent"] += silent
        self._counts["private"] += len(result.hops) - silent - names
        self._counts["cut-short"] += not result.reached


def name_routers(result: TracerouteResult, target: str) -> Path:
    """The path to `target`, with None for routers without a name.

    Peers compare paths by router names, so a name must be unique. Private addresses (10.0.0.1 and the like) exist in
    many networks:

    - If the target has a private address, both peers are in the same private network, and its addresses are unique.
    - If the target has a public address, private addresses are no names. The path omits them at this peer's end, where
      no other peer sees them: it starts at the first public router. Further on they are routers without a name.

    If an address answers at several hops, only the first hop has the name: a path has no loops. A path without routers
    (both peers on one link) becomes one router without a name. A path that does not reach the target ends with one.
    """
    hops = list(result.hops)
    if is_public(target):
        hops = list(dropwhile(lambda hop: hop is not None and not is_public(hop), hops))
        hops = [hop if hop is None or is_public(hop) else None for hop in hops]
    first = {hop: place for place, hop in reversed(list(enumerate(hops)))}
    path = tuple(hop if first[hop] == place else None for place, hop in enumerate(hops))
    return (path or UNKNOWN) if result.reached else (*path, None)


def is_public(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global
