"""Records on their way to the store, and what waits behind one that the disk does not take.

While a record is not stored, nothing behind it is promised: no ACK, no delivery, no receipt as kept. A sender that gets
no ACK sends again or takes another way. Timers and what goes out go on. When as much waits as may, events are refused
before the peer has seen them, so that it cannot take for a repetition what it never had: their senders keep them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from wend.drivers.live.counters import Counters
from wend.drivers.live.store import Store
from wend.model.events import PeerId
from wend.protocol import ports
from wend.protocol.messages import Ack, Data, Fragment
from wend.protocol.ports import Deliver, Effect, Input, Received, Send
from wend.protocol.records import StateRecord

log = logging.getLogger("wend.peer")

STORE_AGAIN_S = 0.1
MAX_HELD = 10_000
"""Records and deliveries that wait for a store that cannot be written; an event that was let in may bring some more."""


class StoreWriter:
    def __init__(
        self,
        peer: PeerId,
        store: Store | None,
        deliver: Callable[[Deliver], None],
        failed: Callable[[str, Effect], None],
        counters: Counters,
    ) -> None:
        self._peer = peer
        self._store = store
        self._deliver = deliver
        self._failed = failed
        self._counters = counters
        self.held: deque[ports.Persist | Deliver] = deque()
        """While something is in it, every effect must be asked whether it `must_wait`."""
        self._again: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def safe(self) -> bool:
        """Whether what is written survives a crash."""
        return self._store is not None and not self.held

    @property
    def full(self) -> bool:
        """Whether what an event brings would have no room to wait."""
        return len(self.held) >= MAX_HELD

    def refuses(self, event: Input) -> bool:
        """To be asked while something is held."""
        if isinstance(event, Received) and isinstance(event.message, Data | Fragment) and self.full:
            self._counters.refused["no room to store"] += 1
            return True
        return False

    def write(self, effect: ports.Persist) -> None:
        if self._store is None:
            return
        try:
            self._store.append(effect.record)
        except Exception:  # whatever it was, the record is not stored
            self._failed("carry out", effect)
            self.held.append(effect)
            self._try_later()

    def must_wait(self, effect: Effect) -> bool:
        if isinstance(effect, Send):
            if isinstance(effect.message, Ack):
                self._counters.failed["withheld ACK"] += 1
                return True
        elif isinstance(effect, ports.Persist | Deliver):
            if self.full and isinstance(effect, ports.Persist) and isinstance(effect.record, StateRecord):
                # Neighbours tell it again to one who restarts.
                self._counters.failed["lost Learned"] += 1
            else:
                self.held.append(effect)
            return True
        return False

    def close(self) -> None:
        """With a last attempt."""
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        self._store_again()
        if self._store is not None:
            self._store.close()

    def _try_later(self) -> None:
        if self._again is None and not self._closed:
            self._again = asyncio.get_running_loop().call_later(STORE_AGAIN_S, self._store_again)

    def _store_again(self) -> None:
        """What was held, in its order, as far as the disk takes it."""
        self._again = None
        while self.held:
            effect = self.held[0]
            try:
                if isinstance(effect, Deliver):
                    self._deliver(effect)
                elif self._store is not None:
                    self._store.append(effect.record)
            except Exception as error:
                if isinstance(effect, ports.Persist):
                    log.info("peer %d still cannot store: %s", self._peer, error)
                    self._try_later()
                    return
                self._failed("carry out", effect)
            self.held.popleft()
