"""The multicast test: whether a peer's multicast reaches all members of its cluster.

A peer cannot detect that alone. Each member multicasts a probe now and then, and reports in its heartbeats whether it
receives any multicast, and the members whose probes are missing (`mute`). The head combines these reports and announces
in its beacon whose multicast reaches all members. In a larger cluster each member sends fewer probes,
so the number of probes that a member receives does not grow with the cluster.

A peer's multicast counts as reaching all members only after the head has heard it. A new member does not hold the
others up: until its first reports are due, it counts as hearing.
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.clusters.membership.detector import beat_period
from wend.strategies.clusters.membership.messages import MAX_NAMED, MemberBeat

PROBES = 10
"""Probes of all members together in a detection time, at most."""
MISSED = 5
"""Intervals without a probe after which a member counts as mute."""
DEAF = 6
"""Detection times without any multicast after which a member hears none."""


class MulticastTest:
    """Collects the reports of received multicasts, and the head's verdict on them."""

    def __init__(self, me: PeerId, detection_ns: Nanos) -> None:
        self._me = me
        self._detection_ns = detection_ns
        self._heard_ns: dict[PeerId, Nanos] = {}
        """When this peer last heard the multicast of each member."""
        self._others: dict[PeerId, Nanos] = {}
        """The time at which each other peer became a member."""
        self._mute: tuple[PeerId, ...] = ()
        self._mute_ns: Nanos = 0
        """When to look again for members whose multicast does not come."""
        self._reports: dict[PeerId, MemberBeat] = {}
        """For the head: the last heartbeats."""
        self._reached_ns: Nanos | None = None
        """For the head: when a member last said that it hears the head's multicast."""
        self._next_ns: Nanos = 0
        self.works = False
        """Whether this peer's multicast reaches all members."""
        self._since_ns: Nanos = 0
        """Since when it does not reach all; if it never did, since when there are other members."""
        self._notice: bool | None = None
        """Whether this peer's multicast works, as last reported."""

    @property
    def _interval_ns(self) -> Nanos:
        """The time between two probes of this peer."""
        return self._detection_ns * max(PROBES, len(self._others) + 1) // PROBES

    @property
    def _horizon_ns(self) -> Nanos:
        """How long a member may stay unheard before it counts as mute."""
        return self._interval_ns * MISSED + self._detection_ns

    def set_members(self, now: Nanos, members: Iterable[PeerId]) -> None:
        others = [peer for peer in members if peer != self._me]
        if others and not self._others:
            self._next_ns = now
            self._since_ns = now
        self._others = {peer: self._others.get(peer, now) for peer in others}
        self._heard_ns = {peer: when for peer, when in self._heard_ns.items() if peer in self._others}
        self._reports = {peer: beat for peer, beat in self._reports.items() if peer in self._others}
        if not others:
            self.works = False

    def is_probe_due(self, now: Nanos) -> bool:
        """Whether this peer multicasts a probe now."""
        if not self._others or now < self._next_ns:
            return False
        self._next_ns = now + (self._interval_ns if self.works else min(self._interval_ns, 2 * self._detection_ns))
        return True

    def record_multicast(self, now: Nanos, sender: PeerId) -> None:
        """Record a member's multicast."""
        if sender in self._others:
            self._heard_ns[sender] = now

    def hears_from(self, now: Nanos, peer: PeerId) -> bool:
        """Whether a multicast of the member arrived in the last heartbeat periods."""
        return now - self._heard_ns.get(peer, now - self._detection_ns) < beat_period(self._detection_ns) * 8 // 5

    def hears(self, now: Nanos) -> bool:
        return any(now - when < DEAF * self._detection_ns for when in self._heard_ns.values())

    def mute_members(self, now: Nanos) -> tuple[PeerId, ...]:
        if now >= self._mute_ns:
            self._mute_ns, horizon = now + self._detection_ns, now - self._horizon_ns
            others = self._others.items() if self.hears(now) else ()  # else `hears` reports it
            silent = [peer for peer, since in others if max(since, self._heard_ns.get(peer, since)) < horizon]
            self._mute = tuple(silent[:MAX_NAMED])
        return self._mute

    def record_report(self, now: Nanos, sender: PeerId, beat: MemberBeat) -> None:
        if sender in self._others:
            self._reports[sender] = beat
            if beat.hears_head:
                self._reached_ns = now

    def forget_reports(self) -> None:
        """Drop the reports, because another peer is the head."""
        self._reports = {}
        self._reached_ns = None

    def reaches(self, peer: PeerId) -> bool:
        """Whether a member said last that it hears the multicast of this peer, which is the head."""
        beat = self._reports.get(peer)
        return beat is not None and beat.hears_head

    def verdict(self, now: Nanos) -> tuple[bool, tuple[PeerId, ...]]:
        """Whether multicast works in this cluster, and for which members it does not."""
        due = now - 2 * self._detection_ns
        hearing = [self._is_heard(peer, since < due) for peer, since in self._others.items()]
        if not any(beat.hears for beat in self._reports.values()) or not all(hearing):
            return False, ()
        horizon = now - self._horizon_ns
        mute = {peer for peer in self._others if self._heard_ns.get(peer, horizon) <= horizon}
        if self._reached_ns is None or self._reached_ns <= horizon:
            mute.add(self._me)
        for beat in self._reports.values():
            mute.update(peer for peer in beat.mute if peer in self._others or peer == self._me)
        return (True, tuple(sorted(mute))) if len(mute) <= MAX_NAMED else (False, ())

    def _is_heard(self, peer: PeerId, due: bool) -> bool:
        beat = self._reports.get(peer)
        return beat.hears if beat is not None and due else not due

    def adopt_verdict(self, now: Nanos, works: bool, mute: Iterable[PeerId]) -> bool | None:
        """Adopt the head's verdict. Returns whether this peer's multicast works if it is time to report it, else
        None."""
        before, self.works = self.works, bool(self._others) and works and self._me not in mute
        if before and not self.works:
            self._since_ns = now
        is_settled = self.works or (bool(self._others) and now - self._since_ns >= self._horizon_ns)
        if is_settled and self.works != self._notice:
            self._notice = self.works
            return self.works
        return None
