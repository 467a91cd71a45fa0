"""Writes records to the store, and holds effects back while the disk does not take one.

While a record cannot be stored, the peer sends no ACK, delivers nothing, and no receipt says `kept`. A sender that gets
no ACK sends again or takes another route. Timers and other messages go on. If too many effects wait, the writer refuses
events before the peer has seen them: their senders still have them, and the peer does not mistake the next attempt for
a duplicate.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from wend.drivers.live.clock import Clock, monotonic
from wend.drivers.live.counters import Counters, FailureCode
from wend.drivers.live.logs.peer_logs import LogWriteError
from wend.drivers.live.store.store import Store
from wend.model.events import EventId, PeerId
from wend.model.units import SECOND, Nanos
from wend.protocol.messages import Ack, Data, Fragment
from wend.protocol.ports import Deliver, Effect, Input, Persist, Received, Send, SendEach
from wend.protocol.records import QueuedRecord, StateRecord

log = logging.getLogger("wend.peer")

RETRY_S = 0.1
MAX_HELD = 10_000
"""The most records and deliveries that wait for the disk. Events that were accepted earlier may add a few."""


class StoreWriter:
    def __init__(
        self,
        peer: PeerId,
        store: Store | None,
        deliver_late: Callable[[Deliver, Nanos], None],
        failed: Callable[[FailureCode, Effect], None],
        counters: Counters,
        clock: Clock = monotonic,
    ) -> None:
        """`deliver_late` takes a delivery that was held back, and how long it has waited."""
        self._peer = peer
        self._store = store
        self._deliver_late = deliver_late
        self._failed = failed
        self._counters = counters
        self._clock = clock
        self.held: deque[tuple[Persist | Deliver, Nanos]] = deque()
        """Effects that wait for the disk, oldest first, each with the time when it came. While there are any, ask
        `hold_back` about each new effect."""
        self.queued: EventId | None = None
        """The event that was last stored for durable subscriptions here, or in a log."""
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def has_stored_all(self) -> bool:
        """Whether all records so far survive a crash."""
        return self._store is not None and not self.held

    @property
    def is_full(self) -> bool:
        """Whether there is no room for the effects of another event."""
        return len(self.held) >= MAX_HELD

    def should_refuse(self, event: Input) -> bool:
        """Whether to refuse an input. Ask only while effects wait."""
        if isinstance(event, Received) and isinstance(event.message, Data | Fragment) and self.is_full:
            self._counters.refused["store-full"] += 1
            return True
        return False

    def write(self, effect: Persist) -> None:
        if self._store is None:
            return
        try:
            self._store.append(effect.record)
            if type(effect.record) is QueuedRecord:
                self.queued = effect.record.event.id
        except OSError as error:
            self._counters.failed["store-record"] += 1
            log.warning(
                "peer %d cannot write its store %s: %s; it acknowledges and delivers nothing, and tries again",
                self._peer, self._store.path, error.strerror or error,
            )  # fmt: skip
            self._hold(effect)
        except Exception:  # the record is not stored, for whatever reason
            self._failed("store-record", effect)
            self._hold(effect)

    def hold_for_log(self, effect: Deliver, error: OSError) -> None:
        """Hold a delivery to a log that cannot be written, and what follows."""
        self._counters.failed["log-record"] += 1
        log.warning(
            "peer %d cannot write the log %s: %s; it acknowledges and delivers nothing, and tries again",
            self._peer, error.filename, error.strerror,
        )  # fmt: skip
        self._hold(effect)

    def _hold(self, effect: Persist | Deliver) -> None:
        self.held.append((effect, self._clock()))
        self._retry_later()

    def hold_back(self, effect: Effect) -> bool:
        """Whether an effect is held back, or is dropped because its sender or a neighbour will repeat it."""
        if isinstance(effect, Send | SendEach):
            if isinstance(effect.message, Ack):
                self._counters.failed["withheld-ack"] += 1
                return True
        elif isinstance(effect, Persist | Deliver):
            if self.is_full and isinstance(effect, Persist) and isinstance(effect.record, StateRecord):
                # Neighbours send their state again to a peer that restarts.
                self._counters.failed["lost-state-record"] += 1
            else:
                self.held.append((effect, self._clock()))
            return True
        return False

    def close(self) -> None:
        """Try once more, then close the store."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._write_held()
        if self._store is not None:
            if self.held:
                log.error("peer %d stops without storing %d records and deliveries", self._peer, len(self.held))
            self._store.close()

    def _retry_later(self) -> None:
        if self._retry is None and not self._closed:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._write_held)

    def _write_held(self) -> None:
        """Carry out the effects that wait, in order, until the disk fails again."""
        self._retry = None
        began = self.held[0][1] if self.held else 0
        while self.held:
            effect, since = self.held[0]
            try:
                if isinstance(effect, Deliver):
                    self._deliver_late(effect, self._clock() - since)
                elif self._store is not None:
                    self._store.append(effect.record)
            except Exception as error:
                if isinstance(effect, Persist) or isinstance(error, LogWriteError):
                    log.debug("peer %d still cannot store: %s", self._peer, error)
                    self._retry_later()
                    return
                self._failed("carry-out-effect", effect)
            self.held.popleft()
        if began:
            log.warning("peer %d can write its store again, after %.1f s", self._peer, (self._clock() - began) / SECOND)
