"""The only recovery of the scheme (Figure 7): a child tells its parent of an event that the parent did not send it.

A coordinator whose cluster has an event from one tree waits for it on its own tree. It waits for the largest gap that
it has seen between the two. Then it tells its parent that it has the event. If the parent misses it, the parent fetches
it, and its cluster joins all trees again: its connections to its own parents may be down.
"""

from wend.model.events import EventId
from wend.model.units import Nanos
from wend.protocol.plugins import Timer
from wend.strategies.esposito.places import TreeId
from wend.strategies.ring.bounded import put_newest

LATE = "late"
MAX_EVENTS = 4096
"""How many events a coordinator waits for on a tree, and how many it remembers to measure gaps."""


class ExpectedEvents:
    """The events that came by one tree and are expected on another."""

    def __init__(self, first_gap_ns: Nanos) -> None:
        self._first_gap_ns = first_gap_ns
        self._gaps: dict[TreeId, Nanos] = {}
        """The largest time after which a tree brought an event that another one had brought."""
        self._first_ns: dict[tuple[str, EventId], Nanos] = {}
        """When the first tree brought an event."""
        self._due_ns: dict[tuple[TreeId, EventId], Nanos] = {}

    def record_first_arrival(self, now: Nanos, group: str, id_: EventId) -> None:
        """Record when the first tree brought an event."""
        if (group, id_) not in self._first_ns:
            put_newest(self._first_ns, (group, id_), now, MAX_EVENTS)

    def expect(self, now: Nanos, tree_id: TreeId, id_: EventId) -> Timer:
        gap_ns = self._gaps.get(tree_id, self._first_gap_ns)
        put_newest(self._due_ns, (tree_id, id_), now + gap_ns, MAX_EVENTS)
        return Timer(now + gap_ns + 1, LATE)

    def record_arrival(self, now: Nanos, tree_id: TreeId, id_: EventId, is_fetched: bool) -> None:
        """Record that a tree has brought an event. One that was fetched on this tree says nothing of its usual gap."""
        self._due_ns.pop((tree_id, id_), None)
        first_ns = self._first_ns.get((tree_id[0], id_))
        if first_ns is not None and not is_fetched:
            self._gaps[tree_id] = max(self._gaps.get(tree_id, self._first_gap_ns), now - first_ns)

    def pop_late(self, now: Nanos) -> list[tuple[TreeId, EventId]]:
        """Remove and return the events that did not come in time."""
        late = [key for key, due_ns in self._due_ns.items() if due_ns < now]
        for key in late:
            del self._due_ns[key]
        return late
