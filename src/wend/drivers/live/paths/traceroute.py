"""One traceroute as a state machine: the next probe to send, the meaning of an answer, and the end.

A probe with TTL t expires at the t-th router, which answers with an ICMP error. All probes of a traceroute belong to
one flow (the same addresses and ports), as in Paris traceroute, so routers with several equal paths forward all of
them along the same path. The payload tells the probes apart. If a router quotes too little of a probe, its answer does
not show which probe it is for. Such an answer counts only if exactly one probe is in flight. After the first of them,
the traceroute has at most one probe in flight.

Otherwise several probes are in flight at once. Each hop gets a few probes; all hops get their first one before any
gets its second. Hops more than `gap` beyond the last one that answered get none: the path ends there or stays silent.
"""

from typing import Literal

import msgspec

from wend.model.units import MS, SECOND, Nanos

AnswerKind = Literal["router", "target", "unreachable", "nowhere"]
"""The sender of an answer: a router where the TTL expired, the target, a router without a route to it, or this host,
which has no route either."""


class TracerouteSettings(msgspec.Struct, frozen=True):
    """Limits and timeouts of a traceroute."""

    hops: int = 30
    tries: int = 3
    """Probes for each hop."""
    window: int = 8
    """Probes in flight at once."""
    gap: int = 6
    """Silent hops in a row after which further hops get no probes."""
    wait_ns: Nanos = SECOND
    """Timeout of an answer."""
    pace_ns: Nanos = 5 * MS
    """Interval between two probes: routers limit their answers to a burst."""


class TracerouteResult(msgspec.Struct, frozen=True):
    """The result of a traceroute."""

    hops: tuple[str | None, ...]
    """Routers between this host and the target, in order; None for a silent one."""
    reached: bool
    sent: int = 0
    answers: int = 0


class TracerouteSession:
    """A running traceroute: `next_probe` returns the probe to send, `on_answer` takes an answer, and `is_done` tells
    the end."""

    def __init__(self, settings: TracerouteSettings, now: Nanos) -> None:
        self._settings = settings
        self._window = settings.window
        self._routers: dict[int, str] = {}
        self._tries: dict[int, int] = {}
        self._hops: list[int] = []
        """The TTL of every probe, by its number; late answers count, too."""
        self._waiting: dict[int, Nanos] = {}
        """Probes in flight, with the end of their timeout."""
        self._end = settings.hops + 1
        """The first hop that is not a router of the path."""
        self._reached = False
        self._pace = now
        self._answers = 0

    # ---------------------------------------------------------------- sending

    def next_probe(self, now: Nanos) -> tuple[int, int] | None:
        """The probe to send now: its number and its TTL; None if there is none."""
        self._waiting = {number: until for number, until in self._waiting.items() if until > now}
        if now < self._pace or len(self._waiting) >= self._window:
            return None
        hop = self._next_hop()
        if hop is None:
            return None
        number = len(self._hops)
        self._hops.append(hop)
        self._tries[hop] = self._tries.get(hop, 0) + 1
        self._waiting[number] = now + self._settings.wait_ns
        self._pace = now + self._settings.pace_ns
        return number, hop

    def wake_ns(self, now: Nanos) -> Nanos:
        """When to call `next_probe` again, if no answer arrives before."""
        times = list(self._waiting.values())
        if len(times) < self._window and self._next_hop() is not None:
            times.append(self._pace)
        return max(now, min(times, default=now))

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def is_done(self) -> bool:
        """Whether the traceroute is complete. Call `next_probe` first: it removes probes whose timeout is over."""
        is_waiting = any(self._hops[number] < self._end for number in self._waiting)
        return not is_waiting and self._next_hop() is None

    @property
    def _is_end_known(self) -> bool:
        """Whether the end of the path is known."""
        return self._end <= self._settings.hops

    @property
    def _farthest(self) -> int:
        return max(self._routers, default=0)

    def _next_hop(self) -> int | None:
        """The hop of the next probe: the one with the fewest probes so far, and of those the nearest."""
        in_flight = {self._hops[number] for number in self._waiting}
        last = self._end - 1 if self._is_end_known else min(self._settings.hops, self._farthest + self._settings.gap)
        open_ = [
            hop
            for hop in range(1, last + 1)
            if hop not in self._routers and hop not in in_flight and self._tries.get(hop, 0) < self._settings.tries
        ]
        return min(open_, key=lambda hop: (self._tries.get(hop, 0), hop), default=None)

    # ---------------------------------------------------------------- answers

    def on_answer(self, number: int | None, kind: AnswerKind, router: str) -> bool:
        """Take an answer; `number` is None if it does not show its probe. Returns False for an impossible answer."""
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

    # ---------------------------------------------------------------- result

    def result(self) -> TracerouteResult:
        last = self._end - 1 if self._is_end_known else self._farthest
        hops = tuple(self._routers.get(hop) for hop in range(1, last + 1))
        return TracerouteResult(hops, self._reached, len(self._hops), self._answers)
