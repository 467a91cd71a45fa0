"""Reasons of missing deliveries: every expected delivery that did not arrive gets a reason.

A peer that gives up an event reports it, with the subscribers if it knows them. In some cases no peer knows: on trees,
no peer knows all subscribers of an event, and a peer that has just started knows none. This module sees the whole run
and finds the remaining reasons: the publisher did not know the subscriber, the event was still in transit at the end,
or it was lost with a peer that crashed or left. The rest is `unexplained`; tests check that it is empty.
"""

from collections import Counter
from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from wend.drivers.sim.engine import LEAVE_NS, Engine
from wend.model.events import EventId, PeerId
from wend.model.trace import TraceTable
from wend.model.units import SECOND, Nanos

UNDER_WAY = "under way at the end"
CRASHED = "lost with a peer that crashed"
LEFT = "lost with a peer that left"
REJOIN_NS: Nanos = 10 * SECOND
"""How long after its return a peer's subscriptions may be unknown to publishers."""
UNKNOWN = "not known to the publisher yet"
UNEXPLAINED = "unexplained"


def explain_missing(engine: Engine) -> Counter[str]:
    """Count the expected deliveries that did not arrive, by reason."""
    receivers = _receivers_by_event(engine.trace.deliveries)
    short = {
        id_: expected for id_, expected in engine.expected.items() if len(receivers.get(id_, ())) < len(expected[1])
    }
    if not short:
        return Counter()
    explanations = MissingDeliveries(engine, short)
    reasons: Counter[str] = Counter()
    for id_, (born, subscribers) in short.items():
        reached = receivers[id_].tolist() if id_ in receivers else ()
        missing = [subscriber for subscriber in subscribers if subscriber not in reached]
        reasons.update(explanations.explain(id_, born, missing))
    return reasons


class MissingDeliveries:
    """Finds out why events did not reach all their subscribers."""

    def __init__(self, engine: Engine, short: Container[EventId]) -> None:
        self._unknown = engine.unknown
        self._by_subscriber: dict[tuple[EventId, PeerId], str] = {}
        self._by_event: dict[EventId, str] = {}
        for _, _, publisher, incarnation, sequence, dest, reason in engine.trace.drops.rows():
            id_ = EventId(publisher, incarnation, sequence)
            if id_ in short:
                self._by_subscriber[id_, dest] = self._by_event[id_] = reason
        self._unfinished = {id_ for peer in engine.peers if peer is not None for id_ in peer.unfinished()}
        churn = list(engine.world.churn.outages())
        self._last_crash = max((start for _, start, _ in engine.world.peer_faults.outages()), default=-1)
        self._last_leave = max((start + LEAVE_NS for _, start, _ in churn), default=-1)
        self._returns = [(peer, until) for peer, _, until in churn]

    def explain(self, id_: EventId, born: Nanos, missing: list[PeerId]) -> list[str]:
        """The reason for each subscriber that did not get the event."""
        unknown = self._unknown.get(id_, ())
        other = UNDER_WAY if id_ in self._unfinished else self._by_event.get(id_) or self._explain_loss(born)
        return [
            self._by_subscriber.get((id_, subscriber))
            or (UNKNOWN if subscriber in unknown or self._is_new(subscriber, born) else other)
            for subscriber in missing
        ]

    def _is_new(self, subscriber: PeerId, born: Nanos) -> bool:
        """Whether a subscriber had just joined again when an event was published."""
        return any(peer == subscriber and until <= born < until + REJOIN_NS for peer, until in self._returns)

    def _explain_loss(self, born: Nanos) -> str:
        """The last possible reason: a peer crashed or left after the event was published."""
        if self._last_crash >= born:
            return CRASHED
        return LEFT if self._last_leave >= born else UNEXPLAINED


def _receivers_by_event(deliveries: TraceTable) -> dict[tuple[int, ...], NDArray[np.int64]]:
    """By delivered event: the subscribers that got it."""
    rows = deliveries.numbers(*EventId._fields, "subscriber")
    rows = rows[np.lexsort(rows[:, :3].T)]
    begins = np.flatnonzero((rows[1:, :3] != rows[:-1, :3]).any(axis=1)) + 1
    return {tuple(some[0, :3].tolist()): some[:, 3] for some in np.split(rows, begins) if len(some)}
