"""`tdo-random`: every peer measures the way to a few others and links what lies on it (quist, section 5.2).

A peer that is asked to link another measures the path to it. If a neighbour lies on that path the request is passed on
to it, with the rest of the path, which needs no measurement; if the newcomer lies on the path to neighbours, these are
handed to it. Paths only ever get shorter this way, so it ends. Against the print: whoever gets an offer links if *no*
neighbour is nearer (5.7 has the branches swapped), requests for oneself or a neighbour are dropped, prefixes are
strict and go beyond one's own router (else two peers of one router pass a request to each other for ever), and an end
that withdraws tells the other.

`nearest` and `farthest` choose whom to join by round trip, of a sample that is larger by ten.
"""

from typing import ClassVar

from wend.model.events import PeerId
from wend.model.paths import Path
from wend.model.units import Nanos
from wend.protocol.config import PeerConfig
from wend.protocol.membership.handshake import LinkHandshake
from wend.protocol.membership.member import WARM
from wend.protocol.membership.messages import Join, MultiJoin, ProbePing, ProbePong, Unlinked
from wend.protocol.membership.paths import UNKNOWN, leads_through, rest

PATIENCE = 12
"""Periods after which a measurement is no longer waited for."""


class TdoRandom(LinkHandshake):
    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self.asked: set[PeerId] = set()
        self._tracing: dict[PeerId, tuple[int, int]] = {}
        """Peer -> since which round, and the number of its offer; 0 where it is a request."""

    # ---------------------------------------------------------------- joining

    def _seek(self, now: Nanos) -> None:
        for peer, (since, _) in sorted(self._tracing.items()):
            if self.round - since > PATIENCE:
                del self._tracing[peer]
        if self.round >= WARM:
            if not self.linked and not self._tracing and self.round % WARM == 0:
                self.asked.clear()  # nobody answered, or all have gone
            for peer in self._choose(now, self._settings.membership_k - len(self.asked)):
                self.asked.add(peer)
                if peer not in self.linked:
                    self._join(peer)

    def _choose(self, now: Nanos, count: int) -> list[PeerId]:
        return self._sampling.sample(max(0, count), frozenset(self.asked))

    def _joins(self, peer: PeerId, path: Path | None) -> None:
        if path is not None:
            self._match(peer, path)
        elif peer not in self._tracing:
            self._tracing[peer] = (self.round, 0)
            self._find_path(peer)

    def _offered(self, peer: PeerId, number: int, path: Path) -> None:
        known = peer in self._tracing
        self._tracing[peer] = (self.round, number)
        if not self._settings.trace_both_ends:
            self._found(peer, path)
        elif not known:
            self._find_path(peer)

    def _considering(self, peer: PeerId) -> bool:
        return peer in self._tracing

    def _found(self, peer: PeerId, path: Path | None) -> None:
        _, number = self._tracing.pop(peer, (0, -1))
        if number < 0 or peer in self.linked:
            return
        path = path or UNKNOWN
        if number == 0:
            self._match(peer, path)
        elif number > self._void.get(peer, 0):  # else withdrawn while it was measured
            self._consider(peer, number, path)

    def _heard_part(self, sender: PeerId, word: Unlinked) -> None:
        super()._heard_part(sender, word)
        _, number = self._tracing.get(sender, (0, 0))
        if 0 < number <= word.mine:
            del self._tracing[sender]

    # ---------------------------------------------------------------- path matching

    def _match(self, peer: PeerId, path: Path) -> None:
        """Algorithm 5.6."""
        target = self._on_the_way(path)
        if target is not None:
            self._say(target, Join(peer, rest(path, self.linked[target].path)))
        else:
            self._offer(peer, path, self._hand_over(path))

    def _consider(self, peer: PeerId, number: int, path: Path) -> None:
        """Algorithm 5.7."""
        target = self._on_the_way(path)
        if target is not None:
            self._decline(peer, number)
            self._say(target, Join(peer, rest(path, self.linked[target].path)))
        else:
            behind = self._hand_over(path)
            self._accept(peer, path, number)
            if behind:
                self._say(peer, MultiJoin(behind))

    def _on_the_way(self, path: Path) -> PeerId | None:
        """The last neighbour that the path passes; the lowest, where several share its router."""
        found = [peer for peer, link in self.linked.items() if _passes(path, link.path)]
        return min(found, key=lambda peer: (-len(self.linked[peer].path), peer), default=None)

    def _hand_over(self, path: Path) -> tuple[tuple[PeerId, Path], ...]:
        """Part from the neighbours behind the end of the path; they are its peer's to link."""
        behind = [peer for peer in sorted(self.linked) if _passes(self.linked[peer].path, path)]
        paths = tuple((peer, rest(self.linked[peer].path, path)) for peer in behind)
        for peer in behind:
            self._part(peer)
        return paths


def _passes(path: Path, begin: Path) -> bool:
    """Whether a path leaves this peer's router and passes the end of another on its way."""
    return len(begin) > 1 and leads_through(begin, path)


class Nearest(TdoRandom):
    """Joins those of a sample to whom the round trip is shortest."""

    sign: ClassVar[int] = 1

    def __init__(self, config: PeerConfig) -> None:
        super().__init__(config)
        self._pinged: dict[PeerId, Nanos] = {}
        self._trips: dict[PeerId, Nanos] = {}

    def _choose(self, now: Nanos, count: int) -> list[PeerId]:
        if count <= 0:
            return []
        room = self._settings.membership_k + self._settings.membership_sample - len(self._pinged)
        for peer in self._sampling.sample(max(0, room), frozenset(self._pinged)):
            self._pinged[peer] = now
            self._say(peer, ProbePing(self.round))
        if self.round < 2 * WARM:  # let answers come in before choosing
            return []
        known = [peer for peer in self._trips if peer not in self.asked]
        best = sorted(known, key=lambda peer: (self.sign * self._trips[peer], peer))[:count]
        if not best and not self.linked and self.round % WARM == 0:  # nobody of them answers any more
            self._pinged.clear()
            self._trips.clear()
        return best

    def _pong(self, now: Nanos, sender: PeerId, word: ProbePong) -> None:
        sent = self._pinged.get(sender)
        if sent is not None and sender not in self._trips:
            self._trips[sender] = now - sent


class Farthest(Nearest):
    """Joins those to whom it is longest; the thesis's counter-example."""

    sign: ClassVar[int] = -1
