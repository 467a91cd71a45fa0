"""Host names of other peers: resolved in threads, and again while no peer answers at the address.

If a name cannot be resolved, the peer logs one line and tries again, with growing pauses. It finds a site whose address
has changed in the same way.
"""

import asyncio
import logging
from collections.abc import Callable

from wend.drivers.live.addressing.addresses import (
    Address,
    format_address,
    is_numeric_address,
    resolve_address,
    resolve_addresses,
)
from wend.drivers.live.threads import call_in_thread
from wend.model.errors import ConfigError, WendError
from wend.model.events import PeerId

log = logging.getLogger("wend.peer")

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
"""The pause before the next attempt to resolve a name doubles up to this one."""
CHECK_S = 5.0
"""How often it checks whether a peer answers at a resolved address."""
START_S = 2.0
"""How long the start of a peer waits for the first answers."""


class HostNames:
    """Resolves the host names of one peer while it runs."""

    def __init__(self, me: PeerId, family: int) -> None:
        self._me = me
        self._family = family
        self._names: dict[object, HostName] = {}

    def keep_resolving(
        self, key: object, address: Address, on_located: Callable[[Address], None], is_silent: Callable[[], bool]
    ) -> None:
        """Resolve a name from now on. `on_located` gets each new address; `is_silent` says whether nobody is heard
        there. A numeric address is located at once. A later name with this key replaces it."""
        self.stop_resolving(key)
        if is_numeric_address(address):
            on_located(resolve_address(address, self._family))
            return
        name = self._names[key] = HostName(address, on_located, is_silent)
        name.task = asyncio.get_running_loop().create_task(self._resolve(name))

    def stop_resolving(self, key: object) -> None:
        name = self._names.pop(key, None)
        if name is not None and name.task is not None:
            name.task.cancel()

    async def wait_for_first_tries(self) -> None:
        """Wait a little, until every name has been tried once."""
        tried = [asyncio.ensure_future(name.tried.wait()) for name in self._names.values()]
        if tried:
            _, pending = await asyncio.wait(tried, timeout=START_S)
            for one in pending:
                one.cancel()

    def close(self) -> None:
        for key in list(self._names):
            self.stop_resolving(key)

    async def _resolve(self, name: "HostName") -> None:
        pause, complained = FIRST_PAUSE_S, False
        while True:
            if name.current is not None and not name.is_silent():
                pause = FIRST_PAUSE_S
                await asyncio.sleep(CHECK_S)
                continue
            try:
                addresses = await call_in_thread(lambda: resolve_addresses(name.address, self._family))
            except ConfigError as error:
                if not complained:
                    log.warning("peer %d: %s; it tries again", self._me, error)
                complained = True
            else:
                complained = False
                self._use_address(name, addresses)
            name.tried.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_S)

    def _use_address(self, name: "HostName", addresses: list[Address]) -> None:
        """Use the first address or, because no peer answers at the current one, the next."""
        former = name.current
        current = addresses[(addresses.index(former) + 1) % len(addresses)] if former in addresses else addresses[0]
        if current == former:
            return
        if former is not None and former not in addresses:
            log.info(
                "peer %d: %s is %s now, and was %s",
                self._me,
                name.address[0],
                format_address(current),
                format_address(former),
            )
        name.current = current
        try:
            name.on_located(current)
        except WendError as error:
            log.warning("peer %d cannot use %s: %s", self._me, format_address(current), error)


class HostName:
    """A name that is resolved repeatedly."""

    def __init__(self, address: Address, on_located: Callable[[Address], None], is_silent: Callable[[], bool]) -> None:
        self.address = address
        self.on_located = on_located
        self.is_silent = is_silent
        self.current: Address | None = None
        """The address to which it was last resolved."""
        self.tried = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
