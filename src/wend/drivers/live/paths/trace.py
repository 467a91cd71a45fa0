"""One traceroute as a state machine: what to send next, what an answer means, when there is nothing more to learn.

A probe with a life of t hops ends at the t-th router, which says so. All probes of a trace belong to one flow (the same
addresses and ports), as Paris traceroute has it, so that routers which share their load among several ways send all of
them the same way. What tells them apart is in the payload. A router that quotes too little of a probe to show it
gives a nameless answer: it is believed where only one probe is under way, and from the first such answer on there is
never more than one.

Several probes are under way at a time, each hop is asked a few times, first all of them once. Hops that lie more than
`gap` beyond the last one that answered are not asked: the way ends, or is silent from there on.
"""

from typing import Literal

import msgspec

from wend.model.units import MS, SECOND, Nanos

Kind = Literal["router", "target", "unreachable", "nowhere"]
"""Who answers: a router at which the probe's life ended, the target, a router that knows no way to it, or this host,
whose own link does not lead there."""


class Settings(msgspec.Struct, frozen=True):
    hops: int = 30
    tries: int = 3
    """Probes for each hop."""
    window: int = 8
    """Probes under way at once."""
    gap: int = 6
    """Silent hops in a row after which no further ones are asked."""
    wait_ns: Nanos = SECOND
    """For an answer."""
    pace_ns: Nanos = 5 * MS
    """Between two probes: routers answer few of a burst."""


class Traced(msgspec.Struct, frozen=True):
    """What became of a trace."""

    hops: tuple[str | None, ...]
    """Routers between here and the target, in order; None where nobody answered."""
    reached: bool
    sent: int = 0
    answers: int = 0


class Trace:
    """`next` says what to send, `hear` takes an answer, until `done`."""

    def __init__(self, settings: Settings, now: Nanos) -> None:
        self._settings = settings
        self._window = settings.window
        self._routers: dict[int, str] = {}
        self._tries: dict[int, int] = {}
        self._hops: list[int] = []
        """Of every probe sent, by its number: a late answer is one too."""
        self._waiting: dict[int, Nanos] = {}
        """Probes that may still be answered in time, and until when."""
        self._end = settings.hops + 1
        """The first hop that is no router on the way."""
        self._reached = False
        self._pace = now
        self._answers = 0

    # ---------------------------------------------------------------- sending

    def next(self, now: Nanos) -> tuple[int, int] | None:
        """A probe to send now: its number and its life in hops."""
        self._waiting = {number: until for number, until in self._waiting.items() if until > now}
        if now < self._pace or len(self._waiting) >= self._window:
            return None
        hop = self._wanted()
        if hop is None:
            return None
        number = len(self._hops)
        self._hops.append(hop)
        self._tries[hop] = self._tries.get(hop, 0) + 1
        self._waiting[number] = now + self._settings.wait_ns
        self._pace = now + self._settings.pace_ns
        return number, hop

    def wake_ns(self, now: Nanos) -> Nanos:
        """When to look again, if nothing is heard before."""
        times = list(self._waiting.values())
        if len(times) < self._window and self._wanted() is not None:
            times.append(self._pace)
        return max(now, min(times, default=now))

    @property
    def done(self) -> bool:
        """Call `next` first: it forgets what is no longer waited for."""
        waited = any(self._hops[number] < self._end for number in self._waiting)
        return not waited and self._wanted() is None

    @property
    def _known(self) -> bool:
        """Whether it is known where the way ends."""
        return self._end <= self._settings.hops

    @property
    def _farthest(self) -> int:
        return max(self._routers, default=0)

    def _wanted(self) -> int | None:
        """The hop to ask next: the one asked least often, and of those the nearest."""
        asked = {self._hops[number] for number in self._waiting}
        last = self._end - 1 if self._known else min(self._settings.hops, self._farthest + self._settings.gap)
        open_ = [
            hop
            for hop in range(1, last + 1)
            if hop not in self._routers and hop not in asked and self._tries.get(hop, 0) < self._settings.tries
        ]
        return min(open_, key=lambda hop: (self._tries.get(hop, 0), hop), default=None)

    # ---------------------------------------------------------------- hearing

    def hear(self, number: int | None, kind: Kind, router: str) -> bool:
        """An answer to a probe, or, without a number, to one that cannot be told. False if it can be no answer."""
        if number is None:
            if len(self._waiting) != 1:
                self._window = 1
                return False
            number = next(iter(self._waiting))
        if not 0 <= number < len(self._hops):
            return False
        self._waiting.pop(number, None)
        self._answers += 1
        hop = self._hops[number]
        if kind in ("target", "nowhere"):
            self._stop(hop, reached=kind == "target")
        else:
            self._routers.setdefault(hop, router)
            if kind == "unreachable":
                self._stop(hop + 1, reached=False)
        return True

    def _stop(self, end: int, reached: bool) -> None:
        if end < self._end or (end == self._end and reached):
            self._end, self._reached = end, reached

    # ---------------------------------------------------------------- what is known

    def result(self) -> Traced:
        last = self._end - 1 if self._known else self._farthest
        hops = tuple(self._routers.get(hop) for hop in range(1, last + 1))
        return Traced(hops, self._reached, len(self._hops), self._answers)
