"""The multicast test: whether a peer's multicast reaches all members of its cluster.

A peer cannot hear that itself. Each member multicasts a probe now and then, and says in its heartbeats whether it hears
any multicast, and which members it does not hear although they have had time (`mute`). The head puts this together and
says in its beacon whose multicast reaches all. The more members there are, the rarer are the probes, so what a member
receives of them does not grow with the cluster.

Nobody counts as reaching all others before the head has heard its multicast. A member that has just joined does not
stop the others: until its first reports are due, it counts as hearing.
"""

from collections.abc import Iterable

from wend.model.events import PeerId
from wend.model.units import Nanos
from wend.strategies.clusters.membership.detector import beat_period
from wend.strategies.clusters.membership.messages import MOST_NAMED, MemberBeat

PROBES = 10
"""Probes of all members together in a detection time, at most."""
MISSED = 5
"""Intervals without a probe, after which a member counts as mute."""
DEAF = 6
"""Detection times without any multicast, after which a member hears none."""


class MulticastTest:
    def __init__(self, me: PeerId, detection: Nanos) -> None:
        self._me = me
        self._detection = detection
        self._heard: dict[PeerId, Nanos] = {}
        """When this peer last heard the multicast of each member."""
        self._known: dict[PeerId, Nanos] = {}
        """Since when each other is a member."""
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
        """Since when it does not, or since when there are other members."""
        self._said: bool | None = None

    @property
    def interval_ns(self) -> Nanos:
        return self._detection * max(PROBES, len(self._known) + 1) // PROBES

    @property
    def horizon_ns(self) -> Nanos:
        return self.interval_ns * MISSED + self._detection

    def set_members(self, now: Nanos, members: Iterable[PeerId]) -> None:
        others = [peer for peer in members if peer != self._me]
        if others and not self._known:
            self._next_ns = now
            self._since_ns = now
        self._known = {peer: self._known.get(peer, now) for peer in others}
        self._heard = {peer: when for peer, when in self._heard.items() if peer in self._known}
        self._reports = {peer: beat for peer, beat in self._reports.items() if peer in self._known}
        if not others:
            self.works = False

    def probes(self, now: Nanos) -> bool:
        """Whether this peer is to multicast a probe now."""
        if not self._known or now < self._next_ns:
            return False
        self._next_ns = now + (self.interval_ns if self.works else min(self.interval_ns, 2 * self._detection))
        return True

    def hear(self, now: Nanos, sender: PeerId) -> None:
        """A multicast arrived."""
        if sender in self._known:
            self._heard[sender] = now

    # ---------------------------------------------------------------- what a member reports

    def hears_from(self, now: Nanos, peer: PeerId) -> bool:
        """Whether the multicast of a member came in the last heartbeat periods."""
        return now - self._heard.get(peer, now - self._detection) < beat_period(self._detection) * 8 // 5

    def hears(self, now: Nanos) -> bool:
        return any(now - when < DEAF * self._detection for when in self._heard.values())

    def mute(self, now: Nanos) -> tuple[PeerId, ...]:
        if now >= self._mute_ns:
            self._mute_ns, horizon = now + self._detection, now - self.horizon_ns
            known = self._known.items() if self.hears(now) else ()  # else `hears` says it all
            silent = [peer for peer, since in known if max(since, self._heard.get(peer, since)) < horizon]
            self._mute = tuple(silent[:MOST_NAMED])
        return self._mute

    # ---------------------------------------------------------------- what the head makes of it

    def report(self, now: Nanos, sender: PeerId, beat: MemberBeat) -> None:
        if sender in self._known:
            self._reports[sender] = beat
            if beat.hears_head:
                self._reached_ns = now

    def forget_reports(self) -> None:
        """Another peer is the head."""
        self._reports = {}
        self._reached_ns = None

    def reaches(self, peer: PeerId) -> bool:
        """Whether a member hears the multicast of this peer, which is the head, as it said last."""
        beat = self._reports.get(peer)
        return beat is not None and beat.hears_head

    def verdict(self, now: Nanos) -> tuple[bool, tuple[PeerId, ...]]:
        """Whether multicast works in this cluster, and for which members it does not."""
        due = now - 2 * self._detection
        hearing = [self._hears(peer, since < due) for peer, since in self._known.items()]
        if not any(beat.hears for beat in self._reports.values()) or not all(hearing):
            return False, ()
        horizon = now - self.horizon_ns
        mute: dict[PeerId, None] = {peer: None for peer in self._known if self._heard.get(peer, horizon) <= horizon}
        if self._reached_ns is None or self._reached_ns <= horizon:
            mute[self._me] = None
        for beat in self._reports.values():
            mute.update(dict.fromkeys(peer for peer in beat.mute if peer in self._known or peer == self._me))
        return (True, tuple(sorted(mute))) if len(mute) <= MOST_NAMED else (False, ())

    def _hears(self, peer: PeerId, due: bool) -> bool:
        beat = self._reports.get(peer)
        return beat.hears if beat is not None and due else not due

    # ---------------------------------------------------------------- what the peer makes of the verdict

    def judge(self, now: Nanos, works: bool, mute: Iterable[PeerId]) -> bool | None:
        """Adopt the head's verdict. The answer is what to say of it now: that multicast works, or does not."""
        before, self.works = self.works, bool(self._known) and works and self._me not in mute
        if before and not self.works:
            self._since_ns = now
        settled = self.works or (bool(self._known) and now - self._since_ns >= self.horizon_ns)
        if settled and self.works != self._said:
            self._said = self.works
            return self.works
        return None
