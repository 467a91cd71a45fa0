"""Pauses before retries: when a peer tries the events for a destination again.

All events for a destination share its pause. The pause begins when an event finds no route, and ends when the
destination or a link returns. After the first pause the peer tries all waiting events. If one fails again, the pause
doubles, and one event goes ahead as a probe: the others follow when the destination acknowledges it, or when it has not
come back for a while. So a destination that is away for long, or for good, costs little.
"""

from collections.abc import Iterable
from enum import IntEnum

from wend.model.events import PeerId
from wend.model.units import SECOND, Nanos

FIRST_NS = SECOND
LONGEST_NS = 16 * SECOND
"""The longest pause. The pause of a destination doubles up to it."""
MEMORY_NS = 4 * SECOND
"""How long after its end a pause still counts: if an event fails then, the next pause is longer."""


class Permit(IntEnum):
    NONE = 0
    PROBE = 1
    ALL = 2


class _Pause:
    """The pause of one destination."""

    __slots__ = ("is_probed", "ns", "tried_ns", "until_ns")

    def __init__(self, now: Nanos) -> None:
        self.ns = FIRST_NS
        self.tried_ns = now
        """When an event last failed or went ahead."""
        self.until_ns = now + FIRST_NS
        """The end of the pause; if a probe is on its way, when it counts as delivered."""
        self.is_probed = False

    def permit(self, now: Nanos) -> Permit:
        if now < self.until_ns:
            return Permit.NONE
        return Permit.ALL if self.is_probed or self.ns == FIRST_NS else Permit.PROBE

    def probe(self, now: Nanos) -> None:
        self.is_probed = True
        self.tried_ns = now
        self.until_ns = now + FIRST_NS

    def fail(self, now: Nanos) -> None:
        self.tried_ns = now
        if self.is_probed or now >= self.until_ns:  # else it left before the pause began
            self.ns = min(2 * self.ns, LONGEST_NS)
            self.until_ns = now + self.ns
            self.is_probed = False

    def has_passed(self, now: Nanos) -> bool:
        return now >= self.until_ns + max(self.ns, MEMORY_NS) and self.permit(now) is Permit.ALL


class RetryPauses:
    """The destinations without a route, each with its pause."""

    __slots__ = ("_limit", "_pauses")

    def __init__(self, limit: int) -> None:
        """`limit`: the most pauses to remember. Beyond it, the oldest is forgotten."""
        self._limit = limit
        self._pauses: dict[PeerId, _Pause] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def fail(self, now: Nanos, dests: Iterable[PeerId]) -> None:
        """Begin or lengthen the pauses of destinations for which an event found no route."""
        for dest in dests:
            pause = self._pauses.get(dest)
            if pause is None or pause.has_passed(now):
                self._pauses.pop(dest, None)
                self._pauses[dest] = _Pause(now)
                if len(self._pauses) > self._limit:
                    self.end(next(iter(self._pauses)))
            else:
                pause.fail(now)

    def end(self, dest: PeerId) -> bool:
        """End the pause of a destination that can be reached. Return whether it had one."""
        return self._pauses.pop(dest, None) is not None

    def shorten(self, now: Nanos) -> None:
        """Allow another attempt at every destination, because a link has returned."""
        for dest, pause in list(self._pauses.items()):
            if pause.ns == FIRST_NS:
                del self._pauses[dest]
            else:
                pause.ns = 2 * FIRST_NS
                pause.until_ns = now
                pause.is_probed = False

    def permit(self, now: Nanos, dests: Iterable[PeerId]) -> Permit:
        """How many waiting events may be tried now: as many as the most reachable of their destinations permits."""
        pauses = [self._pauses.get(dest) for dest in dests]
        return max((Permit.ALL if pause is None else pause.permit(now) for pause in pauses), default=Permit.ALL)

    def probe(self, now: Nanos, dests: Iterable[PeerId]) -> None:
        """Note that one event goes ahead to destinations that permit a probe."""
        for dest in dests:
            pause = self._pauses.get(dest)
            if pause is not None and pause.permit(now) is Permit.PROBE:
                pause.probe(now)

    def may_try(self, now: Nanos, dest: PeerId) -> bool:
        """Whether a new event may be tried at once. In a long pause a few may, as probes."""
        pause = self._pauses.get(dest)
        if pause is None:
            return True
        if pause.ns == FIRST_NS or pause.permit(now) is Permit.ALL:
            if pause.has_passed(now):
                del self._pauses[dest]
            return True
        if now - pause.tried_ns < max(FIRST_NS, pause.ns // 4):
            return False
        pause.probe(now)
        return True

    def next_attempt(self, dests: Iterable[PeerId]) -> Nanos:
        """The earliest time at which an event for these destinations may be tried."""
        pauses = [self._pauses.get(dest) for dest in dests]
        return min((0 if pause is None else pause.until_ns for pause in pauses), default=0)
