"""Reasons of missing deliveries: every expected delivery that did not arrive gets a reason.

A peer that gives up reports it, by event and, if it knows them, by subscriber. In some cases no peer can know: on trees
no peer knows all subscribers of an event, and a peer that has just started knows no other. This module, which sees the
whole run, finds the remaining reasons: the publisher did not know the subscriber, the event was still in transit at the
end, or it was lost with a peer that crashed or left. The rest is `unexplained`; tests check that there is none.
"""

from collections import Counter

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
    came = _receivers(engine.trace.deliveries)
    short = {id_: told for id_, told in engine.expected.items() if len(came.get(id_, ())) < len(told[1])}
    if not short:
        return Counter()
    by_name: dict[tuple[EventId, PeerId], str] = {}
    by_event: dict[EventId, str] = {}
    for _, _, publisher, incarnation, sequence, dest, reason in engine.trace.drops.rows():
        id_ = EventId(publisher, incarnation, sequence)
        if id_ in short:
            by_name[id_, dest] = by_event[id_] = reason
    unfinished = _unfinished(engine)
    crashed = max((start for _, start, _ in engine.world.peer_faults.outages()), default=-1)
    left = max((start + LEAVE_NS for _, start, _ in engine.world.churn.outages()), default=-1)
    joined = [(peer, until) for peer, _, until in engine.world.churn.outages()]
    found: Counter[str] = Counter()
    for id_, (born, subscribers) in short.items():
        rest = UNDER_WAY if id_ in unfinished else by_event.get(id_) or _gone(born, crashed, left)
        unknown = engine.unknown.get(id_, ())
        reached = came[id_].tolist() if id_ in came else ()
        for subscriber in (s for s in subscribers if s not in reached):
            new = any(peer == subscriber and until <= born < until + REJOIN_NS for peer, until in joined)
            found[by_name.get((id_, subscriber)) or (UNKNOWN if new or subscriber in unknown else rest)] += 1
    return found


def _receivers(deliveries: TraceTable) -> dict[tuple[int, ...], NDArray[np.int64]]:
    """By delivered event: the subscribers that got it."""
    rows = deliveries.numbers(*EventId._fields, "subscriber")
    rows = rows[np.lexsort(rows[:, :3].T)]
    begins = np.flatnonzero((rows[1:, :3] != rows[:-1, :3]).any(axis=1)) + 1
    return {tuple(some[0, :3].tolist()): some[:, 3] for some in np.split(rows, begins) if len(some)}


def _unfinished(engine: Engine) -> set[EventId]:
    """Events that some peer is still responsible for."""
    return set().union(*(peer.unfinished() for peer in engine.peers if peer is not None))


def _gone(born: Nanos, crashed: Nanos, left: Nanos) -> str:
    """The reason that is left for an event: a peer that crashed or left later, at these times at the latest."""
    if crashed >= born:
        return CRASHED
    return LEFT if left >= born else UNEXPLAINED
