"""What became of the deliveries that were expected and did not come: nothing is lost without a reason.

A peer that gives up says so, by event and, where it knows, by subscriber. Where nobody could know (on trees nobody
knows all who want an event, and who has just started knows nobody), the rest is found here, where all is seen: the
publisher had not heard of the subscriber, the event is still under way at the end, or it died with a peer that
crashed. What is left then is `unexplained`, and that there is nothing left is tested.
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from wend.drivers.sim.engine import Engine
from wend.model.events import EventId, PeerId
from wend.model.trace import TraceTable
from wend.model.units import Nanos

UNDER_WAY = "under way at the end"
CRASHED = "lost with a peer that crashed"
UNKNOWN = "not known to the publisher yet"
UNEXPLAINED = "unexplained"


def explain_missing(engine: Engine) -> Counter[str]:
    """Deliveries that were expected and did not come, by reason."""
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
    held = _held(engine)
    crashes = [start for _, start, _ in engine.world.peer_faults.outages()]
    found: Counter[str] = Counter()
    for id_, (born, subscribers) in short.items():
        rest = UNDER_WAY if id_ in held else by_event.get(id_) or _crashed(crashes, born) or UNEXPLAINED
        unknown = engine.unknown.get(id_, ())
        reached = came[id_].tolist() if id_ in came else ()
        for subscriber in (s for s in subscribers if s not in reached):
            found[by_name.get((id_, subscriber)) or (UNKNOWN if subscriber in unknown else rest)] += 1
    return found


def _receivers(deliveries: TraceTable) -> dict[tuple[int, ...], NDArray[np.int64]]:
    """Who got each event that anybody got."""
    rows = deliveries.numbers(*EventId._fields, "subscriber")
    rows = rows[np.lexsort(rows[:, :3].T)]
    begins = np.flatnonzero((rows[1:, :3] != rows[:-1, :3]).any(axis=1)) + 1
    return {tuple(some[0, :3].tolist()): some[:, 3] for some in np.split(rows, begins) if len(some)}


def _held(engine: Engine) -> set[EventId]:
    """Events that some peer still answers for."""
    return set().union(*(peer.unfinished() for peer in engine.peers if peer is not None))


def _crashed(crashes: list[Nanos], born: Nanos) -> str | None:
    return CRASHED if any(start >= born for start in crashes) else None
